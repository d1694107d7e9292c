//! SIGTRAP and SIGPROF shared with the program: our handler is installed, the program's own dispositions live in a
//! table here, and a signal that is not ours goes on to where the program wanted it.
//!
//! | program's disposition | what a foreign signal does |
//! |---|---|
//! | default | really kills the process (the default action is installed and the signal sent again) |
//! | ignore | nothing, except a trap by the program's own instruction, which kills as without us |
//! | handler | runs with the mask, flags and stack it asked for |
//! | blocked, no handler | is held: really blocked and sent again, so that it stays pending until unblocked or waited for |

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use flightline_in_signal::engine::{Cookie, SIGPROF, SIGTRAP};
use flightline_in_signal::{handler, sys};

use crate::masks::{self, KernelSet, bit};
use crate::os::{self, Spin};
use crate::real;

/// The program's disposition of one signal of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// `sa_handler` or `sa_sigaction`.
    pub handler: usize,
    /// `sa_flags`.
    pub flags: c_int,
    /// `sa_mask`.
    pub mask: KernelSet,
    /// `sa_restorer` as the program gave it.
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
            core::hint::spin_loop();
        }
    }

    /// Only under [`CHANGES`], with all signals blocked.
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

fn shadow_of(signo: c_int) -> Option<&'static Shadow> {
    match signo {
        SIGTRAP => SHADOWS.first(),
        SIGPROF => SHADOWS.last(),
        _ => None,
    }
}

/// Signals whose handler is ours, as bits.
pub fn owned() -> KernelSet {
    OWNED.load(Acquire)
}

/// Signals of ours for which the program has no handler: they are stripped from masks.
pub fn strippable() -> KernelSet {
    let mut set = owned();
    for signo in SIGNALS {
        if set & bit(signo) != 0 && shadow_of(signo).is_some_and(|s| is_function(s.load().handler)) {
            set &= !bit(signo);
        }
    }
    set
}

fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// What we install for a signal whose program's disposition is `program`.
fn our_action(program: &Disposition) -> libc::sigaction {
    // SAFETY: all-zero is a valid structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = entry as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // A program whose handler interrupts system calls wants EINTR, all others must never see one.
    if !is_function(program.handler) || program.flags & libc::SA_RESTART != 0 {
        action.sa_flags |= libc::SA_RESTART;
    }
    // All 64 signals, with those that the C library keeps for itself and sigfillset leaves out.
    // SAFETY: the first word of a local set.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(!0) };
    action
}

fn from_c(action: &libc::sigaction) -> Disposition {
    Disposition {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        // SAFETY: a field of a valid structure.
        mask: unsafe { masks::from_c(&raw const action.sa_mask) },
        restorer: action.sa_restorer.map_or(0, |f| f as usize),
    }
}

fn to_c(d: &Disposition) -> libc::sigaction {
    // SAFETY: all-zero is a valid structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = d.handler;
    action.sa_flags = d.flags;
    // SAFETY: the first word of a local set.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(d.mask) };
    // SAFETY: null or the address of a function of this type, as the program or libc gave it.
    action.sa_restorer = unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(d.restorer) };
    action
}

/// Installs our handler for `signals` (bits); the program's dispositions go into the table.
pub fn install(signals: KernelSet) {
    masks::with_all_blocked(|| {
        CHANGES.with(|| {
            for signo in SIGNALS {
                if signals & bit(signo) == 0 || owned() & bit(signo) != 0 {
                    continue;
                }
                // SAFETY: all-zero is a valid structure.
                let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
                // SAFETY: only asks.
                if unsafe { real::sigaction(signo, core::ptr::null(), &raw mut old) } != 0 {
                    continue;
                }
                let program = from_c(&old);
                if let Some(shadow) = shadow_of(signo) {
                    shadow.store(program);
                }
                OWNED.fetch_or(bit(signo), AcqRel);
                let ours = our_action(&program);
                // SAFETY: our handler may run at any time from here on; it needs nothing but what `attach` installed.
                if unsafe { real::sigaction(signo, &raw const ours, core::ptr::null_mut()) } != 0 {
                    OWNED.fetch_and(!bit(signo), AcqRel);
                }
            }
        });
    });
}

/// Gives the program its dispositions back. Nothing may be armed any more.
pub fn uninstall() {
    masks::with_all_blocked(|| {
        CHANGES.with(|| {
            for signo in SIGNALS {
                if owned() & bit(signo) == 0 {
                    continue;
                }
                // SAFETY: all-zero is a valid structure.
                let mut now: libc::sigaction = unsafe { core::mem::zeroed() };
                // SAFETY: only asks.
                unsafe { real::sigaction(signo, core::ptr::null(), &raw mut now) };
                // Somebody who replaced us without going through the wrappers keeps what it installed.
                if now.sa_sigaction == entry as *const () as usize
                    && let Some(shadow) = shadow_of(signo)
                {
                    let program = to_c(&shadow.load());
                    // SAFETY: the program's own disposition.
                    unsafe { real::sigaction(signo, &raw const program, core::ptr::null_mut()) };
                }
                OWNED.fetch_and(!bit(signo), AcqRel);
            }
        });
    });
}

/// In the child of a fork: another thread may have held the lock.
pub fn reset_locks() {
    CHANGES.reset();
    for shadow in &SHADOWS {
        // A change cut in two by the fork: the next store makes it whole again.
        shadow.version.store(shadow.version.load(Relaxed) & !1, Relaxed);
    }
}

/// `sigaction` on behalf of the program.
///
/// # Safety
/// As the function itself.
pub unsafe fn change(signo: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let ours = shadow_of(signo).filter(|_| owned() & bit(signo) != 0);
    let Some(shadow) = ours else {
        // SAFETY: passed on.
        return unsafe { real::sigaction(signo, new, old) };
    };
    // SAFETY: null or a valid structure, by the contract.
    let new = unsafe { new.as_ref() }.map(from_c);
    let before = masks::with_all_blocked(|| {
        CHANGES.with(|| {
            let before = shadow.load();
            if let Some(new) = new {
                shadow.store(new);
                if our_action(&before).sa_flags != our_action(&new).sa_flags {
                    let action = our_action(&new);
                    // SAFETY: our own handler with other flags.
                    unsafe { real::sigaction(signo, &raw const action, core::ptr::null_mut()) };
                }
            }
            before
        })
    });
    if !old.is_null() {
        // SAFETY: valid for writes, by the contract.
        unsafe { old.write(to_c(&before)) };
    }
    0
}

/// The program's disposition of a signal of ours.
pub fn disposition(signo: c_int) -> Option<Disposition> {
    shadow_of(signo).filter(|_| owned() & bit(signo) != 0).map(Shadow::load)
}

// ----- exec -----------------------------------------------------------------------------------------------------

/// Makes the kernel's view the program's own, for an image about to be executed: ignored signals stay ignored, blocked
/// ones blocked. Returns the mask to restore if the exec fails. In a `vfork` child this changes the child's own copies only.
pub fn bare_for_exec() -> KernelSet {
    let mask = masks::kernel_mask(libc::SIG_BLOCK, Some(masks::hidden()));
    for signo in SIGNALS {
        if disposition(signo).is_some_and(|d| d.handler == libc::SIG_IGN) {
            set_kernel_handler(signo, libc::SIG_IGN);
        }
    }
    mask
}

/// Undoes [`bare_for_exec`].
pub fn dress_again(mask: KernelSet) {
    for signo in SIGNALS {
        if let Some(d) = disposition(signo).filter(|d| d.handler == libc::SIG_IGN) {
            let action = our_action(&d);
            // SAFETY: our own handler.
            unsafe { real::sigaction(signo, &raw const action, core::ptr::null_mut()) };
        }
    }
    masks::kernel_mask(libc::SIG_SETMASK, Some(mask));
}

fn set_kernel_handler(signo: c_int, handler: usize) {
    // SAFETY: all-zero is a valid structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    // SAFETY: SIG_DFL or SIG_IGN.
    unsafe { real::sigaction(signo, &raw const action, core::ptr::null_mut()) };
}

/// Takes our own signals out of the calling thread's queue, so that none is pending when another image starts;
/// others are sent again.
pub fn swallow_pending() {
    let set = owned();
    for _ in 0..8 {
        let wanted = masks::pending() & set;
        if wanted == 0 {
            return;
        }
        let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let at_once = [0i64; 2];
        let args = [
            (&raw const wanted) as usize,
            info.as_mut_ptr() as usize,
            at_once.as_ptr() as usize,
            size_of::<KernelSet>(),
            0,
            0,
        ];
        // SAFETY: the kernel reads the set and the timeout, writes one siginfo.
        let Ok(signo) = (unsafe { os::syscall(libc::SYS_rt_sigtimedwait, args) }) else { return };
        let signo = signo as c_int;
        if !is_ours(signo, info.as_mut_ptr().cast()) {
            let info = info.as_mut_ptr().cast();
            send_again(signo, info, code_of(info) != libc::SI_TKILL);
            return;
        }
    }
}

/// `true` for a signal that one of our engines sent.
pub fn is_ours(signo: c_int, info: *const c_void) -> bool {
    const TRAP_PERF: c_int = 6;
    let code = code_of(info);
    let by_engine = (signo, code) == (SIGTRAP, TRAP_PERF) || (signo, code) == (SIGPROF, libc::SI_TIMER);
    // SAFETY: the kernel's siginfo; the event's data and the timer's value are the eight bytes at offset 24.
    by_engine && Cookie::unpack(unsafe { info.cast::<u64>().add(3).read() }).is_some()
}

/// The handler of both signals.
unsafe extern "C" fn entry(signo: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: installed with SA_SIGINFO and a full mask.
    if unsafe { handler::on_signal(signo, info, context) } {
        // SAFETY: the same context.
        unsafe { restart::decide_again(context) };
    } else {
        // SAFETY: the same arguments.
        unsafe { chain(signo, info, context) };
    }
}

// ----- signals that are not ours --------------------------------------------------------------------------------

/// `si_code` of a siginfo, after `si_signo` and `si_errno`.
fn code_of(info: *const c_void) -> c_int {
    // SAFETY: the kernel's siginfo, 128 bytes.
    unsafe { info.cast::<c_int>().add(2).read() }
}

/// Sends a received signal again with all it carried, to this thread or (as far as the kernel lets us) the process.
fn send_again(signo: c_int, info: *const c_void, to_process: bool) {
    let pid = sys::getpid() as usize;
    if to_process {
        let args = [pid, signo as usize, info as usize, 0, 0, 0];
        // SAFETY: the kernel reads one siginfo.
        if unsafe { os::syscall(libc::SYS_rt_sigqueueinfo, args) }.is_ok() {
            return;
        }
        // Only the main thread may repeat what kill(2) or the kernel sent; others send it anew, in their own name.
        // SAFETY: no pointers.
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

/// What our handler calls for a signal that is not ours. Runs on the handler's stack with every signal blocked.
unsafe extern "C" fn chain(signo: c_int, info: *mut c_void, context: *mut c_void) {
    let Some(shadow) = shadow_of(signo) else { return };
    let program = shadow.load();
    let code = code_of(info);
    // By an instruction of the program: the kernel would not let it be blocked or ignored.
    let forced = signo == SIGTRAP && code > 0;
    if masks::shadow() & bit(signo) as usize != 0 {
        if forced {
            die(signo, info, context);
        } else {
            hold(signo, info, context, code);
        }
        return;
    }
    match program.handler {
        libc::SIG_IGN if !forced => {}
        libc::SIG_IGN | libc::SIG_DFL => die(signo, info, context),
        _ => run(signo, info, context, shadow, &program),
    }
}

/// The mask that returning from the handler restores.
fn mask_of(context: *mut c_void) -> *mut KernelSet {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: a field of the kernel's ucontext; its set of 64 signals is the start of the C library's.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// The default action, as if nobody had installed a handler.
fn die(signo: c_int, info: *mut c_void, context: *mut c_void) {
    set_kernel_handler(signo, libc::SIG_DFL);
    let mask = mask_of(context);
    // SAFETY: inside the signal frame.
    unsafe { *mask &= !bit(signo) };
    send_again(signo, info, false);
}

/// The program blocked this signal and waits for it elsewhere: really block it and let it be pending.
fn hold(signo: c_int, info: *mut c_void, context: *mut c_void, code: c_int) {
    let mask = mask_of(context);
    // SAFETY: inside the signal frame.
    unsafe { *mask |= bit(signo) };
    masks::disarm_held();
    HOLDS.fetch_add(1, Release);
    send_again(signo, info, code != libc::SI_TKILL);
}

static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Counts held signals. A thread that waits for such a signal may have been woken in vain by it.
pub fn holds() -> u32 {
    HOLDS.load(Acquire)
}

/// The kernel decides with the first handler of several whether an interrupted system call is made again. When ours
/// comes first, that is always yes. If a signal behind it has a handler without `SA_RESTART`, the program expects
/// `EINTR` (a read with `alarm` would wait for ever): then the decision is taken back.
mod restart {
    use super::*;

    /// System calls that wait and are subject to `SA_RESTART` (signal(7)).
    const WAITING: [libc::c_long; 27] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
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
        libc::SYS_splice,
        libc::SYS_copy_file_range,
    ];

    /// The call about to be made again by the interrupted code: its number, and where its result goes.
    ///
    /// # Safety
    /// `context` is a signal frame's.
    #[cfg(target_arch = "x86_64")]
    unsafe fn waiting(context: *mut libc::ucontext_t) -> Option<(libc::c_long, impl FnOnce(i64))> {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        // SAFETY: by the contract.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let at = registers[libc::REG_RIP as usize];
        // The kernel leaves the address behind the instruction in rcx, and sets the counter back to the instruction.
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
    unsafe fn waiting(context: *mut libc::ucontext_t) -> Option<(libc::c_long, impl FnOnce(i64))> {
        const SVC: u32 = 0xd400_0001;
        // SAFETY: by the contract.
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

    /// # Safety
    /// `context` is the frame of a signal of ours, every signal blocked.
    pub unsafe fn decide_again(context: *mut c_void) {
        // SAFETY: by the contract.
        let Some((number, end)) = (unsafe { waiting(context.cast()) }) else { return };
        if !WAITING.contains(&number) {
            return;
        }
        // SAFETY: inside the signal frame.
        let behind = masks::pending() & !unsafe { *mask_of(context) };
        if (1..=64).filter(|signo| behind & bit(*signo) != 0).any(interrupts) {
            end(-i64::from(libc::EINTR));
        }
    }

    /// `true` if the program's handler of this signal ends system calls.
    fn interrupts(signo: c_int) -> bool {
        let program = disposition(signo).unwrap_or_else(|| {
            // The kernel's structure: handler, flags, restorer, mask.
            let mut now = [0u64; 4];
            let args = [signo as usize, 0, now.as_mut_ptr() as usize, size_of::<KernelSet>(), 0, 0];
            // SAFETY: the kernel writes one such structure.
            let _ = unsafe { os::syscall(libc::SYS_rt_sigaction, args) };
            Disposition { handler: now[0] as usize, flags: now[1] as c_int, mask: 0, restorer: 0 }
        });
        is_function(program.handler) && program.flags & libc::SA_RESTART == 0
    }
}

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);

/// Runs the program's handler as the kernel would have.
fn run(signo: c_int, info: *mut c_void, context: *mut c_void, shadow: &Shadow, program: &Disposition) {
    if program.flags & libc::SA_RESETHAND != 0 {
        CHANGES.with(|| shadow.store(Disposition { handler: libc::SIG_DFL, ..*program }));
    }
    // SAFETY: inside the signal frame.
    let interrupted = unsafe { *mask_of(context) };
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
    // A signal of ours that is pending while the program's handler runs would swallow one that the handler sends itself.
    if mask & masks::used() != 0 {
        masks::disarm_held();
    }
    // SAFETY: the program installed this address as a handler of this signal.
    let handler = unsafe { core::mem::transmute::<usize, Handler>(program.handler) };
    masks::kernel_mask(libc::SIG_SETMASK, Some(mask));
    // SAFETY: as above. It may leave by longjmp: then the thread is armed again at its next change of the mask.
    unsafe { handler(signo, info, context) };
    // SAFETY: inside the signal frame.
    if masks::shadow() & masks::HELD != 0 && unsafe { *mask_of(context) } & owned() == 0 {
        masks::kernel_mask(libc::SIG_SETMASK, Some(!0));
        masks::rearm();
    }
}

/// A handler without `SA_ONSTACK` expects the interrupted thread's own stack, which may be much larger than the
/// alternate one that our handler was put on. So the signal frame is copied there, and returning from our handler
/// enters the program's.
#[cfg(target_arch = "x86_64")]
mod relocate {
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

    /// `true` if the frame was moved; `false` if our handler already runs on the right stack.
    pub fn move_frame(
        signo: c_int,
        info: *mut c_void,
        context: *mut c_void,
        handler: usize,
        mask: KernelSet,
    ) -> bool {
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
            // The restorer's address lies right below the context.
            let restorer = context.cast::<usize>().sub(1).read();
            (frame as *mut usize).write(restorer);
            if state != 0 {
                ((context_to + CONTEXT_FPREGS) as *mut usize).write(state_to);
            }
        }
        // SAFETY: our own frame: returning from it enters the handler, with a fresh floating point state.
        unsafe {
            let registers = &mut (*uc).uc_mcontext.gregs;
            registers[libc::REG_RIP as usize] = handler as i64;
            registers[libc::REG_RSP as usize] = frame as i64;
            registers[libc::REG_RDI as usize] = i64::from(signo);
            registers[libc::REG_RSI as usize] = info_to as i64;
            registers[libc::REG_RDX as usize] = context_to as i64;
            registers[libc::REG_RAX as usize] = 0;
            registers[libc::REG_EFL as usize] &= !FLAG_DIRECTION_TRAP;
            context.byte_add(CONTEXT_FPREGS).cast::<usize>().write(0);
            *mask_of(context) = mask;
        }
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
}
