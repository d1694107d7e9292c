//! History on disk: of each run `<id>.json`, and `<id>.jfr` if there is a recording.
//!
//! All files are opened below one directory descriptor, by names made here, and never through a link. A file has its name when
//! it is complete. What else lies in the directory is neither read nor removed.

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

/// Larger than any description of a run.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

/// A run and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The run.
    pub run: Run,
    /// Its target, as it was then.
    pub of: Target,
}

/// A directory with history.
#[derive(Debug)]
pub struct Store {
    directory: OwnedFd,
    /// Held as long as we live: two services in one directory would remove each other's files.
    _lock: Flock<File>,
    /// Descriptions are written one after the other, each as it is by then.
    writing: Mutex<()>,
}

/// What lies in a store.
#[derive(Debug, Default)]
pub struct Found {
    /// Runs, oldest first.
    pub runs: Vec<Kept>,
    /// Descriptions that cannot be read, and why.
    pub unreadable: Vec<String>,
}

impl Store {
    /// Opens a directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened, or another service has it.
    pub fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let directory = open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY, Mode::empty())?;
        let flags = OFlag::O_CREAT | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let lock = File::from(openat(&directory, "lock", flags, private())?);
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            nix::Error::EAGAIN => Error::new(
                ErrorKind::ResourceBusy,
                "another flightline serve has this directory; give --dir another",
            ),
            errno => errno.into(),
        })?;
        Ok(Self { directory, _lock: lock, writing: Mutex::new(()) })
    }

    /// Reads what is there and removes what was not completed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read(&self) -> Result<Found> {
        let mut found = Found::default();
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

    fn described(&self, id: &str) -> Result<Kept> {
        let mut text = String::new();
        self.regular(&format!("{id}.json"))?.take(LONGEST_DESCRIPTION).read_to_string(&mut text)?;
        let kept: Kept = serde_json::from_str(&text)?;
        if kept.run.id != id {
            return Err(Error::new(ErrorKind::InvalidData, "describes another run"));
        }
        Ok(kept)
    }

    /// Writes a run's description as `now` gives it when its turn has come; nothing if it gives none.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn describe(&self, now: impl FnOnce() -> Option<Kept>) -> Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = now() else { return Ok(()) };
        let name = format!("{}.json", checked(&kept.run.id)?);
        let temporary = format!("{name}.tmp");
        let flags = OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.directory, temporary.as_str(), flags, private())?);
        file.write_all(&serde_json::to_vec(&kept)?)?;
        // Not waited for by the disk: what a power failure takes is one run's description.
        drop(file);
        Ok(renameat(&self.directory, temporary.as_str(), &self.directory, name.as_str())?)
    }

    /// Begins a run's recording.
    ///
    /// # Errors
    /// It cannot be made; another is being written.
    pub fn begin(&self, id: &str) -> Result<Upload> {
        let name = format!("{}.jfr.tmp", checked(id)?);
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.directory, name.as_str(), flags, private())?);
        Ok(Upload { directory: self.directory.try_clone()?, id: id.to_owned(), file, done: false })
    }

    /// A run's recording, for reading.
    ///
    /// # Errors
    /// There is none, or what has its name is none of ours.
    pub fn recording(&self, id: &str) -> Result<File> {
        self.regular(&format!("{}.jfr", checked(id)?))
    }

    /// Removes all there is of a run.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, id: &str) -> Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = checked(id)?;
        // The description last: as long as it is there, a later start knows of the recording.
        for ending in ["jfr.tmp", "jfr", "json"] {
            self.remove_file(&format!("{id}.{ending}"))?;
        }
        Ok(())
    }

    /// Removes a run's recording, not its description.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_recording(&self, id: &str) -> Result<()> {
        self.remove_file(&format!("{}.jfr", checked(id)?))
    }

    /// Bytes that are free on the disk.
    ///
    /// # Errors
    /// It does not say.
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
        // Without O_NONBLOCK a FIFO of that name would let us wait.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.directory, name, flags, Mode::empty())?;
        is_ours(&file)?;
        Ok(File::from(file))
    }
}

/// A recording that is being written; gone if it is dropped before it is complete.
#[derive(Debug)]
pub struct Upload {
    directory: OwnedFd,
    id: String,
    file: File,
    done: bool,
}

impl Upload {
    /// Where its bytes go.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Waits until the disk has what was written.
    ///
    /// # Errors
    /// It does not take it.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// The run's recording is complete from now on: a renaming.
    ///
    /// # Errors
    /// It cannot be put in its place.
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

/// A name that is made of anything but an id would be a path.
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
    fn a_recording_is_there_when_it_is_complete_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let id = id::of_run(1_700_000_000_000).unwrap();
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
    fn links_pipes_and_other_names_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("secret"), "s").unwrap();
        let [link, hard, fifo] = [(); 3].map(|()| id::of_run(1_700_000_000_000).unwrap());
        std::os::unix::fs::symlink(at("secret"), at(&format!("{link}.jfr"))).unwrap();
        std::fs::hard_link(at("secret"), at(&format!("{hard}.jfr"))).unwrap();
        nix::unistd::mkfifo(&at(&format!("{fifo}.jfr")), private()).unwrap();
        for name in [link.as_str(), &hard, &fifo, "secret", "../secret", "", "."] {
            assert!(store.recording(name).is_err(), "{name}");
        }
    }

    #[test]
    fn two_services_do_not_share_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert!(Store::open(folder.path()).unwrap_err().to_string().contains("--dir"));
        drop(store);
        Store::open(folder.path()).unwrap();
    }
}
