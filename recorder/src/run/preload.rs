//! Finds the shared object to preload into recorded programs.
//!
//! The locations are, in this order:
//!
//! * `FLIGHTLINE_PRELOAD`,
//! * next to the command, as in a source tree,
//! * `../lib/flightline` and `../lib`, as in a package,
//! * the copy embedded in the command, unpacked into the user's cache, as after `cargo install`.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::error::Error;

/// Name of the shared object.
pub const NAME: &str = "libflightline.so";
/// Overrides the location.
pub const ENV: &str = "FLIGHTLINE_PRELOAD";

/// Returns its path. `embedded` is the copy in the command itself, empty if it has none.
pub fn find(embedded: &[u8]) -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(ENV).filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return fs::canonicalize(&path).map_err(|e| Error::io(&format!("find {NAME} by {ENV} at"), &path, e));
    }
    let exe = env::current_exe();
    let exe = exe.map_err(|e| Error::Io { doing: "find the flightline command".into(), source: e })?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let places = ["", "deps", "../lib/flightline", "../lib", "../lib64/flightline"];
    let found = places.iter().map(|p| dir.join(p).join(NAME)).find(|p| p.is_file());
    if let Some(path) = found.and_then(|p| fs::canonicalize(p).ok()) {
        return Ok(path);
    }
    if !embedded.is_empty() {
        return unpack(embedded);
    }
    Err(Error::Unavailable {
        name: NAME,
        problem: format!(
            "not found next to {}, in ../lib/flightline or in ../lib; build it with `cargo build -p \
             flightline-preload`, or set {ENV} to its path",
            exe.display()
        ),
    })
}

/// Writes the embedded object to a permanent location, because programs that outlive the recording may load
/// it again.
fn unpack(bytes: &[u8]) -> Result<PathBuf, Error> {
    let mut refused = None;
    for dir in caches() {
        match unpack_into(&dir, bytes) {
            Ok(path) => return Ok(path),
            Err(error) => refused = Some(Error::io(&format!("unpack {NAME} into"), &dir, error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Unavailable {
        name: NAME,
        problem: "no directory to unpack it into".into(),
    }))
}

fn caches() -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let own = format!("flightline-{}", nix::unistd::geteuid());
    [cache.map(|c| c.join("flightline")), Some(env::temp_dir().join(own))]
        .into_iter()
        .flatten()
        .filter(|p| p.is_absolute())
        .collect()
}

fn unpack_into(dir: &Path, bytes: &[u8]) -> std::io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    // In /tmp, another user could have created it first.
    if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 || !meta.is_dir() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let path = dir.join(format!("libflightline-{:016x}.so", fingerprint(bytes)));
    if fs::read(&path).is_ok_and(|old| old == bytes) {
        return Ok(path);
    }
    let temporary = dir.join(format!(".{}.tmp", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&temporary, &path)?;
    Ok(path)
}

/// FNV-1a, to distinguish builds; the contents are compared as well.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_object_is_unpacked_once_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let path = unpack_into(&cache, b"object").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"object");
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(unpack_into(&cache, b"object").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        fs::write(&path, "damaged").unwrap();
        assert_eq!(fs::read(unpack_into(&cache, b"object").unwrap()).unwrap(), b"object");
        assert_ne!(unpack_into(&cache, b"another build").unwrap(), path);
    }

    #[test]
    fn foreign_directories_are_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(unpack_into(dir.path(), b"object").is_err());
    }
}
