//! The token of a service: where it is stored, and which users may have written it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flightline_service::id;

/// Name of the token's file in the service's directory.
const NAME: &str = "token";
/// Minimum length of a token in bytes.
const LEAST: usize = 16;
/// Maximum bytes read from a file.
const MOST: u64 = 4096;

/// Returns the first line of a file.
///
/// # Errors
/// The file cannot be read, is too short, or another user may have written it.
pub fn read(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read the token {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let (status, own) = (file.metadata().with_context(cannot)?, nix::unistd::geteuid().as_raw());
    let others_write = status.mode() & 0o022 != 0 || ![0, own].contains(&status.uid());
    if status.is_file() && others_write {
        bail!(
            "{0}: other users can write the token file; run `chown {own} {0}; chmod 600 {0}`",
            path.display()
        );
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).with_context(cannot)?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.len() < LEAST {
        bail!(
            "{0}: a token must have at least {LEAST} characters; create one with `(umask 077; head -c 24 \
             /dev/urandom | base64 > {0})`",
            path.display()
        );
    }
    Ok(line.to_owned())
}

/// Returns a warning if every user of this machine can read the file.
pub fn warning(path: &Path) -> Option<String> {
    let readable = path.metadata().is_ok_and(|status| status.is_file() && status.mode() & 0o004 != 0);
    readable.then(|| {
        format!("{0}: every user of this machine can read the token; run `chmod 600 {0}`", path.display())
    })
}

/// Returns the path of the token in a service's directory; creates both if necessary.
///
/// # Errors
/// Returns an error if they cannot be written.
pub fn make(directory: &Path) -> Result<PathBuf> {
    let path = directory.join(NAME);
    let cannot = || format!("cannot write the token {}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(cannot)?;
    let token = id::secret().with_context(cannot)?;
    // Link a complete file, so that a service that starts at the same time does not read half a token.
    let whole = directory.join(format!(".{NAME}-{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&whole).with_context(cannot)?;
    let linked = writeln!(file, "{token}").and_then(|()| std::fs::hard_link(&whole, &path));
    std::fs::remove_file(&whole).with_context(cannot)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error).with_context(cannot),
        _ => Ok(path),
    }
}

/// Returns the path of the token of this user's own service if `base` is an address of this machine and there
/// is one.
pub fn find_for(base: &str) -> Option<PathBuf> {
    let (_, rest) = base.split_once("://")?;
    let host = rest.split('/').next()?;
    let name = match host.strip_prefix('[') {
        Some(six) => six.split(']').next()?,
        None => host.split(':').next()?,
    };
    let local = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let path = home().ok()?.join(NAME);
    (local && path.is_file()).then_some(path)
}

/// Returns the default directory of a service.
///
/// # Errors
/// Returns an error if this user has no home directory.
pub fn home() -> Result<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Ok("/var/lib/flightline/serve".into());
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        state.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    match state {
        Some(state) => Ok(state.join("flightline/serve")),
        None => bail!("cannot find the home directory for runs; give a directory with --dir"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_created_once_with_private_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state/serve");
        let path = make(&directory).unwrap();
        let first = read(&path).unwrap();
        assert_eq!(first.len(), 32);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(read(&make(&directory).unwrap()).unwrap(), first);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn short_or_others_writable_token_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "long enough to be a token\n").unwrap();
        for (mode, right) in [(0o600, true), (0o640, true), (0o644, true), (0o620, false), (0o606, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), right, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("at least 16 characters"));
    }

    #[test]
    fn tokens_are_not_sent_to_other_machines() {
        for other in ["http://10.0.0.1:7070", "https://prof.example", "http://127.0.0.1.example:1", "none"] {
            assert_eq!(find_for(other), None, "{other}");
        }
    }
}
