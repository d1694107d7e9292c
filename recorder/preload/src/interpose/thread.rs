//! Threads and libraries.

use core::ffi::{c_char, c_int, c_void};

use flightline_capture::modules::dlclose;
use flightline_capture::shadow::{self, KernelSet};
use flightline_capture::threads::{self, names};

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
        // SAFETY: the caller guarantees null or initialised attributes.
        let stack = unsafe { threads::stack_bytes(attr) };
        // SAFETY: the caller guarantees null or initialised attributes.
        let mask = unsafe { blocked_signals(attr) };
        threads::prepare(function as *const () as usize, argument, stack, mask)
    };
    let Some(pending) = pending else {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(thread, attr, function, argument) };
    };
    // SAFETY: the program's own call, forwarded with the recorder's trampoline and its argument.
    let r = unsafe { real(thread, attr, threads::entry(), pending.argument()) };
    if r != 0 {
        pending.cancel();
    }
    r
}

type GetMask = unsafe extern "C" fn(*const libc::pthread_attr_t, *mut libc::sigset_t) -> c_int;

/// Returns the signals that `attr` blocks in the new thread, if they are set (`pthread_attr_setsigmask_np`,
/// glibc 2.32).
///
/// # Safety
/// `attr` is null or initialised.
unsafe fn blocked_signals(attr: *const libc::pthread_attr_t) -> Option<KernelSet> {
    if attr.is_null() {
        return None;
    }
    let get = next!(c"pthread_attr_getsigmask_np" as GetMask)?;
    // SAFETY: all-zero is a valid set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: the caller guarantees initialised attributes; the set is a local.
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
    // SAFETY: the program's own call, forwarded to the C library's function.
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

/// The C11 form of `pthread_create`.
///
/// # Safety
/// As `thrd_create(3)`. The start function returns an `int`; the trampoline does not look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, function: StartFn, argument: *mut c_void) -> c_int {
    const THRD_ERROR: c_int = 2;
    let Some(real) = next!(c"thrd_create" as ThrdCreate) else { return THRD_ERROR };
    let pending = {
        let _errno = KeepErrno::new();
        // SAFETY: null means the default attributes.
        let stack = unsafe { threads::stack_bytes(core::ptr::null()) };
        threads::prepare(function as *const () as usize, argument, stack, None)
    };
    let Some(pending) = pending else {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(thread, function, argument) };
    };
    // SAFETY: the program's own call, forwarded with the recorder's trampoline and its argument.
    let r = unsafe { real(thread, threads::entry(), pending.argument()) };
    if r != 0 {
        pending.cancel();
    }
    r
}

type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Prevents that the walker reads the memory of unloaded libraries.
///
/// # Safety
/// As `dlclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = next!(c"dlclose" as Dlclose) else { return -1 };
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { dlclose::dlclose(real, handle) };
    super::symbol_versions::forget();
    r
}
