//! Threads and libraries.

use core::ffi::{c_char, c_int, c_void};

use flightline_capture::shadow::{self, KernelSet};
use flightline_capture::{dlclose, names, threads};

use crate::real::{KeepErrno, next};

type StartFn = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, StartFn, *mut c_void) -> c_int;

/// Starts the thread through a trampoline that registers it.
///
/// # Safety
/// As `pthread_create(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    function: StartFn,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = next!(c"pthread_create" as PthreadCreate) else { return libc::EAGAIN };
    let pending = {
        let _errno = KeepErrno::new();
        // SAFETY: the program's attributes, by the contract.
        let stack = unsafe { threads::stack_bytes(attr) };
        // SAFETY: as above.
        let mask = unsafe { blocked_signals(attr) };
        threads::prepare(function as *const () as usize, argument, stack, mask)
    };
    let Some(pending) = pending else {
        // SAFETY: passed on.
        return unsafe { real(thread, attr, function, argument) };
    };
    // SAFETY: passed on, with our trampoline and its argument.
    let r = unsafe { real(thread, attr, threads::entry(), pending.argument()) };
    if r != 0 {
        pending.cancel();
    }
    r
}

type GetMask = unsafe extern "C" fn(*const libc::pthread_attr_t, *mut libc::sigset_t) -> c_int;

/// Returns the signals that `attr` blocks in the new thread, if it says so (`pthread_attr_setsigmask_np`, glibc 2.32).
///
/// # Safety
/// `attr` is null or initialised.
unsafe fn blocked_signals(attr: *const libc::pthread_attr_t) -> Option<KernelSet> {
    if attr.is_null() {
        return None;
    }
    let get = next!(c"pthread_attr_getsigmask_np" as GetMask)?;
    // SAFETY: all zero is a set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: initialised attributes, by the contract, and a set of our own.
    let found = unsafe { get(attr, &raw mut set) } == 0;
    // SAFETY: a set, written by the call.
    found.then(|| unsafe { shadow::from_c(&raw const set) })
}

type SetName = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;

/// Records the name that a thread gets.
///
/// # Safety
/// As `pthread_setname_np(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    let Some(real) = next!(c"pthread_setname_np" as SetName) else { return libc::ENOSYS };
    // SAFETY: passed on.
    let r = unsafe { real(thread, name) };
    if r == 0 {
        let _errno = KeepErrno::new();
        // SAFETY: no pointers.
        let own = unsafe { libc::pthread_self() } == thread;
        // SAFETY: the C library has read a string there.
        unsafe { names::renamed((!own).then_some(thread as usize), name) };
    }
    r
}

type ThrdCreate = unsafe extern "C" fn(*mut c_void, StartFn, *mut c_void) -> c_int;

/// C11's way to the same.
///
/// # Safety
/// As `thrd_create(3)`. The start function returns an `int`; the trampoline does not look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, function: StartFn, argument: *mut c_void) -> c_int {
    const THRD_ERROR: c_int = 2;
    let Some(real) = next!(c"thrd_create" as ThrdCreate) else { return THRD_ERROR };
    let pending = {
        let _errno = KeepErrno::new();
        // SAFETY: null stands for the default attributes.
        let stack = unsafe { threads::stack_bytes(core::ptr::null()) };
        threads::prepare(function as *const () as usize, argument, stack, None)
    };
    let Some(pending) = pending else {
        // SAFETY: passed on.
        return unsafe { real(thread, function, argument) };
    };
    // SAFETY: passed on, with our trampoline and its argument.
    let r = unsafe { real(thread, threads::entry(), pending.argument()) };
    if r != 0 {
        pending.cancel();
    }
    r
}

type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Keeps the walker off the memory of libraries that go away.
///
/// # Safety
/// As `dlclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = next!(c"dlclose" as Dlclose) else { return -1 };
    // SAFETY: passed on.
    let r = unsafe { dlclose::dlclose(real, handle) };
    super::symbol_versions::forget();
    r
}
