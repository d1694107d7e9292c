//! Alternate signal stacks. The recorder's handler runs on the program's, if it has one (a coroutine's own
//! stack may be smaller still). A program may have sized it for its own handler alone. The thread then gets a
//! larger stack, and `sigaltstack` still reports the program's own.
//!
//! The larger stack belongs to the program's stack that it replaces, by address and size, until the thread
//! ends. It cannot be freed when the program sets another stack. Returning from a signal handler restores the
//! stack that was set before the handler (`rt_sigreturn` restores `uc_stack`). With `SS_AUTODISARM`, the
//! handler that sets another stack may also be running on it.

use core::ffi::c_int;

use crate::threads::{self, signal_frame};
use crate::{os, shadow, signals};

/// The stack in use, followed by the stack that the program set.
const STACK_BYTES: usize = 64 * 1024;
const GUARD: usize = 4096;
const WHOLE: usize = GUARD + STACK_BYTES + 4096;

/// Replaced stacks of one thread. If a program sets more small stacks, at different addresses, the oldest unused one is unmapped.
const MOST: usize = 16;

/// The stack that the program set; stored at the end of the mapping that replaces it.
struct Replaced {
    requested: libc::stack_t,
    /// The thread's mapping made before this one, 0 if none.
    next: usize,
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_stack,\"awT\",@nobits",
    ".p2align 3",
    ".hidden flightline_stack",
    ".globl flightline_stack",
    ".type flightline_stack, @object",
    ".size flightline_stack, 8",
    "flightline_stack: .zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .tbss.flightline_stack,\"awT\",%nobits",
    ".p2align 3",
    ".hidden flightline_stack",
    ".globl flightline_stack",
    ".type flightline_stack, %object",
    ".size flightline_stack, 8",
    "flightline_stack: .zero 8",
    ".popsection",
);

/// The address of the calling thread's word: start of the newest mapping that replaces a stack of it, 0 if none.
fn own() -> *mut usize {
    let address: *mut usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes the address of this thread's own word.
    unsafe {
        core::arch::asm!(
            "mov {v}, qword ptr fs:[0]",
            "add {v}, qword ptr [rip + flightline_stack@GOTTPOFF]",
            v = out(reg) address, options(nostack, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes the address of this thread's own word.
    unsafe {
        core::arch::asm!(
            "adrp {v}, :gottprel:flightline_stack",
            "ldr {v}, [{v}, #:gottprel_lo12:flightline_stack]",
            "mrs {t}, tpidr_el0",
            "add {v}, {v}, {t}",
            v = out(reg) address, t = out(reg) _, options(nostack, readonly, preserves_flags));
    }
    address
}

/// The calling thread's mappings, newest first.
fn mappings() -> impl Iterator<Item = usize> {
    // SAFETY: this thread's own word.
    let first = unsafe { own().read() };
    // SAFETY: a mapping of the list, which stays until the list is changed.
    core::iter::successors(Some(first), |at| Some(unsafe { (*replaced(*at)).next })).take_while(|at| *at != 0)
}

fn replaced(mapping: usize) -> *mut Replaced {
    (mapping + GUARD + STACK_BYTES) as *mut Replaced
}

fn stack(mapping: usize) -> usize {
    mapping + GUARD
}

fn kernel(new: *const libc::stack_t, old: *mut libc::stack_t) -> Result<(), c_int> {
    // SAFETY: null or structures that the callers keep valid.
    unsafe { os::syscall(libc::SYS_sigaltstack, [new as usize, old as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Stacks smaller than this have no room for a handler of the program that the recorder's interrupts: two
/// kernel frames and both handlers.
fn least_bytes() -> usize {
    const HANDLERS: usize = 4096;
    2 * signal_frame::bytes() + HANDLERS
}

/// `sigaltstack` on behalf of the program.
///
/// # Errors
/// The errno of the call.
///
/// # Safety
/// As `sigaltstack(2)`.
pub unsafe fn change(new: *const libc::stack_t, old: *mut libc::stack_t) -> Result<(), c_int> {
    // SAFETY: all-zero is a valid structure.
    let mut was: libc::stack_t = unsafe { core::mem::zeroed() };
    // SAFETY: the caller guarantees null or a valid structure.
    let requested = unsafe { new.as_ref() }.copied();
    let small = |requested: &libc::stack_t| {
        requested.ss_flags & libc::SS_DISABLE == 0 && requested.ss_size < least_bytes()
    };
    match requested.filter(small).filter(|_| signals::owned() != 0) {
        None => kernel(new, &raw mut was)?,
        // The recorder's signals are blocked while the small stack is set.
        Some(requested) => shadow::with_all_blocked(|| {
            // The kernel decides which size it accepts: its minimum depends on the processor state that the
            // process may use.
            kernel(&raw const requested, &raw mut was)?;
            replace(&requested);
            Ok::<(), c_int>(())
        })?,
    }
    if let Some(at) = mappings().find(|at| was.ss_sp as usize == stack(*at)) {
        // SAFETY: written when the mapping was made.
        let requested = unsafe { (*replaced(at)).requested };
        was.ss_sp = requested.ss_sp;
        was.ss_size = requested.ss_size;
    }
    if !old.is_null() {
        // SAFETY: the caller guarantees that it is valid for writes.
        unsafe { old.write(was) };
    }
    Ok(())
}

/// Replaces the stack `requested`, which the kernel has just accepted, by a larger one. Without memory,
/// `requested` stays set.
fn replace(requested: &libc::stack_t) {
    // SAFETY: written when the mapping was made.
    let of = |at: &usize| unsafe { (*replaced(*at)).requested };
    let same = |at: &usize| of(at).ss_sp == requested.ss_sp && of(at).ss_size == requested.ss_size;
    let Some(at) = mappings().find(same).or_else(|| map(requested)) else { return };
    let ours =
        libc::stack_t { ss_sp: stack(at) as *mut _, ss_flags: requested.ss_flags, ss_size: STACK_BYTES };
    // The kernel accepted the program's stack, so it accepts a larger one with the same flags.
    let _ = kernel(&raw const ours, core::ptr::null_mut());
}

fn map(requested: &libc::stack_t) -> Option<usize> {
    if mappings().count() >= MOST {
        give_back_oldest();
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let at = os::map(None, WHOLE, rw, libc::MAP_PRIVATE | libc::MAP_NORESERVE).ok()?;
    // SAFETY: a new mapping that no other code uses yet.
    let _ = unsafe { os::syscall(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    // SAFETY: this thread's own word, and the last page of the mapping.
    unsafe {
        replaced(at).write(Replaced { requested: *requested, next: own().read() });
        own().write(at);
    }
    threads::register_thread_end();
    Some(at)
}

/// Unmaps the oldest mapping, except the one that this thread runs on.
fn give_back_oldest() {
    let local = 0u8;
    let here = (&raw const local) as usize;
    let on = |at: &usize| (*at..*at + WHOLE).contains(&here);
    let Some(oldest) = mappings().filter(|at| !on(at)).last() else { return };
    // SAFETY: the thread's own list.
    unsafe {
        let next = (*replaced(oldest)).next;
        match mappings().find(|at| (*replaced(*at)).next == oldest) {
            Some(newer) => (*replaced(newer)).next = next,
            None => own().write(next),
        }
        os::unmap(oldest, WHOLE);
    }
}

/// Called at the end of a thread: frees its stacks, unless it runs on one.
pub fn free() {
    // SAFETY: this thread's own word.
    if unsafe { own().read() } == 0 {
        return;
    }
    // SAFETY: all-zero is a valid structure.
    let mut off: libc::stack_t = unsafe { core::mem::zeroed() };
    off.ss_flags = libc::SS_DISABLE;
    if kernel(&raw const off, core::ptr::null_mut()).is_err() {
        return;
    }
    // SAFETY: this thread's own word and list; the kernel does not use them any more.
    unsafe {
        let mut at = own().replace(0);
        while at != 0 {
            let next = (*replaced(at)).next;
            os::unmap(at, WHOLE);
            at = next;
        }
    }
}
