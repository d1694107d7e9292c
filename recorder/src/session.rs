//! The session directory: where programs find out that and how they are recorded.

use std::{
    env, fs,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use flightline_in_signal::layout::{MAGIC, ROWS_FILE, SESSION_FILE, SIZES, SessionPage, session_flags};
use memmap2::MmapRaw;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};

use crate::{clock, error::Error, settings};

const PREFIX: &str = "flightline-";
/// First byte of the arena that can hold rows: offset 0 means "not ready".
const ROWS_START: u64 = 64;

/// A session directory of our own. Dropping it stops sampling in every program and removes the directory.
pub struct Session {
    dir: PathBuf,
    page: MmapRaw,
    /// Held for as long as the session lives: by it others see that the directory is in use.
    _lock: Flock<File>,
    rows: RowsArena,
}

impl Session {
    /// Makes the directory in the first place that allows it.
    pub fn create(settings: &settings::Settings) -> Result<Session, Error> {
        let uid = nix::unistd::getuid();
        let mut refused = None;
        for parent in parents() {
            remove_stale(&parent, uid.as_raw());
            for _ in 0..16 {
                let dir = parent.join(format!("{PREFIX}{uid}-{:016x}", random()));
                match fs::DirBuilder::new().mode(0o700).create(&dir) {
                    Ok(()) => match Session::fill(&dir, settings) {
                        Ok(session) => return Ok(session),
                        Err(error) => {
                            let _ = fs::remove_dir_all(&dir);
                            refused = Some(error);
                            break;
                        }
                    },
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => {
                        refused = Some(Error::io("create the session directory", &dir, error));
                        break;
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            Error::io("create a session directory in", Path::new("/dev/shm"), io::ErrorKind::NotFound.into())
        }))
    }

    fn fill(dir: &Path, settings: &settings::Settings) -> Result<Session, Error> {
        let path = dir.join(SESSION_FILE);
        let lock = Flock::lock(new_file(&path)?, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, e)| Error::io("lock", &path, e.into()))?;
        let file = &*lock;
        // Real pages now, so that a full tmpfs is an error here and not a SIGBUS later.
        fallocate(file, FallocateFlags::empty(), 0, 4096)
            .map_err(|e| Error::io("allocate", &path, e.into()))?;
        let page = MmapRaw::map_raw(file).map_err(|e| Error::io("map", &path, e))?;
        let rows = RowsArena::create(&dir.join(ROWS_FILE), settings::ROWS_BYTES)?;
        let contents = SessionPage {
            magic: MAGIC,
            sizes: SIZES,
            drain_pid: AtomicU32::new(std::process::id()),
            stop: AtomicU32::new(0),
            period_ns: settings.period_ns(),
            engine: settings.engine.code(),
            max_depth: settings.depth,
            ring_bytes: settings.ring_size(),
            thread_slots: settings::THREAD_SLOTS,
            flags: if settings.follow { session_flags::FOLLOW } else { 0 }
                | if settings.measure { session_flags::MEASURE } else { 0 },
            rows_bytes: settings::ROWS_BYTES,
            start_mono_ns: clock::monotonic_ns(),
            seed: random(),
            processes: AtomicU64::new(0),
            flush_wanted: AtomicU64::new(0),
            flush_done: AtomicU64::new(0),
        };
        // SAFETY: the mapping is 4096 bytes (fallocate above), page aligned, and SessionPage fits into a page
        // (asserted in layout.rs); nobody else knows the directory yet.
        unsafe { page.as_mut_ptr().cast::<SessionPage>().write(contents) };
        Ok(Session { dir: dir.to_owned(), page, _lock: lock, rows })
    }

    /// The directory, to be given to programs in `FLIGHTLINE_SESSION`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where unwind rows are stored for all programs.
    pub fn rows(&mut self) -> &mut RowsArena {
        &mut self.rows
    }

    fn word<T>(&self, field: fn(*const SessionPage) -> *const T) -> &T {
        // SAFETY: the mapping holds a SessionPage for as long as self lives; only used with atomic fields.
        unsafe { &*field(self.page.as_ptr().cast()) }
    }

    /// Tells every program of the session to stop sampling.
    pub fn stop(&self) {
        // SAFETY: projection to an atomic inside the mapped page; so below.
        self.word(|p| unsafe { &raw const (*p).stop }).store(1, Ordering::Release);
    }

    /// Whether sampling has been stopped, by us or by a program (`flightline_stop` of the C API).
    pub fn stopped(&self) -> bool {
        // SAFETY: as in `stop`.
        self.word(|p| unsafe { &raw const (*p).stop }).load(Ordering::Acquire) != 0
    }

    /// Number of the newest flush a program asked for (`flightline_dump`).
    pub fn flush_wanted(&self) -> u64 {
        // SAFETY: as in `stop`.
        self.word(|p| unsafe { &raw const (*p).flush_wanted }).load(Ordering::Acquire)
    }

    /// Tells programs that everything up to request `wanted` is written.
    pub fn flush_done(&self, wanted: u64) {
        // SAFETY: as in `stop`.
        self.word(|p| unsafe { &raw const (*p).flush_done }).store(wanted, Ordering::Release);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: as in `stop`.
        self.word(|p| unsafe { &raw const (*p).drain_pid }).store(0, Ordering::Release);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A program's view of its session.
pub struct Seen {
    page: MmapRaw,
}

impl Seen {
    /// Maps the page of the session in `dir`.
    pub fn open(dir: &Path) -> Result<Seen, Error> {
        let path = dir.join(SESSION_FILE);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        if file.metadata().is_ok_and(|m| m.len() < size_of::<SessionPage>() as u64) {
            return Err(Error::shared(&path, "is too short"));
        }
        Ok(Seen { page: MmapRaw::map_raw(&file).map_err(|e| Error::io("map", &path, e))? })
    }

    fn word<T>(&self, field: fn(*const SessionPage) -> *const T) -> &T {
        // SAFETY: the mapping holds a SessionPage for as long as self lives; only used with atomic fields.
        unsafe { &*field(self.page.as_ptr().cast()) }
    }

    /// Asks the drain for the end.
    pub fn ask_stop(&self) {
        // SAFETY: projection to an atomic inside the mapped page; so below.
        self.word(|p| unsafe { &raw const (*p).stop }).store(1, Ordering::Release);
    }

    /// Asks for a flush; returns its number.
    pub fn ask_flush(&self) -> u64 {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).flush_wanted }).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of the last flush done.
    pub fn flushed(&self) -> u64 {
        // SAFETY: as in `ask_stop`.
        self.word(|p| unsafe { &raw const (*p).flush_done }).load(Ordering::Acquire)
    }

    /// Whether the drain has completed the output.
    pub fn drain_ended(&self) -> bool {
        // SAFETY: as in `ask_stop`.
        let pid = self.word(|p| unsafe { &raw const (*p).drain_pid }).load(Ordering::Acquire);
        pid == 0 || !Path::new(&format!("/proc/{pid}")).exists()
    }
}

/// The file of unwind rows: appended to by the drain, mapped read-only by every program.
pub struct RowsArena {
    file: File,
    used: u64,
    size: u64,
}

impl RowsArena {
    fn create(path: &Path, size: u64) -> Result<RowsArena, Error> {
        let file = new_file(path)?;
        file.set_len(size).map_err(|e| Error::io("size", path, e))?;
        Ok(RowsArena { file, used: ROWS_START, size })
    }

    /// Stores one module's rows and says at which offset; `None` when the arena or the tmpfs is full
    /// (handlers then go on reading `.eh_frame`).
    pub fn store(&mut self, rows: &[u8]) -> Option<u64> {
        let at = self.used;
        let end = at.checked_add(rows.len() as u64)?;
        if end > self.size {
            return None;
        }
        // By pwrite and not through a mapping: a full tmpfs is then an error and not a SIGBUS.
        self.file.write_all_at(rows, at).ok()?;
        self.used = end.next_multiple_of(64);
        Some(at)
    }
}

fn new_file(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Error::io("create", path, e))
}

/// Directories tried for a session, best first: memory file systems before disks.
fn parents() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime, Some(temporary)]
        .into_iter()
        .flatten()
        .filter(|p| p.is_absolute())
        .collect()
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == 8 {
        u64::from_ne_bytes(bytes)
    } else {
        clock::monotonic_ns() ^ u64::from(std::process::id()) << 32
    }
}

/// Removes session directories of this user whose drain died without doing it.
fn remove_stale(parent: &Path, uid: u32) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let prefix = format!("{PREFIX}{uid}-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|n| n.starts_with(&prefix) && n.len() == prefix.len() + 16) {
            continue;
        }
        let dir = entry.path();
        let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
        // Ours only, and really directories.
        if meta.uid() != uid || !meta.is_dir() {
            continue;
        }
        let page = File::open(dir.join(SESSION_FILE)).ok();
        let complete = page.as_ref().is_some_and(|p| p.metadata().is_ok_and(|m| m.len() > 0));
        let unused = page.is_none_or(|p| Flock::lock(p, FlockArg::LockExclusiveNonblock).is_ok());
        // A young one without a page may be just being made.
        let age = meta.modified().ok().and_then(|t| t.elapsed().ok()).unwrap_or_default();
        if unused && (complete || age > Duration::from_secs(5)) {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directory_is_private_and_goes_away() {
        let mut session = Session::create(&settings::Settings::default()).unwrap();
        let dir = session.dir().to_owned();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let page = fs::read(dir.join(SESSION_FILE)).unwrap();
        assert_eq!(page[..8], MAGIC.to_le_bytes());
        assert_eq!(session.rows().store(&[7; 100]), Some(64));
        assert_eq!(session.rows().store(&[8; 10]), Some(192));
        assert_eq!(session.rows().store(&vec![0; settings::ROWS_BYTES as usize]), None);
        assert_eq!(fs::read(dir.join(ROWS_FILE)).unwrap()[64..164], [7; 100]);
        assert!(!session.stopped());
        drop(session);
        assert!(!dir.exists());
    }

    #[test]
    fn only_abandoned_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        let make = |n: u64, page: &[u8]| {
            let dir = parent.path().join(format!("{PREFIX}{uid}-{n:016x}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(SESSION_FILE), page).unwrap();
            dir
        };
        let (used, dead, young, cut) = (make(1, &[0; 8]), make(2, &[0; 8]), make(3, &[]), make(4, &[]));
        let held = Flock::lock(File::open(used.join(SESSION_FILE)).unwrap(), FlockArg::LockExclusiveNonblock)
            .unwrap();
        for dir in [&used, &cut] {
            let old = std::time::SystemTime::now() - Duration::from_secs(60);
            File::open(dir).unwrap().set_modified(old).unwrap();
        }
        remove_stale(parent.path(), uid);
        assert!(used.exists() && !dead.exists() && young.exists() && !cut.exists());
        drop(held);
    }
}
