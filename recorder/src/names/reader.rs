//! The thread that reads files: symbols, unwind rows, debug information. It may take its time, draining rings may not.
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

/// Bytes of memory for debug information of all files together; one file may have it all.
const MAX_OPEN: u64 = 160 << 20;

/// What is to be read.
pub enum Request {
    /// All of a file that is needed at once.
    Load {
        /// Its number.
        id: ImageId,
        /// Its path as the program sees it.
        path: PathBuf,
        /// Where the program's files are, if not at ours.
        root: Option<PathBuf>,
        /// The file.
        source: Source,
    },
    /// Nothing more will be asked of a file. It has no answer.
    Forget {
        /// Its number.
        id: ImageId,
    },
    /// Lines and inlined functions at some addresses of a file that was loaded.
    Source {
        /// Its number.
        id: ImageId,
        /// File addresses.
        addresses: Vec<u64>,
    },
}

/// What a file is read from.
pub enum Source {
    /// It is open.
    File(File),
    /// It is in memory.
    Memory(Arc<Mmap>),
}

/// What was read.
pub enum Answer {
    /// To [`Request::Load`] at first: handlers wait for it.
    Rows {
        /// The file's number.
        id: ImageId,
        /// Its unwind rows.
        rows: Vec<u8>,
    },
    /// To [`Request::Load`] at last.
    Loaded {
        /// The file's number.
        id: ImageId,
        /// Its functions.
        symbols: Symbols,
        /// Whether there is debug information.
        lines: bool,
    },
    /// To [`Request::Source`].
    Source {
        /// The file's number.
        id: ImageId,
        /// For each address what it is in.
        frames: Vec<(u64, Box<[SourceFrame]>)>,
    },
}

/// The thread, as the drain sees it.
pub struct Reader {
    load: Sender<Request>,
    source: Sender<Request>,
    answers: Receiver<Answer>,
    /// CPU time that it took so far, ns.
    cpu_ns: Arc<AtomicU64>,
}

impl Reader {
    /// Starts it. Without the thread (process limit reached) nothing is answered and frames stay offsets.
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
                // Rows and names of whole files before lines: handlers wait for the rows.
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

    /// CPU time that reading took so far, as of its last answer, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// Asks; `false` if there is nobody to answer.
    pub fn ask(&self, request: Request) -> bool {
        match request {
            Request::Load { .. } => self.load.send(request).is_ok(),
            // Behind what was asked of it.
            Request::Source { .. } | Request::Forget { .. } => self.source.send(request).is_ok(),
        }
    }

    /// Lets go of what is held of a file.
    pub fn forget(&self, id: ImageId) {
        self.ask(Request::Forget { id });
    }

    /// The next answer, if there is one within `wait`.
    pub fn answer(&self, wait: Duration) -> Option<Answer> {
        if wait.is_zero() { self.answers.try_recv().ok() } else { self.answers.recv_timeout(wait).ok() }
    }
}

/// Debug information in use, the least lately used closed for another.
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
            // SAFETY: a private read-only mapping. If the file is cut while it is mapped, reading ends in SIGBUS, which
            // our own processes turn into zeros (`sigbus.rs`); a file being executed cannot be written to.
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

/// For threads that may take their time.
pub(crate) fn lower_priority() {
    // SAFETY: no pointers; on Linux "process 0" is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
}
