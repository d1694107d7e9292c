//! Threads that may not make system calls, because they or their process have a filter (seccomp). [`crate::threads::seccomp`]
//! follows the threads that install one.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::{os, shadow};

/// A filter for all threads was installed by one of them.
pub(crate) static EVERYWHERE: AtomicBool = AtomicBool::new(false);

/// Returns true if the calling thread may not make system calls for the recorder.
pub fn applies() -> bool {
    EVERYWHERE.load(Relaxed) || shadow::shadow() & shadow::SANDBOXED != 0
}

/// Returns true if this process already runs under a filter, installed before the program was executed.
pub fn filtered() -> bool {
    const FILTER: usize = 2;
    // SAFETY: no pointers.
    let mode = unsafe { os::syscall(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) };
    mode == Ok(FILTER)
}
