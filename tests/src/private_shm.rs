//! A `/dev/shm` for one run of the tests.
//!
//! A recorder that a test kills leaves its session directory in `/dev/shm`, where it is kept for days for a
//! recovery, and every `flightline` command reads all session directories. With a hundred of them a short
//! command takes three times the CPU time.

use std::ffi::CStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SHM: &str = "/dev/shm";
/// A younger session directory may still be incomplete.
const YOUNG: Duration = Duration::from_secs(5);

static IS_PRIVATE: AtomicBool = AtomicBool::new(false);

/// Moves this process to a mount namespace of its own and mounts an empty `/dev/shm` there. The kernel frees
/// it after the last process of the run. Must be called before the process has a second thread.
///
/// # Errors
///
/// If the kernel refuses it, as it does for users other than root. Sessions are then in the machine's
/// `/dev/shm`.
pub fn enter() -> io::Result<()> {
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let mount = |kind: Option<&CStr>, target: &CStr, flags, data: Option<&CStr>| {
        let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: all strings end with a zero byte and outlive the call.
        check(unsafe {
            libc::mount(c"none".as_ptr(), target.as_ptr(), pointer(kind), flags, pointer(data).cast())
        })
    };
    // SAFETY: no memory is involved.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // Otherwise the mount would propagate to the machine.
    mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE, None)?;
    mount(Some(c"tmpfs"), c"/dev/shm", libc::MS_NOSUID | libc::MS_NODEV, Some(c"mode=1777"))?;
    IS_PRIVATE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Removes the sessions that earlier tests of this run left behind. Call it only while no test runs that needs one of them.
pub fn remove_abandoned_sessions() {
    if IS_PRIVATE.load(Ordering::Relaxed) {
        remove_abandoned(Path::new(SHM), YOUNG);
    }
}

/// Removes the session directories in `folder` that have no live recorder and are older than `young`.
fn remove_abandoned(folder: &Path, young: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let dir = entry.path();
        let is_session = entry.file_name().to_string_lossy().starts_with("flightline-");
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        // The recorder holds a lock on this file while it lives.
        let is_held = File::open(dir.join("session"))
            .is_ok_and(|page| matches!(page.try_lock_shared(), Err(TryLockError::WouldBlock)));
        if is_session && !is_held && age.is_some_and(|age| age >= young) {
            // A process of a finished test may still create files in it; the next call removes the rest.
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_sessions_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let session = |name: &str| {
            let dir = folder.path().join(name);
            fs::create_dir(&dir).unwrap();
            let page = File::create(dir.join("session")).unwrap();
            (dir, page)
        };
        let (held, page) = session("flightline-0-1");
        page.lock().unwrap();
        let (abandoned, _) = session("flightline-0-2");
        let (other, _) = session("other");
        remove_abandoned(folder.path(), Duration::from_secs(60));
        assert!(abandoned.exists(), "it is too young");
        remove_abandoned(folder.path(), Duration::ZERO);
        assert_eq!((held.exists(), abandoned.exists(), other.exists()), (true, false, true));
    }
}
