//! Run history on disk: `<id>.json` for each run, and `<id>.jfr` if it has a recording.
//!
//! All files are opened relative to one directory descriptor, by names generated here, and never through a
//! link. A file gets its final name once it is complete. Other files in the directory are neither read nor
//! removed.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::dir::Dir;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use crate::id;
use crate::wire::{Run, Target};

/// Upper limit for a run's description.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

/// A run and its target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// Its target, at the time of the run.
    pub of: Target,
}

/// A history directory.
#[derive(Debug)]
pub struct History {
    directory: OwnedFd,
    /// Lock held for the lifetime of the store: two services in one directory would delete each other's
    /// files.
    _lock: Flock<File>,
    /// Serializes writes of descriptions, each with the run's state at that time.
    writing: Mutex<()>,
}

/// Contents of a store.
#[derive(Debug, Default)]
pub struct Listing {
    /// Runs, oldest first.
    pub runs: Vec<StoredRun>,
    /// Messages about descriptions that cannot be read.
    pub unreadable: Vec<String>,
}

impl History {
    /// Opens a directory, creating it if necessary.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or opened, or another service uses it.
    pub fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let directory = open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY, Mode::empty())?;
        let flags = OFlag::O_CREAT | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let lock = File::from(openat(&directory, "lock", flags, private())?);
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            nix::Error::EAGAIN => Error::new(
                ErrorKind::ResourceBusy,
                "another `flightline serve` uses this directory; give another one with --dir",
            ),
            errno => errno.into(),
        })?;
        Ok(Self { directory, _lock: lock, writing: Mutex::new(()) })
    }

    /// Reads the runs and removes incomplete files.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn read(&self) -> Result<Listing> {
        let mut found = Listing::default();
        let mut listing = Dir::from_fd(self.directory.try_clone()?)?;
        for entry in listing.iter() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Some((stem, ending)) = name.split_once('.').filter(|(stem, _)| id::is_run(stem)) else {
                continue;
            };
            match ending {
                "json" => match self.described(stem) {
                    Ok(kept) => found.runs.push(kept),
                    Err(error) => found.unreadable.push(format!("{name}: {error}")),
                },
                "json.tmp" | "jfr.tmp" => self.remove_file(name)?,
                _ => {}
            }
        }
        found.runs.sort_by(|a, b| (a.run.trigger_time, &a.run.id).cmp(&(b.run.trigger_time, &b.run.id)));
        Ok(found)
    }

    fn described(&self, id: &str) -> Result<StoredRun> {
        let mut text = String::new();
        self.regular(&format!("{id}.json"))?.take(LONGEST_DESCRIPTION).read_to_string(&mut text)?;
        let kept: StoredRun = serde_json::from_str(&text)?;
        if kept.run.id != id {
            return Err(Error::new(ErrorKind::InvalidData, "describes another run"));
        }
        Ok(kept)
    }

    /// Writes the run description that `now` returns once the lock is held; does nothing if it returns
    /// `None`.
    ///
    /// # Errors
    /// Returns an error if the description cannot be written.
    pub fn describe(&self, now: impl FnOnce() -> Option<StoredRun>) -> Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = now() else { return Ok(()) };
        let name = format!("{}.json", checked(&kept.run.id)?);
        let temporary = format!("{name}.tmp");
        let flags = OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.directory, temporary.as_str(), flags, private())?);
        file.write_all(&serde_json::to_vec(&kept)?)?;
        // No fsync: a power failure costs at most one run's description.
        drop(file);
        Ok(renameat(&self.directory, temporary.as_str(), &self.directory, name.as_str())?)
    }

    /// Creates the file for a run's recording.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, or already exists because another upload is in
    /// progress.
    pub fn begin(&self, id: &str) -> Result<Upload> {
        let name = format!("{}.jfr.tmp", checked(id)?);
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.directory, name.as_str(), flags, private())?);
        Ok(Upload { directory: self.directory.try_clone()?, id: id.to_owned(), file, done: false })
    }

    /// Opens a run's recording for reading.
    ///
    /// # Errors
    /// Returns an error if it does not exist or was not written by the service.
    pub fn recording(&self, id: &str) -> Result<File> {
        self.regular(&format!("{}.jfr", checked(id)?))
    }

    /// Deletes a run's files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be deleted.
    pub fn remove(&self, id: &str) -> Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = checked(id)?;
        // Delete the description last: while it exists, the next start knows of the recording.
        for ending in ["jfr.tmp", "jfr", "json"] {
            self.remove_file(&format!("{id}.{ending}"))?;
        }
        Ok(())
    }

    /// Deletes a run's recording but not its description.
    ///
    /// # Errors
    /// Returns an error if it cannot be deleted.
    pub fn remove_recording(&self, id: &str) -> Result<()> {
        self.remove_file(&format!("{}.jfr", checked(id)?))
    }

    /// Returns the free disk space in bytes.
    ///
    /// # Errors
    /// Returns an error if the file system does not report it.
    pub fn free(&self) -> Result<u64> {
        let disk = fstatvfs(&self.directory)?;
        Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
    }

    fn remove_file(&self, name: &str) -> Result<()> {
        match unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn regular(&self, name: &str) -> Result<File> {
        // Without O_NONBLOCK, opening a FIFO of that name would block.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.directory, name, flags, Mode::empty())?;
        is_ours(&file)?;
        Ok(File::from(file))
    }
}

/// A recording that is being written; deleted if dropped before it is complete.
#[derive(Debug)]
pub struct Upload {
    directory: OwnedFd,
    id: String,
    file: File,
    done: bool,
}

impl Upload {
    /// Returns the file to write to.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Flushes the data to disk.
    ///
    /// # Errors
    /// Returns an error if the disk cannot be written.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// Gives the recording its final name.
    ///
    /// # Errors
    /// Returns an error if the file cannot be renamed.
    pub fn complete(mut self) -> Result<()> {
        let [from, to] = ["jfr.tmp", "jfr"].map(|ending| format!("{}.{ending}", self.id));
        renameat(&self.directory, from.as_str(), &self.directory, to.as_str())?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.done {
            let name = format!("{}.jfr.tmp", self.id);
            let _ = unlinkat(&self.directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn private() -> Mode {
    Mode::S_IRUSR | Mode::S_IWUSR
}

/// Reject anything but an id, which could be a path.
fn checked(id: &str) -> Result<&str> {
    if id::is_run(id) { Ok(id) } else { Err(ErrorKind::NotFound.into()) }
}

fn is_ours(file: impl AsFd) -> Result<()> {
    let stat = fstat(file)?;
    let regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    if regular && stat.st_uid == nix::unistd::geteuid().as_raw() && stat.st_nlink == 1 {
        return Ok(());
    }
    Err(ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_is_visible_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let store = History::open(folder.path()).unwrap();
        let id = id::new_run(1_700_000_000_000).unwrap();
        let mut upload = store.begin(&id).unwrap();
        upload.file().write_all(b"half").unwrap();
        assert!(store.recording(&id).is_err());
        assert_eq!(store.begin(&id).unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(upload);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the lock is left");
        let mut upload = store.begin(&id).unwrap();
        upload.file().write_all(b"whole").unwrap();
        upload.complete().unwrap();
        let mut text = String::new();
        store.recording(&id).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole");
    }

    #[test]
    fn links_pipes_and_invalid_names_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let store = History::open(folder.path()).unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("secret"), "s").unwrap();
        let [link, hard, fifo] = [(); 3].map(|()| id::new_run(1_700_000_000_000).unwrap());
        std::os::unix::fs::symlink(at("secret"), at(&format!("{link}.jfr"))).unwrap();
        std::fs::hard_link(at("secret"), at(&format!("{hard}.jfr"))).unwrap();
        nix::unistd::mkfifo(&at(&format!("{fifo}.jfr")), private()).unwrap();
        for name in [link.as_str(), &hard, &fifo, "secret", "../secret", "", "."] {
            assert!(store.recording(name).is_err(), "{name}");
        }
    }

    #[test]
    fn second_service_cannot_open_same_directory() {
        let folder = tempfile::tempdir().unwrap();
        let store = History::open(folder.path()).unwrap();
        assert!(History::open(folder.path()).unwrap_err().to_string().contains("--dir"));
        drop(store);
        History::open(folder.path()).unwrap();
    }
}
