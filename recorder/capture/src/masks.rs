//! Signal masks: the program may block all signals without blocking our samples, and still sees the mask it set.
//!
//! A signal of ours for which the program has **no** handler is stripped from the masks that it sets; a bit in a
//! thread-local word (the shadow) says that the program believes it blocked. A signal for which the program has a
//! handler is left alone: blocked means blocked (`siglongjmp` restores such masks without us), and the CPU time is
//! reported as not seen. A foreign signal that arrives while its shadow bit is set is held, see [`crate::signals`].

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{ThreadSlot, loss};
use flightline_in_signal::{clock, cookie, engine, process_timer, slots, sys};

use crate::shadow::{
    FLAGS, HELD, KernelSet, SANDBOXED, bit, from_c, kernel_mask, pending, set_shadow, shadow,
};
use crate::{fork_token, session, signals};

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
        // SAFETY: passed on.
        return unsafe { real(how, set, old) };
    }
    if in_borrowed_memory(ours, set) {
        // SAFETY: passed on.
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
            // SAFETY: as above; both are whole sets.
            copy = unsafe { *set };
            // SAFETY: the first word of a local.
            unsafe { (&raw mut copy).cast::<u64>().write(wanted & !strip) };
            given = &raw const copy;
        }
        // Unblocking delivers what is pending at once: its handler must find the new state.
        set_shadow(before & after);
    }
    // SAFETY: passed on, with a set of our own at most.
    let r = unsafe { real(how, given, old) };
    // A handler that ran meanwhile may have held a signal.
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

/// Child of a `vfork` (or of a fork that the C library does not know) that has set its mask itself, by pid.
static OWN_MASK: AtomicU32 = AtomicU32::new(0);

/// Signals that the program believes blocked although they are not, for this thread to block before exec or spawn.
pub fn hidden() -> KernelSet {
    let shadow = (shadow() & !FLAGS) as KernelSet & signals::owned();
    if shadow != 0 && OWN_MASK.load(Relaxed) == sys::getpid() { 0 } else { shadow }
}

/// Returns true if the shadow is the parent's and the call concerns a signal of the recorder, see [`fork_token::is_borrowed`].
fn in_borrowed_memory(ours: KernelSet, set: *const libc::sigset_t) -> bool {
    // SAFETY: null or initialised, by the contract of `change`.
    let concerned = shadow() != 0 || (!set.is_null() && unsafe { from_c(set) } & ours != 0);
    concerned && fork_token::is_borrowed()
}

/// Such a child is not sampled: its masks are real, and the parent's shadow stays untouched.
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
        // The first time, what the parent believed blocked becomes so.
        kernel_mask(libc::SIG_BLOCK, Some(hidden()));
        OWN_MASK.store(sys::getpid(), Relaxed);
    }
    // SAFETY: passed on.
    let r = unsafe { real(how, set, old) };
    let hidden = hidden();
    if r == 0 && !old.is_null() && hidden != 0 {
        // SAFETY: the call just wrote a whole set there.
        unsafe { old.cast::<u64>().write(from_c(old) | hidden) };
    }
    r
}

/// At the start: signals of ours that were blocked by whoever started the program are unblocked, and the program goes
/// on believing them blocked.
pub fn adopt_inherited() {
    let inherited = kernel_mask(libc::SIG_BLOCK, None) & signals::strippable();
    if inherited != 0 {
        set_shadow(shadow() | inherited as usize);
        kernel_mask(libc::SIG_UNBLOCK, Some(inherited));
    }
}

/// After a change of the real mask: a thread whose engine's signal is blocked is disarmed, as the signals would only
/// pile up, end the program's waits early or be read by its signalfd; when unblocked it is armed again.
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
    let mut traps = core::iter::once(&slot.engine_handle).chain(&slot.event_handles);
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
            // The process's signal may be read by whoever blocks it.
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

/// The time since the calling thread was held was not seen because the program blocked our signal.
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
    let last = slot.last_cpu_ns.swap(now, Relaxed);
    slots::count_loss(slot, loss::BLOCKED, now.saturating_sub(last));
}

/// Runs a call that swaps in `mask` while it waits (`sigsuspend`, `ppoll`, …): the shadow follows the mask meanwhile.
/// A signal of ours on its way out of the kernel can come between the program's signal and its handler: then the old
/// mask is back, the signal is still pending, and the call would end by `EINTR` although no handler ran. It is made
/// again, which delivers the signal at once.
///
/// # Safety
/// `mask` is null or points at an initialised set. `call` is one of these functions, returning -1 with `errno`.
pub unsafe fn during(mask: *const libc::sigset_t, call: impl Fn() -> c_int) -> c_int {
    let ours = signals::owned();
    if mask.is_null() || ours == 0 {
        return call();
    }
    // SAFETY: by the contract.
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
