//! Registers threads and arms them: new threads at their start through a trampoline, existing ones by a walk
//! over `/proc/self/task`. [`stacks`] provides their alternate signal stacks, [`seccomp`] disarms those that give up
//! system calls.
//!
//! The trampoline leaves no frame behind: it registers the thread, then jumps to the program's function with
//! the stack exactly as the C library set it up.

pub mod names;
pub mod seccomp;
mod signal_frame;
pub mod stacks;

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use flightline_in_signal::engine::{self, events, process_timer};
use flightline_in_signal::layout::{ThreadSlot, engines, slot_state, stage};
use flightline_in_signal::os::sys;
use flightline_in_signal::state::slots;
use flightline_in_signal::thread::{self, ThreadInfo};

use crate::session::{self, Attached};
use crate::shadow::{self, KernelSet};
use crate::signals::masks;
use crate::{os, sandbox};

/// The data of a new thread, in one of a fixed number of slots, because nothing may be allocated.
struct Start {
    used: AtomicU32,
    function: AtomicUsize,
    argument: AtomicUsize,
    stack_bytes: AtomicUsize,
    shadow: AtomicUsize,
    /// Signals that the thread unblocks first: its attributes block them, and the recorder needs them.
    unblock: AtomicUsize,
}

const STARTS: usize = 512;
static POOL: [Start; STARTS] = [const {
    Start {
        used: AtomicU32::new(0),
        function: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
        stack_bytes: AtomicUsize::new(0),
        shadow: AtomicUsize::new(0),
        unblock: AtomicUsize::new(0),
    }
}; STARTS];
static HINT: AtomicUsize = AtomicUsize::new(0);

/// A thread that is being created.
pub struct Pending(&'static Start);

impl Pending {
    /// The argument to pass to the C library for the new thread (with [`entry`] as its function).
    pub fn argument(&self) -> *mut c_void {
        core::ptr::from_ref(self.0).cast_mut().cast()
    }

    /// Called if the thread was not created.
    pub fn cancel(self) {
        self.0.used.store(0, Release);
    }
}

/// Prepares the creation of a thread that will run `function(argument)`. `stack_bytes` is the usable size of
/// its stack by its attributes (0: unknown), `mask` the signals that they block (`None`: the creator's).
/// Returns `None` when not recording, or when too many threads are being created: the thread is then created
/// unchanged and registered later.
pub fn prepare(
    function: usize,
    argument: *mut c_void,
    stack_bytes: usize,
    mask: Option<KernelSet>,
) -> Option<Pending> {
    // A restricted thread passes its restriction on to the new one.
    if !sandbox::applies() {
        session::current()?;
    }
    let hint = HINT.fetch_add(1, Relaxed);
    let free = (0..STARTS).filter_map(|i| POOL.get(hint.wrapping_add(i) % STARTS)).find(|start| {
        start.used.load(Relaxed) == 0 && start.used.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    })?;
    free.function.store(function, Relaxed);
    free.argument.store(argument as usize, Relaxed);
    free.stack_bytes.store(stack_bytes, Relaxed);
    let (shadow, unblock) = masks::new_thread_mask(mask);
    free.shadow.store(shadow, Relaxed);
    free.unblock.store(unblock as usize, Relaxed);
    Some(Pending(free))
}

/// Frees all slots: in the child of a fork, where no other thread exists.
pub fn reset_pool() {
    for start in &POOL {
        start.used.store(0, Relaxed);
    }
}

/// Function and argument of the program's thread, in the two registers of a return value.
#[repr(C)]
pub struct Started {
    function: usize,
    argument: usize,
}

extern "C" fn begin(start: &'static Start) -> Started {
    let started = Started { function: start.function.load(Relaxed), argument: start.argument.load(Relaxed) };
    let stack_bytes = start.stack_bytes.load(Relaxed);
    // A held signal is really blocked, for this thread too; the thread is armed when it unblocks the signal.
    shadow::set_shadow(start.shadow.load(Relaxed));
    let unblock = start.unblock.load(Relaxed) as KernelSet;
    start.used.store(0, Release);
    if unblock != 0 {
        shadow::kernel_mask(libc::SIG_UNBLOCK, Some(unblock));
    }
    if session::current().is_some() {
        register_self(own_stack(stack_bytes));
    }
    started
}

// The C library enters this code as a thread's start function, with `*Start` in the first argument register.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.flightline_thread_entry,\"ax\",@progbits",
    ".p2align 4",
    ".hidden flightline_thread_entry",
    ".globl flightline_thread_entry",
    ".type flightline_thread_entry, @function",
    "flightline_thread_entry:",
    ".cfi_startproc",
    "endbr64",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {begin}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "mov rdi, rdx",
    "jmp rax",
    ".cfi_endproc",
    ".size flightline_thread_entry, . - flightline_thread_entry",
    ".popsection",
    begin = sym begin,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.flightline_thread_entry,\"ax\",%progbits",
    ".p2align 4",
    ".hidden flightline_thread_entry",
    ".globl flightline_thread_entry",
    ".type flightline_thread_entry, %function",
    "flightline_thread_entry:",
    ".cfi_startproc",
    "hint #34", // bti c
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    "bl {begin}",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "mov x16, x0",
    "mov x0, x1",
    "br x16",
    ".cfi_endproc",
    ".size flightline_thread_entry, . - flightline_thread_entry",
    ".popsection",
    begin = sym begin,
);

unsafe extern "C" {
    #[link_name = "flightline_thread_entry"]
    fn thread_entry(start: *mut c_void) -> *mut c_void;
}

/// Returns the start function to pass to the C library for a [`Pending`] thread.
pub fn entry() -> unsafe extern "C" fn(*mut c_void) -> *mut c_void {
    thread_entry
}

/// Maximum distance from the thread pointer to the end of its stack's mapping: the size of the memory above
/// the thread control block, which the C libraries place at the stack's top.
#[cfg(target_arch = "x86_64")]
const ABOVE_POINTER: usize = 16 * 1024;
#[cfg(not(target_arch = "x86_64"))]
const ABOVE_POINTER: usize = 64 * 1024;

/// Bounds of the calling thread's stack: its control block is at the top. The bottom is computed from the
/// size and rounded up, so that it is never below the mapping.
fn own_stack(stack_bytes: usize) -> (u64, u64) {
    let here = (&raw const stack_bytes) as usize;
    // SAFETY: no preconditions.
    let top = unsafe { libc::pthread_self() } as usize;
    let bottom = match stack_bytes.checked_sub(ABOVE_POINTER) {
        Some(below) => (top.saturating_sub(below) + 4095) & !4095,
        None => here & !4095,
    };
    // The control block is not always at the stack's top (musl, a stack that the program provides).
    let plausible = bottom <= here && here < top && top - here < 1 << 16;
    if plausible { (bottom as u64, top as u64) } else { (0, 0) }
}

/// Bounds of the main thread's stack: the kernel stores the path of the program just below the top, and lets
/// the stack grow down to its limit.
fn main_stack() -> (u64, u64) {
    const GUESS: u64 = 64 << 20;
    let path = os::auxval(libc::AT_EXECFN);
    if path == 0 {
        return (0, 0);
    }
    // The null-terminated path and an eight byte null are the last things on the stack.
    // SAFETY: the kernel's own copy of the path, NUL-terminated.
    let len = unsafe { core::ffi::CStr::from_ptr(path as *const _) }.to_bytes_with_nul().len() as u64;
    let top = (path + len + 8 + 4095) & !4095;
    let limit = os::limit(libc::RLIMIT_STACK as usize).min(GUESS);
    (top.saturating_sub(limit), top)
}

/// Registers and arms the calling thread. A thread that gets no slot is counted in the header.
pub fn register_self(stack: (u64, u64)) {
    let info = ThreadInfo { tid: 0, stack, name: os::thread_name() };
    if let Some(slot) = register(&info) {
        register_thread_end();
        let _ = engine::arm(slot);
    }
}

fn register(info: &ThreadInfo) -> Option<&'static ThreadSlot> {
    let attached = session::current()?;
    if attached.room_for_thread() {
        return thread::register(info);
    }
    attached.header().counters.no_slot.fetch_add(1, Relaxed);
    None
}

/// Registers and arms the thread that joins the session; the main thread with its known stack.
pub fn register_caller(attached: &Attached) {
    let is_main = sys::gettid() == attached.pid;
    register_self(if is_main { main_stack() } else { own_stack(0) });
}

/// Registers and arms every other thread of the process. They find their slots at their first sample.
pub fn register_others() {
    let me = u64::from(sys::gettid());
    // Repeat, because a thread may start others in the meantime; known threads get the same slot again.
    for _ in 0..3 {
        let mut fresh = 0;
        each_task(&mut |tid| {
            let Some(state) = flightline_in_signal::state::get() else { return };
            if tid == me || slots::by_tid(state, tid as u32).is_some() {
                return;
            }
            let info = ThreadInfo { tid: tid as u32, stack: (0, 0), name: task_name(tid) };
            if let Some(slot) = register(&info) {
                fresh += 1;
                let _ = engine::arm(slot);
            }
        });
        if fresh == 0 {
            break;
        }
    }
}

/// Registers and arms every thread of the process from inside a handler. This calls no function of the C
/// library, so the drain detects the ends of these threads.
pub fn register_all(attached: &Attached) {
    let me = u64::from(sys::gettid());
    let stack = if me == u64::from(attached.pid) { main_stack() } else { (0, 0) };
    let info = ThreadInfo { tid: 0, stack, name: os::thread_name() };
    if let Some(slot) = register(&info) {
        let _ = engine::arm(slot);
    }
    register_others();
}

fn task_name(tid: u64) -> [u8; 16] {
    let mut name = [0u8; 16];
    let mut path = os::Text::<64>::new();
    path.put(b"/proc/self/task/").number(tid).put(b"/comm");
    if let Ok(fd) = path.cstr().and_then(|path| os::open(path, libc::O_RDONLY, 0)) {
        let len = os::read_full(&fd, &mut name);
        let end = len.saturating_sub(1).min(15);
        for byte in name.iter_mut().skip(end) {
            *byte = 0;
        }
    }
    name
}

/// Returns the number of threads of this process.
pub fn count() -> usize {
    let mut n = 0;
    each_task(&mut |_| n += 1);
    n
}

/// Calls `visit` with every thread id of this process.
fn each_task(visit: &mut dyn FnMut(u64)) {
    let Ok(dir) = os::open(c"/proc/self/task", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return };
    let mut buffer = [0u64; 512];
    loop {
        let args = [dir.raw() as usize, buffer.as_mut_ptr() as usize, size_of_val(&buffer), 0, 0, 0];
        // SAFETY: the kernel writes at most the buffer's length.
        let Ok(len) = (unsafe { os::syscall(libc::SYS_getdents64, args) }) else { return };
        if len == 0 {
            return;
        }
        // SAFETY: the words are initialised and reading them as bytes is always allowed.
        let bytes = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), len) };
        let mut at = 0;
        // linux_dirent64: inode u64, offset i64, record length u16, type u8, name.
        while let Some(&[low, high]) = bytes.get(at + 16..at + 18) {
            let record = usize::from(u16::from_le_bytes([low, high]));
            let name = bytes.get(at + 19..at + record).unwrap_or_default();
            let digits = name.iter().take_while(|b| **b != 0);
            let number = digits.clone().try_fold(0u64, |n, b| {
                b.is_ascii_digit().then(|| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0')))
            });
            if let Some(tid) = number.filter(|_| digits.count() > 0) {
                visit(tid);
            }
            at += record.max(19);
        }
    }
}

// ----- end of a thread ------------------------------------------------------------------------------------------

/// The key + 1; 0 until the key is created.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Creates the key whose destructor ends a thread's ledger. Called early, so that its index is low and its
/// value is stored in the thread's own control block.
pub fn create_key() {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the key is written to a local, the destructor lives as long as this object, which is never unloaded.
    if KEY.load(Relaxed) == 0 && unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_end)) } == 0 {
        KEY.store(key.wrapping_add(1), Relaxed);
    }
}

fn set_key(round: usize) {
    if let Some(key) = KEY.load(Relaxed).checked_sub(1) {
        // SAFETY: the key exists; its value is a plain number.
        let _ = unsafe { libc::pthread_setspecific(key, round as *const c_void) };
    }
}

/// Registers the destructor that runs at the end of the calling thread. Async-signal-safe: the thread's control block stores the key's
/// value.
pub fn register_thread_end() {
    set_key(1);
}

unsafe extern "C" fn at_thread_end(round: *mut c_void) {
    // Other keys' destructors may still use CPU time, so wait for later rounds (there are at least four).
    const LAST_ROUND: usize = 3;
    if (round as usize) < LAST_ROUND {
        set_key(round as usize + 1);
        return;
    }
    if session::current().is_some() {
        if let Some(slot) = slots::current() {
            thread::set_name(slot, &os::thread_name());
            masks::count_blocked(slot);
        }
        thread::end();
    }
    stacks::free();
}

// ----- all threads ----------------------------------------------------------------------------------------------

/// Returns the slots of running threads. Stops at the first slot that was never used, because later ones may
/// not be populated.
pub fn live(attached: &Attached) -> impl Iterator<Item = &ThreadSlot> {
    let used = attached.state.slots.iter().take_while(|slot| slot.state.load(Acquire) != 0);
    used.filter(|slot| slot.state.load(Acquire) & slot_state::MASK == slot_state::LIVE)
}

/// Stops sampling in all threads, for a stop or before exec. Their ledgers stay open.
pub fn disarm_all(attached: &Attached) {
    process_timer::disarm(&attached.state);
    for slot in live(attached) {
        engine::disarm(slot);
    }
}

/// Arms or disarms all registered threads according to the session page.
pub fn apply_engines(attached: &Attached) {
    let enabled = attached.session().live.engines.load(Acquire);
    if enabled & engines::CPU == 0 {
        process_timer::disarm(&attached.state);
    }
    let period = attached.session().live.period_ns.load(Acquire);
    let armed = attached.state.private.armed_period_ns.swap(period, Relaxed);
    let other_period = armed != 0 && armed != period;
    if other_period {
        process_timer::disarm(&attached.state);
    }
    for slot in live(attached) {
        let sampling = slot.engine.stage.load(Relaxed) != stage::IDLE;
        if enabled == 0 || (sampling && (enabled & engines::CPU == 0 || other_period)) {
            engine::disarm(slot);
        }
        events::disarm_others(&attached.state, slot);
        if enabled != 0 {
            let _ = engine::arm(slot);
        }
    }
}

/// Arms all registered threads again, after a failed exec.
pub fn arm_all(attached: &Attached) {
    for slot in live(attached) {
        slot.ledger.end_cpu_ns.store(0, Relaxed);
        let _ = engine::arm(slot);
    }
}

/// Usable bytes of a new thread's stack according to its attributes: the size without the guard. 0 if
/// unknown.
///
/// # Safety
/// `attr` is null or an initialised attribute object.
pub unsafe fn stack_bytes(attr: *const libc::pthread_attr_t) -> usize {
    let mut size = 0usize;
    let mut guard = 0usize;
    let read = |attr: *const libc::pthread_attr_t, size: &mut usize, guard: &mut usize| {
        // SAFETY: an initialised attribute object, from the caller or from `pthread_attr_init` below.
        let a = unsafe { libc::pthread_attr_getstacksize(attr, size) };
        // SAFETY: an initialised attribute object, from the caller or from `pthread_attr_init` below.
        let b = unsafe { libc::pthread_attr_getguardsize(attr, guard) };
        a | b
    };
    let failed: c_int = if attr.is_null() {
        let mut default = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: initialises the local.
        let failed = unsafe { libc::pthread_attr_init(default.as_mut_ptr()) };
        if failed != 0 {
            return 0;
        }
        let failed = read(default.as_ptr(), &mut size, &mut guard);
        // SAFETY: initialised above, not used again.
        unsafe { libc::pthread_attr_destroy(default.as_mut_ptr()) };
        failed
    } else {
        read(attr, &mut size, &mut guard)
    };
    if failed != 0 { 0 } else { size.saturating_sub(guard) }
}
