//! Forwards signals that the recorder did not send, according to the program's dispositions.

use super::*;

/// `si_code` of a siginfo, after `si_signo` and `si_errno`.
pub(super) fn signal_code(info: *const c_void) -> c_int {
    // SAFETY: the kernel's siginfo, 128 bytes.
    unsafe { info.cast::<c_int>().add(2).read() }
}

/// Sends a received signal again with all its data, to this thread or (as far as the kernel allows it) to the
/// process.
pub(super) fn send_again(signo: c_int, info: *const c_void, to_process: bool) {
    let pid = sys::getpid() as usize;
    if to_process {
        let args = [pid, signo as usize, info as usize, 0, 0, 0];
        // SAFETY: the kernel reads one siginfo.
        if unsafe { os::syscall(libc::SYS_rt_sigqueueinfo, args) }.is_ok() {
            return;
        }
        // Only the main thread may repeat a signal of kill(2) or of the kernel; other threads send a new one
        // in their own name. SAFETY: no pointers.
        if unsafe { os::syscall(libc::SYS_kill, [pid, signo as usize, 0, 0, 0, 0]) }.is_ok() {
            return;
        }
    }
    let tid = sys::gettid() as usize;
    // SAFETY: the kernel reads one siginfo.
    if unsafe { os::syscall(libc::SYS_rt_tgsigqueueinfo, [pid, tid, signo as usize, info as usize, 0, 0]) }
        .is_err()
    {
        // SAFETY: no pointers.
        let _ = unsafe { os::syscall(libc::SYS_tgkill, [pid, tid, signo as usize, 0, 0, 0]) };
    }
}

/// Called by the recorder's handler for a signal that is not the recorder's. Runs on the handler's stack with
/// every signal blocked.
pub(super) unsafe extern "C" fn chain(signo: c_int, info: *mut c_void, context: *mut c_void) {
    let Some(shadow) = shadow_disposition(signo) else { return };
    let program = shadow.load();
    let code = signal_code(info);
    // The trap of an instruction of the program: the kernel would kill the program if the signal were blocked
    // or ignored.
    let forced = signo == SIGTRAP && code > 0;
    if shadow::shadow() & bit(signo) as usize != 0 {
        if forced {
            last_words(signo, info, context);
            die(signo, info, context);
        } else {
            hold(signo, info, context, code);
        }
        return;
    }
    match program.handler {
        libc::SIG_IGN if !forced => {}
        libc::SIG_IGN | libc::SIG_DFL => {
            last_words(signo, info, context);
            die(signo, info, context);
        }
        _ => run(signo, info, context, shadow, &program),
    }
}

/// Handles a signal in a thread without thread-local memory of the C library, where the recorder's thread-local words cannot be read.
/// The program's disposition alone decides, because the thread has no shadow mask.
///
/// # Safety
/// The arguments of the recorder's handler.
#[cold]
pub(super) unsafe fn on_foreign_thread(signo: c_int, info: *mut c_void, context: *mut c_void) {
    if is_ours(signo, info) {
        // SAFETY: the caller guarantees the arguments of the recorder's handler.
        return unsafe { handler::on_foreign_thread(signo, info) };
    }
    let Some(shadow) = shadow_disposition(signo) else { return };
    let program = shadow.load();
    let forced = signo == SIGTRAP && signal_code(info) > 0;
    match program.handler {
        libc::SIG_IGN if !forced => {}
        libc::SIG_IGN | libc::SIG_DFL => default_action(signo, info, context),
        handler => {
            // SAFETY: the caller guarantees the arguments of the recorder's handler.
            unsafe { interrupt(signo, info, context, &program) };
            // SAFETY: the program installed this address as a handler of this signal.
            let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };
            // SAFETY: inside the signal frame.
            let interrupted = unsafe { *interrupted_mask(context) };
            let own = if program.flags & libc::SA_NODEFER == 0 { bit(signo) } else { 0 };
            shadow::kernel_mask(libc::SIG_SETMASK, Some(interrupted | program.mask | own));
            // SAFETY: the program installed this function as a handler of this signal, and gets the signal's
            // own arguments.
            unsafe { handler(signo, info, context) };
        }
    }
}

/// Returns the mask that is restored when the handler returns.
pub(super) fn interrupted_mask(context: *mut c_void) -> *mut KernelSet {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: a field of the kernel's ucontext; its set of 64 signals is the start of the C library's.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// Executes the default action, as if no handler were installed.
pub(super) fn die(signo: c_int, info: *mut c_void, context: *mut c_void) {
    if owned() & bit(signo) != 0 {
        // The kernel queues one pending signal of each number: the parent could see the siginfo of a sampling
        // signal as the cause of death.
        masks::disarm_held();
    }
    default_action(signo, info, context);
}

/// Lets the kernel execute the default action. Uses no thread-local memory.
pub(super) fn default_action(signo: c_int, info: *mut c_void, context: *mut c_void) {
    set_kernel_handler(signo, libc::SIG_DFL);
    // SAFETY: inside the signal frame.
    unsafe { *interrupted_mask(context) &= !bit(signo) };
    send_again(signo, info, false);
}

/// Holds a signal that the program blocked and waits for elsewhere: really blocks it and makes it pending.
fn hold(signo: c_int, info: *mut c_void, context: *mut c_void, code: c_int) {
    let mask = interrupted_mask(context);
    // SAFETY: inside the signal frame.
    unsafe { *mask |= bit(signo) };
    masks::disarm_held();
    HOLDS.fetch_add(1, Release);
    send_again(signo, info, code != libc::SI_TKILL);
}

static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of held signals so far. A thread that waits for such a signal may have been woken in
/// vain by it.
pub fn holds() -> u32 {
    HOLDS.load(Acquire)
}

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);

/// Records last samples for a trap, which means an error. SIGPROF is a request to end.
fn last_words(signo: c_int, info: *mut c_void, context: *mut c_void) {
    if signo == SIGTRAP {
        // SAFETY: the arguments of the recorder's handler.
        unsafe { fatal::last_words(signo, info, context) };
    }
}

/// Ends the interrupted system call if the program's handler does, see [`restart`].
///
/// # Safety
/// The arguments of the recorder's handler.
unsafe fn interrupt(signo: c_int, info: *mut c_void, context: *mut c_void, program: &Disposition) {
    // An instruction that traps interrupts no system call.
    let trapped = signo == SIGTRAP && signal_code(info) > 0;
    if program.flags & libc::SA_RESTART == 0 && !trapped {
        // SAFETY: the caller guarantees that `context` is a signal frame.
        unsafe { restart::interrupt(context) };
    }
}

/// Runs the program's handler in the same way as the kernel would.
fn run(signo: c_int, info: *mut c_void, context: *mut c_void, shadow: &Shadow, program: &Disposition) {
    if signo == SIGTRAP {
        // SAFETY: the arguments of the recorder's handler.
        unsafe { fatal::caught(signo, info, context) };
    }
    if program.flags & libc::SA_RESETHAND != 0 {
        CHANGES.with(|| shadow.store(Disposition { handler: libc::SIG_DFL, ..*program }));
    }
    // SAFETY: the frame of this signal.
    unsafe { interrupt(signo, info, context, program) };
    // SAFETY: inside the signal frame.
    let interrupted = unsafe { *interrupted_mask(context) };
    let mut mask = interrupted | (program.mask & !strippable());
    if program.flags & libc::SA_NODEFER == 0 {
        mask |= bit(signo);
    }
    #[cfg(target_arch = "x86_64")]
    if program.flags & libc::SA_ONSTACK == 0
        && relocate::move_frame(signo, info, context, program.handler, mask)
    {
        return;
    }
    // A recorder signal that is pending while the program's handler runs would absorb one that the handler
    // sends itself.
    if mask & masks::used() != 0 {
        masks::disarm_held();
    }
    // SAFETY: the program installed this address as a handler of this signal.
    let handler = unsafe { core::mem::transmute::<usize, Handler>(program.handler) };
    shadow::kernel_mask(libc::SIG_SETMASK, Some(mask));
    // SAFETY: the program installed this function as a handler of this signal. It may leave by longjmp: then
    // the thread is armed again at its next change of the mask.
    unsafe { handler(signo, info, context) };
    // SAFETY: inside the signal frame.
    if shadow::shadow() & shadow::HELD != 0 && unsafe { *interrupted_mask(context) } & owned() == 0 {
        shadow::kernel_mask(libc::SIG_SETMASK, Some(!0));
        masks::rearm();
    }
}
