//! The distinct files whose code is executed, each read once per session: symbols for us, unwind rows for handlers.
//!
//! Reading is done by a thread of low priority; the drain asks ([`Images::want`]) and looks whether something came
//! back ([`Images::take_loaded`]), it never waits.

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use memmap2::{Mmap, MmapMut};

use crate::{elf::Head, rows, session::RowsArena, symbols::Symbols};

/// Number of an image within its session.
pub type ImageId = u32;

/// Code that belongs to no file: made at run time.
pub const ANONYMOUS: ImageId = 0;

/// Files kept open between being listed and being read.
const MAX_OPEN: usize = 400;

enum State {
    Listed(Option<File>),
    Asked,
    Loaded,
}

/// One file, or the vDSO, or code of no file.
pub struct Image {
    /// Where the program has it from.
    pub path: PathBuf,
    /// Its name in frames.
    pub class: Arc<str>,
    /// Its program headers, if it is an ELF file that could be read.
    pub head: Head,
    /// Offset of its rows in the arena, 0 = none yet.
    pub rows_off: u64,
    /// Its functions, once read.
    pub symbols: Arc<Symbols>,
    state: State,
}

/// Identity of a file: device, inode, time of change in ns.
type FileKey = (u64, u64, i128);

struct Request {
    id: ImageId,
    path: PathBuf,
    source: Source,
}

enum Source {
    File(File),
    Memory(Arc<Mmap>),
}

struct Loaded {
    id: ImageId,
    symbols: Symbols,
    rows: Option<Vec<u8>>,
}

/// All images of a session.
pub struct Images {
    list: Vec<Image>,
    files: HashMap<FileKey, ImageId>,
    names: HashMap<PathBuf, ImageId>,
    vdso: Option<ImageId>,
    vdso_memory: Option<Arc<Mmap>>,
    open: usize,
    asked: usize,
    ask: Sender<Request>,
    answers: Receiver<Loaded>,
}

impl Images {
    /// An empty list and its reading thread.
    pub fn new() -> Images {
        let (ask, requests) = unbounded::<Request>();
        let (answer, answers) = unbounded();
        // Without the thread (process limit reached) answers never come and frames stay offsets.
        let _ = thread::Builder::new().name("fl-symbols".into()).spawn(move || {
            lower_priority();
            for request in requests {
                if answer.send(load(request)).is_err() {
                    break;
                }
            }
        });
        let mut images = Images {
            list: Vec::new(),
            files: HashMap::new(),
            names: HashMap::new(),
            vdso: None,
            vdso_memory: None,
            open: 0,
            asked: 0,
            ask,
            answers,
        };
        images.add(PathBuf::from("[anon]"), Head::default(), State::Loaded);
        images
    }

    fn add(&mut self, path: PathBuf, head: Head, state: State) -> ImageId {
        let class = path.file_name().map_or_else(|| path.to_string_lossy(), |n| n.to_string_lossy());
        // JMC takes a class name that starts with a bracket for an array type and fails: no "[vdso]".
        let class = Arc::from(class.trim_start_matches('[').trim_end_matches(']'));
        let id = self.list.len() as ImageId;
        self.list.push(Image { path, class, head, rows_off: 0, symbols: Arc::default(), state });
        id
    }

    /// One of the ids given out.
    pub fn get(&self, id: ImageId) -> &Image {
        self.list.get(id as usize).unwrap_or(&self.list[ANONYMOUS as usize])
    }

    /// The image of a mapped file. `root` is a `/proc/<pid>/root` under which to look first; `expected` its device and
    /// inode, `build_id` its build id where known: another file of the same name is not taken for it.
    pub fn of_file(
        &mut self,
        path: &Path,
        root: Option<&Path>,
        expected: Option<(u64, u64)>,
        build_id: &[u8],
    ) -> ImageId {
        let places = [root.map(|r| r.join(path.strip_prefix("/").unwrap_or(path))), Some(path.to_owned())];
        for place in places.into_iter().flatten() {
            let Ok(file) = File::open(&place) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            if !meta.is_file() || expected.is_some_and(|e| e != (meta.dev(), meta.ino())) {
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
            self.open += 1;
            let file = (self.open <= MAX_OPEN).then_some(file);
            let id = self.add(path.to_owned(), head, State::Listed(file));
            self.files.insert(key, id);
            return id;
        }
        self.without_file(path)
    }

    /// An image of which only the name is known.
    pub fn without_file(&mut self, path: &Path) -> ImageId {
        if let Some(&id) = self.names.get(path) {
            return id;
        }
        let id = self.add(path.to_owned(), Head::default(), State::Loaded);
        self.names.insert(path.to_owned(), id);
        id
    }

    /// The vDSO, which is the same in all processes of a kernel: read from our own memory.
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

    /// Asks for an image's symbols and rows; `true` if they are there already.
    pub fn want(&mut self, id: ImageId) -> bool {
        let Some(image) = self.list.get_mut(id as usize) else { return true };
        let file = match &mut image.state {
            State::Loaded => return true,
            State::Asked => return false,
            State::Listed(file) => file.take(),
        };
        let source = if self.vdso == Some(id) {
            self.vdso_memory.clone().map(Source::Memory)
        } else {
            if file.is_some() {
                self.open = self.open.saturating_sub(1);
            }
            file.or_else(|| File::open(&image.path).ok()).map(Source::File)
        };
        let Some(source) = source else {
            image.state = State::Loaded;
            return true;
        };
        let request = Request { id, path: image.path.clone(), source };
        match self.ask.send(request) {
            Ok(()) => {
                image.state = State::Asked;
                self.asked += 1;
                false
            }
            Err(_) => {
                image.state = State::Loaded;
                true
            }
        }
    }

    /// Takes in what was read meanwhile, waiting for it at most `wait`. `true` if there was anything.
    pub fn take_loaded(&mut self, arena: &mut RowsArena, wait: Duration) -> bool {
        let mut any = false;
        while self.asked > 0 {
            let answer = if any || wait.is_zero() {
                self.answers.try_recv().ok()
            } else {
                self.answers.recv_timeout(wait).ok()
            };
            let Some(loaded) = answer else { break };
            self.asked -= 1;
            any = true;
            if let Some(image) = self.list.get_mut(loaded.id as usize) {
                image.symbols = Arc::new(loaded.symbols);
                image.rows_off = loaded.rows.and_then(|rows| arena.store(&rows)).unwrap_or(0);
                image.state = State::Loaded;
            }
        }
        any
    }

    /// Images being read.
    pub fn outstanding(&self) -> usize {
        self.asked
    }
}

fn load(request: Request) -> Loaded {
    let id = request.id;
    let map = match request.source {
        // SAFETY: a private read-only mapping. If the file is cut while it is mapped, reading ends in SIGBUS, which
        // our own processes turn into zeros (`sigbus.rs`); a file being executed cannot be written to.
        Source::File(file) => unsafe { Mmap::map(&file) }.ok().map(Arc::new),
        Source::Memory(map) => Some(map),
    };
    let Some(map) = map else { return Loaded { id, symbols: Symbols::default(), rows: None } };
    let rows = rows::build(&map).ok();
    Loaded { id, symbols: Symbols::read(&map, &request.path), rows }
}

/// Reading symbols may wait, draining rings may not.
fn lower_priority() {
    // SAFETY: no pointers; on Linux "process 0" is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
}

/// A copy of this process's vDSO.
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
    fn reads_own_program_and_vdso_once() {
        let mut session = Session::create(&Settings::default()).unwrap();
        let mut images = Images::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let id = images.of_file(&exe, None, None, &[]);
        assert_eq!(images.of_file(&exe, Some(Path::new("/proc/self/root")), None, &[]), id);
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
    fn another_file_of_the_same_name_is_not_taken() {
        let mut images = Images::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let nameless = images.of_file(&exe, None, Some((1, 1)), &[]);
        assert!(images.get(nameless).head.segments.is_empty());
        assert!(images.want(nameless), "nothing to read");
        assert_ne!(images.of_file(&exe, None, None, &[]), nameless);
        assert_eq!(
            images.of_file(Path::new("/nonexistent/x.so"), None, None, &[]),
            images.without_file(Path::new("/nonexistent/x.so"))
        );
    }
}
