//! A rolling repository: the last hours of recordings, with a folder for each process and a file for each
//! chunk, in the layout of the JDK
//! (`2026_11_21_15_07_41_4711/2026_11_21_15_07_41.jfr`), so that `EventStream.openRepository` follows it.
//!
//! Each chunk can be read on its own: machine, settings, processes, labels and libraries are written again in
//! each. To stay within the limits, the oldest chunks that no recorder writes to are removed first.

mod limits;
mod owner;

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use limits::{Space, remove_folder};
pub use limits::{in_use, tidy};
pub(crate) use owner::hold;
pub use owner::{HELD_FILE, OWNER_FILE, Owner};

use crate::error::Error;

/// Upper limit of a chunk's size, because readers load whole chunks into memory.
pub const MOST_CHUNK_BYTES: u64 = 256 << 20;
/// Default size at which a chunk is closed; the same as the JDK's.
pub const CHUNK_BYTES: u64 = 12 << 20;
/// Default age at which a chunk is closed: the amount that is removed at once, and that JMC can open as one
/// file.
pub const CHUNK_AGE: Duration = Duration::from_secs(15 * 60);
/// Smallest size of a repository. It must hold several chunks of one process.
pub const MIN_BYTES: u64 = 1 << 20;
/// A chunk may use at most one such part of the permitted size.
const PARTS: u64 = 8;
/// Shortest and longest time between two searches for chunks that are too old.
const TIDY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Smallest chunk, bytes.
const MIN_CHUNK_BYTES: u64 = 64 << 10;

/// The location and the limits of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The folder that has one folder for each process.
    pub root: PathBuf,
    /// Chunks that were finished longer ago than this are removed, after ten seconds at the earliest.
    pub max_age: Option<Duration>,
    /// Limit of disk space for all recordings under the root, bytes; the oldest chunks are removed.
    pub max_size: Option<u64>,
    /// A chunk is closed at this size.
    pub chunk_bytes: u64,
    /// A chunk is closed at this age.
    pub chunk_age: Duration,
}

impl Repository {
    /// Returns a repository without limits.
    pub fn new(root: impl Into<PathBuf>) -> Repository {
        Repository {
            root: root.into(),
            max_age: None,
            max_size: None,
            chunk_bytes: CHUNK_BYTES,
            chunk_age: CHUNK_AGE,
        }
    }

    /// Returns an error for limits that cannot be enforced.
    ///
    /// # Errors
    /// The invalid option, and the reason.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |name, problem: String| Err(Error::Setting { name, problem });
        if let Some(size) = self.max_size.filter(|size| *size < MIN_BYTES) {
            return wrong("max-size", format!("{size} bytes are not enough; give at least 1M"));
        }
        if let Some(age) = self.max_age.filter(|age| *age < Duration::from_secs(1)) {
            return wrong("max-age", format!("{age:?} is too short; give at least 1s"));
        }
        if self.chunk_age < Duration::from_secs(1) {
            return wrong("chunk-age", format!("{:?} is too short; give at least 1s", self.chunk_age));
        }
        if self.chunk_bytes < MIN_CHUNK_BYTES || self.chunk_bytes > MOST_CHUNK_BYTES {
            return wrong("chunk-size", format!("{} is not between 64K and 256M", self.chunk_bytes));
        }
        Ok(())
    }

    /// Returns the limits as options of `flightline record` and `flightline drain`.
    pub fn as_options(&self) -> Vec<std::ffi::OsString> {
        let age = |time: Duration| format!("{}ns", time.as_nanos());
        let mut words: Vec<std::ffi::OsString> = vec!["--repository".into(), self.root.clone().into()];
        words.extend(self.max_age.map(|t| format!("--max-age={}", age(t)).into()));
        words.extend(self.max_size.map(|bytes| format!("--max-size={bytes}").into()));
        words.push(format!("--chunk-age={}", age(self.chunk_age)).into());
        words.push(format!("--chunk-size={}", self.chunk_bytes).into());
        words
    }

    /// Returns the size at which a chunk is closed. The size limit must have room for several.
    pub fn chunk_limit(&self) -> u64 {
        match self.max_size {
            Some(size) => self.chunk_bytes.min((size / PARTS).max(MIN_CHUNK_BYTES)),
            None => self.chunk_bytes,
        }
    }

    /// Returns the age at which a chunk is closed. Old chunks are removed as a whole.
    pub fn chunk_age_limit(&self) -> Duration {
        match self.max_age {
            Some(age) => self.chunk_age.min((age / PARTS as u32).max(Duration::from_secs(1))),
            None => self.chunk_age,
        }
    }

    /// Returns the time between two searches for chunks that are too old, ns.
    pub(crate) fn tidy_ns(&self) -> u64 {
        let part = self.max_age.map_or(TIDY[1], |age| age / PARTS as u32);
        part.clamp(TIDY[0], TIDY[1]).as_nanos() as u64
    }

    /// Creates the folder for the recording of a process.
    ///
    /// # Errors
    /// A file system error.
    pub(crate) fn make_folder(&self, pid: u32) -> io::Result<PathBuf> {
        let name = format!("{}_{pid}", stamp(crate::os::clock::realtime_ns()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        for number in 0..1000 {
            // Another folder has the same second: PIDs are reused, and recording of a process may start
            // again.
            let name = if number == 0 { name.clone() } else { format!("{name}_{number:02}") };
            let folder = self.root.join(name);
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done.map(|()| folder),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Replaces `%u` in a root by the user's ID. Users cannot remove each other's chunks, so each user needs
/// their own limits.
pub fn expand_user(root: &Path) -> PathBuf {
    match root.to_str() {
        Some(text) if text.contains("%u") => {
            PathBuf::from(text.replace("%u", &nix::unistd::geteuid().to_string()))
        }
        _ => root.to_owned(),
    }
}

/// Formats local time as `2026_11_21_15_07_41`, like names of the JDK.
pub fn stamp(epoch_ns: u64) -> String {
    let seconds = (epoch_ns / 1_000_000_000) as libc::time_t;
    // SAFETY: a plain structure of numbers and a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to our own values; a null result leaves zeros.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    format!(
        "{:04}_{:02}_{:02}_{:02}_{:02}_{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// Returns the folders of processes under a root, oldest first. If the root itself is such a folder, with
/// chunks in it, returns only the root.
pub fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    if !chunks(root)?.is_empty() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found: Vec<PathBuf> = fs::read_dir(root)?
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(is_folder_name))
        .map(|e| e.path())
        .collect();
    found.sort();
    Ok(found)
}

/// Returns the chunks in a folder, oldest first.
pub fn chunks(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "jfr"))
        .collect();
    // By stem, so that `x.jfr` comes before `x_00.jfr`.
    found.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
    Ok(found)
}

/// Returns true for names of the form `dddd_dd_dd_dd_dd_dd_` and a PID.
fn is_folder_name(name: &str) -> bool {
    let mut parts = name.split('_');
    let lengths = [4, 2, 2, 2, 2, 2];
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    lengths.iter().all(|n| parts.next().is_some_and(|p| p.len() == *n && digits(p)))
        && parts.next().is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_folder_names_match_the_jdk() {
        let name = format!("{}_4711", stamp(1_763_730_461_000_000_000));
        assert!(is_folder_name(&name), "{name}");
        for other in ["2026_11_21_15_07_41", "2026_11_21_15_07_41_x", "lost+found", "20261_1_21_15_07_41_1"] {
            assert!(!is_folder_name(other), "{other}");
        }
    }

    #[test]
    fn chunk_limits_follow_from_repository_limits() {
        let mut repository = Repository::new("/x");
        assert_eq!((repository.chunk_limit(), repository.chunk_age_limit()), (CHUNK_BYTES, CHUNK_AGE));
        repository.max_size = Some(8 << 20);
        repository.max_age = Some(Duration::from_secs(80));
        assert_eq!(repository.chunk_limit(), 1 << 20);
        assert_eq!(repository.chunk_age_limit(), Duration::from_secs(10));
        repository.max_size = Some(1000);
        assert!(repository.check().is_err());
    }

    #[test]
    fn folders_and_chunks_are_listed_in_order() {
        let root = tempfile::tempdir().unwrap();
        let repository = Repository::new(root.path().join("deep/repo"));
        let first = repository.make_folder(7).unwrap();
        let second = repository.make_folder(7).unwrap();
        assert_ne!(first, second);
        assert_eq!(folders(&repository.root).unwrap().len(), 2);
        for name in ["b_00.jfr", "b.jfr", "a.jfr", "flightline.json"] {
            fs::write(first.join(name), "").unwrap();
        }
        let names: Vec<_> =
            chunks(&first).unwrap().iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.jfr", "b.jfr", "b_00.jfr"]);
        assert_eq!(folders(&first).unwrap(), [first]);
    }
}
