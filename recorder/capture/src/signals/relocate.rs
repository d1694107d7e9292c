//! A handler without `SA_ONSTACK` expects the interrupted thread's own stack, which may be much larger than
//! the alternate one on which the recorder's handler runs. So the signal frame is copied there, and returning
//! from the recorder's handler enters the program's.

use super::foreign::set_interrupted_mask;
use super::*;

const INFO_BYTES: usize = 128;
/// The kernel's `struct ucontext`: flags, link, stack, 256 bytes of registers, mask.
const CONTEXT_BYTES: usize = 304;
const RED_ZONE: usize = 128;
const FXSAVE_BYTES: usize = 512;
/// In the software-reserved bytes of the FXSAVE area: a magic number, then the size of the whole area.
const XSTATE_MAGIC_AT: usize = 464;
const XSTATE_MAGIC: u32 = 0x4650_5853;
const CONTEXT_REGISTERS: usize = 40;
const CONTEXT_FPREGS: usize = CONTEXT_REGISTERS + 184;
const FLAG_DIRECTION_TRAP: i64 = 0x400 | 0x100;

/// Returns true if the frame was moved; false if the recorder's handler already runs on the right stack.
pub fn move_frame(signal: SignalFrame<'_>, handler: usize, mask: KernelSet) -> bool {
    let (info, context) = (signal.info(), signal.context());
    let uc = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's frame.
    let (stack, interrupted) =
        unsafe { ((*uc).uc_stack, (*uc).uc_mcontext.gregs[libc::REG_RSP as usize] as usize) };
    let low = stack.ss_sp as usize;
    let on = |at: usize| stack.ss_flags & libc::SS_DISABLE == 0 && at > low && at - low <= stack.ss_size;
    if !on(context as usize) || on(interrupted) {
        return false;
    }
    // SAFETY: a register of the frame; null or the address of the saved floating point state.
    let state = unsafe { context.byte_add(CONTEXT_FPREGS).cast::<usize>().read() };
    let state_bytes = if state == 0 { 0 } else { state_bytes(state) };
    let state_to = (interrupted - RED_ZONE - state_bytes) & !63;
    let info_to = state_to - INFO_BYTES;
    let context_to = info_to - CONTEXT_BYTES;
    // At a function's entry the stack pointer is 8 below a multiple of 16; the return address is the restorer.
    let frame = ((context_to - 8) & !15) - 8;
    let context_to = frame + 8;
    let info_to = context_to + CONTEXT_BYTES;
    // SAFETY: below the interrupted stack pointer and its red zone, where the kernel would have put the frame.
    unsafe {
        core::ptr::copy_nonoverlapping(state as *const u8, state_to as *mut u8, state_bytes);
        core::ptr::copy_nonoverlapping(info.cast::<u8>(), info_to as *mut u8, INFO_BYTES);
        core::ptr::copy_nonoverlapping(context.cast::<u8>(), context_to as *mut u8, CONTEXT_BYTES);
        // The restorer's address is in the word before the context.
        let restorer = context.cast::<usize>().sub(1).read();
        (frame as *mut usize).write(restorer);
        if state != 0 {
            ((context_to + CONTEXT_FPREGS) as *mut usize).write(state_to);
        }
    }
    // SAFETY: the recorder's own frame: returning from it enters the handler, with a fresh floating point
    // state.
    unsafe {
        let registers = &mut (*uc).uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = handler as i64;
        registers[libc::REG_RSP as usize] = frame as i64;
        registers[libc::REG_RDI as usize] = i64::from(signal.signal());
        registers[libc::REG_RSI as usize] = info_to as i64;
        registers[libc::REG_RDX as usize] = context_to as i64;
        registers[libc::REG_RAX as usize] = 0;
        registers[libc::REG_EFL as usize] &= !FLAG_DIRECTION_TRAP;
        context.byte_add(CONTEXT_FPREGS).cast::<usize>().write(0);
    }
    set_interrupted_mask(signal, mask);
    true
}

fn state_bytes(state: usize) -> usize {
    let at = (state + XSTATE_MAGIC_AT) as *const u32;
    // SAFETY: inside the 512 bytes that every saved state has.
    let (magic, size) = unsafe { (at.read(), at.add(1).read()) };
    if magic == XSTATE_MAGIC && (FXSAVE_BYTES as u32..1 << 20).contains(&size) {
        size as usize
    } else {
        FXSAVE_BYTES
    }
}
