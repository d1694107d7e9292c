//! Waits for a condition, each of which counts as a wait. glibc has two versions of the oldest functions,
//! with different objects.

use core::ffi::{c_int, c_void};

use flightline_capture::engines::lock_waits::{self, Limit};
use flightline_in_signal::payload::lock;
use libc::{clockid_t, timespec};

use super::lock::{THRD_ERROR, THRD_TIMEDOUT, function as real, usual, waiting};
use super::symbol_versions::Both;
use crate::real::{Next, look_up};

look_up! {
    static CONDITION_WAIT: Both<0> = Both::new(c"pthread_cond_wait", c"GLIBC_2.3.2");
    static CONDITION_TIMED: Both<1> = Both::new(c"pthread_cond_timedwait", c"GLIBC_2.3.2");
}

/// `pthread_cond_wait(3)`: adds the return address of the call, which determines the version that the caller
/// uses.
///
/// # Safety
/// As the function itself.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_cond_wait(_object: *mut c_void, _mutex: *mut c_void) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rdx, qword ptr [rsp]",
        "jmp {wait}",
        ".cfi_endproc",
        wait = sym condition_wait,
    )
}

/// `pthread_cond_wait(3)`
///
/// # Safety
/// As the function itself.
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(object: *mut c_void, mutex: *mut c_void) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { condition_wait(object, mutex, 0) }
}

unsafe extern "C" fn condition_wait(object: *mut c_void, mutex: *mut c_void, caller: usize) -> c_int {
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    // SAFETY: null or a version of that function; both have this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Option<Wait>>(CONDITION_WAIT.address(caller)) };
    let Some(real) = real else { return libc::ENOSYS };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, mutex) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { waiting(lock::CONDITION, object as usize, Limit::None, -1, || real(object, mutex)) }
}

/// `pthread_cond_timedwait(3)`: adds the return address like [`pthread_cond_wait`].
///
/// # Safety
/// As the function itself.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    _object: *mut c_void,
    _mutex: *mut c_void,
    _until: *const timespec,
) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rcx, qword ptr [rsp]",
        "jmp {wait}",
        ".cfi_endproc",
        wait = sym condition_timedwait,
    )
}

/// `pthread_cond_timedwait(3)`
///
/// # Safety
/// As the function itself.
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    object: *mut c_void,
    mutex: *mut c_void,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { condition_timedwait(object, mutex, until, 0) }
}

unsafe extern "C" fn condition_timedwait(
    object: *mut c_void,
    mutex: *mut c_void,
    until: *const timespec,
    caller: usize,
) -> c_int {
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void, *const timespec) -> c_int;
    // SAFETY: null or a version of that function; both have this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Option<Wait>>(CONDITION_TIMED.address(caller)) };
    let Some(real) = real else { return libc::ENOSYS };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, mutex, until) };
    }
    let call = || {
        // SAFETY: the program's own call, forwarded to the C library's function.
        unsafe { real(object, mutex, until) }
    };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe {
        waiting(
            lock::CONDITION,
            object as usize,
            Limit::until(lock_waits::UNKNOWN_CLOCK, until),
            libc::ETIMEDOUT,
            call,
        )
    }
}

/// `pthread_cond_clockwait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    object: *mut c_void,
    mutex: *mut c_void,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"pthread_cond_clockwait"); }
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void, clockid_t, *const timespec) -> c_int;
    let Some(real) = real!(NEXT, Wait) else { return libc::ENOSYS };
    if !lock_waits::is_enabled() || !usual(clock) {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, mutex, clock, until) };
    }
    let call = || {
        // SAFETY: the program's own call, forwarded to the C library's function.
        unsafe { real(object, mutex, clock, until) }
    };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { waiting(lock::CONDITION, object as usize, Limit::until(clock, until), libc::ETIMEDOUT, call) }
}

/// `cnd_wait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_wait(object: *mut c_void, mutex: *mut c_void) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"cnd_wait"); }
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    let Some(real) = real!(NEXT, Wait) else { return THRD_ERROR };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, mutex) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { waiting(lock::CONDITION, object as usize, Limit::None, -1, || real(object, mutex)) }
}

/// `cnd_timedwait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_timedwait(
    object: *mut c_void,
    mutex: *mut c_void,
    until: *const timespec,
) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"cnd_timedwait"); }
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void, *const timespec) -> c_int;
    let Some(real) = real!(NEXT, Wait) else { return THRD_ERROR };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, mutex, until) };
    }
    let call = || {
        // SAFETY: the program's own call, forwarded to the C library's function.
        unsafe { real(object, mutex, until) }
    };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe {
        let limit = Limit::until(libc::CLOCK_REALTIME, until);
        waiting(lock::CONDITION, object as usize, limit, THRD_TIMEDOUT, call)
    }
}
