//! Signal dispositions, masks, waits for signals, alternate stacks.

use core::ffi::{c_int, c_long};

use flightline_capture::os;
use flightline_capture::shadow::{self, bit};
use flightline_capture::signals::{self, masks};
use flightline_capture::threads::stacks;
use libc::{sigaction as Action, siginfo_t, sigset_t, timespec};

use crate::real::{fail, next};

/// `sighandler_t`.
type Handler = usize;
const SIG_ERR: Handler = usize::MAX;
const SIG_HOLD: Handler = 2;

fn is_ours(signo: c_int) -> bool {
    signals::intercepted() & bit(signo) != 0
}

/// Changes the program's disposition of a signal; the recorder's handler stays installed.
///
/// # Safety
/// As `sigaction(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signo: c_int, new: *const Action, old: *mut Action) -> c_int {
    crate::real::publish();
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { signals::change(signo, new, old) }
}

fn action(handler: Handler, flags: c_int, mask: u64) -> Action {
    // SAFETY: all-zero is a valid structure.
    let mut action: Action = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the first 64 signals of a local set.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(mask) };
    action
}

/// Replaces the program's disposition of a recorder signal. Returns the old handler.
fn swap(signo: c_int, new: &Action) -> Handler {
    let mut old = action(0, 0, 0);
    // SAFETY: both are valid structures.
    let r = unsafe { signals::change(signo, new, &raw mut old) };
    if r == 0 { old.sa_sigaction } else { SIG_ERR }
}

type Signal = unsafe extern "C" fn(c_int, Handler) -> Handler;

/// BSD semantics: restarting, the signal itself blocked.
///
/// # Safety
/// As `signal(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signo: c_int, handler: Handler) -> Handler {
    if is_ours(signo) {
        return swap(signo, &action(handler, libc::SA_RESTART, bit(signo)));
    }
    let Some(real) = next!(c"signal" as Signal) else { return SIG_ERR };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo, handler) }
}

/// `signal` under its old name.
///
/// # Safety
/// As `signal(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signo: c_int, handler: Handler) -> Handler {
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { signal(signo, handler) }
}

fn system_v(signo: c_int, handler: Handler) -> Handler {
    swap(signo, &action(handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0))
}

/// System V semantics: one shot, nothing blocked.
///
/// # Safety
/// As `sysv_signal(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signo: c_int, handler: Handler) -> Handler {
    if is_ours(signo) {
        return system_v(signo, handler);
    }
    let Some(real) = next!(c"sysv_signal" as Signal) else { return SIG_ERR };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo, handler) }
}

/// The function that `signal` becomes under `_XOPEN_SOURCE`.
///
/// # Safety
/// As `sysv_signal(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signo: c_int, handler: Handler) -> Handler {
    if is_ours(signo) {
        return system_v(signo, handler);
    }
    let Some(real) = next!(c"__sysv_signal" as Signal) else { return SIG_ERR };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo, handler) }
}

/// Changes one signal in the calling thread's mask. Returns true if it was blocked.
fn block(how: c_int, signo: c_int) -> bool {
    // SAFETY: all-zero is a valid set.
    let (mut set, mut old): (sigset_t, sigset_t) = unsafe { core::mem::zeroed() };
    // SAFETY: local sets, a valid signal number.
    unsafe { libc::sigaddset(&raw mut set, signo) };
    // SAFETY: local sets.
    unsafe { pthread_sigmask(how, &raw const set, &raw mut old) };
    // SAFETY: written by the call.
    unsafe { shadow::from_c(&raw const old) & bit(signo) != 0 }
}

/// System V: sets the handler and unblocks, or blocks.
///
/// # Safety
/// As `sigset(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signo: c_int, handler: Handler) -> Handler {
    if !is_ours(signo) {
        let Some(real) = next!(c"sigset" as Signal) else { return SIG_ERR };
        // SAFETY: the program's own call, forwarded with its arguments.
        return unsafe { real(signo, handler) };
    }
    let (was_blocked, old) = if handler == SIG_HOLD {
        let was = block(libc::SIG_BLOCK, signo);
        (was, signals::program_disposition(signo).map_or(SIG_ERR, |d| d.handler))
    } else {
        let old = swap(signo, &action(handler, 0, 0));
        (block(libc::SIG_UNBLOCK, signo), old)
    };
    if was_blocked { SIG_HOLD } else { old }
}

type OneSignal = unsafe extern "C" fn(c_int) -> c_int;

/// Blocks one signal.
///
/// # Safety
/// As `sighold(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sighold(signo: c_int) -> c_int {
    if is_ours(signo) {
        block(libc::SIG_BLOCK, signo);
        return 0;
    }
    let Some(real) = next!(c"sighold" as OneSignal) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo) }
}

/// Unblocks one signal.
///
/// # Safety
/// As `sigrelse(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigrelse(signo: c_int) -> c_int {
    if is_ours(signo) {
        block(libc::SIG_UNBLOCK, signo);
        return 0;
    }
    let Some(real) = next!(c"sigrelse" as OneSignal) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo) }
}

/// Ignores one signal.
///
/// # Safety
/// As `sigignore(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signo: c_int) -> c_int {
    if is_ours(signo) {
        swap(signo, &action(libc::SIG_IGN, 0, 0));
        return 0;
    }
    let Some(real) = next!(c"sigignore" as OneSignal) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo) }
}

/// Sets whether a signal's handler interrupts system calls.
///
/// # Safety
/// As `siginterrupt(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signo: c_int, flag: c_int) -> c_int {
    type Siginterrupt = unsafe extern "C" fn(c_int, c_int) -> c_int;
    if let Some(d) = signals::program_disposition(signo) {
        let flags = if flag != 0 { d.flags & !libc::SA_RESTART } else { d.flags | libc::SA_RESTART };
        swap(signo, &action(d.handler, flags, d.mask));
        return 0;
    }
    let Some(real) = next!(c"siginterrupt" as Siginterrupt) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(signo, flag) }
}

type Sigmask = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;

/// Changes the calling thread's mask as the program sees it.
///
/// # Safety
/// As `sigprocmask(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let Some(real) = next!(c"sigprocmask" as Sigmask) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::change(real, how, set, old) }
}

/// Changes the calling thread's mask as the program sees it.
///
/// # Safety
/// As `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let Some(real) = next!(c"pthread_sigmask" as Sigmask) else { return libc::ENOSYS };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::change(real, how, set, old) }
}

/// Replaces the mask of signals 1 to 32, and returns the old one. dash clears its mask with this in the child
/// of a `vfork`.
///
/// # Safety
/// As `sigsetmask(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    change_bsd(libc::SIG_SETMASK, mask)
}

/// Adds to the mask of signals 1 to 32, and returns the old one.
///
/// # Safety
/// As `sigblock(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    change_bsd(libc::SIG_BLOCK, mask)
}

/// Returns the mask of signals 1 to 32.
///
/// # Safety
/// As `siggetmask(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siggetmask() -> c_int {
    change_bsd(libc::SIG_BLOCK, 0)
}

fn change_bsd(how: c_int, mask: c_int) -> c_int {
    let Some(real) = next!(c"sigprocmask" as Sigmask) else { return fail(libc::ENOSYS) };
    let set = action(0, 0, u64::from(mask as u32)).sa_mask;
    let mut old = set;
    // SAFETY: the C library's function, with two local sets.
    let r = unsafe { masks::change(real, how, &raw const set, &raw mut old) };
    // SAFETY: the first 64 signals of a local set.
    if r == 0 { unsafe { (&raw const old).cast::<u64>().read() as c_int } } else { r }
}

/// Gives the thread a larger alternate stack than it requested, if the recorder's handler might not fit on
/// that.
///
/// # Safety
/// As `sigaltstack(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: the program's own call, forwarded with its arguments.
    match unsafe { stacks::change(new, old) } {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

// ----- waiting --------------------------------------------------------------------------------------------------

type Sigtimedwait = unsafe extern "C" fn(*const sigset_t, *mut siginfo_t, *const timespec) -> c_int;
type Sigwait = unsafe extern "C" fn(*const sigset_t, *mut c_int) -> c_int;

/// Returns true if a wait for `set` could receive a recorder signal.
///
/// # Safety
/// `set` is null or an initialised set.
unsafe fn may_take_ours(set: *const sigset_t) -> bool {
    // SAFETY: the caller guarantees an initialised set; null was ruled out.
    !set.is_null() && unsafe { shadow::from_c(set) } & signals::owned() != 0
}

fn now_ns() -> i128 {
    i128::from(flightline_in_signal::os::clock::monotonic_ns())
}

/// Returns true if a wait ended because another thread received the signal that woke it, and sends it again.
/// That thread may still be running its handler, so this waits a moment for it.
fn stolen(set: *const sigset_t, holds: u32) -> bool {
    // SAFETY: the callers have checked that the set is not null, and their callers guarantee that it is
    // initialised.
    let wanted = unsafe { shadow::from_c(set) };
    for _ in 0..10 {
        if signals::holds() != holds || shadow::pending() & wanted != 0 {
            return true;
        }
        let nap = [0i64, 50_000];
        // SAFETY: the kernel reads one timespec.
        let _ = unsafe { os::syscall(libc::SYS_nanosleep, [nap.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
    false
}

/// Waits for a signal that is not the recorder's, until the timeout.
///
/// # Safety
/// As `sigtimedwait(2)`.
unsafe fn wait(set: *const sigset_t, info: *mut siginfo_t, timeout: *const timespec) -> c_int {
    let Some(real) = next!(c"sigtimedwait" as Sigtimedwait) else { return fail(libc::ENOSYS) };
    // SAFETY: all-zero is a valid siginfo.
    let mut own: siginfo_t = unsafe { core::mem::zeroed() };
    let to = if info.is_null() { &raw mut own } else { info };
    // SAFETY: the caller guarantees null or a valid timeout.
    let limit = unsafe { timeout.as_ref() };
    let until = limit.map(|t| now_ns() + i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec));
    let mut rest = limit.copied();
    loop {
        let timeout = rest.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let holds = signals::holds();
        // SAFETY: the program's own call, forwarded with memory for the siginfo.
        let signo = unsafe { real(set, to, timeout) };
        // SAFETY: the calling thread's own errno.
        let interrupted = signo < 0 && unsafe { *libc::__errno_location() } == libc::EINTR;
        let in_vain = interrupted && stolen(set, holds);
        // SAFETY: a call that returns a signal has filled the siginfo.
        if !in_vain && (signo <= 0 || !signals::is_ours(signo, unsafe { &*to })) {
            return signo;
        }
        if let Some(until) = until {
            let left = (until - now_ns()).max(0);
            // SAFETY: all-zero is a valid timespec.
            let mut next: timespec = unsafe { core::mem::zeroed() };
            next.tv_sec = (left / 1_000_000_000) as libc::time_t;
            next.tv_nsec = (left % 1_000_000_000) as c_long;
            rest = Some(next);
        }
    }
}

/// Never returns a recorder signal.
///
/// # Safety
/// As `sigtimedwait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller guarantees null or an initialised set.
    if unsafe { may_take_ours(set) } {
        // SAFETY: the program's own call, forwarded with its arguments.
        return unsafe { wait(set, info, timeout) };
    }
    let Some(real) = next!(c"sigtimedwait" as Sigtimedwait) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(set, info, timeout) }
}

/// Never returns a recorder signal.
///
/// # Safety
/// As `sigwaitinfo(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    type Sigwaitinfo = unsafe extern "C" fn(*const sigset_t, *mut siginfo_t) -> c_int;
    // SAFETY: the caller guarantees null or an initialised set.
    if unsafe { may_take_ours(set) } {
        // SAFETY: the program's own call, forwarded without a timeout.
        return unsafe { wait(set, info, core::ptr::null()) };
    }
    let Some(real) = next!(c"sigwaitinfo" as Sigwaitinfo) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { real(set, info) }
}

/// Never returns a recorder signal.
///
/// # Safety
/// As `sigwait(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const sigset_t, signo: *mut c_int) -> c_int {
    // SAFETY: the caller guarantees null or an initialised set.
    if !unsafe { may_take_ours(set) } {
        let Some(real) = next!(c"sigwait" as Sigwait) else { return libc::ENOSYS };
        // SAFETY: the program's own call, forwarded with its arguments.
        return unsafe { real(set, signo) };
    }
    loop {
        // SAFETY: the program's own call, forwarded without a siginfo and a timeout.
        let got = unsafe { wait(set, core::ptr::null_mut(), core::ptr::null()) };
        if got > 0 {
            // SAFETY: the caller guarantees that `signo` may be written.
            unsafe { signo.write(got) };
            return 0;
        }
        // SAFETY: the calling thread's own errno.
        let errno = unsafe { *libc::__errno_location() };
        // Other signals do not end a sigwait.
        if errno != libc::EINTR {
            return errno;
        }
    }
}

/// Waits with another mask.
///
/// # Safety
/// As `sigsuspend(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
    type Sigsuspend = unsafe extern "C" fn(*const sigset_t) -> c_int;
    let Some(real) = next!(c"sigsuspend" as Sigsuspend) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(mask)) }
}

/// Waits with another mask.
///
/// # Safety
/// As `ppoll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Ppoll =
        unsafe extern "C" fn(*mut libc::pollfd, libc::nfds_t, *const timespec, *const sigset_t) -> c_int;
    let Some(real) = next!(c"ppoll" as Ppoll) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(fds, count, timeout, mask)) }
}

/// Waits with another mask.
///
/// # Safety
/// As `pselect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    other: *mut libc::fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Set = *mut libc::fd_set;
    type Pselect = unsafe extern "C" fn(c_int, Set, Set, Set, *const timespec, *const sigset_t) -> c_int;
    let Some(real) = next!(c"pselect" as Pselect) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(count, read, write, other, timeout, mask)) }
}

/// Waits with another mask.
///
/// # Safety
/// As `epoll_pwait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    type Wait = unsafe extern "C" fn(c_int, *mut libc::epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    let Some(real) = next!(c"epoll_pwait" as Wait) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(epoll, events, count, timeout, mask)) }
}

/// Waits with another mask.
///
/// # Safety
/// As `epoll_pwait2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Wait =
        unsafe extern "C" fn(c_int, *mut libc::epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    let Some(real) = next!(c"epoll_pwait2" as Wait) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(epoll, events, count, timeout, mask)) }
}

/// The function that `ppoll` becomes in programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As `ppoll(2)`; the C library checks `bytes` against `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    bytes: usize,
) -> c_int {
    type Ppoll = unsafe extern "C" fn(
        *mut libc::pollfd,
        libc::nfds_t,
        *const timespec,
        *const sigset_t,
        usize,
    ) -> c_int;
    let Some(real) = next!(c"__ppoll_chk" as Ppoll) else { return fail(libc::ENOSYS) };
    // SAFETY: the program's own call, forwarded with its arguments.
    unsafe { masks::during(mask, || real(fds, count, timeout, mask, bytes)) }
}
