//! Keeps a repository within its limits of size and age, even if several recorders write to it.
//!
//! Before a chunk grows, the recorder reserves disk space for it (`fallocate`), under a lock that all
//! recorders of the root share. Reserved space counts as used. So the limit holds at any time, and a full
//! disk is detected before data is lost.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nix::fcntl::{FallocateFlags, fallocate};

use super::owner::NEW_OWNER_FILE;
use super::{HELD_FILE, OWNER_FILE, Repository, chunks, is_folder_name};

/// Locked while a recorder counts or reserves space.
const LOCK_FILE: &str = ".lock";
/// Smallest and largest reservation, bytes.
const PIECE: [u64; 2] = [16 << 10, 1 << 20];
/// How long another recorder may hold the lock: on a busy machine it may wait for a processor.
const LOCK_MS: u32 = 1000;
/// Number of reservations in the permitted size.
const PIECES: u64 = 128;
/// A finished chunk is retained for this time regardless of its age: a stream of the JDK ends if a chunk that
/// it has listed is removed before it is opened.
pub const FOLLOWED: Duration = Duration::from_secs(10);

/// Bytes reserved at a time: a chunk's file may grow to them without another reservation.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// File length up to which space is reserved.
    until: u64,
}

impl Space {
    /// Ensures that `file`, `len` bytes long, may grow by `more`.
    ///
    /// # Errors
    /// `StorageFull` if nothing more can be removed, or an error of the file system.
    pub fn take(&mut self, repository: &Repository, file: &File, len: u64, more: u64) -> io::Result<()> {
        let end = len + more;
        let Some(limit) = repository.max_size else { return Ok(()) };
        if end <= self.until {
            return Ok(());
        }
        let piece = (limit / PIECES).clamp(PIECE[0], PIECE[1]);
        let until = end.next_multiple_of(piece);
        let _held = lock(&repository.root)?;
        make_room(&repository.root, limit, until - self.until.min(until))?;
        match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, until as i64) {
            // Without support for reservations, data counts once it is written.
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        self.until = until;
        Ok(())
    }

    /// Releases the unused reservation of a finished chunk, and partly written data after a full disk.
    pub fn release(&mut self, file: &File, len: u64) {
        if self.until > len || file.metadata().is_ok_and(|meta| meta.len() > len) {
            let _ = file.set_len(len);
        }
        self.until = 0;
    }
}

/// Removes chunks that are too old, and folders of ended processes without chunks.
pub fn tidy(repository: &Repository) {
    let Some(age) = repository.max_age.map(|age| age.max(FOLLOWED)) else { return };
    let Ok(_held) = lock(&repository.root) else { return };
    let Some(oldest) = SystemTime::now().checked_sub(age) else { return };
    for chunk in all(&repository.root) {
        if chunk.modified < oldest {
            chunk.remove();
        }
    }
}

struct Chunk {
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

impl Chunk {
    /// Removes the chunk unless it is being written, then its folder if that is empty and not in use.
    fn remove(&self) -> bool {
        let Ok(file) = File::open(&self.path) else { return false };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || fs::remove_file(&self.path).is_err() {
            return false;
        }
        if let Some(folder) = self.path.parent()
            && chunks(folder).is_ok_and(|left| left.is_empty())
            && !in_use(folder)
        {
            remove_folder(folder);
        }
        true
    }
}

/// Removes a process's folder and our files in it.
pub(crate) fn remove_folder(folder: &Path) {
    for chunk in chunks(folder).unwrap_or_default() {
        let _ = fs::remove_file(chunk);
    }
    let _ = fs::remove_file(folder.join(OWNER_FILE));
    let _ = fs::remove_file(folder.join(NEW_OWNER_FILE));
    let _ = fs::remove_file(folder.join(HELD_FILE));
    let _ = fs::remove_dir(folder);
}

/// Returns true if a recorder still writes to this folder.
pub fn in_use(folder: &Path) -> bool {
    File::open(folder.join(HELD_FILE))
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Removes the oldest chunks until `more` bytes fit below `limit`.
fn make_room(root: &Path, limit: u64, more: u64) -> io::Result<()> {
    let mut found = all(root);
    let mut used: u64 = found.iter().map(|c| c.bytes).sum();
    if used.saturating_add(more) <= limit {
        return Ok(());
    }
    found.sort_by_key(|c| c.modified);
    for chunk in found {
        if chunk.remove() {
            used -= chunk.bytes;
            if used.saturating_add(more) <= limit {
                return Ok(());
            }
        }
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        "the repository is at its size limit, and all its \
        chunks are still being written",
    ))
}

/// Returns all chunks of all processes.
fn all(root: &Path) -> Vec<Chunk> {
    let Ok(folders) = fs::read_dir(root) else { return Vec::new() };
    let folders = folders.flatten().filter(|e| e.file_name().to_str().is_some_and(is_folder_name));
    let paths = folders.flat_map(|folder| chunks(&folder.path()).unwrap_or_default());
    paths
        .filter_map(|path| {
            let meta = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
            let bytes = meta.len().max(meta.blocks() * 512);
            Some(Chunk { modified: meta.modified().ok()?, bytes, path })
        })
        .collect()
}

/// Takes the lock. The wait is limited, because another recorder may have been stopped while it holds the
/// lock.
fn lock(root: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(root.join(LOCK_FILE))?;
    for attempt in 0..LOCK_MS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if attempt < LOCK_MS - 1 => {
                std::thread::sleep(Duration::from_millis(1))
            }
            // Without locks in the file system, each recorder enforces the limit on its own.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_chunks_stay_for_followers() {
        let root = tempfile::tempdir().unwrap();
        let mut repository = Repository::new(root.path());
        let folder = repository.make_folder(7).unwrap();
        // Age of each chunk in seconds.
        let ages = [1, 60, 600];
        for seconds in ages {
            let path = folder.join(format!("{seconds}.jfr"));
            fs::write(&path, "x").unwrap();
            let file = File::open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        }
        let left = || ages.map(|seconds| folder.join(format!("{seconds}.jfr")).exists());
        repository.max_age = Some(Duration::from_secs(300));
        tidy(&repository);
        assert_eq!(left(), [true, true, false]);
        // It is too old, but a follower may not have read it yet.
        File::open(folder.join("1.jfr")).unwrap().set_modified(SystemTime::now() - FOLLOWED / 2).unwrap();
        repository.max_age = Some(Duration::from_secs(1));
        tidy(&repository);
        assert_eq!(left(), [true, false, false]);
        // The size limit applies regardless of age.
        make_room(root.path(), 0, 0).unwrap();
        assert_eq!(left(), [false; 3]);
    }
}
