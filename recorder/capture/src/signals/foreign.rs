//! Forwards signals that the recorder did not send, according to the program's dispositions.

use super::*;

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
pub(super) fn chain(frame: SignalFrame<'_>) {
    let (signo, code) = (frame.signal(), frame.code());
    let Some(shadow) = shadow_disposition(signo) else { return };
    let program = shadow.load();
    // The trap of an instruction of the program: the kernel would kill the program if the signal were blocked
    // or ignored.
    let forced = signo == SIGTRAP && code > 0;
    if shadow::shadow() & bit(signo) as usize != 0 {
        if forced {
            last_words(frame);
            die(frame);
        } else {
            hold(frame);
        }
        return;
    }
    match program.handler {
        libc::SIG_IGN if !forced => {}
        libc::SIG_IGN | libc::SIG_DFL => {
            last_words(frame);
            die(frame);
        }
        _ => run(frame, shadow, &program),
    }
}

/// Handles a signal in a thread without thread-local memory of the C library, where the recorder's thread-local words cannot be read.
/// The program's disposition alone decides, because the thread has no shadow mask.
#[cold]
pub(super) fn on_foreign_thread(frame: SignalFrame<'_>) {
    let (signo, code) = (frame.signal(), frame.code());
    if is_recorder_signal(signo, code, frame.value()) {
        return handler::on_foreign_thread(frame);
    }
    let Some(shadow) = shadow_disposition(signo) else { return };
    let program = shadow.load();
    let forced = signo == SIGTRAP && code > 0;
    match program.handler {
        libc::SIG_IGN if !forced => {}
        libc::SIG_IGN | libc::SIG_DFL => default_action(frame),
        _ => {
            interrupt(frame, &program);
            let own = if program.flags & libc::SA_NODEFER == 0 { bit(signo) } else { 0 };
            shadow::kernel_mask(libc::SIG_SETMASK, Some(interrupted_mask(frame) | program.mask | own));
            call(frame, &program);
        }
    }
}

/// Returns the mask that is restored when the handler returns.
pub(super) fn interrupted_mask(frame: SignalFrame<'_>) -> KernelSet {
    // SAFETY: inside the frame of a handler that runs.
    unsafe { mask_in(frame).read() }
}

/// Changes the mask that is restored when the handler returns.
pub(super) fn set_interrupted_mask(frame: SignalFrame<'_>, mask: KernelSet) {
    // SAFETY: inside the frame of a handler that runs, and no code holds a reference to it.
    unsafe { mask_in(frame).write(mask) };
}

fn mask_in(frame: SignalFrame<'_>) -> *mut KernelSet {
    // The kernel's set of 64 signals is the start of the C library's.
    frame.context().wrapping_byte_add(core::mem::offset_of!(libc::ucontext_t, uc_sigmask)).cast()
}

/// Executes the default action, as if no handler were installed.
pub(super) fn die(frame: SignalFrame<'_>) {
    if owned() & bit(frame.signal()) != 0 {
        // The kernel queues one pending signal of each number: the parent could see the siginfo of a sampling
        // signal as the cause of death.
        masks::disarm_held();
    }
    default_action(frame);
}

/// Lets the kernel execute the default action. Uses no thread-local memory.
pub(super) fn default_action(frame: SignalFrame<'_>) {
    let signo = frame.signal();
    set_kernel_handler(signo, libc::SIG_DFL);
    set_interrupted_mask(frame, interrupted_mask(frame) & !bit(signo));
    send_again(signo, frame.info(), false);
}

/// Holds a signal that the program blocked and waits for elsewhere: really blocks it and makes it pending.
fn hold(frame: SignalFrame<'_>) {
    let signo = frame.signal();
    set_interrupted_mask(frame, interrupted_mask(frame) | bit(signo));
    masks::disarm_held();
    HOLDS.fetch_add(1, Release);
    send_again(signo, frame.info(), frame.code() != libc::SI_TKILL);
}

static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of held signals so far. A thread that waits for such a signal may have been woken in
/// vain by it.
pub fn holds() -> u32 {
    HOLDS.load(Acquire)
}

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);

/// Records last samples for a trap, which means an error. SIGPROF is a request to end.
fn last_words(frame: SignalFrame<'_>) {
    if frame.signal() == SIGTRAP {
        fatal::last_words(frame);
    }
}

/// Ends the interrupted system call if the program's handler does, see [`restart`].
fn interrupt(frame: SignalFrame<'_>, program: &Disposition) {
    // An instruction that traps interrupts no system call.
    let trapped = frame.signal() == SIGTRAP && frame.code() > 0;
    if program.flags & libc::SA_RESTART == 0 && !trapped {
        restart::interrupt(frame);
    }
}

/// Calls the program's handler of this signal, which may leave by longjmp.
fn call(frame: SignalFrame<'_>, program: &Disposition) {
    // SAFETY: the program installed this address as a handler of this signal: callers have excluded the
    // default action and ignored signals.
    let handler = unsafe { core::mem::transmute::<usize, Handler>(program.handler) };
    // SAFETY: the handler gets the signal's own arguments, as the kernel would pass them.
    unsafe { handler(frame.signal(), frame.info(), frame.context()) };
}

/// Runs the program's handler in the same way as the kernel would.
fn run(frame: SignalFrame<'_>, shadow: &Shadow, program: &Disposition) {
    let signo = frame.signal();
    if signo == SIGTRAP {
        fatal::caught(frame);
    }
    if program.flags & libc::SA_RESETHAND != 0 {
        CHANGES.with(|| shadow.store(Disposition { handler: libc::SIG_DFL, ..*program }));
    }
    interrupt(frame, program);
    let mut mask = interrupted_mask(frame) | (program.mask & !strippable());
    if program.flags & libc::SA_NODEFER == 0 {
        mask |= bit(signo);
    }
    #[cfg(target_arch = "x86_64")]
    if program.flags & libc::SA_ONSTACK == 0 && relocate::move_frame(frame, program.handler, mask) {
        return;
    }
    // A recorder signal that is pending while the program's handler runs would absorb one that the handler
    // sends itself.
    if mask & masks::used() != 0 {
        masks::disarm_held();
    }
    shadow::kernel_mask(libc::SIG_SETMASK, Some(mask));
    // If the handler leaves by longjmp, the thread is armed again at its next change of the mask.
    call(frame, program);
    if shadow::shadow() & shadow::HELD != 0 && interrupted_mask(frame) & owned() == 0 {
        shadow::kernel_mask(libc::SIG_SETMASK, Some(!0));
        masks::rearm();
    }
}
