//! Alternate signal stacks. Our handler runs on the program's, if it has one (a coroutine's own stack may be smaller
//! still). A program may have sized it for its own handler alone: then the thread gets a larger one of ours in its place, and the
//! program reads back what it set.
//!
//! A mapping of ours belongs to the stack of the program that it replaces, by address and size, until the thread ends. It cannot
//! be freed when the program sets another stack: every return from a signal handler sets again the stack that was in force when the
//! handler was entered (`rt_sigreturn` restores `uc_stack`), and with `SS_AUTODISARM` the handler that sets another one may itself
//! be running on it.

use core::ffi::c_int;

use crate::{masks, os, signals, threads};

/// The stack in use and, right above it, what the program thinks of it.
const STACK_BYTES: usize = 64 * 1024;
const GUARD: usize = 4096;
const WHOLE: usize = GUARD + STACK_BYTES + 4096;

/// Replaced stacks of one thread. A program that sets more small ones, at different places, gives the oldest back that it is not on.
const MOST: usize = 16;

/// What the program asked for; at the end of the mapping that replaces it.
struct Replaced {
    asked: libc::stack_t,
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

/// A stack below this does not hold a handler of the program interrupted by ours: two kernel frames and both handlers.
fn enough() -> usize {
    const HANDLERS: usize = 4096;
    2 * frame() + HANDLERS
}

/// Bytes of the kernel's frame of a signal.
fn frame() -> usize {
    const OLD_KERNELS: usize = 2048;
    // SAFETY: no pointers.
    let most = (unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize).max(OLD_KERNELS);
    most.saturating_sub(not_permitted())
}

/// Bytes that `AT_MINSIGSTKSZ` counts for state that this process may not use: AMX needs a permission (Linux,
/// Documentation/arch/x86/xstate.rst), without which no frame has it.
#[cfg(target_arch = "x86_64")]
fn not_permitted() -> usize {
    use core::arch::x86_64::__cpuid_count;
    const GET_PERMITTED: usize = 0x1022;
    const TILE_CONFIGURATION: u32 = 17;
    const TILE_DATA: u32 = 18;
    const LEAF: u32 = 0xd;
    let mut permitted = 0u64;
    let args = [GET_PERMITTED, &raw mut permitted as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word.
    if unsafe { os::syscall(libc::SYS_arch_prctl, args) }.is_err() || permitted >> TILE_DATA & 1 != 0 {
        return 0;
    }
    // Size and offset of each component in the frame's XSAVE area (Intel SDM, volume 1, 13.5).
    let all = __cpuid_count(LEAF, 0);
    let end = |component: u32| {
        let part = __cpuid_count(LEAF, component);
        part.ebx + part.eax
    };
    let enabled = |component: &u32| all.eax >> component & 1 != 0;
    if !enabled(&TILE_DATA) {
        return 0;
    }
    let rest = (2..TILE_CONFIGURATION).filter(enabled).map(end).max().unwrap_or(0);
    all.ebx.saturating_sub(rest) as usize
}

#[cfg(not(target_arch = "x86_64"))]
fn not_permitted() -> usize {
    0
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
    // SAFETY: null or valid, by the contract.
    let asked = unsafe { new.as_ref() }.copied();
    let small = |asked: &libc::stack_t| asked.ss_flags & libc::SS_DISABLE == 0 && asked.ss_size < enough();
    match asked.filter(small).filter(|_| signals::owned() != 0) {
        None => kernel(new, &raw mut was)?,
        // No signal of ours may come while the small one is in force.
        Some(asked) => masks::with_all_blocked(|| {
            // The kernel decides what it accepts: its least size depends on what the process may use.
            kernel(&raw const asked, &raw mut was)?;
            replace(&asked);
            Ok::<(), c_int>(())
        })?,
    }
    if let Some(at) = mappings().find(|at| was.ss_sp as usize == stack(*at)) {
        // SAFETY: written when the mapping was made.
        let asked = unsafe { (*replaced(at)).asked };
        was.ss_sp = asked.ss_sp;
        was.ss_size = asked.ss_size;
    }
    if !old.is_null() {
        // SAFETY: valid, by the contract.
        unsafe { old.write(was) };
    }
    Ok(())
}

/// Sets a stack of ours in the place of `asked`, which the kernel has just accepted. Without memory that stays in force.
fn replace(asked: &libc::stack_t) {
    // SAFETY: written when the mapping was made.
    let of = |at: &usize| unsafe { (*replaced(*at)).asked };
    let same = |at: &usize| of(at).ss_sp == asked.ss_sp && of(at).ss_size == asked.ss_size;
    let Some(at) = mappings().find(same).or_else(|| map(asked)) else { return };
    let ours = libc::stack_t { ss_sp: stack(at) as *mut _, ss_flags: asked.ss_flags, ss_size: STACK_BYTES };
    // It refuses nothing that it accepted a moment ago.
    let _ = kernel(&raw const ours, core::ptr::null_mut());
}

fn map(asked: &libc::stack_t) -> Option<usize> {
    if mappings().count() >= MOST {
        give_back_oldest();
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let at = os::map(None, WHOLE, rw, libc::MAP_PRIVATE | libc::MAP_NORESERVE).ok()?;
    // SAFETY: our own fresh mapping.
    let _ = unsafe { os::syscall(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    // SAFETY: this thread's own word, and the last page of the mapping.
    unsafe {
        replaced(at).write(Replaced { asked: *asked, next: own().read() });
        own().write(at);
    }
    threads::note_end_of_this_thread();
    Some(at)
}

/// Unmaps the oldest mapping but the one that this thread runs on.
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

/// At the end of a thread: frees its stacks, unless it runs on one.
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
