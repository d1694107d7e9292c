//! Signal masks: the program may block all signals without blocking the recorder's, and still sees the mask
//! it set.
//!
//! A recorder signal for which the program has **no** handler is stripped from the masks that it sets; a bit
//! in a thread-local word (the shadow) records that the program believes it blocked. A signal for which the
//! program has a handler is not stripped: it is really blocked (`siglongjmp` restores such masks without
//! calling the recorder), and the CPU time is reported as not seen. A foreign signal that arrives while its
//! shadow bit is set is held, see [`crate::signals`].

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::engine::{self, process_timer};
use flightline_in_signal::layout::{ThreadSlot, loss};
use flightline_in_signal::os::{clock, sys};
use flightline_in_signal::state::{cookie, slots};

use crate::os::fork_token;
use crate::shadow::{
    FLAGS, HELD, KernelSet, SANDBOXED, bit, from_c, kernel_mask, pending, set_shadow, shadow,
};
use crate::{session, signals};

/// `sigprocmask` or `pthread_sigmask` on behalf of the program; `real` is the C library's function.
///
/// # Safety
/// As the function itself.
pub unsafe fn change(
    real: unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    let ours = signals::owned();
    if ours == 0 {
        // SAFETY: the caller guarantees the contract of `sigprocmask` for these arguments.
        return unsafe { real(how, set, old) };
    }
    if in_borrowed_memory(ours, set) {
        // SAFETY: the caller guarantees the contract of `sigprocmask` for these arguments.
        return unsafe { change_as_it_is(real, how, set, old) };
    }
    let before = shadow();
    let mut after = before;
    let mut copy;
    let mut given = set;
    if !set.is_null() {
        // SAFETY: the program passes an initialised set.
        let wanted = unsafe { from_c(set) };
        let strip = signals::strippable();
        let stripped = (wanted & strip) as usize;
        match how {
            libc::SIG_BLOCK => after |= stripped,
            libc::SIG_UNBLOCK => after &= !(wanted & ours) as usize | FLAGS,
            libc::SIG_SETMASK => after = stripped | before & FLAGS,
            _ => {}
        }
        if how != libc::SIG_UNBLOCK && stripped != 0 {
            // SAFETY: the program passes an initialised set; both are whole sets.
            copy = unsafe { *set };
            // SAFETY: the first word of a local.
            unsafe { (&raw mut copy).cast::<u64>().write(wanted & !strip) };
            given = &raw const copy;
        }
        // Unblocking delivers pending signals at once, and their handlers must find the new state.
        set_shadow(before & after);
    }
    // SAFETY: the caller guarantees the contract of `sigprocmask`; the set is the program's or a local copy
    // of it.
    let r = unsafe { real(how, given, old) };
    // A handler that ran in the call may have held a signal.
    let held = shadow() & HELD;
    set_shadow(if r == 0 { after } else { before } | held);
    if r == 0 && !old.is_null() {
        let hidden = (before & !FLAGS) as u64 & ours;
        if hidden != 0 {
            // SAFETY: the call just wrote a whole set there.
            unsafe { old.cast::<u64>().write(from_c(old) | hidden) };
        }
    }
    if r == 0 && !set.is_null() {
        follow(ours);
    }
    r
}

/// Returns the shadow of a thread that the calling thread creates, and the signals that it must unblock when it begins. `mask` are the
/// signals that its attributes block; without them it inherits the shadow, and the kernel's mask with it.
pub fn new_thread_mask(mask: Option<KernelSet>) -> (usize, KernelSet) {
    let own = shadow();
    let Some(mask) = mask else { return (own, 0) };
    let (ours, strip) = (signals::owned(), signals::strippable());
    let stripped = mask & strip;
    let held = if mask & ours & !strip != 0 { HELD } else { 0 };
    (stripped as usize | own & SANDBOXED | held, stripped)
}

/// PID of a `vfork` child (or of a child forked without the C library) that has set its own mask.
static OWN_MASK: AtomicU32 = AtomicU32::new(0);

/// Signals that the program believes blocked although they are not. The thread must block them before exec or
/// spawn.
pub fn hidden() -> KernelSet {
    let shadow = (shadow() & !FLAGS) as KernelSet & signals::owned();
    if shadow != 0 && OWN_MASK.load(Relaxed) == sys::getpid() { 0 } else { shadow }
}

/// Returns true if the shadow is the parent's and the call concerns a signal of the recorder, see [`fork_token::is_borrowed`].
fn in_borrowed_memory(ours: KernelSet, set: *const libc::sigset_t) -> bool {
    // SAFETY: the caller of `change` guarantees null or an initialised set.
    let concerned = shadow() != 0 || (!set.is_null() && unsafe { from_c(set) } & ours != 0);
    concerned && fork_token::is_borrowed()
}

/// Changes the mask of such a child. It is not sampled: its masks are real, and the parent's shadow stays
/// untouched.
///
/// # Safety
/// As [`change`].
unsafe fn change_as_it_is(
    real: unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    if !set.is_null() {
        // The child's first change really blocks the signals that its parent believed blocked.
        kernel_mask(libc::SIG_BLOCK, Some(hidden()));
        OWN_MASK.store(sys::getpid(), Relaxed);
    }
    // SAFETY: the caller guarantees the contract of `sigprocmask` for these arguments.
    let r = unsafe { real(how, set, old) };
    let hidden = hidden();
    if r == 0 && !old.is_null() && hidden != 0 {
        // SAFETY: the call just wrote a whole set there.
        unsafe { old.cast::<u64>().write(from_c(old) | hidden) };
    }
    r
}

/// Called at the start: unblocks recorder signals that were blocked before the program was executed. The
/// program continues to believe them blocked.
pub fn adopt_inherited() {
    let inherited = kernel_mask(libc::SIG_BLOCK, None) & signals::strippable();
    if inherited != 0 {
        set_shadow(shadow() | inherited as usize);
        kernel_mask(libc::SIG_UNBLOCK, Some(inherited));
    }
}

/// Called after a change of the real mask. A thread that blocks the signal of its engine is disarmed: the
/// signals would only accumulate, end the program's waits early or be read by its signalfd. It is armed again
/// when it unblocks the signal.
fn follow(ours: KernelSet) {
    let held = shadow() & HELD != 0;
    if shadow() & SANDBOXED != 0 || (!held && signals::strippable() == ours) {
        return;
    }
    let blocked = kernel_mask(libc::SIG_BLOCK, None);
    if held && blocked & ours == 0 {
        rearm();
    } else if !held && blocked & used() != 0 {
        disarm_held();
    }
}

/// Signals that the calling thread's engine sends.
pub fn used() -> KernelSet {
    let Some(slot) = slots::current() else { return 0 };
    let mut traps = core::iter::once(&slot.engine.handle).chain(&slot.events.handles);
    let trap = if traps.any(|handle| handle.load(Relaxed) != 0) { bit(cookie::SIGTRAP) } else { 0 };
    let prof = if engine::uses_timer(slot) { bit(cookie::SIGPROF) } else { 0 };
    trap | prof
}

/// Disarms the calling thread until the signal is unblocked. The signals must be blocked now.
pub fn disarm_held() {
    let anew = shadow() & HELD == 0;
    set_shadow(shadow() | HELD);
    if let Some(attached) = session::current()
        && let Some(slot) = slots::current()
    {
        engine::disarm(slot);
        if anew {
            // A thread that blocks the process's signal may read it.
            process_timer::bar(&attached.state);
        }
        signals::swallow_pending();
    }
}

/// Samples a held thread again.
pub fn rearm() {
    if session::current().is_some()
        && let Some(slot) = slots::current()
    {
        count_blocked(slot);
        let _ = engine::arm(slot);
    }
    set_shadow(shadow() & !HELD);
}

/// Counts the time since the calling thread was held as not seen because the program blocked the recorder's
/// signal.
pub fn count_blocked(slot: &ThreadSlot) {
    if shadow() & HELD == 0 {
        return;
    }
    if let Some(attached) = session::current() {
        process_timer::unbar(&attached.state, slot, loss::BLOCKED);
        if process_timer::is_used(&attached.state) {
            return;
        }
    }
    let now = clock::thread_cpu_ns();
    let last = slot.ledger.last_cpu_ns.swap(now, Relaxed);
    slots::count_loss(slot, loss::BLOCKED, now.saturating_sub(last));
}

/// Runs a call that swaps in `mask` while it waits (`sigsuspend`, `ppoll`, …): the shadow follows the mask in
/// the meantime. A recorder signal can arrive between the program's signal and its handler. Then the old mask
/// is restored, the program's signal is still pending, and the call would end with `EINTR` although no
/// handler ran. The call is then repeated, which delivers the signal at once.
///
/// # Safety
/// `mask` is null or points to an initialised set. `call` is one of these functions, returning -1 with `errno`.
pub unsafe fn during(mask: *const libc::sigset_t, call: impl Fn() -> c_int) -> c_int {
    let ours = signals::owned();
    if mask.is_null() || ours == 0 {
        return call();
    }
    // SAFETY: the caller guarantees an initialised set; null was ruled out above.
    let wanted = unsafe { from_c(mask) };
    let before = shadow();
    loop {
        set_shadow(before & (wanted as usize & ours as usize | FLAGS));
        let r = call();
        set_shadow(before | shadow() & HELD);
        // SAFETY: the calling thread's own errno.
        let interrupted = r < 0 && unsafe { *libc::__errno_location() } == libc::EINTR;
        if !interrupted || pending() & !wanted == 0 {
            return r;
        }
    }
}
