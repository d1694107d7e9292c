//! System calls that signals interrupt.
//!
//! The recorder's handlers are installed with `SA_RESTART`. If several signals are pending, the kernel
//! decides with the first handler whether an interrupted call is restarted. A program whose handler has no
//! `SA_RESTART` expects `EINTR`: otherwise a read with `alarm` would wait forever. If such a handler runs
//! after the recorder's, or is called by it, the decision is reversed.

use super::*;

/// System calls that wait and are subject to `SA_RESTART` (signal(7)).
const WAITING: [libc::c_long; 34] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_ioctl,
    libc::SYS_openat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_getrandom,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
];

/// Returns the call that the interrupted code is about to restart: its number, and a function that sets its
/// result.
#[cfg(target_arch = "x86_64")]
fn waiting(frame: SignalFrame<'_>) -> Option<(libc::c_long, impl FnOnce(i64))> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let context = frame.context().cast::<libc::ucontext_t>();
    // SAFETY: the frame of a handler that runs; no other code accesses its registers while the result lives.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize];
    // The kernel stores the address after the instruction in rcx, and sets the program counter back to the
    // instruction.
    if registers[libc::REG_RCX as usize] != at.wrapping_add(2) {
        return None;
    }
    // SAFETY: the kernel has just executed the instruction there.
    if unsafe { (at as *const [u8; 2]).read() } != SYSCALL {
        return None;
    }
    let number = registers[libc::REG_RAX as usize];
    Some((number, move |result| {
        registers[libc::REG_RAX as usize] = result;
        registers[libc::REG_RIP as usize] = at + 2;
    }))
}

#[cfg(target_arch = "aarch64")]
fn waiting(frame: SignalFrame<'_>) -> Option<(libc::c_long, impl FnOnce(i64))> {
    const SVC: u32 = 0xd400_0001;
    let context = frame.context().cast::<libc::ucontext_t>();
    // SAFETY: the frame of a handler that runs; no other code accesses its registers while the result lives.
    let registers = unsafe { &mut (*context).uc_mcontext };
    // SAFETY: the interrupted instruction is mapped.
    if unsafe { (registers.pc as *const u32).read() } != SVC {
        return None;
    }
    let number = registers.regs[8] as libc::c_long;
    Some((number, move |result| {
        registers.regs[0] = result as u64;
        registers.pc += 4;
    }))
}

/// Returns the function that sets the result of the system call that the kernel is about to restart, if signals can end that call.
fn restarted(frame: SignalFrame<'_>) -> Option<impl FnOnce(i64)> {
    let (number, end) = waiting(frame)?;
    WAITING.contains(&number).then_some(end)
}

/// Ends the interrupted call after a signal of the recorder, if the handler of another pending signal would
/// end it. Called with every signal blocked.
pub fn decide_again(frame: SignalFrame<'_>) {
    let Some(end) = restarted(frame) else { return };
    // A pending SIGPROF or SIGTRAP may be the recorder's own. If it is the program's, [`interrupt`] ends the call.
    let behind = shadow::pending() & !interrupted_mask(frame) & !owned();
    if (1..=64).filter(|signo| behind & bit(*signo) != 0).any(interrupts) {
        end(-i64::from(libc::EINTR));
    }
}

/// Lets the system call that the kernel is about to restart end with `EINTR`.
pub fn interrupt(frame: SignalFrame<'_>) {
    if let Some(end) = restarted(frame) {
        end(-i64::from(libc::EINTR));
    }
}

/// Returns true if the kernel's handler for this signal ends system calls.
fn interrupts(signo: c_int) -> bool {
    // The kernel's structure: handler, flags, restorer, mask.
    let mut now = [0u64; 4];
    let args = [signo as usize, 0, now.as_mut_ptr() as usize, size_of::<KernelSet>(), 0, 0];
    // SAFETY: the kernel writes one such structure.
    let _ = unsafe { os::syscall(libc::SYS_rt_sigaction, args) };
    is_function(now[0] as usize) && now[1] as c_int & libc::SA_RESTART == 0
}
