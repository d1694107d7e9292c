//! The shared memory of one recording, as both sides map it.
//!
//! ```text
//! SESSION DIRECTORY  (tmpfs, mode 0700)                 writer            reader
//!   session           SessionPage   one page            drain             every program
//!   rows              unwind rows of all modules        drain             every program (read only)
//!   <pid>-<n>.proc    ProcHeader                        program           drain
//!                     ThreadSlot  × thread_slots        program           drain
//!                     ModuleTable × MODULE_TABLES       program: table 0; drain: the others, then all
//!                     InitModule  × n, string area      program           drain
//!                     sample ring                       program           drain
//! ```
//! Everything is plain integers: the drain treats what a program wrote as hostile, a program trusts the drain
//! for nothing but bounds it checks itself.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// `"FLIGHTL1"`: first word of every shared file; the digit is the layout version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLIGHTL1");

/// Environment variable by which a program finds its session directory.
pub const SESSION_ENV: &str = "FLIGHTLINE_SESSION";
/// Name of the [`SessionPage`] file inside the session directory.
pub const SESSION_FILE: &str = "session";
/// Name of the rows arena inside the session directory.
pub const ROWS_FILE: &str = "rows";
/// Suffix of a process file; it is created as `<pid>-<n>.tmp` and renamed when its header is complete.
pub const PROC_SUFFIX: &str = ".proc";

/// Deepest stack a sample can hold, in frames (one word each).
pub const MAX_DEPTH: usize = 2048;
/// Number of module tables; the drain never rewrites the active one nor the one before it.
pub const MODULE_TABLES: usize = 4;
/// Entries of one module table.
pub const MODULES_PER_TABLE: usize = 2048;
/// Entries of the log of modules written by the program.
pub const INIT_MODULES: usize = 2048;
/// Bytes of the string area (module paths, executable, command line).
pub const STRING_BYTES: usize = 512 * 1024;
/// Bytes the `sysfs`-like small strings are cut to.
pub const NAME_BYTES: usize = 16;

/// Which engine takes the samples ([`SessionPage::engine`], [`ProcHeader::engine`]).
pub mod engine {
    /// The program picks what its kernel allows.
    pub const AUTO: u32 = 0;
    /// `perf_event_open` cpu-clock, `sigtrap`, kernel time included (signal arrives on return to user mode).
    pub const PERF: u32 = 1;
    /// The same with `exclude_kernel`, for unprivileged users; kernel time is seen by a timer beside it.
    pub const PERF_USER: u32 = 2;
    /// `timer_create` on the thread's CPU clock, signal `SIGPROF`, at most CONFIG_HZ per second.
    pub const TIMER: u32 = 3;
    /// Nothing can sample here (see [`super::ProcHeader::engine_errno`]).
    pub const NONE: u32 = 4;
}

/// Why CPU time of a thread is not covered by a recorded sample. Index into [`ThreadSlot::lost_ns`].
pub mod loss {
    /// The ring had no room: the drain is slow, stopped or dead.
    pub const RING_FULL: usize = 0;
    /// No scratch buffer or too much contention on the ring: sample given up.
    pub const CONTENDED: usize = 1;
    /// The program blocked our signal (seen by the drain or by timer overruns while blocked).
    pub const BLOCKED: usize = 2;
    /// Sampling was stopped for this thread (recording over, exec about to happen, engine closed).
    pub const STOPPED: usize = 3;
    /// CPU used before the thread's sampling was armed (raw clone threads found late).
    pub const UNARMED: usize = 4;
    /// The drain's output was full or gone (only ever counted by the drain).
    pub const OUTPUT_FULL: usize = 5;
    /// Torn by the death of the process: claimed in the ring but never published (counted by the drain).
    pub const TORN: usize = 6;
    /// No signal came although one was due: a coarse timer, an end just before it (only ever counted by the drain).
    pub const UNSEEN: usize = 7;
    /// Number of causes.
    pub const CAUSES: usize = 8;
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
    ];
}

/// One page, written by the drain before the first program starts.
#[repr(C)]
pub struct SessionPage {
    /// [`MAGIC`].
    pub magic: u64,
    /// `size_of` of [`SessionPage`], [`ProcHeader`], [`ThreadSlot`], [`ModuleTable`]: a mismatch means another build.
    pub sizes: [u32; 4],
    /// Pid of the drain (0 when it ended in good order).
    pub drain_pid: AtomicU32,
    /// Set to 1 when sampling must stop in every program of the session.
    pub stop: AtomicU32,
    /// Sampling period in ns of CPU time.
    pub period_ns: u64,
    /// Wished engine, see [`engine`].
    pub engine: u32,
    /// Frames kept per sample (≤ [`MAX_DEPTH`]).
    pub max_depth: u32,
    /// Bytes of each process's ring, a power of two.
    pub ring_bytes: u64,
    /// Thread slots of each process.
    pub thread_slots: u32,
    /// Bit set, see [`session_flags`].
    pub flags: u32,
    /// Bytes of the rows arena as mapped (the file is sparse).
    pub rows_bytes: u64,
    /// CLOCK_MONOTONIC ns when the session began.
    pub start_mono_ns: u64,
    /// Seed for the random first expiries.
    pub seed: u64,
    /// Incremented by each process that opened a ring, successful or not; also the `n` of `<pid>-<n>.proc`.
    pub processes: AtomicU64,
    /// Incremented by a program that wants everything recorded so far written out (`flightline_dump`).
    pub flush_wanted: AtomicU64,
    /// The `flush_wanted` that the drain read before the last flush it completed.
    pub flush_done: AtomicU64,
}

/// Bits of [`SessionPage::flags`].
pub mod session_flags {
    /// Record children made by fork and exec too (default on).
    pub const FOLLOW: u32 = 1;
    /// Test mode: count handler runs and TSC cycles.
    pub const MEASURE: u32 = 2;
}

/// Header of a process file.
#[repr(C)]
pub struct ProcHeader {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// Process id in the drain's pid namespace as far as the program can tell (its own getpid).
    pub pid: u32,
    /// Parent process id.
    pub ppid: u32,
    /// CLOCK_MONOTONIC ns when this file was opened.
    pub start_mono_ns: u64,
    /// Engine in force, see [`engine`].
    pub engine: AtomicU32,
    /// errno of the refused `perf_event_open`, 0 if it was not refused.
    pub engine_errno: AtomicI32,
    /// [`proc_state`].
    pub state: AtomicU32,
    /// Index of the module table in force: `modules_gen % MODULE_TABLES`.
    pub modules_gen: AtomicU32,
    /// Odd while a `dlclose` is running; the drain publishes a table only if it did not change meanwhile.
    pub dlclose_seq: AtomicU32,
    /// Set by the program after dlopen/dlclose, cleared by the drain when it has re-read the map.
    pub maps_dirty: AtomicU32,
    /// Addresses that were in no known module, counted by handlers; a change makes the drain re-read the map.
    pub unknown_pcs: AtomicU64,
    /// Number of valid [`InitModule`] entries (grows only).
    pub init_modules: AtomicU32,
    /// Bytes used of the string area (grows only).
    pub string_len: AtomicU32,
    /// Offset, length in the string area of the executable's path.
    pub exe: [u32; 2],
    /// Offset, length in the string area of the command line (NUL separated).
    pub cmdline: [u32; 2],
    /// Threads that found no free slot.
    pub no_slot: AtomicU64,
    /// Samples taken (handler reached its end or counted a loss), all threads.
    pub taken: AtomicU64,
    /// Offsets and sizes of the parts of this file, in bytes.
    pub threads_off: u64,
    /// Number of [`ThreadSlot`]s.
    pub thread_slots: u32,
    /// Reserved.
    pub pad0: u32,
    /// Offset of [`MODULE_TABLES`] × [`ModuleTable`].
    pub modules_off: u64,
    /// Offset of the [`InitModule`] log.
    pub init_modules_off: u64,
    /// Offset of the string area ([`STRING_BYTES`]).
    pub strings_off: u64,
    /// Offset of the ring.
    pub ring_off: u64,
    /// Bytes of the ring, a power of two.
    pub ring_bytes: u64,
    /// Exit seen by the program's own exit hook: CLOCK_MONOTONIC ns, 0 if not.
    pub exit_mono_ns: AtomicU64,
    /// A path in the string area of something this process started that cannot be recorded, and why
    /// (offset, length, [`unrecorded`] reason); one entry, newest wins, `notice_seq` counts them.
    pub notice: [AtomicU32; 3],
    /// Number of notices written.
    pub notice_seq: AtomicU32,
    /// Ring positions (apart from each other: both sides write one of them).
    pub ring: RingHeader,
}

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
    /// Another C library than ours (musl under glibc or the other way round).
    pub const OTHER_LIBC: u32 = 4;
    /// A Go program: its runtime replaces every signal handler by raw system calls.
    pub const GO: u32 = 5;
}

/// Positions of a process's ring, counted in 8-byte words since the start, never wrapping.
#[repr(C, align(64))]
pub struct RingHeader {
    /// Next position to claim (may lag behind by claims in flight).
    pub head: AtomicU64,
    /// Padding to a cache line of its own.
    pub pad0: [u64; 7],
    /// Everything before it is free again; written by the drain only.
    pub tail: AtomicU64,
    /// Padding to a cache line of its own.
    pub pad1: [u64; 7],
}

/// One thread's ledger. `cpu at end = armed_at + Σ weight of samples + Σ lost + (tail < one period)`.
#[repr(C, align(64))]
pub struct ThreadSlot {
    /// [`slot_state`] in the low half, generation in the high half (counts reuses).
    pub state: AtomicU32,
    /// Kernel thread id.
    pub tid: AtomicU32,
    /// CLOCK_MONOTONIC ns when the slot was taken.
    pub start_mono_ns: AtomicU64,
    /// CLOCK_MONOTONIC ns when the thread ended (0: not seen).
    pub end_mono_ns: AtomicU64,
    /// Thread CPU clock when sampling was armed.
    pub armed_cpu_ns: AtomicU64,
    /// Thread CPU clock at the last sample (taken or lost); weights count from here.
    pub last_cpu_ns: AtomicU64,
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
    /// Σ time-stamp-counter cycles spent in the handler (x86_64; 0 elsewhere).
    pub handler_cycles: AtomicU64,
    /// Known stack: lowest and one-past-highest address, 0 when unknown.
    pub stack_lo: AtomicU64,
    /// One past the highest stack address.
    pub stack_hi: AtomicU64,
    /// Engine's handle: address of the perf control page, or timer id + 1.
    pub engine_handle: AtomicU64,
    /// Second handle (timer beside PERF_USER).
    pub engine_handle2: AtomicU64,
    /// Engine stage: see `handler`.
    pub stage: AtomicU32,
    /// Set by the drain when it saw our signal in the thread's SigBlk while its CPU clock ran.
    pub blocked_seen: AtomicU32,
    /// Thread name (`comm`) as last seen by the program itself, NUL padded; two words so that reads are plain.
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

/// One executable mapping and where its unwind information is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModuleEntry {
    /// First address of the executable mapping.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// Address − file virtual address ("load bias").
    pub bias: u64,
    /// Address of the mapped `.eh_frame_hdr` (0: none).
    pub eh_frame_hdr: u64,
    /// Bytes of `.eh_frame_hdr` in its segment that may be read from there on (to the end of the mapping that holds `.eh_frame`).
    pub eh_readable_end: u64,
    /// Offset of the module's [`RowsHeader`] in the rows arena; 0 = rows not ready.
    pub rows_off: u64,
    /// [`module_flags`].
    pub flags: u32,
    /// Index into the drain's or the program's list of paths (meaning private to the writer).
    pub path_id: u32,
    /// Reserved.
    pub pad: u64,
}

/// Bits of [`ModuleEntry::flags`].
pub mod module_flags {
    /// Present when the program started: never unmapped, so `.eh_frame` may be read by plain loads.
    pub const PERMANENT: u32 = 1;
    /// Being closed or closed: do not touch its memory, its rows are still safe.
    pub const DEAD: u32 = 2;
    /// The vDSO.
    pub const VDSO: u32 = 4;
}

/// A sorted table of modules. Readers take table `modules_gen % MODULE_TABLES` and binary-search `entries[..count]`.
#[repr(C)]
pub struct ModuleTable {
    /// Valid entries, ≤ [`MODULES_PER_TABLE`].
    pub count: AtomicU32,
    /// Generation this table was published as.
    pub generation: AtomicU32,
    /// Sorted by `start`, disjoint.
    pub entries: [ModuleEntry; MODULES_PER_TABLE],
}

/// What the program's loader said of a module (one per PT_LOAD with PF_X).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InitModule {
    /// As in [`ModuleEntry`].
    pub start: u64,
    /// As in [`ModuleEntry`].
    pub end: u64,
    /// As in [`ModuleEntry`].
    pub bias: u64,
    /// As in [`ModuleEntry`].
    pub eh_frame_hdr: u64,
    /// As in [`ModuleEntry`].
    pub eh_readable_end: u64,
    /// Path: offset and length in the string area.
    pub path: [u32; 2],
    /// [`module_flags`].
    pub flags: u32,
    /// Bytes of `build_id` in use (0: none).
    pub build_id_len: u32,
    /// GNU build id.
    pub build_id: [u8; 24],
}

/// Kinds of ring records.
pub mod record {
    /// Filler up to the end of the ring memory.
    pub const PAD: u8 = 1;
    /// [`super::SampleRecord`] followed by `depth` addresses, leaf first.
    pub const SAMPLE: u8 = 2;
}

/// Fixed part of a sample, after the ring's header word. All words are little-endian u64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Kernel thread id.
    pub tid: u32,
    /// Index of the thread's slot; `u32::MAX` if it has none.
    pub slot: u32,
    /// CPU time of the thread since its previous sample or loss, ns.
    pub weight_ns: u64,
    /// Frames that follow.
    pub depth: u16,
    /// [`sample_flags`].
    pub flags: u16,
    /// Module table generation used for the walk.
    pub modules_gen: u32,
    /// Low bits: bit i set = frame i (i < 64) was interrupted by a signal, so its address is exact, not a return address.
    pub exact_frames: u64,
}

/// Bits of [`SampleRecord::flags`].
pub mod sample_flags {
    /// The walk did not reach the root; the reason is in the bits of [`REASON_MASK`].
    pub const TRUNCATED: u16 = 1;
    /// Bits 8..16: why the walk ended, see [`super::walk_end`].
    pub const REASON_SHIFT: u16 = 8;
    /// Mask of the reason after shifting.
    pub const REASON_MASK: u16 = 0xff;
    /// First sample of its thread (random phase).
    pub const FIRST: u16 = 2;
    /// Taken through the timer beside a perf event.
    pub const TIMER: u16 = 4;
    /// Some frame came from a frame pointer where no unwind information was known.
    pub const GUESSED: u16 = 8;
}

/// How a walk ended.
pub mod walk_end {
    /// Undefined return address by CFI, or a null return address in a frame-pointer chain: the root.
    pub const ROOT: u16 = 0;
    /// Deeper than the limit.
    pub const DEPTH: u16 = 1;
    /// No unwind information for an address and no plausible frame pointer.
    pub const NO_INFO: u16 = 2;
    /// A stack word outside the known bounds or unreadable.
    pub const BAD_STACK: u16 = 3;
    /// The canonical frame address did not grow.
    pub const NO_PROGRESS: u16 = 4;
    /// Unwind information that could not be understood.
    pub const BAD_INFO: u16 = 5;
}

/// Header of one module's rows in the rows arena (written by the drain, then published in a [`ModuleEntry`]).
/// Followed by `buckets + 1` × u32 (first row of each bucket), `rows` × [`Row`], 8-byte aligned each.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RowsHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// File virtual address that row locations are relative to.
    pub base: u64,
    /// Number of rows.
    pub rows: u32,
    /// Number of buckets; bucket i covers locations `i << bucket_shift ..`.
    pub buckets: u32,
    /// log2 of a bucket's bytes.
    pub bucket_shift: u32,
    /// Total bytes of header, buckets and rows.
    pub bytes: u32,
}

/// One unwind row: valid from `loc` to the next row's `loc`. The packing of `rule` is in `rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Location relative to [`RowsHeader::base`].
    pub loc: u32,
    /// Packed rule.
    pub rule: u32,
}

const _: () = {
    assert!(size_of::<SessionPage>() <= 4096, "one page");
    assert!(size_of::<ModuleEntry>() == 64);
    assert!(size_of::<InitModule>() == 80);
    assert!(size_of::<SampleRecord>() == 40, "five words");
    assert!(size_of::<Row>() == 8);
    assert!(size_of::<RowsHeader>() == 32);
    assert!(size_of::<ThreadSlot>().is_multiple_of(64));
};

/// The four sizes both sides compare before they trust each other's memory.
pub const SIZES: [u32; 4] = [
    size_of::<SessionPage>() as u32,
    size_of::<ProcHeader>() as u32,
    size_of::<ThreadSlot>() as u32,
    size_of::<ModuleTable>() as u32,
];

/// Offsets of a process file with these parameters; the file's length is `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcLayout {
    /// See [`ProcHeader::threads_off`].
    pub threads: u64,
    /// See [`ProcHeader::modules_off`].
    pub modules: u64,
    /// See [`ProcHeader::init_modules_off`].
    pub init_modules: u64,
    /// See [`ProcHeader::strings_off`].
    pub strings: u64,
    /// See [`ProcHeader::ring_off`].
    pub ring: u64,
    /// Length of the file.
    pub end: u64,
}

impl ProcLayout {
    /// Lays out a process file; every part starts on a page.
    pub const fn new(thread_slots: u32, ring_bytes: u64) -> ProcLayout {
        const fn page(x: u64) -> u64 {
            (x + 4095) & !4095
        }
        let threads = page(size_of::<ProcHeader>() as u64);
        let modules = page(threads + thread_slots as u64 * size_of::<ThreadSlot>() as u64);
        let init_modules = page(modules + (MODULE_TABLES * size_of::<ModuleTable>()) as u64);
        let strings = page(init_modules + (INIT_MODULES * size_of::<InitModule>()) as u64);
        let ring = page(strings + STRING_BYTES as u64);
        ProcLayout { threads, modules, init_modules, strings, ring, end: ring + page(ring_bytes) }
    }
}
