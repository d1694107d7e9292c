//! Finds sessions on this machine: in use, or abandoned by a killed drain.

use std::env;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use flightline_in_signal::layout::SESSION_FILE;
use nix::fcntl::Flock;
use nix::fcntl::FlockArg;

use super::outputs::{abandoned_in, has_unwritten};
use super::{KEPT_FOR, LOCK_WAIT, PREFIX, SessionClient, YOUNG, is_named};
use crate::error::Error;

/// Returns sessions of this user whose drain was killed.
pub fn abandoned() -> Vec<PathBuf> {
    let uid = nix::unistd::getuid().as_raw();
    let ours = |dir: &PathBuf| fs::symlink_metadata(dir).is_ok_and(|m| m.uid() == uid && m.is_dir());
    let all = || parents().into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    // Processes that the drain has just started may hold its lock for a moment longer.
    let until = Instant::now() + LOCK_WAIT;
    while Instant::now() < until && all().map(|e| e.path()).any(|dir| is_named(&dir) && is_being_left(&dir)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    parents().iter().flat_map(|parent| abandoned_in(parent)).filter(ours).collect()
}

/// Returns true if a recent session is locked although its drain is dead.
fn is_being_left(dir: &Path) -> bool {
    let modified = fs::symlink_metadata(dir).ok().and_then(|meta| meta.modified().ok());
    let age = modified.and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age < YOUNG)
        && SessionClient::open(dir)
            .is_ok_and(|seen| !Path::new(&format!("/proc/{}", seen.drain_pid())).exists())
        && !is_abandoned(dir)
}

/// Returns true if a session is complete but no drain holds its lock, so the drain was killed. The check
/// takes a shared lock, so that two checks at the same time do not mistake each other for a drain. The page
/// must exist first; it is written under the drain's lock.
pub(crate) fn is_abandoned(dir: &Path) -> bool {
    let free = |page: File| !matches!(page.try_lock_shared(), Err(fs::TryLockError::WouldBlock));
    SessionClient::open(dir).is_ok() && File::open(dir.join(SESSION_FILE)).is_ok_and(free)
}

/// A session on this machine.
#[derive(Clone, Debug)]
pub struct OnMachine {
    /// Its directory.
    pub dir: PathBuf,
    /// The ID of its user.
    pub uid: u32,
    /// The PID of its drain: 0 if that was killed, `None` if we have no access to the directory.
    pub drain: Option<u32>,
}

/// Returns all sessions on this machine whose directories are visible, including those of other users.
pub fn on_machine() -> Vec<OnMachine> {
    let entries = parents().into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    let dirs = entries.map(|entry| entry.path()).filter(|dir| is_named(dir));
    let mut found: Vec<OnMachine> = dirs
        .filter_map(|dir| {
            let meta = fs::symlink_metadata(&dir).ok().filter(fs::Metadata::is_dir)?;
            let drain = match SessionClient::open(&dir) {
                Ok(seen) => Some(if is_abandoned(&dir) { 0 } else { seen.drain_pid() }),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => None,
                // The session is being created or removed.
                Err(_) => return None,
            };
            Some(OnMachine { dir, uid: meta.uid(), drain })
        })
        .collect();
    found.sort_by(|a, b| (a.uid, a.drain, &a.dir).cmp(&(b.uid, b.drain, &b.dir)));
    found.dedup_by(|a, b| a.dir == b.dir);
    found
}

/// Returns the directories for sessions, best first: memory file systems before disks.
pub fn parents() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime, Some(temporary)]
        .into_iter()
        .flatten()
        .filter(|p| p.is_absolute())
        .collect()
}

/// Removes session directories of this user whose drain was killed.
pub(super) fn remove_stale(parent: &Path, uid: u32) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let prefix = format!("{PREFIX}{uid}-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|n| n.starts_with(&prefix) && n.len() == prefix.len() + 16) {
            continue;
        }
        let dir = entry.path();
        let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
        // Only our own entries, and only real directories.
        if meta.uid() != uid || !meta.is_dir() {
            continue;
        }
        let page = File::open(dir.join(SESSION_FILE)).ok();
        let complete = page.as_ref().is_some_and(|p| p.metadata().is_ok_and(|m| m.len() > 0));
        let unused = page.is_none_or(|p| Flock::lock(p, FlockArg::LockSharedNonblock).is_ok());
        // A recent session without a page may be just being created.
        let age = meta.modified().ok().and_then(|t| t.elapsed().ok()).unwrap_or_default();
        if unused && (complete || age > Duration::from_secs(5)) {
            // Programs that still map its page may join another session.
            if let Ok(seen) = SessionClient::open(&dir) {
                seen.ask_stop();
            }
            // A recovery still needs data that was not written.
            if age > KEPT_FOR || !has_unwritten(&dir) {
                let _ = fs::remove_dir_all(&dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::Session, settings::Settings};
    use flightline_in_signal::layout::SessionPage;
    use std::{fs::OpenOptions, os::unix::fs::FileExt};

    #[test]
    fn lock_outliving_its_drain_is_waited_for() {
        let session = Session::create(&Settings::default()).unwrap();
        let dir = session.dir();
        assert!(!is_being_left(dir), "its drain lives");
        // No process has this PID.
        let page = OpenOptions::new().write(true).open(dir.join(SESSION_FILE)).unwrap();
        let at = std::mem::offset_of!(SessionPage, drain_pid) as u64;
        page.write_all_at(&(i32::MAX as u32).to_le_bytes(), at).unwrap();
        assert!(is_being_left(dir));
        let old = std::time::SystemTime::now() - 2 * YOUNG;
        File::open(dir).unwrap().set_modified(old).unwrap();
        assert!(!is_being_left(dir), "of another namespace");
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
        let lock = Flock::lock(File::open(used.join(SESSION_FILE)).unwrap(), FlockArg::LockExclusiveNonblock)
            .unwrap();
        for dir in [&used, &cut] {
            let old = std::time::SystemTime::now() - Duration::from_secs(60);
            File::open(dir).unwrap().set_modified(old).unwrap();
        }
        remove_stale(parent.path(), uid);
        assert!(used.exists() && !dead.exists() && young.exists() && !cut.exists());
        drop(lock);
    }
}
