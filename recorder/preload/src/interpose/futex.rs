//! The futex system call through the C library's `syscall`. Rust's standard library, parking_lot and C++'s
//! atomics and semaphores wait this way.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use flightline_capture::engines::lock_waits::{self, Limit, Wait};
use flightline_in_signal::payload::lock;
use libc::{c_long, timespec};

use super::seccomp::{Syscall, real_syscall};
use crate::real::fail;

/// Flags next to the operation.
const PRIVATE: c_int = 128;
const REALTIME: c_int = 256;
const WAIT: c_int = 0;
const LOCK_PI: c_int = 6;
const WAIT_BITSET: c_int = 9;
const WAIT_REQUEUE_PI: c_int = 11;
const LOCK_PI2: c_int = 13;
/// The holder's thread id in the word of a lock with priority inheritance.
const TID: u32 = 0x3fff_ffff;

/// `syscall(SYS_futex, word, operation, value, timeout, word2, value3)`
///
/// # Safety
/// As `futex(2)`.
pub unsafe extern "C" fn futex(
    number: c_long,
    word: usize,
    operation: usize,
    value: usize,
    timeout: usize,
    word2: usize,
    value3: usize,
) -> c_long {
    let Some(real) = real_syscall() else { return c_long::from(fail(libc::ENOSYS)) };
    let bits = operation as c_int;
    let plain = bits & !(PRIVATE | REALTIME);
    let waits_here = matches!(plain, WAIT | LOCK_PI | WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2);
    if !waits_here || !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(number, word, operation, value, timeout, word2, value3) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { wait(real, number, [word, operation, value, timeout, word2, value3], plain) }
}

/// # Safety
/// The same requirements as for [`futex`].
unsafe fn wait(real: Syscall, number: c_long, args: [usize; 6], plain: c_int) -> c_long {
    let [word, operation, value, timeout, word2, value3] = args;
    let time = timeout as *const timespec;
    let by_clock = match plain {
        LOCK_PI => libc::CLOCK_REALTIME,
        _ if operation as c_int & REALTIME != 0 => libc::CLOCK_REALTIME,
        _ => libc::CLOCK_MONOTONIC,
    };
    // The kernel must refuse a bad address, so the limit is read only after the kernel has accepted it.
    let limit = || {
        // SAFETY: null or an address that the kernel has read a time from.
        unsafe { if plain == WAIT { Limit::after(time) } else { Limit::until(by_clock, time) } }
    };
    let wait = if plain == LOCK_PI || plain == LOCK_PI2 {
        // SAFETY: a lock word of the program, which has just tried to acquire it by an atomic operation.
        let owner = unsafe { &*(word as *const AtomicU32) }.load(Relaxed) & TID;
        Wait::begin_owned(lock::FUTEX_PI, word, Limit::None, owner)
    } else {
        Wait::begin_owned(lock::FUTEX, word, Limit::None, 0)
    };
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(number, word, operation, value, timeout, word2, value3) };
    // SAFETY: the calling thread's own errno.
    let errno = if r < 0 { unsafe { *libc::__errno_location() } } else { 0 };
    // With another value than expected the call did not wait.
    let waited = matches!(errno, 0 | libc::ETIMEDOUT | libc::EINTR);
    if waited {
        wait.limited(limit()).end(errno == libc::ETIMEDOUT);
    }
    r
}
