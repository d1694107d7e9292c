//! The thread that reads files: symbols, unwind tables, debug information. It may be slow, unlike the thread
//! that reads rings.
//!
//! The unwind table of a file comes first, because handlers wait for it, then its symbols. Debug information
//! is read only for the addresses that occur.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use memmap2::Mmap;

use crate::{
    names::debug_files::DebugDirs,
    names::dwarf::{Lines, SourceFrame},
    names::images::ImageId,
    names::symbols::Symbols,
    shared_memory::rows,
};

/// Limit of the memory for debug information of all files, bytes. A single file may use all of it.
const MAX_OPEN: u64 = 160 << 20;

/// A request to the thread.
pub enum Request {
    /// Reads all of a file that is needed at once.
    Load {
        /// The image.
        id: ImageId,
        /// Its path as seen by the program.
        path: PathBuf,
        /// The program's root directory, if it differs from ours.
        root: Option<PathBuf>,
        /// The file to read.
        source: Source,
    },
    /// Releases a file that is no longer used. There is no answer.
    Forget {
        /// The image.
        id: ImageId,
    },
    /// Looks up lines and inlined functions at addresses of a loaded file.
    Source {
        /// The image.
        id: ImageId,
        /// File addresses.
        addresses: Vec<u64>,
    },
}

/// The source of a file's contents.
pub enum Source {
    /// An open file.
    File(File),
    /// Memory.
    Memory(Arc<Mmap>),
}

/// An answer of the thread.
pub enum Answer {
    /// The first answer to [`Request::Load`], because handlers wait for it.
    Rows {
        /// The image.
        id: ImageId,
        /// Its unwind table.
        rows: Vec<u8>,
    },
    /// The second answer to [`Request::Load`].
    Loaded {
        /// The image.
        id: ImageId,
        /// Its functions.
        symbols: Symbols,
        /// True if there is debug information.
        lines: bool,
    },
    /// The answer to [`Request::Source`].
    Source {
        /// The image.
        id: ImageId,
        /// The frames of each address.
        frames: Vec<(u64, Box<[SourceFrame]>)>,
    },
}

/// The drain's handle of the thread.
pub struct Reader {
    load: Sender<Request>,
    source: Sender<Request>,
    answers: Receiver<Answer>,
    /// CPU time of the thread so far, ns.
    cpu_ns: Arc<AtomicU64>,
}

impl Reader {
    /// Starts the thread. Without it (process limit reached), requests get no answer and frames remain
    /// offsets.
    pub fn start(dirs: DebugDirs) -> Reader {
        let (load, loads) = unbounded::<Request>();
        let (source, sources) = unbounded::<Request>();
        let (answer, answers) = unbounded();
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let clock = cpu_ns.clone();
        let _ = thread::Builder::new().name("fl-symbols".into()).spawn(move || {
            lower_priority();
            let mut open = Open { dirs, files: HashMap::new(), turn: 0, answer: answer.clone() };
            loop {
                // Unwind tables and symbols of whole files come before lines, because handlers wait for the
                // unwind tables.
                let request = loads.try_recv().or_else(|_| {
                    crossbeam_channel::select! {
                        recv(loads) -> request => request,
                        recv(sources) -> request => request,
                    }
                });
                let Ok(request) = request else { break };
                let said = open.answer(request);
                clock.store(crate::os::clock::thread_cpu_ns(), Ordering::Relaxed);
                if said.is_some_and(|said| answer.send(said).is_err()) {
                    break;
                }
            }
        });
        Reader { load, source, answers, cpu_ns }
    }

    /// Returns the CPU time of the thread as of its last answer, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// Sends a request. Returns false if there is no thread.
    pub fn ask(&self, request: Request) -> bool {
        match request {
            Request::Load { .. } => self.load.send(request).is_ok(),
            // In the same channel, so that it follows the lookups in this file.
            Request::Source { .. } | Request::Forget { .. } => self.source.send(request).is_ok(),
        }
    }

    /// Releases the memory of a file.
    pub fn forget(&self, id: ImageId) {
        self.ask(Request::Forget { id });
    }

    /// Returns the next answer, if there is one within `wait`.
    pub fn answer(&self, wait: Duration) -> Option<Answer> {
        if wait.is_zero() { self.answers.try_recv().ok() } else { self.answers.recv_timeout(wait).ok() }
    }
}

/// Open debug information. The least recently used file is closed to make room.
struct Open {
    dirs: DebugDirs,
    files: HashMap<ImageId, OpenFile>,
    turn: u64,
    answer: Sender<Answer>,
}

struct OpenFile {
    map: Arc<Mmap>,
    path: PathBuf,
    root: Option<PathBuf>,
    lines: Option<Lines>,
    used: u64,
}

impl Open {
    fn answer(&mut self, request: Request) -> Option<Answer> {
        self.turn += 1;
        match request {
            Request::Load { id, path, root, source } => Some(self.load(id, path, root, source)),
            Request::Source { id, addresses } => Some(self.source(id, &addresses)),
            Request::Forget { id } => {
                self.files.remove(&id);
                None
            }
        }
    }

    fn load(&mut self, id: ImageId, path: PathBuf, root: Option<PathBuf>, source: Source) -> Answer {
        let map = match source {
            // SAFETY: a private read-only mapping. If the file is truncated while it is mapped, reading
            // raises SIGBUS, for which our own processes map zeros (`sigbus.rs`); a file that is being
            // executed cannot be written to.
            Source::File(file) => unsafe { Mmap::map(&file) }.ok().map(Arc::new),
            Source::Memory(map) => Some(map),
        };
        let Some(map) = map else {
            return Answer::Loaded { id, symbols: Symbols::default(), lines: false };
        };
        if let Ok(rows) = rows::build(&map) {
            let _ = self.answer.send(Answer::Rows { id, rows });
        }
        let (symbols, lines) = read(&map, &path, root.as_deref(), &self.dirs);
        let any = lines.is_some();
        if any {
            self.files.insert(id, OpenFile { map, path, root, lines, used: self.turn });
            self.close_some();
        }
        Answer::Loaded { id, symbols, lines: any }
    }

    fn source(&mut self, id: ImageId, addresses: &[u64]) -> Answer {
        let mut frames = Vec::with_capacity(addresses.len());
        if let Some(file) = self.files.get_mut(&id) {
            file.used = self.turn;
            if file.lines.is_none() {
                file.lines = read(&file.map, &file.path, file.root.as_deref(), &self.dirs).1;
            }
        }
        let mut lines = self.files.get_mut(&id).and_then(|f| f.lines.as_mut());
        for &address in addresses {
            let found = lines.as_mut().map(|l| l.frames(address)).unwrap_or_default();
            frames.push((address, found.into()));
        }
        if let Some(lines) = lines {
            lines.rest();
        }
        self.close_some();
        Answer::Source { id, frames }
    }

    fn close_some(&mut self) {
        let weight = |f: &OpenFile| f.lines.as_ref().map_or(0, Lines::weight);
        let mut sum: u64 = self.files.values().map(weight).sum();
        while sum > MAX_OPEN {
            let open = self.files.values_mut().filter(|f| f.lines.is_some() && f.used < self.turn);
            let Some(oldest) = open.min_by_key(|f| f.used) else { break };
            sum -= weight(oldest);
            oldest.lines = None;
        }
    }
}

fn read(map: &Arc<Mmap>, path: &Path, root: Option<&Path>, dirs: &DebugDirs) -> (Symbols, Option<Lines>) {
    match root {
        Some(root) => {
            let path = root.join(path.strip_prefix("/").unwrap_or(path));
            Symbols::read(map, &path, &dirs.under(root))
        }
        None => Symbols::read(map, path, dirs),
    }
}

/// Lowers the priority of a background thread.
pub(crate) fn lower_priority() {
    // SAFETY: no pointers; on Linux "process 0" is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
}
