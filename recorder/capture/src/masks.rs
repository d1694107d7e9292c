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
use flightline_in_signal::{clock, engine, process_timer, sys, thread};

use crate::{fork_token, os, signals};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_shadow,\"awT\",@nobits",
    ".p2align 3",
    ".hidden flightline_shadow",
    ".globl flightline_shadow",
    ".type flightline_shadow, @object",
    ".size flightline_shadow, 8",
    "flightline_shadow: .zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_shadow,\"awT\",%nobits",
    ".p2align 3",
    ".hidden flightline_shadow",
    ".globl flightline_shadow",
    ".type flightline_shadow, %object",
    ".size flightline_shadow, 8",
    "flightline_shadow: .zero 8",
    ".popsection",
);

/// The calling thread's shadow: signals of ours that the program believes blocked, as bits `1 << (signo - 1)`, and
/// [`HELD`]. Initial-exec, like [`flightline_in_signal::tls`].
#[inline]
pub fn shadow() -> usize {
    let value: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {v}, qword ptr [rip + flightline_shadow@GOTTPOFF]",
            "mov {v}, qword ptr fs:[{v}]",
            v = out(reg) value, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads this thread's own word.
    unsafe {
        core::arch::asm!(
            "adrp {v}, :gottprel:flightline_shadow",
            "ldr {v}, [{v}, #:gottprel_lo12:flightline_shadow]",
            "mrs {t}, tpidr_el0",
            "ldr {v}, [{t}, {v}]",
            v = out(reg) value, t = out(reg) _, options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets the calling thread's shadow.
#[inline]
pub fn set_shadow(value: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {o}, qword ptr [rip + flightline_shadow@GOTTPOFF]",
            "mov qword ptr fs:[{o}], {v}",
            o = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: writes this thread's own word.
    unsafe {
        core::arch::asm!(
            "adrp {o}, :gottprel:flightline_shadow",
            "ldr {o}, [{o}, #:gottprel_lo12:flightline_shadow]",
            "mrs {t}, tpidr_el0",
            "str {v}, [{t}, {o}]",
            o = out(reg) _, t = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
    }
}

/// Flag in the shadow: this thread is disarmed while a signal of its engine is really blocked.
pub const HELD: usize = 1 << 62;

/// Flag in the shadow: this thread gave up system calls, see [`crate::sandbox`].
pub const SANDBOXED: usize = 1 << 61;
/// All flags of the shadow that are no signals.
pub const FLAGS: usize = HELD | SANDBOXED;

/// The kernel's signal set of 64 signals, first word of the C library's `sigset_t`.
pub type KernelSet = u64;

/// Bit of a signal in a [`KernelSet`].
#[inline]
pub fn bit(signo: c_int) -> KernelSet {
    1u64.checked_shl((signo - 1) as u32).unwrap_or(0)
}

/// Reads the signals 1–64 of a set of the C library.
///
/// # Safety
/// `set` points at an initialised `sigset_t`.
pub unsafe fn from_c(set: *const libc::sigset_t) -> KernelSet {
    // SAFETY: both C libraries keep signals 1–64 in the first 64 bits, as the kernel does.
    unsafe { set.cast::<u64>().read() }
}

/// rt_sigprocmask(2) of the calling thread; returns the old mask.
pub fn kernel_mask(how: c_int, set: Option<KernelSet>) -> KernelSet {
    let mut old: KernelSet = 0;
    let new = set.as_ref().map_or(0, |set| core::ptr::from_ref(set) as usize);
    let args = [how as usize, new, (&raw mut old) as usize, size_of::<KernelSet>(), 0, 0];
    // SAFETY: the kernel reads and writes one word each.
    let _ = unsafe { os::syscall(libc::SYS_rt_sigprocmask, args) };
    old
}

/// Runs `f` with every signal blocked.
pub fn with_all_blocked<R>(f: impl FnOnce() -> R) -> R {
    let old = kernel_mask(libc::SIG_SETMASK, Some(!0));
    let r = f();
    kernel_mask(libc::SIG_SETMASK, Some(old));
    r
}

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
    let Some(slot) = thread::current() else { return 0 };
    let mut traps = core::iter::once(&slot.engine_handle).chain(&slot.event_handles);
    let trap = if traps.any(|handle| handle.load(Relaxed) != 0) { bit(engine::SIGTRAP) } else { 0 };
    let prof = if engine::uses_timer(slot) { bit(engine::SIGPROF) } else { 0 };
    trap | prof
}

/// Disarms the calling thread until the signal is unblocked. The signals must be blocked now.
pub fn disarm_held() {
    let anew = shadow() & HELD == 0;
    set_shadow(shadow() | HELD);
    if let Some(attached) = crate::session::current()
        && let Some(slot) = thread::current()
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
    if crate::session::current().is_some()
        && let Some(slot) = thread::current()
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
    if let Some(attached) = crate::session::current() {
        process_timer::unbar(&attached.state, slot, loss::BLOCKED);
        if process_timer::is_used(&attached.state) {
            return;
        }
    }
    let now = clock::thread_cpu_ns();
    let last = slot.last_cpu_ns.swap(now, Relaxed);
    engine::count_loss(slot, loss::BLOCKED, now.saturating_sub(last));
}

/// Signals pending for the calling thread.
pub fn pending() -> KernelSet {
    let mut pending: KernelSet = 0;
    let args = [(&raw mut pending) as usize, size_of::<KernelSet>(), 0, 0, 0, 0];
    // SAFETY: the kernel writes one word.
    let _ = unsafe { os::syscall(libc::SYS_rt_sigpending, args) };
    pending
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
