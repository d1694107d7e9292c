//! Shares SIGTRAP and SIGPROF with the program: the recorder's handler is installed, the program's own
//! dispositions are in a table here, and a signal that the recorder did not send is forwarded according to
//! them.
//!
//! | program's disposition | what a foreign signal does |
//! |---|---|
//! | default | really kills the process (the default action is installed and the signal sent again) |
//! | ignore | nothing, except a trap by the program's own instruction, which kills as it would without the recorder |
//! | handler | runs with the mask, flags and stack it requested |
//! | blocked, no handler | is held: really blocked and sent again, so that it stays pending until unblocked or waited for |
//!
//! [`masks`] keeps these signals unblocked, [`fatal`] takes last samples, [`command`] receives the drain's commands.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use flightline_in_signal::handler;
use flightline_in_signal::os::{sys, tls};
use flightline_in_signal::state::cookie::{Cookie, SIGPROF, SIGTRAP};
use flightline_in_signal::unwind::interrupted::SignalFrame;

use crate::os::spin::Spin;
use crate::os::{self, fork_token, real};
use crate::shadow::{self, KernelSet, bit};

pub mod command;
pub mod fatal;
mod foreign;
pub mod masks;
#[cfg(target_arch = "x86_64")]
mod relocate;
mod restart;

pub use foreign::holds;
use foreign::{chain, interrupted_mask, send_again};

/// The program's disposition of one of the recorder's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// `sa_handler` or `sa_sigaction`.
    pub handler: usize,
    /// `sa_flags`.
    pub flags: c_int,
    /// `sa_mask`.
    pub mask: KernelSet,
    /// `sa_restorer` as the program set it.
    pub restorer: usize,
}

/// A [`Disposition`] that a handler may read while another thread changes it.
struct Shadow {
    version: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicU32,
    mask: AtomicU64,
    restorer: AtomicUsize,
}

const SIGNALS: [c_int; 2] = [SIGTRAP, SIGPROF];
static SHADOWS: [Shadow; 2] = [const { Shadow::new() }; 2];
static OWNED: AtomicU64 = AtomicU64::new(0);
/// Serialises changes; taken with all signals blocked, as `sigaction` may be called in handlers.
static CHANGES: Spin = Spin::new();

impl Shadow {
    const fn new() -> Shadow {
        Shadow {
            version: AtomicU32::new(0),
            handler: AtomicUsize::new(0),
            flags: AtomicU32::new(0),
            mask: AtomicU64::new(0),
            restorer: AtomicUsize::new(0),
        }
    }

    fn load(&self) -> Disposition {
        loop {
            let version = self.version.load(Acquire);
            let now = Disposition {
                handler: self.handler.load(Relaxed),
                flags: self.flags.load(Relaxed) as c_int,
                mask: self.mask.load(Relaxed),
                restorer: self.restorer.load(Relaxed),
            };
            core::sync::atomic::fence(Acquire);
            if version & 1 == 0 && self.version.load(Relaxed) == version {
                return now;
            }
            // This process was forked in the middle of a change, and the thread that made it does not exist
            // here.
            if !CHANGES.is_locked() && self.version.load(Relaxed) == version {
                return now;
            }
            core::hint::spin_loop();
        }
    }

    /// Called only under [`CHANGES`], with all signals blocked.
    fn store(&self, new: Disposition) {
        self.version.fetch_add(1, AcqRel);
        core::sync::atomic::fence(Release);
        self.handler.store(new.handler, Relaxed);
        self.flags.store(new.flags as u32, Relaxed);
        self.mask.store(new.mask, Relaxed);
        self.restorer.store(new.restorer, Relaxed);
        self.version.fetch_add(1, Release);
    }
}

fn shadow_disposition(signo: c_int) -> Option<&'static Shadow> {
    match signo {
        SIGTRAP => SHADOWS.first(),
        SIGPROF => SHADOWS.last(),
        _ => None,
    }
}

/// Signals whose installed handler is the recorder's, as bits.
pub fn owned() -> KernelSet {
    OWNED.load(Acquire)
}

/// The recorder's signals for which the program has no handler: they are stripped from masks.
pub fn strippable() -> KernelSet {
    let mut set = owned();
    for signo in SIGNALS {
        if set & bit(signo) != 0 && shadow_disposition(signo).is_some_and(|s| is_function(s.load().handler)) {
            set &= !bit(signo);
        }
    }
    set
}

fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// An action that may be installed: the recorder's handler, or a disposition that the program or the kernel had.
#[derive(Clone, Copy)]
struct Action(libc::sigaction);

impl Action {
    fn new(d: &Disposition) -> Action {
        // SAFETY: all-zero is a valid structure.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = d.handler;
        action.sa_flags = d.flags;
        // SAFETY: the first word of a local set.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(d.mask) };
        // SAFETY: null or the address of a function of this type, set by the program or libc.
        action.sa_restorer = unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(d.restorer) };
        Action(action)
    }

    /// The recorder's handler, as it is installed. It always restarts system calls, because a sample must not
    /// end one. [`restart::interrupt`] ends them for the program's own signals.
    fn ours() -> Action {
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // All 64 signals, including those that the C library reserves and sigfillset omits.
        Action::new(&Disposition { handler: entry as *const () as usize, flags, mask: !0, restorer: 0 })
    }

    /// Installs it with the C library's function. Returns false if the signal does not exist.
    fn install(&self, signo: c_int) -> bool {
        // SAFETY: a valid structure with a handler of the program, or the recorder's, which may run at any time:
        // it only needs the data that `attach` installed, and does nothing before.
        unsafe { real::sigaction(signo, &raw const self.0, core::ptr::null_mut()) == 0 }
    }
}

fn from_c(action: &libc::sigaction) -> Disposition {
    Disposition {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        // SAFETY: a field of a valid structure.
        mask: unsafe { shadow::from_c(&raw const action.sa_mask) },
        restorer: action.sa_restorer.map_or(0, |f| f as usize),
    }
}

/// Returns the kernel's disposition, or `None` for a signal that does not exist.
fn installed(signo: c_int) -> Option<Disposition> {
    // SAFETY: all-zero is a valid structure.
    let mut now: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only reads the disposition.
    (unsafe { real::sigaction(signo, core::ptr::null(), &raw mut now) } == 0).then(|| from_c(&now))
}

/// Writes the previous disposition to the memory that a caller of `sigaction` passed for it.
///
/// # Safety
/// `old` is null or valid for writes.
unsafe fn write_previous(old: *mut libc::sigaction, before: &Disposition) {
    if !old.is_null() {
        // SAFETY: the caller guarantees that it is valid for writes.
        unsafe { old.write(Action::new(before).0) };
    }
}

/// Installs the recorder's handler for `signals` (bits), and stores the program's dispositions in the table.
pub fn install(signals: KernelSet) {
    shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            for signo in SIGNALS {
                if signals & bit(signo) == 0 || owned() & bit(signo) != 0 {
                    continue;
                }
                let Some(program) = installed(signo) else { continue };
                if let Some(shadow) = shadow_disposition(signo) {
                    shadow.store(program);
                }
                OWNED.fetch_or(bit(signo), AcqRel);
                if !Action::ours().install(signo) {
                    OWNED.fetch_and(!bit(signo), AcqRel);
                }
            }
        });
    });
}

/// Restores the program's dispositions. Nothing may be armed any more.
pub fn uninstall() {
    shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            for signo in SIGNALS {
                if owned() & bit(signo) == 0 {
                    continue;
                }
                // A program that replaced the recorder's handler without the wrappers keeps its own.
                if installed(signo).is_some_and(|now| is_entry(&now))
                    && let Some(shadow) = shadow_disposition(signo)
                {
                    Action::new(&shadow.load()).install(signo);
                }
                OWNED.fetch_and(!bit(signo), AcqRel);
            }
        });
    });
}

/// Called in the child of a fork: ends changes that other threads of the parent were making.
pub fn forget_cut_changes() {
    fatal::reset();
    for shadow in &SHADOWS {
        // The fork interrupted a change; the next store completes it.
        shadow.version.store(shadow.version.load(Relaxed) & !1, Relaxed);
    }
}

/// `sigaction` on behalf of the program.
///
/// # Safety
/// As the function itself.
pub unsafe fn change(signo: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let ours = shadow_disposition(signo).filter(|_| owned() & bit(signo) != 0);
    if fatal::watched() & bit(signo) != 0 {
        // SAFETY: the caller guarantees the contract of `sigaction` for these arguments.
        return unsafe { fatal::change(signo, new, old) };
    }
    let Some(shadow) = ours else {
        // SAFETY: the caller guarantees the contract of `sigaction` for these arguments.
        return unsafe { real::sigaction(signo, new, old) };
    };
    // SAFETY: the caller guarantees null or a valid structure.
    let new = unsafe { new.as_ref() }.map(from_c);
    if fork_token::is_borrowed() {
        let Some(now) = installed(signo) else { return -1 };
        let before = if is_entry(&now) { shadow.load() } else { now };
        if new.is_some_and(|new| !Action::new(&new).install(signo)) {
            return -1;
        }
        // SAFETY: the caller guarantees null or memory that is valid for writes.
        unsafe { write_previous(old, &before) };
        return 0;
    }
    let before = shadow::with_all_blocked(|| {
        CHANGES.with(|| {
            let before = shadow.load();
            if let Some(new) = new {
                shadow.store(new);
            }
            before
        })
    });
    // SAFETY: the caller guarantees null or memory that is valid for writes.
    unsafe { write_previous(old, &before) };
    0
}

fn is_entry(now: &Disposition) -> bool {
    now.handler == entry as *const () as usize
}

/// Returns the program's disposition of one of the recorder's signals.
pub fn disposition(signo: c_int) -> Option<Disposition> {
    shadow_disposition(signo).filter(|_| owned() & bit(signo) != 0).map(Shadow::load)
}

/// Returns the program's disposition of a signal of [`intercepted`].
pub fn program_disposition(signo: c_int) -> Option<Disposition> {
    disposition(signo).or_else(|| fatal::disposition(signo))
}

/// Signals whose dispositions the program may change only by [`change`], as bits.
pub fn intercepted() -> KernelSet {
    owned() | fatal::watched()
}

// ----- exec -----------------------------------------------------------------------------------------------------

/// Makes the kernel's view the program's own, for an image about to be executed: ignored signals stay ignored, blocked
/// ones blocked. Returns the mask to restore if the exec fails. In a `vfork` child this changes the child's own copies only.
pub fn bare_for_exec() -> KernelSet {
    let mask = shadow::kernel_mask(libc::SIG_BLOCK, Some(masks::hidden()));
    for signo in SIGNALS {
        // The child of a vfork may have replaced the recorder's handler in the kernel's table; the
        // disposition here is its parent's.
        if disposition(signo).is_some_and(|d| d.handler == libc::SIG_IGN)
            && installed(signo).is_some_and(|now| is_entry(&now))
        {
            set_kernel_handler(signo, libc::SIG_IGN);
        }
    }
    mask
}

/// Undoes [`bare_for_exec`].
pub fn dress_again(mask: KernelSet) {
    for signo in SIGNALS {
        let ignored = |_: &Disposition| installed(signo).is_some_and(|now| now.handler == libc::SIG_IGN);
        if disposition(signo).filter(|d| d.handler == libc::SIG_IGN).is_some_and(|d| ignored(&d)) {
            Action::ours().install(signo);
        }
    }
    shadow::kernel_mask(libc::SIG_SETMASK, Some(mask));
}

/// Installs `handler`, which is `SIG_DFL` or `SIG_IGN`.
fn set_kernel_handler(signo: c_int, handler: usize) {
    Action::new(&Disposition { handler, flags: 0, mask: 0, restorer: 0 }).install(signo);
}

/// Removes the recorder's signals from the calling thread's queue, so that none is pending when another image
/// starts. Other signals are sent again.
pub fn swallow_pending() {
    let set = owned();
    for _ in 0..8 {
        let pending = shadow::pending() & set;
        if pending == 0 {
            return;
        }
        // The kernel's siginfo: number, errno, code; the sender; the value at offset 24.
        let mut info = [0u64; 16];
        let at_once = [0i64; 2];
        let args = [
            (&raw const pending) as usize,
            info.as_mut_ptr() as usize,
            at_once.as_ptr() as usize,
            size_of::<KernelSet>(),
            0,
            0,
        ];
        // SAFETY: the kernel reads the set and the timeout, writes one siginfo.
        let Ok(signo) = (unsafe { os::syscall(libc::SYS_rt_sigtimedwait, args) }) else { return };
        let signo = signo as c_int;
        let [_, code, _, value, ..] = info;
        let code = code as u32 as c_int;
        if !is_recorder_signal(signo, code, value) {
            send_again(signo, info.as_ptr().cast(), code != libc::SI_TKILL);
            return;
        }
    }
}

/// Returns true for a signal that one of the recorder's engines or the drain sent.
pub fn is_ours(signo: c_int, info: &libc::siginfo_t) -> bool {
    // SAFETY: a word inside the structure, which has 128 initialized bytes and is aligned to 8.
    let value = unsafe { core::ptr::from_ref(info).cast::<u64>().add(VALUE_WORD).read() };
    is_recorder_signal(signo, info.si_code, value)
}

/// Index of the event's data and of the timer's or queued value in a siginfo, in words.
const VALUE_WORD: usize = 3;

fn is_recorder_signal(signo: c_int, code: c_int, value: u64) -> bool {
    const TRAP_PERF: c_int = 6;
    let by_engine =
        matches!((signo, code), (SIGTRAP, TRAP_PERF) | (SIGPROF, libc::SI_TIMER) | (SIGPROF, libc::SI_QUEUE));
    by_engine && Cookie::unpack(value).is_some()
}

/// The handler of both signals.
unsafe extern "C" fn entry(signo: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: installed with SA_SIGINFO; `info` and `context` stay valid until this function returns.
    let Some(frame) = (unsafe { SignalFrame::new(signo, info, context) }) else { return };
    if !tls::is_here() {
        return foreign::on_foreign_thread(frame);
    }
    if fatal::on_signal(frame) {
        return;
    }
    // SAFETY: the handler's own arguments; it is installed with a full mask.
    if unsafe { handler::on_signal(signo, info, context) } || command::on_signal(frame) {
        restart::decide_again(frame);
    } else {
        chain(frame);
    }
}
