//! Alternate signal stacks. Our handler runs on the program's, if it has one (a coroutine's own stack may be smaller
//! still). A program may have sized it for its own handler alone: then the thread gets a larger one of ours, and is told
//! what it asked for.

use core::ffi::c_int;

use crate::{os, signals};

/// The stack in use and, right above it, what the program thinks of it.
const STACK_BYTES: usize = 64 * 1024;
const GUARD: usize = 4096;
const WHOLE: usize = GUARD + STACK_BYTES + 4096;

/// What the program asked for; at the end of the mapping that replaces it.
struct Replaced {
    asked: libc::stack_t,
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

/// The address of the calling thread's word: start of the mapping that replaces its stack, 0 if none.
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

fn mapping() -> usize {
    // SAFETY: this thread's own word.
    unsafe { own().read() }
}

fn set_mapping(address: usize) {
    // SAFETY: this thread's own word.
    unsafe { own().write(address) };
}

fn replaced(mapping: usize) -> *mut Replaced {
    (mapping + GUARD + STACK_BYTES) as *mut Replaced
}

fn kernel(new: *const libc::stack_t, old: *mut libc::stack_t) -> Result<(), c_int> {
    // SAFETY: null or structures that the callers keep valid.
    unsafe { os::syscall(libc::SYS_sigaltstack, [new as usize, old as usize, 0, 0, 0, 0]) }.map(drop)
}

/// A stack below this does not hold a handler of the program interrupted by ours: two kernel frames and both handlers.
fn enough() -> usize {
    const HANDLERS: usize = 8192;
    const OLD_KERNELS: usize = 2048;
    // SAFETY: no pointers.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    2 * frame.max(OLD_KERNELS) + HANDLERS
}

/// `sigaltstack` on behalf of the program.
///
/// # Errors
/// The errno of the call.
///
/// # Safety
/// As `sigaltstack(2)`.
pub unsafe fn change(new: *const libc::stack_t, old: *mut libc::stack_t) -> Result<(), c_int> {
    let before = mapping();
    // SAFETY: all-zero is a valid structure.
    let mut was: libc::stack_t = unsafe { core::mem::zeroed() };
    kernel(core::ptr::null(), &raw mut was)?;
    if before != 0 && was.ss_sp as usize == before + GUARD {
        // SAFETY: written when the mapping was made.
        let asked = unsafe { (*replaced(before)).asked };
        was.ss_sp = asked.ss_sp;
        was.ss_size = asked.ss_size;
    }
    if !new.is_null() {
        // SAFETY: valid, by the contract.
        let asked = unsafe { new.read() };
        // SAFETY: no pointers.
        let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let small =
            asked.ss_flags & libc::SS_DISABLE == 0 && asked.ss_size >= least && asked.ss_size < enough();
        if small && signals::owned() != 0 {
            replace(&asked)?;
        } else {
            kernel(new, core::ptr::null_mut())?;
        }
        if before != 0 {
            // SAFETY: the kernel accepted another stack, so this one is neither set nor in use.
            unsafe { os::unmap(before, WHOLE) };
            if mapping() == before {
                set_mapping(0);
            }
        }
    }
    if !old.is_null() {
        // SAFETY: valid, by the contract.
        unsafe { old.write(was) };
    }
    Ok(())
}

fn replace(asked: &libc::stack_t) -> Result<(), c_int> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let Ok(at) = os::map(None, WHOLE, rw, libc::MAP_PRIVATE | libc::MAP_NORESERVE) else {
        return kernel(asked, core::ptr::null_mut());
    };
    // SAFETY: our own fresh mapping.
    let _ = unsafe { os::syscall(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    let ours =
        libc::stack_t { ss_sp: (at + GUARD) as *mut _, ss_flags: asked.ss_flags, ss_size: STACK_BYTES };
    if let Err(errno) = kernel(&ours, core::ptr::null_mut()) {
        // SAFETY: mapped above, not in use.
        unsafe { os::unmap(at, WHOLE) };
        return Err(errno);
    }
    // SAFETY: the last page of the mapping.
    unsafe { replaced(at).write(Replaced { asked: *asked }) };
    set_mapping(at);
    Ok(())
}

/// At the end of a thread: frees its stack, unless it runs on it.
pub fn free() {
    let at = mapping();
    if at == 0 {
        return;
    }
    // SAFETY: all-zero is a valid structure.
    let mut off: libc::stack_t = unsafe { core::mem::zeroed() };
    off.ss_flags = libc::SS_DISABLE;
    if kernel(&raw const off, core::ptr::null_mut()).is_ok() {
        set_mapping(0);
        // SAFETY: the kernel does not use it any more.
        unsafe { os::unmap(at, WHOLE) };
    }
}
