//! Receives commands of the drain by a signal. [`crate::lifecycle::control`] executes them.
//!
//! Until the first command the recorder holds no thread and no descriptor, only a signal handler. A command
//! is SIGPROF queued by the drain with a cookie of [`cookie::FROM_CONTROL`]. The interrupted thread may hold
//! any lock. So the command is executed by system calls and atomics alone, on a separate stack (the thread's
//! may be tiny), with every signal blocked.
//!
//! No command is sent to a process that does not catch SIGPROF. A program ignores commands while it executes
//! another image or is in a `vfork`, and after one of its threads has given up system calls.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use flightline_in_signal::command::LISTENING;
use flightline_in_signal::layout::LISTENS;
use flightline_in_signal::os::sys;
use flightline_in_signal::state::cookie::{self, Cookie, SIGPROF};
use flightline_in_signal::unwind::interrupted::SignalFrame;

use crate::os::spin::Spin;
use crate::os::{self, Text};
use crate::sandbox;
use crate::session::{self, Attached};

/// The largest measured use is about a third of this.
const STACK_BYTES: usize = 64 * 1024;
const GUARD: usize = 4096;

/// The stack on which commands run; 0 while not listening.
static STACK: AtomicUsize = AtomicUsize::new(0);
/// The function that executes commands, with the command as its argument.
static CARRY_OUT: AtomicUsize = AtomicUsize::new(0);
/// The process that listens: not a `vfork` child in its memory.
static PID: AtomicU32 = AtomicU32::new(0);
/// Held while a command runs, or while the process is about to execute another image.
static BUSY: Spin = Spin::new();
/// A thread gave up system calls. From then on a command could run in it, or arm it, so none is executed.
static DEAF: AtomicBool = AtomicBool::new(false);

/// Receives commands from now on. The handler of SIGPROF must be installed. `carry_out` is called in this handler.
pub fn listen(carry_out: extern "C" fn(usize)) {
    CARRY_OUT.store(carry_out as usize, Relaxed);
    let mut at = STACK.load(Relaxed);
    if at == 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let Ok(new) = os::map(None, GUARD + STACK_BYTES, rw, flags) else { return };
        // SAFETY: a new mapping that no other code uses yet.
        let _ = unsafe { os::syscall(libc::SYS_mprotect, [new, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
        at = new;
        STACK.store(at, Release);
    }
    name_stack(at, Some(LISTENING));
    PID.store(sys::getpid(), Release);
}

/// Shows in `/proc/<pid>/maps` whether this process listens. Kernels without names for anonymous memory show
/// the names of files. On these, the guard page below the stack maps an anonymous file with the name.
fn name_stack(at: usize, name: Option<&str>) {
    let mut text = Text::<32>::new();
    text.put(name.unwrap_or("flightline").as_bytes());
    let (set, what) = (libc::PR_SET_VMA as usize, libc::PR_SET_VMA_ANON_NAME as usize);
    let args = [set, what, at + GUARD, STACK_BYTES, text.as_ptr() as usize, 0];
    // SAFETY: the kernel reads a NUL-terminated name.
    if unsafe { os::syscall(libc::SYS_prctl, args) }.is_ok() {
        return;
    }
    let file = match name {
        Some(_) => os::anonymous_file(&text).ok(),
        None => None,
    };
    // SAFETY: the guard page, which no code reads or writes.
    let _ = unsafe { os::map_over(at, file.as_ref(), GUARD, libc::PROT_NONE, libc::MAP_PRIVATE) };
}

/// Stops listening: the program gets its signal handlers back.
pub fn stop_listening() {
    PID.store(0, Release);
    match STACK.load(Relaxed) {
        0 => {}
        at => name_stack(at, None),
    }
}

/// Announces to the drain that this process executes commands, if it does.
pub fn say_listens(attached: &Attached) {
    if listens() {
        attached.header().controlled.fetch_or(LISTENS, Release);
    }
}

/// Returns true if this process executes commands.
pub fn listens() -> bool {
    PID.load(Relaxed) != 0
}

/// Ignores all commands from now on, because a thread is restricted in its system calls.
pub fn be_deaf() {
    DEAF.store(true, Release);
    if let Some(attached) = session::current() {
        attached.header().controlled.fetch_and(!LISTENS, Release);
    }
}

/// Called in the child of a fork, which listens as its parent did.
pub fn in_child() {
    if PID.load(Relaxed) != 0 {
        PID.store(sys::getpid(), Relaxed);
    }
}

/// Runs `f` while no command runs. Returns `None` if one runs now.
pub fn alone<R>(f: impl FnOnce() -> R) -> Option<R> {
    if !BUSY.try_lock() {
        return None;
    }
    let r = f();
    BUSY.unlock();
    Some(r)
}

/// Prevents commands between [`Quiet::begin`] and its drop.
pub struct Quiet(bool);

impl Quiet {
    /// Waits for a command that runs in another thread. A `vfork` child, and a process that does not listen,
    /// run none.
    pub fn begin() -> Quiet {
        let pid = PID.load(Relaxed);
        if pid == 0 || pid != sys::getpid() {
            return Quiet(false);
        }
        BUSY.lock();
        Quiet(true)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.0 {
            BUSY.unlock();
        }
    }
}

/// Returns the command that a signal carries.
fn parse(frame: SignalFrame<'_>) -> Option<u32> {
    if (frame.signal(), frame.code()) != (SIGPROF, libc::SI_QUEUE) {
        return None;
    }
    let cookie = Cookie::unpack(frame.value())?;
    (cookie.source == cookie::FROM_CONTROL).then_some(cookie.slot)
}

/// Executes the command of a signal, if it has one. Called in a handler, with every signal blocked.
pub fn on_signal(frame: SignalFrame<'_>) -> bool {
    let Some(command) = parse(frame) else { return false };
    let stack = STACK.load(Acquire);
    if stack == 0 || DEAF.load(Acquire) || sandbox::applies() || PID.load(Relaxed) != sys::getpid() {
        return true;
    }
    // If another command runs, the sender notices that this one had no effect, and retries.
    alone(|| {
        // SAFETY: the stack has this length, and `alone` makes this call its only user. `listen` stored the
        // function before the stack's address.
        unsafe { call_on(stack + GUARD + STACK_BYTES, CARRY_OUT.load(Relaxed), command as usize) }
    });
    true
}

/// Calls `f(argument)` on another stack.
///
/// # Safety
/// `f` is the address of an `extern "C" fn(usize)`. `top` is a multiple of 16, the end of enough writable memory that has no other user.
unsafe fn call_on(top: usize, f: usize, argument: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees `f` and the stack. r12 preserves the old stack pointer across the call,
    // and the call's clobbers are declared.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {f}", "mov rsp, r12",
            top = in(reg) top, f = in(reg) f, inlateout("rdi") argument => _, out("r12") _,
            clobber_abi("C"));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller guarantees `f` and the stack. x20 preserves the old stack pointer across the call,
    // and the call's clobbers are declared.
    unsafe {
        core::arch::asm!(
            "mov x20, sp", "mov sp, {top}", "blr {f}", "mov sp, x20",
            top = in(reg) top, f = in(reg) f, inlateout("x0") argument => _, out("x20") _,
            clobber_abi("C"));
    }
}
