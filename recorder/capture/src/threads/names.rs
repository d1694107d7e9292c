//! Records the names that the program gives to threads, at the call: earlier samples have the old name.

use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use flightline_in_signal::publish::sync_event;

use crate::session;

/// True if the program's calls that name threads come through this object. See [`interposed`].
static INTERPOSED: AtomicBool = AtomicBool::new(false);

/// Records that the calls come through this object, because the loader loaded it before the program.
pub fn interposed() {
    INTERPOSED.store(true, Relaxed);
}

/// Returns true if every name is recorded when the program gives it.
pub(crate) fn are_recorded() -> bool {
    INTERPOSED.load(Relaxed)
}

/// Records that the thread with this thread pointer has been given a name; `None`: the calling thread.
///
/// # Safety
/// At `name` there are 15 bytes, or fewer up to a zero.
pub unsafe fn renamed(thread_pointer: Option<usize>, name: *const c_char) {
    // The child of a vfork and restricted threads must not record.
    if session::current().is_none() {
        return;
    }
    let mut kept = [0; 16];
    // The kernel stores 15 bytes.
    for (index, to) in kept.iter_mut().enumerate().take(15) {
        // SAFETY: the caller guarantees 15 bytes, or fewer up to a zero, and no zero has come yet.
        *to = unsafe { name.add(index).read() } as u8;
        if *to == 0 {
            break;
        }
    }
    sync_event::renamed(thread_pointer, &kept);
}
