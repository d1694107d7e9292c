//! Locks and other objects that threads wait for. Each hook tries to lock first, with the C library's own
//! function, so that the clock is read only under contention. The program gets the result of the C library.

use core::ffi::{c_int, c_void};

use flightline_capture::engines::lock_waits::{self, Limit, Wait};
use flightline_in_signal::payload::lock;
use libc::{clockid_t, timespec};

use crate::real::{KeepErrno, Next, fail, look_up};

type Plain = unsafe extern "C" fn(*mut c_void) -> c_int;
type Timed = unsafe extern "C" fn(*mut c_void, *const timespec) -> c_int;
type Clocked = unsafe extern "C" fn(*mut c_void, clockid_t, *const timespec) -> c_int;

/// Returns the function of one of the statics below, if the C library has it.
///
/// # Safety
/// That function has the type `F`.
#[inline]
pub(super) unsafe fn real<F: Copy>(next: &Next) -> Option<F> {
    let address = next.address();
    // SAFETY: null or a function that has the type `F`, as the caller guarantees.
    unsafe { core::mem::transmute_copy::<*mut c_void, Option<F>>(&address) }
}

/// `real!(NEXT, Type)`: only for names whose types are defined next to them.
macro_rules! real {
    ($next:expr, $type:ty) => {{
        const { assert!(size_of::<Option<$type>>() == size_of::<*mut c_void>()) };
        // SAFETY: the C library's function of that name has this type.
        #[allow(unused_unsafe, reason = "some callers are inside of an unsafe block")]
        unsafe {
            $crate::interpose::lock::real::<$type>(&$next)
        }
    }};
}

pub(super) use real as function;

look_up! {
    static MUTEX_TRY: Next = Next::new(c"pthread_mutex_trylock");
    static READ_TRY: Next = Next::new(c"pthread_rwlock_tryrdlock");
    static WRITE_TRY: Next = Next::new(c"pthread_rwlock_trywrlock");
}

/// Finds where this C library stores the owner of a lock. Called before the program runs.
pub fn learn() {
    look_up! {
        static MUTEX_LEAVE: Next = Next::new(c"pthread_mutex_unlock");
        static RWLOCK_LEAVE: Next = Next::new(c"pthread_rwlock_unlock");
    }
    let (Some(take), Some(leave)) = (real!(MUTEX_TRY, Plain), real!(MUTEX_LEAVE, Plain)) else { return };
    let (Some(take_write), Some(leave_write)) = (real!(WRITE_TRY, Plain), real!(RWLOCK_LEAVE, Plain)) else {
        return;
    };
    // SAFETY: the C library's functions of these names.
    unsafe { lock_waits::learn_owners([take, leave], [take_write, leave_write]) };
}

/// Returns true for clocks that every C library accepts for a limit. With another clock the C library fails,
/// even if the lock is free.
pub(super) fn usual(clock: clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}

/// Tries to lock, then waits. `busy` is the result of the attempt if the lock is held; any other result is
/// returned.
///
/// # Safety
/// `object` is an object of the functions' type.
#[inline]
unsafe fn take(
    attempt: Option<Plain>,
    busy: c_int,
    kind: u64,
    object: *mut c_void,
    limit: impl FnOnce() -> Limit,
    late: c_int,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if let Some(attempt) = attempt {
        // SAFETY: the caller guarantees an object of the function's type.
        let r = unsafe { attempt(object) };
        if r != busy {
            return r;
        }
    }
    // SAFETY: the caller guarantees an object of this kind.
    let wait = unsafe { Wait::begin(kind, object as usize, limit()) };
    let r = call();
    wait.end(r == late);
    r
}

/// Functions that acquire a lock: without a limit, with a limit of the wall clock, with a limit of any clock.
macro_rules! locks {
    ($($(#[$doc:meta])* plain $name:ident $text:literal, $kind:expr, $attempt:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void) -> c_int {
            look_up! { static NEXT: Next = Next::new($text); }
            let Some(real) = real!(NEXT, Plain) else { return libc::ENOSYS };
            if !lock_waits::is_enabled() {
                // SAFETY: the program's own call, forwarded to the C library's function.
                return unsafe { real(object) };
            }
            // SAFETY: the program's own call, forwarded to the C library's function.
            unsafe { take(real!($attempt, Plain), libc::EBUSY, $kind, object, || Limit::None, -1, || real(object)) }
        }
    )* };
    ($($(#[$doc:meta])* timed $name:ident $text:literal, $kind:expr, $attempt:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void, until: *const timespec) -> c_int {
            look_up! { static NEXT: Next = Next::new($text); }
            let Some(real) = real!(NEXT, Timed) else { return libc::ENOSYS };
            if !lock_waits::is_enabled() {
                // SAFETY: the program's own call, forwarded to the C library's function.
                return unsafe { real(object, until) };
            }
            // SAFETY: the program's own call, forwarded to the C library's function.
            let limit = || unsafe { Limit::until(libc::CLOCK_REALTIME, until) };
            // SAFETY: the program's own call, forwarded to the C library's function.
            let call = || unsafe { real(object, until) };
            // SAFETY: the program's own call, forwarded to the C library's function.
            unsafe { take(real!($attempt, Plain), libc::EBUSY, $kind, object, limit, libc::ETIMEDOUT, call) }
        }
    )* };
    ($($(#[$doc:meta])* clocked $name:ident $text:literal, $kind:expr, $attempt:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void, clock: clockid_t, until: *const timespec) -> c_int {
            look_up! { static NEXT: Next = Next::new($text); }
            let Some(real) = real!(NEXT, Clocked) else { return libc::ENOSYS };
            if !lock_waits::is_enabled() || !usual(clock) {
                // SAFETY: the program's own call, forwarded to the C library's function.
                return unsafe { real(object, clock, until) };
            }
            // SAFETY: the program's own call, forwarded to the C library's function.
            let limit = || unsafe { Limit::until(clock, until) };
            // SAFETY: the program's own call, forwarded to the C library's function.
            let call = || unsafe { real(object, clock, until) };
            // SAFETY: the program's own call, forwarded to the C library's function.
            unsafe { take(real!($attempt, Plain), libc::EBUSY, $kind, object, limit, libc::ETIMEDOUT, call) }
        }
    )* };
}

locks! {
    /// `pthread_mutex_lock(3)`
    plain pthread_mutex_lock c"pthread_mutex_lock", lock::MUTEX, MUTEX_TRY;
    /// `pthread_rwlock_rdlock(3)`
    plain pthread_rwlock_rdlock c"pthread_rwlock_rdlock", lock::READ, READ_TRY;
    /// `pthread_rwlock_wrlock(3)`
    plain pthread_rwlock_wrlock c"pthread_rwlock_wrlock", lock::WRITE, WRITE_TRY;
}

locks! {
    /// `pthread_mutex_timedlock(3)`
    timed pthread_mutex_timedlock c"pthread_mutex_timedlock", lock::MUTEX, MUTEX_TRY;
    /// `pthread_rwlock_timedrdlock(3)`
    timed pthread_rwlock_timedrdlock c"pthread_rwlock_timedrdlock", lock::READ, READ_TRY;
    /// `pthread_rwlock_timedwrlock(3)`
    timed pthread_rwlock_timedwrlock c"pthread_rwlock_timedwrlock", lock::WRITE, WRITE_TRY;
}

locks! {
    /// `pthread_mutex_clocklock(3)`
    clocked pthread_mutex_clocklock c"pthread_mutex_clocklock", lock::MUTEX, MUTEX_TRY;
    /// `pthread_rwlock_clockrdlock(3)`
    clocked pthread_rwlock_clockrdlock c"pthread_rwlock_clockrdlock", lock::READ, READ_TRY;
    /// `pthread_rwlock_clockwrlock(3)`
    clocked pthread_rwlock_clockwrlock c"pthread_rwlock_clockwrlock", lock::WRITE, WRITE_TRY;
}

// ----- C11 ------------------------------------------------------------------------------------------------------

const THRD_BUSY: c_int = 1;
pub(super) const THRD_ERROR: c_int = 2;
pub(super) const THRD_TIMEDOUT: c_int = 4;
look_up! { static MTX_TRY: Next = Next::new(c"mtx_trylock"); }

/// `mtx_lock(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_lock(object: *mut c_void) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"mtx_lock"); }
    let Some(real) = real!(NEXT, Plain) else { return THRD_ERROR };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object) };
    }
    // SAFETY: the program's own call, forwarded; both C libraries store a `pthread_mutex_t` in a `mtx_t`.
    unsafe {
        take(real!(MTX_TRY, Plain), THRD_BUSY, lock::MUTEX, object, || Limit::None, -1, || real(object))
    }
}

/// `mtx_timedlock(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_timedlock(object: *mut c_void, until: *const timespec) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"mtx_timedlock"); }
    let Some(real) = real!(NEXT, Timed) else { return THRD_ERROR };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, until) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    let limit = || unsafe { Limit::until(libc::CLOCK_REALTIME, until) };
    // SAFETY: the program's own call, forwarded to the C library's function.
    let call = || unsafe { real(object, until) };
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { take(real!(MTX_TRY, Plain), THRD_BUSY, lock::MUTEX, object, limit, THRD_TIMEDOUT, call) }
}

// ----- semaphores -----------------------------------------------------------------------------------------------

/// Waits for a semaphore. The first attempt must not skip the cancellation point of the wait.
///
/// # Safety
/// `object` is a semaphore.
unsafe fn take_semaphore(object: *mut c_void, limit: Limit, call: impl FnOnce() -> c_int) -> c_int {
    look_up! {
        static TRY: Next = Next::new(c"sem_trywait");
        static TEST: Next = Next::new(c"pthread_testcancel");
    }
    type Test = unsafe extern "C" fn();
    if let (Some(test), Some(attempt)) = (real!(TEST, Test), real!(TRY, Plain)) {
        // SAFETY: no arguments.
        unsafe { test() };
        let errno = KeepErrno::new();
        // SAFETY: the caller guarantees a semaphore.
        if unsafe { attempt(object) } == 0 {
            return 0;
        }
        drop(errno);
    }
    // SAFETY: no memory of a semaphore is read.
    let wait = unsafe { Wait::begin(lock::SEMAPHORE, object as usize, limit) };
    let r = call();
    // SAFETY: the calling thread's own errno.
    wait.end(r < 0 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT);
    r
}

/// `sem_wait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(object: *mut c_void) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"sem_wait"); }
    let Some(real) = real!(NEXT, Plain) else { return fail(libc::ENOSYS) };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { take_semaphore(object, Limit::None, || real(object)) }
}

/// `sem_timedwait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(object: *mut c_void, until: *const timespec) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"sem_timedwait"); }
    let Some(real) = real!(NEXT, Timed) else { return fail(libc::ENOSYS) };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, until) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { take_semaphore(object, Limit::until(libc::CLOCK_REALTIME, until), || real(object, until)) }
}

/// `sem_clockwait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(
    object: *mut c_void,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"sem_clockwait"); }
    let Some(real) = real!(NEXT, Clocked) else { return fail(libc::ENOSYS) };
    if !lock_waits::is_enabled() || !usual(clock) {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object, clock, until) };
    }
    // SAFETY: the program's own call, forwarded to the C library's function.
    unsafe { take_semaphore(object, Limit::until(clock, until), || real(object, clock, until)) }
}

// ----- waits for an event, which always count as waits
// ----------------------------------------------------------------------

/// # Safety
/// `kind` is one of the kinds whose object is not read.
#[inline]
pub(super) unsafe fn waiting(
    kind: u64,
    object: usize,
    limit: Limit,
    late: c_int,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller guarantees a kind whose object is not read.
    let wait = unsafe { Wait::begin(kind, object, limit) };
    let r = call();
    wait.end(r == late);
    r
}

/// `pthread_barrier_wait(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(object: *mut c_void) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"pthread_barrier_wait"); }
    let Some(real) = real!(NEXT, Plain) else { return libc::ENOSYS };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(object) };
    }
    // The thread that arrives last gets -1, so the value for a timeout must be another one. SAFETY: the
    // program's own call, forwarded to the C library's function.
    unsafe { waiting(lock::BARRIER, object as usize, Limit::None, -2, || real(object)) }
}

/// `pthread_join(3)`
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    look_up! { static NEXT: Next = Next::new(c"pthread_join"); }
    type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
    let Some(real) = real!(NEXT, Join) else { return libc::ENOSYS };
    if !lock_waits::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(thread, result) };
    }
    // SAFETY: the program's own call, forwarded; the address only identifies the thread and is not read.
    unsafe { waiting(lock::JOIN, thread as usize, Limit::None, -1, || real(thread, result)) }
}
