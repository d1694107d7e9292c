//! The owner file of a repository's folder: the recorded process, and the location of its shared memory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::settings::labels::Label;

/// Name of the file that contains the [`Owner`] as JSON.
pub const OWNER_FILE: &str = "flightline.json";
/// Its temporary name while it is written.
pub(crate) const NEW_OWNER_FILE: &str = ".flightline.json.new";
/// Locked as long as a recorder writes to the folder.
pub const HELD_FILE: &str = ".held";

/// The process that is recorded in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The PID of the recorded process.
    pub pid: u32,
    /// The PID of the recorder.
    pub recorder: u32,
    /// Session directory, whose shared memory contains the data that is not in a chunk yet.
    pub session: PathBuf,
    /// When the recording of this process started, ns since 1970.
    pub start_epoch_ns: u64,
    /// The labels of the process. A recovery writes them again.
    pub labels: Vec<Label>,
}

impl Owner {
    /// Writes the file.
    ///
    /// # Errors
    /// A file system error.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let value = json!({
            "pid": self.pid,
            "recorder": self.recorder,
            "session": self.session.to_string_lossy(),
            "startEpochNanos": self.start_epoch_ns,
            "labels": Value::Object(self.labels.iter().map(|(n, v)| (n.clone(), v.as_str().into())).collect()),
        });
        // Written under a temporary name, so that a recorder that is killed leaves either the old or the new
        // file. Names of chunks never start with a dot.
        let new = folder.join(NEW_OWNER_FILE);
        let mut file = OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        serde_json::to_writer_pretty(file, &value).map_err(io::Error::other)?;
        fs::rename(new, folder.join(OWNER_FILE))
    }

    /// Reads the file; a damaged file returns `None`.
    pub fn read(folder: &Path) -> Option<Owner> {
        let file = fs::read(folder.join(OWNER_FILE)).ok()?;
        let value: Value = serde_json::from_slice(&file).ok()?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let labels = value.get("labels").and_then(Value::as_object).into_iter().flatten();
        Some(Owner {
            pid: u32::try_from(number("pid")?).ok()?,
            recorder: u32::try_from(number("recorder")?).ok()?,
            session: PathBuf::from(value.get("session")?.as_str()?),
            start_epoch_ns: number("startEpochNanos")?,
            labels: labels.filter_map(|(n, v)| Some((n.clone(), v.as_str()?.to_owned()))).collect(),
        })
    }
}

/// Locks a folder as in use for as long as the file is open.
///
/// # Errors
/// A file system error, or another recorder holds the folder.
pub(crate) fn hold(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(folder.join(HELD_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_file_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let session = "/dev/shm/x".into();
        let labels = vec![("zone".to_owned(), "eu-1".to_owned())];
        let owner = Owner { pid: 7, recorder: 8, session, start_epoch_ns: 1 << 60, labels };
        owner.write(folder.path()).unwrap();
        assert_eq!(Owner::read(folder.path()), Some(owner));
        fs::write(folder.path().join(OWNER_FILE), "{").unwrap();
        assert_eq!(Owner::read(folder.path()), None);
        let lock = hold(folder.path()).unwrap();
        assert!(super::super::limits::in_use(folder.path()) && hold(folder.path()).is_err());
        drop(lock);
        assert!(!super::super::limits::in_use(folder.path()));
    }
}
