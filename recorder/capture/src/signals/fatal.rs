//! Last samples: when a signal is about to end the process, every thread is sampled before.
//!
//! | program's disposition | what happens |
//! |---|---|
//! | default | a sample here, a last sample of every other thread, then the default action with the signal's own siginfo, registers, core |
//! | handler | a sample here (a few; floods are counted), then a jump to the program's handler: it finds the frame, stack, mask and flags it requested, because the recorder's handler is installed with the same ones |
//! | ignore | the recorder's handler is not installed |
//!
//! The signals are never stripped from masks: a blocked signal is really blocked. SIGTRAP comes here through
//! [`super::foreign`].
//!
//! If the signal ends the process, SIGPROF requests a last sample of every other thread. A thread stops after
//! its last sample, so that no code of the program runs after the signal. Threads that do not answer within
//! [`WAIT_NS`] are counted. Before that, the mappings are stored in `<pid>-<n>.maps`: libraries without a
//! sample would be unknown after the process's death. Signals for which the program has a handler can be
//! frequent (a JVM uses thousands): [`BURST`] at a time are recorded, then one per [`EVERY_NS`], and the
//! others are counted. No handler is installed once a thread gives up system calls. A stack overflow cannot
//! be recorded if the thread has no alternate stack: the kernel has no stack to call a handler on.

use flightline_in_signal::command::LAST_SAMPLE;
use flightline_in_signal::layout::{session_flags, slot_state};
use flightline_in_signal::os::clock;
use flightline_in_signal::payload::fatal as kind;
use flightline_in_signal::publish::fatal;
use flightline_in_signal::state::cookie;

use super::*;
use crate::session::{self, Attached};

/// Fatal signals: the recorder's handler is installed in front of the program's disposition.
const FATAL: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGSYS];
static FRONTS: [Shadow; 6] = [const { Shadow::new() }; 6];
/// Signals whose dispositions this module manages, as bits.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Thread that received the signal which ends the process, with the signal in the upper half; 0 if there is
/// none.
static DYING: AtomicU64 = AtomicU64::new(0);
/// Number of last samples of other threads that were taken.
static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// Maximum number of 1 KiB reads of a stored map; a larger map is not stored.
const MAP_PIECES: usize = 8192;
/// Maximum time that the dying thread waits for the others.
const WAIT_NS: u64 = 500_000_000;
/// Maximum time that a thread pauses after its last sample: the process ends long before.
const STAND_NS: u64 = 1_000_000_000;
/// Signals with a handler of the program: this many are recorded in a row, then one per interval in ns.
const BURST: u64 = 16;
const EVERY_NS: u64 = 1_000_000_000;
/// Time when the next one would be due if they had come evenly.
static DUE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    /// Calls [`on_fatal`], then jumps to the program's handler as if the kernel had called it, or returns.
    fn flightline_fatal_entry(signo: c_int, info: *mut c_void, context: *mut c_void);
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.flightline_fatal_entry,\"ax\",@progbits",
    ".p2align 4",
    ".hidden flightline_fatal_entry",
    ".globl flightline_fatal_entry",
    ".type flightline_fatal_entry, @function",
    "flightline_fatal_entry:",
    ".cfi_startproc",
    "endbr64",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "call {on_fatal}",
    "mov r11, rax",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "xor eax, eax",
    "test r11, r11",
    "jz 2f",
    "jmp r11",
    "2: ret",
    ".cfi_endproc",
    ".size flightline_fatal_entry, . - flightline_fatal_entry",
    ".popsection",
    on_fatal = sym on_fatal,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.flightline_fatal_entry,\"ax\",%progbits",
    ".p2align 4",
    ".hidden flightline_fatal_entry",
    ".globl flightline_fatal_entry",
    ".type flightline_fatal_entry, %function",
    "flightline_fatal_entry:",
    ".cfi_startproc",
    "hint #34",
    "stp x0, x1, [sp, #-32]!",
    ".cfi_adjust_cfa_offset 32",
    "stp x2, x30, [sp, #16]",
    ".cfi_offset x30, -8",
    "bl {on_fatal}",
    "mov x16, x0",
    "ldp x2, x30, [sp, #16]",
    "ldp x0, x1, [sp], #32",
    ".cfi_adjust_cfa_offset -32",
    ".cfi_restore x30",
    "cbz x16, 2f",
    "br x16",
    "2: ret",
    ".cfi_endproc",
    ".size flightline_fatal_entry, . - flightline_fatal_entry",
    ".popsection",
    on_fatal = sym on_fatal,
);

fn front_for_signal(signo: c_int) -> Option<&'static Shadow> {
    FATAL.iter().position(|fatal| *fatal == signo).and_then(|at| FRONTS.get(at))
}

fn entry_address() -> usize {
    flightline_fatal_entry as *const () as usize
}

/// Signals whose dispositions must be changed by [`change`], as bits.
pub fn watched() -> KernelSet {
    WATCHED.load(Acquire)
}

/// The action to install before a disposition of the program: if it is a handler, with the program's mask and
/// flags.
fn front(program: &Disposition) -> Action {
    let ours = entry_address();
    Action::new(&if is_function(program.handler) {
        Disposition { handler: ours, flags: program.flags | libc::SA_SIGINFO, ..*program }
    } else {
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        Disposition { handler: ours, flags, mask: !0, restorer: 0 }
    })
}

/// Returns the program's disposition, if the recorder's handler is installed before it.
pub fn disposition(signo: c_int) -> Option<Disposition> {
    let front = front_for_signal(signo).filter(|_| watched() & bit(signo) != 0)?;
    installed(signo).map(|now| if now.handler == entry_address() { front.load() } else { now })
}

/// Installs handlers before the dispositions of this process, if the session enables last samples.
pub fn apply(attached: &Attached) {
    if attached.state.fixed.flags & session_flags::FATAL_SIGNALS == 0 || watched() != 0 {
        return;
    }
    install();
}

fn install() {
    shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            for (signo, shadow) in FATAL.iter().zip(&FRONTS) {
                WATCHED.fetch_or(bit(*signo), AcqRel);
                let Some(program) = installed(*signo).filter(|now| now.handler != entry_address()) else {
                    continue;
                };
                if program.handler != libc::SIG_IGN {
                    shadow.store(program);
                    front(&program).install(*signo);
                }
            }
        });
    });
}

/// Restores the program's dispositions: recording has ended, or a thread is about to give up system calls.
pub fn uninstall() {
    if watched() == 0 {
        return;
    }
    shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            for (signo, shadow) in FATAL.iter().zip(&FRONTS) {
                if installed(*signo).is_some_and(|now| now.handler == entry_address()) {
                    Action::new(&shadow.load()).install(*signo);
                }
                WATCHED.fetch_and(!bit(*signo), AcqRel);
            }
        });
    });
}

/// Called in the child of a fork: another thread may have held a lock, or have been dying.
pub(super) fn reset() {
    DYING.store(0, Relaxed);
    for shadow in &FRONTS {
        shadow.version.store(shadow.version.load(Relaxed) & !1, Relaxed);
    }
}

/// `sigaction` on behalf of the program for a signal of [`watched`].
///
/// # Safety
/// As the function itself.
pub(super) unsafe fn change(signo: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller guarantees null or a valid structure.
    let new = unsafe { new.as_ref() }.map(from_c);
    let Some(shadow) = front_for_signal(signo) else { return -1 };
    let borrowed = fork_token::is_borrowed();
    let done = shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            let now = installed(signo)?;
            let before = if now.handler == entry_address() { shadow.load() } else { now };
            if let Some(new) = new {
                // The program restores a disposition that it read from the kernel.
                let new = if new.handler == entry_address() { shadow.load() } else { new };
                let action = if borrowed || new.handler == libc::SIG_IGN {
                    Action::new(&new)
                } else {
                    shadow.store(new);
                    front(&new)
                };
                if !action.install(signo) {
                    return None;
                }
            }
            Some(before)
        })
    });
    let Some(before) = done else { return -1 };
    // SAFETY: the caller guarantees null or memory that is valid for writes.
    unsafe { write_previous(old, &before) };
    0
}

/// Called by the entry with the handler's arguments. Returns the program's handler to continue with, 0 if
/// there is none.
unsafe extern "C" fn on_fatal(signo: c_int, info: *mut c_void, context: *mut c_void) -> usize {
    // SAFETY: the entry passes the handler's arguments, which stay valid until the handler returns.
    let Some(frame) = (unsafe { SignalFrame::new(signo, info, context) }) else { return 0 };
    let Some(shadow) = front_for_signal(signo) else { return 0 };
    let program = shadow.load();
    if !tls::is_here() {
        if !is_function(program.handler) {
            foreign::default_action(frame);
            return 0;
        }
        return program.handler;
    }
    if !is_function(program.handler) {
        // The kernel ignores a signal to the first process of a container if it has no handler.
        if frame.code() <= 0 && sys::getpid() == 1 {
            return 0;
        }
        last_words(frame);
        foreign::die(frame);
        return 0;
    }
    caught(frame);
    if program.flags & libc::SA_RESETHAND != 0 {
        // The kernel has reset the recorder's handler together with the program's.
        let default = Disposition { handler: libc::SIG_DFL, ..program };
        shadow::with_all_blocked(|| {
            CHANGES.with(|| {
                shadow.store(default);
                front(&default).install(signo);
            });
        });
    }
    program.handler
}

/// Returns the session if it enables last samples of this process now.
fn recording_last_samples() -> Option<&'static Attached> {
    session::current().filter(|attached| {
        attached.state.fixed.flags & session_flags::FATAL_SIGNALS != 0
            && attached.session().stop.load(Acquire) == 0
    })
}

/// Returns the words of [`kind`], and the address of the failed access.
fn signal_words(frame: SignalFrame<'_>) -> ([u64; kind::WORDS], u64) {
    let (signo, code, word) = (frame.signal(), frame.code(), frame.address());
    let signal = u64::from(signo as u32) | u64::from(code as u32) << 32;
    // The kernel reports no address of a general protection fault.
    let told = code > 0 && code != SI_KERNEL;
    let address = if told { word } else { 0 };
    let sender = if code <= 0 { word & 0xffff_ffff } else { 0 };
    let fault = told && [libc::SIGSEGV, libc::SIGBUS].contains(&signo);
    ([signal, address, sender], if fault { address } else { u64::MAX })
}

const SI_KERNEL: c_int = 0x80;

/// Records a signal for which the program has a handler.
pub(super) fn caught(frame: SignalFrame<'_>) {
    let Some(attached) = recording_last_samples() else { return };
    let now = clock::monotonic_ns();
    let due = DUE.load(Relaxed);
    let next = due.max(now) + EVERY_NS;
    if next > now + BURST * EVERY_NS || DUE.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
        return fatal::pass(&attached.state);
    }
    let (words, fault) = signal_words(frame);
    let old = sys::block_signals();
    fatal::record(&attached.state, kind::CAUGHT, &words, fault, frame);
    sys::restore_signals(old);
}

/// Records a signal that ends the process.
pub(super) fn last_words(frame: SignalFrame<'_>) {
    let Some(attached) = recording_last_samples() else { return };
    shadow::kernel_mask(libc::SIG_SETMASK, Some(!0));
    let tid = sys::gettid();
    let (words, fault) = signal_words(frame);
    // After the exchange, threads that are sampled by chance answer too.
    let before = ANSWERED.load(Acquire);
    let dying = u64::from(tid) | u64::from(frame.signal() as u32) << 32;
    let first = DYING.compare_exchange(0, dying, AcqRel, Relaxed).is_ok();
    if first {
        // Before the sample, so that a reader of the sample finds the map.
        let _ = keep_map(attached);
    }
    let told = fatal::record(&attached.state, kind::FATAL, &words, fault, frame);
    if !first {
        // Two threads at once. The first one ends the process, and it may be waiting for this thread.
        ANSWERED.fetch_add(u32::from(told), Release);
        stand();
        return;
    }
    if signals_prof() {
        ask_others(attached, tid, before);
    }
}

/// Stores the map, which a dead process no longer has. Without it, libraries that are in no earlier sample
/// would be unknown.
fn keep_map(attached: &Attached) -> Result<(), c_int> {
    let (new, done) = (attached.own_file(".maps-last"), attached.own_file(".maps"));
    let from = os::open(c"/proc/self/maps", libc::O_RDONLY, 0)?;
    let to = os::open(new.cstr()?, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o600)?;
    let mut piece = [0u8; 1024];
    for _ in 0..MAP_PIECES {
        let len = os::read(&from, &mut piece)?;
        let mut rest = piece.get(..len).unwrap_or_default();
        if rest.is_empty() {
            return os::rename(new.cstr()?, done.cstr()?);
        }
        while !rest.is_empty() {
            let written = os::write(&to, rest)?.max(1);
            rest = rest.get(written..).unwrap_or_default();
        }
    }
    Err(libc::EFBIG)
}

fn signals_prof() -> bool {
    owned() & bit(SIGPROF) != 0
}

/// Requests the last sample of every other thread, and waits for them. `before` is the number of answers
/// before.
fn ask_others(attached: &Attached, own: u32, before: u32) {
    let mut asked = 0u32;
    for slot in attached.state.slots.iter().take_while(|slot| slot.state.load(Relaxed) != 0) {
        let tid = slot.tid.load(Relaxed);
        if slot.state.load(Acquire) & slot_state::MASK == slot_state::LIVE && tid != own && ask(tid) {
            asked += 1;
        }
    }
    let until = clock::monotonic_ns() + WAIT_NS;
    let mut pause_ns = 20_000;
    let answered = || ANSWERED.load(Acquire).wrapping_sub(before);
    while answered() < asked && clock::monotonic_ns() < until {
        sleep(pause_ns);
        pause_ns = (2 * pause_ns).min(1_000_000);
    }
    fatal::lose(&attached.state, u64::from(asked.saturating_sub(answered())));
}

fn ask(tid: u32) -> bool {
    // The kernel's siginfo: number, errno, code; sender; the value at offset 24.
    let mut info = [0u64; 16];
    let value = Cookie { source: cookie::FROM_CONTROL, generation: 0, slot: LAST_SAMPLE }.pack();
    info[0] = SIGPROF as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = u64::from(sys::getpid());
    info[3] = value;
    let args = [sys::getpid() as usize, tid as usize, SIGPROF as usize, info.as_ptr() as usize, 0, 0];
    // SAFETY: the kernel reads one siginfo.
    unsafe { os::syscall(libc::SYS_rt_tgsigqueueinfo, args) }.is_ok()
}

/// Handles a recorder signal in any thread. If the process is dying, takes this thread's last sample and
/// pauses it until the end. Returns true if the signal had no other purpose. Called with every signal blocked.
pub(super) fn on_signal(frame: SignalFrame<'_>) -> bool {
    let dying = DYING.load(Acquire);
    let asked = frame.signal() == SIGPROF && is_question(frame);
    if dying == 0 {
        return asked;
    }
    let tid = dying as u32;
    let Some(attached) = recording_last_samples().filter(|_| tid != sys::gettid()) else { return asked };
    let words = [dying >> 32, 0, u64::from(tid)];
    if fatal::record(&attached.state, kind::LAST, &words, u64::MAX, frame) {
        ANSWERED.fetch_add(1, Release);
    }
    stand();
    asked
}

/// Returns true if the dying thread requests a last sample with this signal.
fn is_question(frame: SignalFrame<'_>) -> bool {
    frame.code() == libc::SI_QUEUE
        && Cookie::unpack(frame.value())
            .is_some_and(|c| c.source == cookie::FROM_CONTROL && c.slot == LAST_SAMPLE)
}

/// Pauses this thread, so that no more of the program runs in it, unless the process lives on (the first
/// process of a container can).
fn stand() {
    let until = clock::monotonic_ns() + STAND_NS;
    while DYING.load(Acquire) != 0 && clock::monotonic_ns() < until {
        sleep(5_000_000);
    }
    DYING.store(0, Release);
}

fn sleep(ns: u64) {
    let time = [0u64, ns];
    // SAFETY: the kernel reads one timespec.
    let _ = unsafe { os::syscall(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
