//! The C library's own functions behind the names that `preload` interposes.
//!
//! The preload object sets them (found by `dlsym(RTLD_NEXT, …)`), because there the plain name would lead
//! back to its own wrapper. The linked library interposes nothing, so the plain name is the right one; this
//! is the default.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `int sigaction(int, const struct sigaction *, struct sigaction *)`
pub type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

static SIGACTION: AtomicUsize = AtomicUsize::new(0);

/// Sets the address of the C library's `sigaction`.
///
/// # Safety
/// `address` is that function's.
pub unsafe fn set_sigaction(address: *mut c_void) {
    SIGACTION.store(address as usize, Ordering::Relaxed);
}

/// The C library's `sigaction`; it adds the restorer that unwinders recognise.
///
/// # Safety
/// As the function itself.
pub unsafe fn sigaction(signo: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let address = SIGACTION.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: the caller guarantees the contract of `sigaction` for these arguments.
        return unsafe { libc::sigaction(signo, new, old) };
    }
    // SAFETY: set by `set_sigaction` under its contract.
    let real = unsafe { core::mem::transmute::<usize, Sigaction>(address) };
    // SAFETY: the caller guarantees the contract of `sigaction` for these arguments.
    unsafe { real(signo, new, old) }
}
