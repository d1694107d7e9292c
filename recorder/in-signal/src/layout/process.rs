//! A process's file: its header, and the ledger of each of its threads.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use super::{JvmLayout, MAX_EVENTS, MAX_TRACES, Plain, SharedCell, event_kind};

/// Reasons why CPU time of a thread is not covered by a recorded sample. Index into [`Ledger::lost_ns`].
pub mod loss {
    /// The ring had no room: the drain is slow, stopped or dead.
    pub const RING_FULL: usize = 0;
    /// No scratch buffer was free, or contention on the ring was too high.
    pub const CONTENDED: usize = 1;
    /// The program blocked the recorder's signal (seen by the drain, or by timer overruns while blocked).
    pub const BLOCKED: usize = 2;
    /// Sampling was stopped for this thread (recording over, exec about to happen, engine closed).
    pub const STOPPED: usize = 3;
    /// CPU time before the thread's sampling was armed (threads of raw clone that are found late).
    pub const UNARMED: usize = 4;
    /// The drain's output was full or gone (only ever counted by the drain).
    pub const OUTPUT_FULL: usize = 5;
    /// Torn by the death of the process: claimed in the ring but never published (counted by the drain).
    pub const TORN: usize = 6;
    /// No signal came although one was due: a coarse timer, an end just before it (only ever counted by the drain).
    pub const UNSEEN: usize = 7;
    /// No reader took the stream (only ever counted by the drain).
    pub const NO_READER: usize = 8;
    /// Number of causes.
    pub const CAUSES: usize = 9;
    /// Stable names, as they appear in recordings and on stderr.
    pub const NAMES: [&str; CAUSES] = [
        "ring full",
        "contended",
        "signal blocked",
        "stopped",
        "not armed",
        "output full",
        "torn by death",
        "not seen",
        "no reader",
    ];
}

/// The state of one of a thread's perf events other than CPU time.
#[repr(C)]
#[derive(Default)]
pub struct EventState {
    /// The counter, and its time enabled and running, as of the last sample.
    pub counter: [AtomicU64; 3],
    /// Start of the present window of the rate limit, CLOCK_MONOTONIC ns.
    pub window_ns: AtomicU64,
    /// Number of signals in that window.
    pub in_window: AtomicU32,
    /// The period is shifted left by this, because the rate was too high.
    pub shift: AtomicU32,
    /// 1 while the first sample, of random period, is awaited.
    pub first: AtomicU32,
}

/// The cost of one kind of the recorder's own work in a process.
#[repr(C)]
#[derive(Default)]
pub struct Cost {
    /// Number of runs.
    pub runs: AtomicU64,
    /// Number of runs that were timed.
    pub timed: AtomicU64,
    /// CPU time of the timed runs, ns.
    pub timed_ns: AtomicU64,
}

/// The process and the sizes of its file. Written by the program before the file gets its name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    /// CLOCK_MONOTONIC ns when this file was opened.
    pub start_mono_ns: u64,
    /// Inode of the pid namespace that `pid` counts in; 0 if the program could not find it out.
    pub pid_namespace: u64,
    /// Bytes of the ring, a power of two.
    pub ring_bytes: u64,
    /// Process id in the drain's pid namespace as far as the program knows it (its own getpid).
    pub pid: u32,
    /// Parent process id.
    pub ppid: u32,
    /// Number of [`ThreadSlot`]s.
    pub thread_slots: u32,
    /// 1: each name that the program gives to a thread is written to the ring ([`super::record::NAME`]). 0:
    /// the drain must look for names.
    pub names_recorded: u32,
    /// Offset, length in the string area of the executable's path.
    pub exe: [u32; 2],
    /// Offset, length in the string area of the command line (NUL separated).
    pub cmdline: [u32; 2],
    /// Offset, length in the string area of the working directory at the start. Relative paths of modules
    /// that the program loads start there.
    pub directory: [u32; 2],
}

// SAFETY: eight words of integers without padding (the size is asserted in `layout`).
unsafe impl Plain for Identity {}

/// The engines of the process. Written by the program when it tests or arms them.
#[repr(C)]
pub struct EngineStatus {
    /// Active engine, see [`super::engine`].
    pub kind: AtomicU32,
    /// errno of the refused `perf_event_open`, 0 if it was not refused.
    pub errno: AtomicI32,
    /// errno with which the kernel refused the perf events other than CPU time, 0 if it did not.
    pub event_errno: [AtomicI32; MAX_EVENTS],
    /// The same for breakpoints on traced functions; ENOENT (2) until the function's file is found in the
    /// process.
    pub trace_errno: [AtomicI32; MAX_TRACES],
}

/// The state of the module tables, of the module log and of the string area.
#[repr(C)]
pub struct ModuleStatus {
    /// Index of the active module table: `generation % MODULE_TABLES`. Written by the drain.
    pub generation: AtomicU32,
    /// Odd while a `dlclose` is running. The drain publishes a table only if this number is unchanged since
    /// it began. Written by the program.
    pub dlclose_seq: AtomicU32,
    /// Set by the program after dlopen/dlclose, cleared by the drain when it has re-read the map.
    pub maps_dirty: AtomicU32,
    /// Number of valid [`super::InitModule`] entries (grows only). Written by the program.
    pub init_modules: AtomicU32,
    /// Addresses that were in no known module, counted by handlers; a change makes the drain re-read the map.
    pub unknown_pcs: AtomicU64,
    /// Bytes used of the string area (grows only). Written by the program.
    pub string_len: AtomicU32,
}

/// Counters of the process's samples and events. Written by handlers, by kind of event
/// (see [`super::event_kind`]).
#[repr(C)]
pub struct ProcCounters {
    /// Number of threads that found no free slot.
    pub no_slot: AtomicU64,
    /// Samples taken (handler reached its end or counted a loss), all threads.
    pub taken: AtomicU64,
    /// Number of events that found no room.
    pub event_lost: [AtomicU64; event_kind::KINDS],
    /// Σ of their values.
    pub event_lost_value: [AtomicU64; event_kind::KINDS],
    /// Number of events below their threshold, for kinds that count them.
    pub event_short: [AtomicU64; event_kind::KINDS],
    /// Σ of their values.
    pub event_short_value: [AtomicU64; event_kind::KINDS],
}

/// Locations from which handlers read contexts.
#[repr(C)]
pub struct ContextWords {
    /// Distances from a thread's thread pointer to the words that point to its context ([`crate::context`]):
    /// this project's, another writer's; 0 = none. Written by the program.
    pub offsets: [AtomicU64; 2],
    /// Where the drain found the variables of other writers ([`crate::context::place`]); unused entries at
    /// the end are 0. Written by the drain.
    pub places: [[AtomicU64; 2]; CONTEXT_PLACES],
    /// Names of labels in this project's contexts, by their index: offset, length in the string area.
    /// Written by the program.
    pub label_names: [[AtomicU32; 2]; LABEL_NAMES],
}

/// The latest program that this process started and that cannot be recorded. Written by the program; a new
/// notice replaces the last one.
#[repr(C)]
pub struct Notice {
    /// Its path in the string area and the reason: offset, length, [`unrecorded`] reason.
    pub words: [AtomicU32; 3],
    /// Number of notices written.
    pub seq: AtomicU32,
}

/// Header of a process file.
#[repr(C)]
pub struct ProcHeader {
    /// [`super::MAGIC`], written last.
    pub magic: AtomicU64,
    /// Fixed: the process.
    pub identity: SharedCell<Identity>,
    /// [`proc_state`]. Written by the program.
    pub state: AtomicU32,
    /// The [`super::LiveSettings::control`] that this process has applied, and [`LISTENS`] if it takes
    /// commands. Written by the program.
    pub controlled: AtomicU32,
    /// Time when the program's own exit hook ran, CLOCK_MONOTONIC ns; 0 if it did not.
    pub exit_mono_ns: AtomicU64,
    /// The engines.
    pub engine: EngineStatus,
    /// The modules.
    pub modules: ModuleStatus,
    /// Counters of samples and events.
    pub counters: ProcCounters,
    /// Cost of recording in this process, by [`event_kind`]; 0: CPU time. Written by the program.
    pub costs: [Cost; event_kind::KINDS],
    /// Locations of contexts.
    pub contexts: ContextWords,
    /// The latest notice.
    pub notice: Notice,
    /// The code cache, if the process has a JVM.
    pub jvm: JvmLayout,
    /// Ring positions (apart from each other: both sides write one of them).
    pub ring: RingHeader,
}

/// Number of variables of other writers that handlers read.
pub const CONTEXT_PLACES: usize = 4;

/// Number of different labels in a process: an index has one byte.
pub const LABEL_NAMES: usize = 256;

/// Bit of [`ProcHeader::controlled`]: the process takes commands, see [`crate::command`].
pub const LISTENS: u32 = 1 << 31;

/// Values of [`ProcHeader::state`].
pub mod proc_state {
    /// Running, samples may come.
    pub const LIVE: u32 = 1;
    /// The program left through exit; no more samples.
    pub const EXITED: u32 = 2;
    /// The program is about to exec another image (back to LIVE if exec failed).
    pub const EXECING: u32 = 3;
}

/// Reasons why a child cannot be recorded.
pub mod unrecorded {
    /// No dynamic loader.
    pub const STATIC: u32 = 1;
    /// set-user-id, set-group-id or file capabilities.
    pub const SETUID: u32 = 2;
    /// Another architecture or ELF class.
    pub const FOREIGN: u32 = 3;
    /// A C library other than this object's (musl under glibc or the other way round).
    pub const OTHER_LIBC: u32 = 4;
    /// A Go program: its runtime replaces every signal handler by raw system calls.
    pub const GO: u32 = 5;
    /// Linked with a sanitizer's shared library, which must be loaded before all others.
    pub const SANITIZER: u32 = 6;

    /// Executed with an environment that does not name the preload object.
    pub const ENVIRONMENT: u32 = 7;
    /// Executed as a user, or in a root, that cannot read the preload object or the session.
    pub const OUT_OF_REACH: u32 = 8;
    /// Executed with real and effective ids that differ: the dynamic loader ignores the preload object.
    pub const TWO_IDS: u32 = 9;
    /// Executed with a file size limit (`RLIMIT_FSIZE`) below that of the shared memory.
    pub const FILE_LIMIT: u32 = 10;

    /// Returns true if a needed library is a sanitizer of gcc (`libasan.so.8`) or clang
    /// (`libclang_rt.asan-x86_64.so`). The sanitizer for undefined behaviour is not included: it need not be
    /// loaded first.
    pub fn is_sanitizer(library: &[u8]) -> bool {
        let library = library.strip_prefix(b"libclang_rt.").or_else(|| library.strip_prefix(b"lib"));
        let names: [&[u8]; 5] = [b"asan", b"tsan", b"lsan", b"hwasan", b"msan"];
        library.is_some_and(|library| names.iter().any(|name| library.starts_with(name)))
    }
}

/// Minimum number of words of a ring.
pub const MIN_RING_WORDS: usize = 1024;

/// Positions of a process's ring, counted in 8-byte words since the start, never wrapping.
#[repr(C, align(64))]
pub struct RingHeader {
    /// Next position to claim (may lag behind by claims in flight).
    pub head: AtomicU64,
    /// Padding to a cache line of its own.
    pub pad0: [u64; 7],
    /// Everything before this position is free; written by the drain only.
    pub tail: AtomicU64,
    /// The next tail. The drain sets it before it begins to free the memory up to there.
    pub releasing: AtomicU64,
    /// Padding to a cache line of its own.
    pub pad1: [u64; 6],
}

/// Values of [`ThreadEngine::stage`].
///
/// | from | to | by |
/// |---|---|---|
/// | IDLE | ARMING | `engine::arm`, in any thread |
/// | ARMING | PERF_FIRST, TIMER, IDLE (refused) | the same call |
/// | PERF_FIRST | TIMER, IDLE (perf refused) | the same call |
/// | PERF_FIRST | PERF | the thread's handler, at the first signal |
/// | PERF | TIMER | the thread's handler, if perf refuses the second event or the thread often waits |
/// | TIMER | PERF | the thread's handler, if it no longer waits often |
/// | any | IDLE | `engine::disarm`, in any thread, at any time |
///
/// A handler changes the stage by compare-and-exchange only. A plain store could overwrite the IDLE of another thread that disarms
/// this one at the same time, and the thread would never be armed again.
pub mod stage {
    /// Not sampling.
    pub const IDLE: u32 = 0;
    /// perf event with the random first period.
    pub const PERF_FIRST: u32 = 1;
    /// perf event with the regular period.
    pub const PERF: u32 = 2;
    /// CPU timer only: the engine is `timer`, perf was refused, or the thread often waits.
    pub const TIMER: u32 = 3;
    /// A thread is arming it; other threads do not change it.
    pub const ARMING: u32 = 4;
}

/// The CPU time ledger of a thread. `cpu at end = armed_at + Σ weight of samples + Σ lost + (tail < one
/// period)`. Written by the program; the drain counts in `span_samples` too.
#[repr(C)]
pub struct Ledger {
    /// CLOCK_MONOTONIC ns when the slot was taken.
    pub start_mono_ns: AtomicU64,
    /// CLOCK_MONOTONIC ns when the thread ended (0: not seen).
    pub end_mono_ns: AtomicU64,
    /// Thread CPU clock when sampling was armed.
    pub armed_cpu_ns: AtomicU64,
    /// Thread CPU clock at the last sample (taken or lost); weights count from here.
    pub last_cpu_ns: AtomicU64,
    /// CLOCK_MONOTONIC ns at the last sample.
    pub last_mono_ns: AtomicU64,
    /// Thread CPU clock when it ended (0: not seen).
    pub end_cpu_ns: AtomicU64,
    /// First expiry in ns, random in (0, period].
    pub first_ns: AtomicU64,
    /// Samples written to the ring.
    pub samples: AtomicU64,
    /// Σ weights of the samples written to the ring.
    pub sampled_ns: AtomicU64,
    /// Lost CPU time by cause ([`loss`]).
    pub lost_ns: [AtomicU64; loss::CAUSES],
    /// Lost samples by cause.
    pub lost: [AtomicU32; loss::CAUSES],
    /// Samples taken while a span was active.
    pub span_samples: AtomicU32,
    /// Σ time-stamp-counter cycles spent in the handler (x86_64; 0 elsewhere).
    pub handler_cycles: AtomicU64,
}

/// The CPU time engine of a thread. Written by the thread that arms it and by the thread's handler, except
/// `blocked_seen`.
#[repr(C)]
pub struct ThreadEngine {
    /// One of [`stage`].
    pub stage: AtomicU32,
    /// Set by the drain when it saw the recorder's signal in the thread's SigBlk while its CPU clock ran.
    pub blocked_seen: AtomicU32,
    /// The reading of the thread's CPU clock, ns, before which no sample of CPU time is taken; 0: no limit.
    /// See `pace`.
    pub rest_until_ns: AtomicU64,
    /// Handle: address of the perf control page, or timer id + 1.
    pub handle: AtomicU64,
    /// Second handle (the timer that complements PERF_USER).
    pub handle2: AtomicU64,
    /// Number of the thread's voluntary switches when its engine was last reconsidered.
    pub waits: AtomicU64,
    /// Its CPU clock at that time.
    pub looked_cpu_ns: AtomicU64,
}

/// The perf events of a thread other than CPU time, by their index in [`super::SessionPage::events`]. Written
/// by the thread that arms them and by the thread's handler.
#[repr(C)]
pub struct ThreadEvents {
    /// Handles (address of the mapped page), 0 = none.
    pub handles: [AtomicU64; MAX_EVENTS],
    /// Their state.
    pub states: [EventState; MAX_EVENTS],
}

/// The spans of a thread. Written by the thread.
#[repr(C)]
pub struct ThreadSpans {
    /// Off-CPU time of the thread when it last entered or left a span after it had been preempted:
    /// CLOCK_MONOTONIC minus its CPU clock, ns. 0: this has not happened yet.
    pub off_ns: AtomicU64,
    /// The first such reading.
    pub first_off_ns: AtomicU64,
}

/// Addresses of a thread's memory. Written by the program.
#[repr(C)]
pub struct ThreadMemory {
    /// Pages that are known to contain this project's contexts, see [`crate::context`]: from, to.
    pub context_pages: [AtomicU64; 2],
    /// The thread's thread pointer, 0 while it is not known.
    pub thread_pointer: AtomicU64,
    /// Known stack: lowest and one-past-highest address, 0 when unknown.
    pub stack_lo: AtomicU64,
    /// One past the highest stack address.
    pub stack_hi: AtomicU64,
}

/// The slot of one thread.
#[repr(C, align(64))]
pub struct ThreadSlot {
    /// [`slot_state`] in the low half, generation in the high half (counts reuses).
    pub state: AtomicU32,
    /// Kernel thread id.
    pub tid: AtomicU32,
    /// The CPU time ledger.
    pub ledger: Ledger,
    /// The CPU time engine.
    pub engine: ThreadEngine,
    /// Addresses of its memory.
    pub memory: ThreadMemory,
    /// Its spans.
    pub spans: ThreadSpans,
    /// Its other perf events.
    pub events: ThreadEvents,
    /// Thread name (`comm`) as the program last set it, NUL padded; two words so that reads are plain.
    pub name: [AtomicU64; 2],
}

/// Values of the low half of [`ThreadSlot::state`].
pub mod slot_state {
    /// Free (all zero at the start).
    pub const FREE: u32 = 0;
    /// Being filled.
    pub const INIT: u32 = 1;
    /// A running thread.
    pub const LIVE: u32 = 2;
    /// Its thread ended; the drain reads the ledger, then sets FREE.
    pub const ENDED: u32 = 3;
    /// Mask of the state, the rest is the generation.
    pub const MASK: u32 = 0xff;
}
