//! The thread-local variable `otel_thread_ctx_v1` and, next to it, a word of this crate. Both are defined in
//! assembler, because stable Rust has no thread-local symbols. They are accessed by TLS descriptors, which
//! the linker turns into one constant in an executable.
//!
//! The words lie in `.tdata` although they are zero. So they come first in a library's block, and readers
//! that interpret a descriptor without a symbol as the start of the block (OpenTelemetry's eBPF profiler)
//! find them. The public name is weak: if another writer of the same proposal is linked into the same binary,
//! its definition gets the name.

use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;

use crate::abi::Slot;

/// The two words of a thread.
#[repr(C)]
pub(crate) struct Local {
    /// `otel_thread_ctx_v1`.
    pub(crate) slot: Slot,
    /// This copy's state of the thread (`thread::State`); null before the first use and after the thread's
    /// end.
    pub(crate) state: AtomicPtr<c_void>,
}

macro_rules! words {
    ($object:literal, $progbits:literal) => {
        core::arch::global_asm!(
            concat!(".pushsection .tdata.flightline_context,\"awT\",", $progbits),
            ".p2align 3",
            ".hidden flightline_context_local_v1",
            ".weak flightline_context_local_v1",
            concat!(".type flightline_context_local_v1, ", $object),
            ".size flightline_context_local_v1, 16",
            ".weak otel_thread_ctx_v1",
            concat!(".type otel_thread_ctx_v1, ", $object),
            ".size otel_thread_ctx_v1, 8",
            "flightline_context_local_v1:",
            "otel_thread_ctx_v1:",
            ".zero 16",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
words!("@object", "@progbits");
#[cfg(target_arch = "aarch64")]
words!("%object", "%progbits");

/// The calling thread's words.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn local() -> &'static Local {
    let at: *const Local;
    // SAFETY: the sequence of the psABI for TLS descriptors, which linkers recognise; the call changes rax
    // and flags. glibc before 2.40 lost vector registers as well, in libraries that were loaded late: callers
    // are separate functions, which hold no vector registers here.
    unsafe {
        core::arch::asm!(
            "lea rax, [rip + flightline_context_local_v1@TLSDESC]",
            "call qword ptr [rax + flightline_context_local_v1@TLSCALL]",
            "add rax, qword ptr fs:[0]",
            out("rax") at);
    }
    // SAFETY: the thread's own words; no reference outlives the API call that created it.
    unsafe { &*at }
}

/// The calling thread's words.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn local() -> &'static Local {
    let offset: usize;
    let pointer: usize;
    // SAFETY: the sequence of the ABI for TLS descriptors, which linkers recognise.
    unsafe {
        core::arch::asm!(
            "adrp x0, :tlsdesc:flightline_context_local_v1",
            "ldr x1, [x0, #:tlsdesc_lo12:flightline_context_local_v1]",
            "add x0, x0, :tlsdesc_lo12:flightline_context_local_v1",
            ".tlsdesccall flightline_context_local_v1",
            "blr x1",
            "mrs x2, tpidr_el0",
            out("x2") pointer, out("x0") offset, out("x1") _, out("x30") _);
    }
    // SAFETY: the thread's own words; no reference outlives the API call that created it.
    unsafe { &*((pointer.wrapping_add(offset)) as *const Local) }
}

/// The calling thread's thread pointer.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the word that the ABI has there, or the register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

/// [`crate::own_slot`] for C.
pub(crate) unsafe extern "C" fn own_slot() -> *const Slot {
    &raw const local().slot
}
