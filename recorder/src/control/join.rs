//! Makes a waiting process join a session.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flightline_in_signal::command::{JOIN, MAILBOX_BYTES, MAILBOX_DIRS, MAILBOX_PREFIX};

use super::threads::{Commander, Notice};
use crate::error::Error;

/// Time limit for the process to join.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that received the command to join.
pub struct Joining {
    mailbox: PathBuf,
    commander: Commander,
    since: Instant,
}

/// Sends process `pid` the command to join `session`. With `interrupt`, a thread may see an `EINTR` that it
/// would not see otherwise.
///
/// # Errors
/// The mailbox could not be written.
pub fn join(pid: u32, session: &Path, interrupt: bool) -> Result<Joining, Error> {
    let mut refused = None;
    for dir in MAILBOX_DIRS {
        let path = Path::new(dir).join(format!("{MAILBOX_PREFIX}{pid}"));
        match write(&path, session) {
            Ok(()) => {
                let worst = if interrupt { Notice::Unexpected } else { Notice::Expected };
                let commander = Commander::new(pid, JOIN, worst);
                return Ok(Joining { mailbox: path, commander, since: Instant::now() });
            }
            Err(error) => refused = Some(Error::io("write", &path, error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Unavailable { name: "pid", problem: "no mailbox".into() }))
}

fn write(path: &Path, session: &Path) -> io::Result<()> {
    let text = session.to_str().filter(|t| t.len() <= MAILBOX_BYTES);
    let text = text.ok_or(io::ErrorKind::InvalidFilename)?;
    // A stale file. Files of other users cannot be removed from such a directory.
    if fs::symlink_metadata(path).is_ok_and(|m| m.uid() == nix::unistd::geteuid().as_raw()) {
        fs::remove_file(path)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

impl Joining {
    /// Sends the command again if it is due. Call this until the process has joined.
    ///
    /// # Errors
    /// The process did not join in time.
    pub fn urge(&mut self) -> Result<(), Error> {
        if self.since.elapsed() < PATIENCE {
            self.commander.urge();
            return Ok(());
        }
        let problem = match &self.commander.refused {
            Some(waits) if !waits.is_empty() => format!(
                "no thread could accept the command: all wait in {waits}, which a signal would \
                 interrupt; use --interrupt to interrupt one of them"
            ),
            _ => "the process did not respond; it may be stopped, or a seccomp filter may block its system calls".to_owned(),
        };
        Err(Error::Unavailable { name: "pid", problem })
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.mailbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn mailbox_is_private_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("box");
        for session in ["/a", "/b"] {
            write(&path, Path::new(session)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), session);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let target = dir.path().join("target");
        fs::write(&target, "kept").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write(&path, Path::new("/c")).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept", "a link is not followed");
        assert!(write(&path, Path::new(&"x".repeat(300))).is_err());
    }
}
