//! Stops threads between two instructions (`ptrace`), and copies everything that would outlive a death at
//! that point: the session's shared memory and the recording. A copy is recovered as if both processes had
//! been killed, while they continue.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::Mmap;

use crate::crashes::files;
use crate::shared_memory::{ProcFile, processes};

/// A thread that waits in the kernel longer than that is woken, because it may be waiting for a stopped
/// thread.
const WAIT: Duration = Duration::from_millis(250);
/// The compared words after the head of a ring: one record.
const RECORD_WORDS: usize = 48;
/// The newest entries of a journal whose batch is compared.
const ENTRIES: usize = 6;

/// A stopped thread.
pub struct Stopped {
    /// Its id.
    pub tid: i32,
    /// The signal to deliver when the thread continues.
    signal: i32,
    gone: bool,
    /// The last instruction was a wait.
    waits: bool,
}

fn ptrace(request: u32, tid: i32, data: usize) -> bool {
    // SAFETY: none of the requests used here writes to our memory.
    unsafe { libc::ptrace(request, tid, 0usize, data) >= 0 }
}

impl Stopped {
    fn seize(tid: i32) -> Option<Stopped> {
        if !ptrace(libc::PTRACE_SEIZE, tid, 0) {
            return None;
        }
        let mut stopped = Stopped { tid, signal: 0, gone: false, waits: false };
        ptrace(libc::PTRACE_INTERRUPT, tid, 0);
        stopped.wait();
        (!stopped.gone).then_some(stopped)
    }

    fn wait(&mut self) {
        let (mut status, since) = (0, Instant::now());
        let mut woken = false;
        loop {
            // SAFETY: `status` is written only.
            let found = unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | libc::WNOHANG) };
            if found == self.tid {
                break;
            }
            if found < 0 {
                self.gone = true;
                return;
            }
            if !woken && since.elapsed() > WAIT {
                woken = ptrace(libc::PTRACE_INTERRUPT, self.tid, 0);
            }
            // The kernel reports the first thread of a killed process last.
            if since.elapsed() > 80 * WAIT {
                self.gone = true;
                return;
            }
            std::thread::yield_now();
        }
        self.waits = woken;
        if !libc::WIFSTOPPED(status) {
            self.gone = true;
            return;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        self.signal = if event != 0 || (signal == libc::SIGTRAP && !self.by_perf()) { 0 } else { signal };
    }

    /// Returns true if the trap comes from a perf event of the program, not from our stepping.
    fn by_perf(&self) -> bool {
        const TRAP_PERF: i32 = 6;
        // SAFETY: plain numbers; zeros are one of them.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes a siginfo_t to the address in the last argument.
        let asked = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0usize, &raw mut info) };
        asked >= 0 && info.si_code == TRAP_PERF
    }

    /// Returns true if the last instruction was a wait, which we ended: the lock may be held by a thread that
    /// we stopped.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Steps one instruction; a pending signal is delivered first. `false` if the thread is gone.
    pub fn step(&mut self) -> bool {
        let signal = std::mem::take(&mut self.signal);
        if self.gone || !ptrace(libc::PTRACE_SINGLESTEP, self.tid, signal as usize) {
            return false;
        }
        self.wait();
        !self.gone
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.gone {
            ptrace(libc::PTRACE_DETACH, self.tid, self.signal as usize);
        }
    }
}

/// Stops all threads of a process until the values are dropped. The main thread comes first.
#[track_caller]
pub fn freeze(pid: u32) -> Vec<Stopped> {
    let all = freeze_others(pid);
    assert!(!all.is_empty(), "process {pid} cannot be stopped");
    all
}

/// The same for threads that are not stopped yet.
pub fn freeze_others(pid: u32) -> Vec<Stopped> {
    let mut all: Vec<Stopped> = Vec::new();
    loop {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
        let new: Vec<i32> = tids.filter(|tid| !all.iter().any(|t| t.tid == *tid)).collect();
        let before = all.len();
        all.extend(new.into_iter().filter_map(Stopped::seize));
        if all.len() == before {
            break;
        }
    }
    all.sort_by_key(|thread| thread.tid != pid as i32);
    all
}

/// The state of a session that determines the result of a recovery.
pub struct Watch {
    session: PathBuf,
    output: PathBuf,
    ring: Mmap,
    ring_at: usize,
    ring_words: u64,
    slots: ProcFile,
    journal: Mmap,
    journal_len: u64,
    /// The position of the newest journal entries.
    entries: Vec<u64>,
    looks: u64,
    /// The recording's files and the newest one's header at the last check.
    written: (Vec<(u64, u64)>, Vec<u8>),
}

/// The result of [`Watch::look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    record: Vec<u64>,
    head: u64,
    counted: u64,
    freeing: [u64; 2],
    kept: [u64; 2],
    batches: Vec<u64>,
    commit: u64,
    commits: Vec<u64>,
    files: Vec<(u64, u64)>,
    header: Vec<u8>,
}

impl State {
    /// Names the change since `before`; `None` if nothing relevant changed.
    pub fn since(&self, before: &State) -> Option<&'static str> {
        let said = [
            (self.head != before.head, "ring: head"),
            (self.record != before.record, "ring: record"),
            (self.counted != before.counted, "thread: account"),
            (self.kept[0] != before.kept[0], "journal: append"),
            (self.kept[1] != before.kept[1], "journal: trim"),
            (self.commit != before.commit, "journal: commit"),
            (self.commits != before.commits, "journal: commit being written"),
            (self.batches != before.batches, "journal: queued"),
            (self.freeing[0] != before.freeing[0], "ring: tail"),
            (self.freeing[1] != before.freeing[1], "ring: release begun"),
            (self.files.len() != before.files.len(), "output: next chunk"),
            (self.files != before.files, "output: written"),
            (self.header != before.header, "output: header"),
        ];
        said.iter().find(|(changed, _)| *changed).map(|(_, what)| *what)
    }
}

/// Word offsets in a journal, defined independently because the recorder's are private.
mod at {
    pub const HEAD: usize = 3;
    pub const TAIL: usize = 4;
    pub const ACTIVE: usize = 5;
    pub const COMMITS: [usize; 2] = [6, 6 + COMMIT_WORDS];
    /// Sequence number, batch, place, length, length of the path; header; path; checksum.
    pub const COMMIT_WORDS: usize = 5 + 9 + 256 + 1;
    /// The words of a commit that are compared; the path begins after them.
    pub const LOOKED_AT: usize = 5 + 9 + 4;
    /// Bytes of the header.
    pub const HEADER: usize = 68;
    pub const ENTRIES: usize = 1024;
}

fn word(map: &Mmap, index: usize) -> u64 {
    assert!(index * 8 + 8 <= map.len());
    // SAFETY: in bounds, aligned, and only read as an atomic that others may write.
    unsafe { &*map.as_ptr().cast::<AtomicU64>().add(index) }.load(Ordering::Relaxed)
}

fn map(path: &Path) -> Mmap {
    let file = fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // SAFETY: only read through atomics; the file is not cut while the recorder lives.
    unsafe { Mmap::map(&file) }.unwrap()
}

impl Watch {
    /// Watches the only process and the only output of a session.
    #[track_caller]
    pub fn new(session: &Path, output: &Path) -> Watch {
        let file = processes(session).into_iter().next().expect("a recorded process");
        let ring = map(&file);
        let slots = ProcFile::open(&file).unwrap();
        let layout = slots.layout();
        let (ring_at, ring_words) = (layout.ring as usize / 8, layout.ring_bytes / 8);
        // A file's journal has number 1. A repository has one too, but only the process's own output matters.
        let mut journals: Vec<PathBuf> = fs::read_dir(session).unwrap().flatten().map(|e| e.path()).collect();
        journals.retain(|path| path.extension().is_some_and(|e| e == "journal"));
        assert_eq!(journals.len(), 1, "{journals:?}");
        let journal = map(&journals[0]);
        let journal_len = (journal.len() / 8 - at::ENTRIES) as u64;
        Watch {
            session: session.to_owned(),
            output: output.to_owned(),
            ring,
            ring_at,
            ring_words,
            slots,
            journal,
            journal_len,
            entries: Vec::new(),
            looks: 0,
            written: (Vec::new(), Vec::new()),
        }
    }

    /// Only system calls change the recording, so it is checked at intervals; checking after every step would
    /// take ten times as long.
    fn look_at_files(&mut self) {
        self.looks += 1;
        if self.looks % 16 != 1 {
            return;
        }
        let files = files(&self.output);
        let mut header = vec![0; 68];
        if let Some(file) = files.last().and_then(|path| fs::File::open(path).ok()) {
            let _ = file.read_at(&mut header, 0);
        }
        let meta = files.iter().filter_map(|path| fs::metadata(path).ok());
        self.written = (meta.map(|m| (m.ino(), m.len())).collect(), header);
    }

    /// Moves the session of a killed recorder to a place where no command recovers it, so that only copies
    /// are recovered.
    #[track_caller]
    pub fn put_aside(&mut self) -> Aside {
        let from = self.session.clone();
        self.session.as_mut_os_string().push(".aside");
        fs::rename(&from, &self.session).unwrap();
        Aside { from, to: self.session.clone() }
    }

    /// Reads the state now. `accounts` includes the threads' accounts, which takes time.
    pub fn look(&mut self, accounts: bool) -> State {
        self.look_at_files();
        let (files, header) = self.written.clone();
        let ring = &self.slots.parts().header.ring;
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let head = load(&ring.head);
        let place = |i: u64| self.ring_at + (head.wrapping_add(i) & (self.ring_words - 1)) as usize;
        let kept = [word(&self.journal, at::HEAD), word(&self.journal, at::TAIL)];
        if self.entries.last() != Some(&kept[0]) {
            self.entries.push(kept[0]);
            let from = self.entries.len().saturating_sub(ENTRIES + 1);
            self.entries.drain(..from);
        }
        let batch = |at: &u64| word(&self.journal, at::ENTRIES + ((at + 1) % self.journal_len) as usize);
        let commits = at::COMMITS.iter().flat_map(|from| *from..from + at::LOOKED_AT);
        State {
            record: if accounts {
                (0..RECORD_WORDS as u64).map(|i| word(&self.ring, place(i))).collect()
            } else {
                Vec::new()
            },
            head,
            counted: if accounts { self.slots.threads().iter().map(|t| t.samples).sum() } else { 0 },
            freeing: [load(&ring.tail), load(&ring.releasing)],
            kept,
            batches: self.entries.iter().filter(|at| **at < kept[0]).map(batch).collect(),
            commit: word(&self.journal, at::ACTIVE),
            commits: commits.map(|index| word(&self.journal, index)).collect(),
            files,
            header,
        }
    }

    /// Copies everything: the recording from the folder `live` to the folder `name` next to it, which has an
    /// equally long name, and the session to one that refers to that folder. Returns both.
    #[track_caller]
    pub fn copy(&self, live: &Path, name: &str) -> Copied {
        let folder = live.with_file_name(name);
        copy_folder(live, &folder);
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) | u64::from(std::process::id()) << 32;
        let own = self.session.file_name().unwrap().to_str().unwrap();
        let (start, _) = own.rsplit_once('-').unwrap();
        let session = self.session.with_file_name(format!("{start}-{number:016x}"));
        fs::create_dir(&session).unwrap();
        let (old, new) = (slashed(live), slashed(&folder));
        assert_eq!(old.len(), new.len());
        let names = |name: &str| {
            name == "session" || [".proc", ".maps", ".journal", ".told"].iter().any(|end| name.ends_with(end))
        };
        // The page is copied last, because without it the folder is no session.
        let mut all: Vec<PathBuf> =
            fs::read_dir(&self.session).unwrap().flatten().map(|e| e.path()).collect();
        all.retain(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(names));
        all.sort_by_key(|path| path.ends_with("session"));
        for path in all {
            let to = session.join(path.file_name().unwrap());
            let mut bytes = fs::read(&path).unwrap();
            if to.extension().is_some_and(|e| e == "journal") {
                rename(&mut bytes, &old, &new);
            }
            fs::write(&to, bytes).unwrap();
        }
        let output = folder.join(self.output.file_name().unwrap());
        Copied { session, folder, output }
    }
}

/// Replaces `old` by `new` in the commits of a journal.
fn rename(journal: &mut [u8], old: &[u8], new: &[u8]) {
    let word =
        |journal: &[u8], index: usize| u64::from_le_bytes(journal[index * 8..][..8].try_into().unwrap());
    let sum = |journal: &[u8], from: usize| {
        let len = (word(journal, from + 4) as usize).min(2048);
        let (header, path) = ((from + 5) * 8, (from + 14) * 8);
        // The process's identity is stored before the commits.
        let parts = [8..24, from * 8..header, header..header + at::HEADER, path..path + len];
        let bytes = parts.map(|part| &journal[part]).concat();
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    for from in at::COMMITS {
        let (path, at) = ((from + 14) * 8, from + at::COMMIT_WORDS - 1);
        // An unfinished commit stays invalid.
        let right = sum(journal, from) == word(journal, at);
        if journal[path..].starts_with(old) {
            journal[path..path + new.len()].copy_from_slice(new);
        }
        if right {
            let sum: u64 = sum(journal, from);
            journal[at * 8..][..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn slashed(path: &Path) -> Vec<u8> {
    format!("{}/", path.display()).into_bytes()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// A session that was moved away. Dropping the value removes it.
pub struct Aside {
    from: PathBuf,
    to: PathBuf,
}

impl Aside {
    /// Puts it back.
    #[track_caller]
    pub fn back(self) {
        fs::rename(&self.to, &self.from).unwrap();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.to);
    }
}

/// A copy of the files of a killed session. Dropping the value removes it.
pub struct Copied {
    /// Its shared memory.
    pub session: PathBuf,
    folder: PathBuf,
    /// Its recording.
    pub output: PathBuf,
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.session);
        let _ = fs::remove_dir_all(&self.folder);
    }
}
