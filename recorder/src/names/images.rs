//! The files whose code is executed. Each is read once per session, for symbols and for the unwind tables of
//! handlers.
//!
//! A thread of low priority reads them (`reader.rs`). The drain sends requests ([`Images::want`],
//! [`Images::source`]) and polls for results ([`Images::take_loaded`]); it never blocks.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use memmap2::{Mmap, MmapMut};

use crate::{
    names::context_words::Words,
    names::debug_files::{self, DebugDirs, hex},
    names::dwarf::SourceFrame,
    names::elf::Head,
    names::intern::Origin,
    names::kernel::Kernel,
    names::reader::{Answer, Reader, Request, Source},
    names::symbols::Symbols,
    shared_memory::rows::RowsArena,
};

/// Key of an image in its session.
pub type ImageId = u32;

/// Anonymous executable memory, such as JIT-compiled code.
pub const ANONYMOUS: ImageId = 0;
/// JIT-compiled code that has names.
pub const JIT: ImageId = u32::MAX - 1;
/// Code of a JVM that is not a Java method.
pub const JVM: ImageId = u32::MAX - 2;
/// Code of unknown origin.
pub const UNKNOWN: ImageId = u32::MAX;

/// Limit of files that are open until they are read.
const MAX_OPEN: usize = 400;
/// Number of new files after which unused ones are removed.
const MANY: usize = 256;
/// Limit of cached addresses with lines per image.
const MAX_KNOWN: usize = 1 << 16;

enum State {
    Listed(Option<File>),
    Requested,
    Loaded,
}

/// One file, or the vDSO, or anonymous memory.
pub struct Image {
    /// The path in the program's file system.
    pub path: PathBuf,
    /// The name in frames.
    pub class: Arc<str>,
    /// Its program headers, if it is an ELF file that could be read.
    pub head: Head,
    /// Offset of its unwind table in the arena, 0 = none yet.
    pub rows_off: u64,
    /// Its functions, once they are read.
    pub symbols: Arc<Symbols>,
    /// The words by which its code finds variables of tracing libraries, once they are looked up.
    pub(crate) context_words: OnceLock<Words>,
    root: Option<PathBuf>,
    lines: ImageLines,
    state: State,
}

/// The source lines of an image that have been read.
#[derive(Default)]
struct ImageLines {
    /// The image has debug information.
    any: bool,
    /// By address; `None` while it is being looked up.
    frames: HashMap<u64, Option<Box<[SourceFrame]>>>,
    /// Addresses for the next batch.
    requested: Vec<u64>,
}

/// Identity of a file: device, inode, modification time in ns.
type FileKey = (u64, u64, i128);

/// All images of a session.
pub struct Images {
    list: HashMap<ImageId, Image>,
    last: ImageId,
    files: HashMap<FileKey, ImageId>,
    names: HashMap<PathBuf, ImageId>,
    vdso: Option<ImageId>,
    vdso_memory: Option<Arc<Mmap>>,
    open: usize,
    /// Number of images after the last removal.
    retained_count: usize,
    /// An unwind table did not fit into the arena.
    homeless: bool,
    /// A file was read since the last call of [`Images::take_read`].
    read: bool,
    pending: usize,
    /// Images with addresses to look up.
    line_requests: Vec<ImageId>,
    reader: Reader,
    /// Treats files as if they had no debug information, so that frames contain addresses.
    pub without_lines: bool,
    /// The kernel's functions.
    pub kernel: Kernel,
}

impl Images {
    /// Creates an empty list and starts the reading thread.
    pub fn new() -> Images {
        let mut images = Images {
            list: HashMap::new(),
            last: ANONYMOUS,
            files: HashMap::new(),
            names: HashMap::new(),
            vdso: None,
            vdso_memory: None,
            open: 0,
            retained_count: 0,
            homeless: false,
            read: false,
            pending: 0,
            line_requests: Vec::new(),
            reader: Reader::start(DebugDirs::default()),
            without_lines: false,
            kernel: Kernel::new(),
        };
        images.add_as(ANONYMOUS, PathBuf::from("[anon]"), Head::default(), State::Loaded);
        images
    }

    fn add(&mut self, path: PathBuf, head: Head, state: State) -> ImageId {
        self.last += 1;
        self.add_as(self.last, path, head, state)
    }

    fn add_as(&mut self, id: ImageId, path: PathBuf, head: Head, state: State) -> ImageId {
        let class = path.file_name().map_or_else(|| path.to_string_lossy(), |n| n.to_string_lossy());
        // JMC treats a class name that starts with a bracket as an array type and fails, so "[vdso]" loses
        // its brackets.
        let class = Arc::from(class.trim_start_matches('[').trim_end_matches(']'));
        let (symbols, lines) = (Arc::default(), ImageLines::default());
        self.list.insert(
            id,
            Image {
                path,
                class,
                head,
                rows_off: 0,
                symbols,
                context_words: OnceLock::new(),
                root: None,
                lines,
                state,
            },
        );
        id
    }

    /// Returns the CPU time of the reading thread, ns.
    pub fn reader_cpu_ns(&self) -> u64 {
        self.reader.cpu_ns()
    }

    /// Returns an image by its key.
    pub fn get(&self, id: ImageId) -> &Image {
        self.list.get(&id).unwrap_or_else(|| &self.list[&ANONYMOUS])
    }

    /// Returns the image of a mapped file. `root` is a `/proc/<pid>/root` under which to look first.
    /// `expected` (device and inode) and `build_id`, if known, exclude another file of the same name.
    pub fn image_for_file(
        &mut self,
        path: &Path,
        root: Option<&Path>,
        expected: Option<(u64, u64)>,
        build_id: &[u8],
    ) -> ImageId {
        let places = [root.map(|r| r.join(path.strip_prefix("/").unwrap_or(path))), Some(path.to_owned())];
        for place in places.into_iter().flatten() {
            let Some((file, meta)) = debug_files::open(&place) else { continue };
            if expected.is_some_and(|e| e != (meta.dev(), meta.ino())) {
                continue;
            }
            let key = (
                meta.dev(),
                meta.ino(),
                i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            );
            if let Some(&id) = self.files.get(&key) {
                return id;
            }
            let Some(head) = Head::read(&file) else { continue };
            if !build_id.is_empty() && !head.build_id.is_empty() && head.build_id != build_id {
                continue;
            }
            let file = (self.open < MAX_OPEN).then_some(file);
            self.open += usize::from(file.is_some());
            let id = self.add(path.to_owned(), head, State::Listed(file));
            if let (Some(image), Some(root)) = (self.list.get_mut(&id), root) {
                image.root =
                    fs::read_link(root).ok().filter(|r| r != Path::new("/")).map(|_| root.to_owned());
            }
            self.files.insert(key, id);
            return id;
        }
        self.without_file(path)
    }

    /// Returns the image behind a `/proc/<pid>/map_files` link, which root may open.
    pub fn image_for_mapping(&mut self, link: &Path, path: &Path) -> Option<ImageId> {
        let (file, meta) = debug_files::open(link)?;
        let changed = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        let key = (meta.dev(), meta.ino(), changed);
        if let Some(&id) = self.files.get(&key) {
            return Some(id);
        }
        let head = Head::read(&file)?;
        // The file has no valid path, so it can only be read through this descriptor.
        self.open += 1;
        let id = self.add(path.to_owned(), head, State::Listed(Some(file)));
        self.files.insert(key, id);
        Some(id)
    }

    /// Returns an image of which only the name is known.
    pub fn without_file(&mut self, path: &Path) -> ImageId {
        if let Some(&id) = self.names.get(path) {
            return id;
        }
        let id = self.add(path.to_owned(), Head::default(), State::Loaded);
        self.names.insert(path.to_owned(), id);
        id
    }

    /// Returns the vDSO, read from this process's memory. It is the same in all processes of a kernel.
    pub fn vdso(&mut self) -> ImageId {
        if let Some(id) = self.vdso {
            return id;
        }
        let memory = own_vdso();
        let state = if memory.is_some() { State::Listed(None) } else { State::Loaded };
        self.vdso_memory = memory.map(Arc::new);
        let id = self.add(PathBuf::from("[vdso]"), Head::default(), state);
        self.vdso = Some(id);
        id
    }

    /// Returns true if a file was read since the last call, and none is being read now.
    pub fn take_read(&mut self) -> bool {
        self.outstanding() == 0 && std::mem::take(&mut self.read)
    }

    /// Returns the numbers of known files and of cached lines.
    pub fn counts(&self) -> [usize; 2] {
        [self.list.len(), self.list.values().map(|image| image.lines.frames.len()).sum()]
    }

    /// Returns true if there are enough new files, or too many unwind tables, to remove the unused ones.
    pub fn many(&mut self) -> bool {
        std::mem::take(&mut self.homeless) || self.list.len() > self.retained_count + MANY
    }

    /// Removes the files that are not `needed`, and their unwind tables. Their keys are not reused.
    pub fn keep(&mut self, needed: &HashSet<ImageId>, arena: &mut RowsArena) {
        let vdso = self.vdso;
        let goes = |id: &ImageId, image: &Image| {
            let in_use = *id == ANONYMOUS || vdso == Some(*id) || needed.contains(id);
            !in_use && !matches!(image.state, State::Requested)
        };
        for (id, image) in self.list.extract_if(|id, image| goes(id, image)) {
            arena.remove(image.rows_off);
            self.open -= usize::from(matches!(image.state, State::Listed(Some(_))));
            self.reader.forget(id);
        }
        self.files.retain(|_, id| self.list.contains_key(id));
        self.names.retain(|_, id| self.list.contains_key(id));
        self.retained_count = self.list.len();
    }

    /// Requests an image's symbols and unwind table. Returns true if they are already loaded.
    pub fn want(&mut self, id: ImageId) -> bool {
        let Some(image) = self.list.get_mut(&id) else { return true };
        let file = match &mut image.state {
            State::Loaded => return true,
            State::Requested => return false,
            State::Listed(file) => file.take(),
        };
        let source = if self.vdso == Some(id) {
            self.vdso_memory.clone().map(Source::Memory)
        } else {
            if file.is_some() {
                self.open = self.open.saturating_sub(1);
            }
            file.or_else(|| debug_files::open(&image.path).map(|(file, _)| file)).map(Source::File)
        };
        let Some(source) = source else {
            image.state = State::Loaded;
            return true;
        };
        let (path, root) = (image.path.clone(), image.root.clone());
        if self.reader.ask(Request::Load { id, path, root, source }) {
            image.state = State::Requested;
            self.pending += 1;
            false
        } else {
            image.state = State::Loaded;
            true
        }
    }

    /// Returns the functions at a file address of a loaded image from its debug information, innermost first;
    /// empty if it has none. `None` while the address is being looked up.
    pub fn source(&mut self, id: ImageId, address: u64) -> Option<&[SourceFrame]> {
        let Some(image) = self.list.get_mut(&id).filter(|i| i.lines.any) else { return Some(&[]) };
        let known = &mut image.lines;
        if known.frames.len() >= MAX_KNOWN && known.frames.values().all(Option::is_some) {
            known.frames = HashMap::new();
        }
        let frames = known.frames.entry(address).or_insert_with(|| {
            if known.requested.is_empty() {
                self.line_requests.push(id);
            }
            known.requested.push(address);
            None
        });
        frames.as_deref()
    }

    /// Sends the addresses requested since the last call.
    fn request_addresses(&mut self) {
        for id in std::mem::take(&mut self.line_requests) {
            let Some(image) = self.list.get_mut(&id) else { continue };
            let addresses = std::mem::take(&mut image.lines.requested);
            if self.reader.ask(Request::Source { id, addresses }) {
                self.pending += 1;
            } else {
                image.lines = ImageLines::default();
            }
        }
    }

    /// Adds what the reader has read, waiting for it at most `wait`. Returns true if there was anything.
    pub fn take_loaded(&mut self, arena: &mut RowsArena, wait: Duration) -> bool {
        self.request_addresses();
        if self.pending == 0 && self.kernel.reading() && !wait.is_zero() {
            std::thread::sleep(wait.min(Duration::from_millis(2)));
        }
        let mut any = self.kernel.take_read();
        self.read |= any;
        while self.pending > 0 {
            let wait = if any { Duration::ZERO } else { wait };
            let Some(answer) = self.reader.answer(wait) else { break };
            if let Answer::Rows { id, rows } = answer {
                if let Some(image) = self.list.get_mut(&id) {
                    image.rows_off = arena.store(&rows, id).unwrap_or(0);
                    self.homeless |= image.rows_off == 0 && arena.takes();
                }
                continue;
            }
            self.pending -= 1;
            any = true;
            self.read = true;
            match answer {
                Answer::Rows { .. } => {}
                Answer::Loaded { id, symbols, lines } => {
                    let Some(image) = self.list.get_mut(&id) else { continue };
                    image.symbols = Arc::new(symbols);
                    image.lines.any = lines && !self.without_lines;
                    image.state = State::Loaded;
                }
                Answer::Source { id, frames } => {
                    let Some(image) = self.list.get_mut(&id) else { continue };
                    image.lines.frames.extend(frames.into_iter().map(|(address, f)| (address, Some(f))));
                }
            }
        }
        any
    }

    /// Returns the number of pending requests.
    pub fn outstanding(&self) -> usize {
        self.pending + self.line_requests.len() + usize::from(self.kernel.reading())
    }
}

impl Image {
    /// Returns true if it is a readable file with code, or the vDSO.
    pub fn has_code(&self) -> bool {
        !self.head.segments.is_empty() || *self.class == *"vdso"
    }

    /// Returns true if it has debug information; known once it is loaded.
    pub fn has_lines(&self) -> bool {
        self.lines.any
    }

    /// Returns the description of the file in the recording.
    pub fn origin(&self) -> Origin {
        let path = if self.path.is_absolute() { self.path.to_string_lossy() } else { Default::default() };
        Origin { class: self.class.clone(), path: path.into(), build_id: hex(&self.head.build_id).into() }
    }
}

/// Copies this process's vDSO.
fn own_vdso() -> Option<Mmap> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(rest.split(' ').next()?, 16).ok()?;
    let len = end.checked_sub(start)?;
    let mut copy = MmapMut::map_anon(len).ok()?;
    // SAFETY: the kernel maps the vDSO readable at start..end for the whole life of the process.
    let vdso = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
    copy.copy_from_slice(vdso);
    copy.make_read_only().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::Session, settings::Settings};

    #[test]
    fn own_program_and_vdso_are_read_once() {
        let mut session = Session::create(&Settings::default()).unwrap();
        let mut images = Images::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let id = images.image_for_file(&exe, None, None, &[]);
        assert_eq!(images.image_for_file(&exe, Some(Path::new("/proc/self/root")), None, &[]), id);
        let vdso = images.vdso();
        assert!(!images.want(id) && !images.want(id) && !images.want(vdso));
        while images.outstanding() > 0 {
            images.take_loaded(session.rows(), Duration::from_secs(20));
        }
        assert!(images.want(id));
        assert!(images.get(id).symbols.bytes() > 10_000);
        let (names, address) = (images.get(vdso).symbols.clone(), 0);
        assert!(names.bytes() > 0 && !names.find(address).named());
    }

    #[test]
    fn unreferenced_files_are_forgotten() {
        let mut session = Session::create(&Settings::default()).unwrap();
        let mut images = Images::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let (own, vdso) = (images.image_for_file(&exe, None, None, &[]), images.vdso());
        let others: Vec<ImageId> =
            (0..1000).map(|i| images.without_file(&PathBuf::from(format!("/gone/{i}.so")))).collect();
        assert!(images.many());
        images.keep(&HashSet::from([own, others[7]]), session.rows());
        assert!(!images.many() && images.list.len() == 4, "{}", images.list.len());
        assert_eq!(images.get(others[7]).path, Path::new("/gone/7.so"));
        assert_eq!(images.get(others[8]).path, images.get(ANONYMOUS).path);
        assert_eq!((images.image_for_file(&exe, None, None, &[]), images.vdso()), (own, vdso));
        assert_eq!(images.without_file(Path::new("/gone/7.so")), others[7]);
        assert!(!others.contains(&images.without_file(Path::new("/gone/8.so"))), "a number means one file");
        images.keep(&HashSet::new(), session.rows());
        assert_eq!((images.open, images.list.len()), (0, 2));
    }

    #[test]
    fn another_file_with_the_same_name_is_rejected() {
        let mut images = Images::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let nameless = images.image_for_file(&exe, None, Some((1, 1)), &[]);
        assert!(images.get(nameless).head.segments.is_empty());
        assert!(images.want(nameless), "nothing to read");
        assert_ne!(images.image_for_file(&exe, None, None, &[]), nameless);
        assert_eq!(
            images.image_for_file(Path::new("/nonexistent/x.so"), None, None, &[]),
            images.without_file(Path::new("/nonexistent/x.so"))
        );
    }
}
