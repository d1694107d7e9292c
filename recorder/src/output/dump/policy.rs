//! The policy for automatic copies: when, where, and how many are retained.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::trigger::Condition;
use crate::{error::Error, os::clock, output::repository::stamp};

/// Copies that are retained by default.
pub const KEEP: usize = 10;
/// Default time between two copies for one reason.
pub const EVERY: Duration = Duration::from_secs(600);

/// The policy for copies that a recorder makes on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The folder of the copies.
    pub dir: PathBuf,
    /// The conditions that trigger a copy.
    pub on: Vec<Condition>,
    /// A signal to the recorder that triggers a copy.
    pub signal: Option<Signal>,
    /// How far back a copy goes; `None` copies the whole recording.
    pub last: Option<Duration>,
    /// Shortest time between two copies of a process for one condition.
    pub every: Duration,
    /// Number of copies that are retained; older ones are removed.
    pub keep: usize,
}

impl Policy {
    /// Returns a policy without conditions.
    pub fn new(dir: impl Into<PathBuf>) -> Policy {
        Policy { dir: dir.into(), on: Vec::new(), signal: None, last: None, every: EVERY, keep: KEEP }
    }

    /// Checks the policy.
    ///
    /// # Errors
    /// The invalid option, and the reason.
    pub fn check(&self) -> Result<(), Error> {
        if self.keep == 0 {
            return Err(Error::Setting { name: "dump-keep", problem: "0 copies; give at least 1".into() });
        }
        Ok(())
    }

    /// Returns the path for a copy of process `pid` (0: of several) for the reason `word`. Creates the
    /// folder.
    ///
    /// # Errors
    /// A file system error.
    pub(crate) fn place(&self, pid: u32, word: &str) -> io::Result<PathBuf> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let stamp = stamp(clock::realtime_ns());
        for number in 0..100 {
            let more = if number == 0 { String::new() } else { format!("-{number}") };
            let path = self.dir.join(format!("{stamp}_{pid}_{word}{more}.jfr"));
            if !path.exists() {
                return Ok(path);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes the oldest copies above the limit.
    pub(crate) fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut copies: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| is_copy(p)).collect();
        // Several copies in the same second differ in other parts of their names.
        copies.sort_by_cached_key(|p| {
            let stem = p.file_stem().unwrap_or_default().to_owned();
            (fs::metadata(p).and_then(|m| m.modified()).ok(), stem)
        });
        let too_many = copies.len().saturating_sub(self.keep);
        for path in &copies[..too_many] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns true if a file has a name from [`Policy::place`].
fn is_copy(path: &Path) -> bool {
    let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else { return false };
    let parts: Vec<&str> = stem.split('_').collect();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    path.extension().is_some_and(|e| e == "jfr")
        && parts.len() == 8
        && parts[..7].iter().all(|part| digits(part))
        && parts[..6].iter().map(|part| part.len()).eq([4, 2, 2, 2, 2, 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_copies_are_retained_and_other_files_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let policy = Policy { keep: 2, ..Policy::new(dir.path().join("new/dumps")) };
        let paths: Vec<PathBuf> = (0..3)
            .map(|_| {
                let path = policy.place(7, "cpu").unwrap();
                fs::write(&path, "x").unwrap();
                path
            })
            .collect();
        assert!(is_copy(&paths[0]) && is_copy(&paths[2]), "{paths:?}");
        let old = policy.dir.join("2020_01_01_00_00_00_7_exit.jfr");
        let other = policy.dir.join("kept.jfr");
        fs::write(&old, "x").unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(60);
        fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
        fs::write(&other, "x").unwrap();
        policy.prune();
        let left: Vec<bool> = paths.iter().map(|p| p.exists()).collect();
        assert!(!old.exists() && other.exists() && left == [false, true, true], "{left:?}");
        assert!(Policy { keep: 0, ..policy }.check().is_err());
    }
}
