//! The arguments of a signal handler; registers of the interrupted code, and their DWARF numbers.

use core::ffi::c_void;
use core::marker::PhantomData;

/// DWARF numbers and offsets of this architecture.
#[cfg(target_arch = "x86_64")]
pub mod arch {
    /// Registers tracked: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, return address.
    pub const COUNT: usize = 17;
    /// Stack pointer.
    pub const SP: usize = 7;
    /// Frame pointer.
    pub const FP: usize = 6;
    /// Column of the return address.
    pub const RA: usize = 16;
    /// Bit set of registers that a function must preserve (rbx, rbp, r12..r15).
    pub const PRESERVED: u64 = 1 << 3 | 1 << 6 | 0xf << 12;
    /// Offset of `gregs` in `ucontext_t`.
    pub const CONTEXT_REGS: u64 = 40;
    /// `gregs` index of each DWARF register 0..=15.
    pub const CONTEXT_ORDER: [u8; 16] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
    /// `gregs` index of the program counter.
    pub const CONTEXT_PC: u64 = 16;
    /// Offset of `ucontext_t` from the stack pointer in the signal trampoline.
    pub const TRAMPOLINE_CONTEXT: u64 = 0;
    /// Low bits of a code address that must be zero.
    pub const CODE_ALIGN: u64 = 1;
}

/// DWARF numbers and offsets of this architecture.
#[cfg(target_arch = "aarch64")]
pub mod arch {
    /// Registers tracked: x0..x30, sp, two unused, RA_SIGN_STATE.
    pub const COUNT: usize = 35;
    /// Stack pointer.
    pub const SP: usize = 31;
    /// Frame pointer.
    pub const FP: usize = 29;
    /// Column of the return address (the link register).
    pub const RA: usize = 30;
    /// Bit set of registers that a function must preserve (x19..x29).
    pub const PRESERVED: u64 = 0x7ff << 19;
    /// Offset of `regs` in `ucontext_t` (sigcontext at 176, fault address first).
    pub const CONTEXT_REGS: u64 = 184;
    /// Index of each DWARF register 0..=31 (x0..x30, sp).
    pub const CONTEXT_ORDER: [u8; 32] = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31,
    ];
    /// Index of the program counter.
    pub const CONTEXT_PC: u64 = 32;
    /// Offset of `ucontext_t` from the stack pointer in the signal trampoline (after `siginfo_t`).
    pub const TRAMPOLINE_CONTEXT: u64 = 128;
    /// Low bits of a code address that must be zero.
    pub const CODE_ALIGN: u64 = 4;
}

/// Registers of one frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Regs {
    /// Program counter.
    pub pc: u64,
    /// Bit i set = register i is known.
    pub valid: u64,
    /// Values by DWARF number.
    pub r: [u64; arch::COUNT],
}

impl Regs {
    /// Registers without any known value.
    pub const fn unknown() -> Regs {
        Regs { pc: 0, valid: 0, r: [0; arch::COUNT] }
    }

    /// Value of a register if it is known.
    #[inline]
    pub fn get(&self, number: usize) -> Option<u64> {
        let known = number < 64 && self.valid >> number & 1 == 1;
        if known { self.r.get(number).copied() } else { None }
    }

    /// Sets a register; numbers not tracked are ignored.
    #[inline]
    pub fn set(&mut self, number: usize, value: u64) {
        if let Some(register) = self.r.get_mut(number) {
            *register = value;
            self.valid |= 1 << number;
        }
    }

    /// Stack pointer (0 if unknown).
    #[inline]
    pub fn sp(&self) -> u64 {
        self.get(arch::SP).unwrap_or(0)
    }

    /// Loads all registers from the `ucontext_t` at `context`, word by word through `word`. Returns false if
    /// a word cannot be read.
    #[inline]
    pub fn load_context(&mut self, context: u64, mut word: impl FnMut(u64) -> Option<u64>) -> bool {
        let base = context.wrapping_add(arch::CONTEXT_REGS);
        let mut at = |index: u64| word(base.wrapping_add(index.wrapping_mul(8)));
        self.valid = 0;
        for (number, index) in arch::CONTEXT_ORDER.iter().enumerate() {
            let Some(value) = at(u64::from(*index)) else { return false };
            self.set(number, value);
        }
        let Some(pc) = at(arch::CONTEXT_PC) else { return false };
        self.pc = pc;
        if arch::RA == 16 {
            self.set(arch::RA, pc);
        }
        true
    }

    /// Returns the registers that the kernel saved for the return of the handler.
    ///
    /// # Safety
    /// `context` is the third argument of a handler installed with `SA_SIGINFO`.
    #[inline]
    pub unsafe fn interrupted(context: *const c_void) -> Regs {
        // SAFETY: the caller guarantees that the kernel wrote a whole `ucontext_t` at `context`.
        let word = |address: u64| Some(unsafe { (address as *const u64).read() });
        let mut regs = Regs::unknown();
        regs.load_context(context as u64, word);
        regs
    }
}

/// The arguments of the running signal handler: the signal's number, its `siginfo_t` and the `ucontext_t` that
/// the kernel restores when the handler returns.
#[derive(Clone, Copy)]
pub struct SignalFrame<'a> {
    signal: i32,
    info: *mut c_void,
    context: *mut c_void,
    handler: PhantomData<&'a ()>,
}

impl SignalFrame<'_> {
    /// Wraps the arguments of a handler. Returns `None` without a `siginfo_t`.
    ///
    /// # Safety
    /// `info` is null, or the arguments are those of a handler that was installed with `SA_SIGINFO` and runs
    /// for `'a`.
    #[inline]
    pub unsafe fn new<'a>(signal: i32, info: *mut c_void, context: *mut c_void) -> Option<SignalFrame<'a>> {
        (!info.is_null()).then_some(SignalFrame { signal, info, context, handler: PhantomData })
    }

    /// The signal's number.
    #[inline]
    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// The `siginfo_t`.
    #[inline]
    pub fn info(&self) -> *mut c_void {
        self.info
    }

    /// The `ucontext_t`.
    #[inline]
    pub fn context(&self) -> *mut c_void {
        self.context
    }

    /// `si_code`: the cause of the signal.
    #[inline]
    pub fn code(&self) -> i32 {
        // SAFETY: the third int of the kernel's siginfo_t, which has 128 bytes.
        unsafe { self.info.cast::<i32>().add(2).read() }
    }

    /// The eight bytes at offset 16: `si_addr`, or `si_pid` and `si_uid`.
    #[inline]
    pub fn address(&self) -> u64 {
        // SAFETY: inside the kernel's siginfo_t, which has 128 bytes.
        unsafe { self.info.cast::<u64>().add(2).read() }
    }

    /// The eight bytes at offset 24: `si_perf_data`, or `si_value` of a timer or a queued signal.
    #[inline]
    pub fn value(&self) -> u64 {
        // SAFETY: inside the kernel's siginfo_t, which has 128 bytes.
        unsafe { self.info.cast::<u64>().add(3).read() }
    }

    /// `si_perf_flags` of a trap by a perf event: the four bytes at offset 36, after `si_perf_data` and
    /// `si_perf_type`.
    #[inline]
    pub fn perf_flags(&self) -> u32 {
        // SAFETY: inside the kernel's siginfo_t, which has 128 bytes.
        unsafe { self.info.cast::<u32>().add(9).read() }
    }

    /// Returns the registers that the kernel saved for the return of the handler.
    #[inline]
    pub fn registers(&self) -> Regs {
        // SAFETY: the context of a handler that runs, by the contract of `new`.
        unsafe { Regs::interrupted(self.context) }
    }
}

/// Removes the pointer-authentication bits from a return address.
#[inline]
pub fn strip(address: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { address & 0xffff_ffff_ffff } else { address }
}
