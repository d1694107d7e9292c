//! The signal mask of a thread in the kernel, and its shadow: a word with the signals that the program believes blocked.
//! [`crate::signals::masks`] states the rules.

use core::ffi::c_int;

use crate::os;

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

/// The calling thread's shadow: the recorder's signals that the program believes blocked, as bits `1 << (signo - 1)`, and
/// [`HELD`]. Initial-exec, like [`flightline_in_signal::os::tls`].
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

/// Flag in the shadow: this thread gave up system calls, see [`crate::threads::seccomp`].
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
/// `set` points to an initialised `sigset_t`.
pub unsafe fn from_c(set: *const libc::sigset_t) -> KernelSet {
    // SAFETY: the caller guarantees an initialised set; both C libraries store signals 1–64 in the first 64
    // bits, as the kernel does.
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

/// Signals pending for the calling thread.
pub fn pending() -> KernelSet {
    let mut pending: KernelSet = 0;
    let args = [(&raw mut pending) as usize, size_of::<KernelSet>(), 0, 0, 0, 0];
    // SAFETY: the kernel writes one word.
    let _ = unsafe { os::syscall(libc::SYS_rt_sigpending, args) };
    pending
}
