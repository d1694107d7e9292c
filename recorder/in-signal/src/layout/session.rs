//! The session page, which contains the drain's settings for all programs of the session.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{Plain, SharedCell};

/// Bytes of the [`super::SESSION_FILE`], which holds a [`SessionPage`].
pub const SESSION_BYTES: usize = 8192;
/// Maximum number of perf events, in addition to CPU time, that can be sampled at once.
pub const MAX_EVENTS: usize = 8;
/// Bytes of the path in an [`EventSpec`], NUL padded.
pub const EVENT_PATH_BYTES: usize = 256;

/// The engines that record: bits of [`LiveSettings::engines`].
pub mod engines {
    /// CPU time.
    pub const CPU: u32 = 1;
    /// Wall-clock time of all threads.
    pub const WALL: u32 = 1 << 1;
    /// Allocations, sampled by bytes.
    pub const ALLOC: u32 = 1 << 2;
    /// Frees of sampled allocations too, to find memory that is never freed.
    pub const LIVE: u32 = 1 << 3;
    /// Waiting for locks.
    pub const LOCK: u32 = 1 << 4;
    /// Slow reads and writes.
    pub const IO: u32 = 1 << 5;
    /// Exceptions and panics thrown.
    pub const THROW: u32 = 1 << 6;
    /// Latency of named functions.
    pub const TRACE: u32 = 1 << 7;
    /// The perf events of [`super::SessionPage::events`].
    pub const EVENTS: u32 = 1 << 8;
}

/// Values of [`LiveSettings::spans`]; the same as in the interface to programs.
pub mod spans {
    /// No spans are recorded, and samples do not name their span.
    pub const OFF: u32 = 0;
    /// Spans that contain a sample.
    pub const SAMPLED: u32 = 1;
    /// All spans.
    pub const ALL: u32 = 2;
}

/// A perf event to sample, in the terms of `perf_event_open`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventSpec {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// [`event_flags`].
    pub flags: u32,
    /// `config`.
    pub config: u64,
    /// `config1`; for a uprobe it is replaced by the address of the path.
    pub config1: u64,
    /// `config2`; for a uprobe the offset in the file.
    pub config2: u64,
    /// Events from one sample to the next.
    pub period: u64,
    /// File of a uprobe, NUL padded.
    pub path: [u8; EVENT_PATH_BYTES],
}

/// Maximum number of functions whose slow calls can be recorded: each uses one of the processor's four debug
/// registers.
pub const MAX_TRACES: usize = 2;

/// A function whose slow calls are recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceSpec {
    /// Device of its file.
    pub device: u64,
    /// Inode of its file.
    pub inode: u64,
    /// Its address within the file's address space.
    pub address: u64,
    /// Minimum duration of a recorded call, ns.
    pub threshold_ns: u64,
}

/// Bits of [`EventSpec::flags`].
pub mod event_flags {
    /// Events in the kernel do not count.
    pub const USER_ONLY: u32 = 1;
    /// `config1` becomes the address of `path`.
    pub const PATH: u32 = 2;
}

// SAFETY: 37 words of integers and bytes without padding, as its size shows.
unsafe impl Plain for EventSpec {}
const _: () = assert!(size_of::<EventSpec>() == 40 + EVENT_PATH_BYTES);

/// Identifies the layout of the session. Written by the drain before the first program starts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// [`super::MAGIC`].
    pub magic: u64,
    /// [`super::SIZES`]: a mismatch means another build.
    pub sizes: [u32; 4],
}

// SAFETY: three words of integers without padding, as its size shows.
unsafe impl Plain for Format {}
const _: () = assert!(size_of::<Format>() == 24);

/// Settings that do not change while the session lasts. Written by the drain before the first program starts;
/// each program copies them when it joins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FixedSettings {
    /// Bytes of each process's ring, a power of two.
    pub ring_bytes: u64,
    /// Bytes of the rows arena as mapped (the file is sparse).
    pub rows_bytes: u64,
    /// CLOCK_MONOTONIC ns when the session began.
    pub start_mono_ns: u64,
    /// Seed for the random first expiries.
    pub seed: u64,
    /// Maximum number of processes that have memory here at the same time.
    pub most_processes: u64,
    /// Requested engine, see [`super::engine`].
    pub engine: u32,
    /// Maximum number of frames per sample (≤ [`super::MAX_DEPTH`]).
    pub max_depth: u32,
    /// Thread slots of each process.
    pub thread_slots: u32,
    /// Bit set, see [`session_flags`].
    pub flags: u32,
    /// Valid entries of `traces`.
    pub trace_count: u32,
    /// Reserved.
    pub pad: u32,
    /// Functions whose slow calls are recorded.
    pub traces: [TraceSpec; MAX_TRACES],
}

// SAFETY: 16 words of integers without padding, as its size shows.
unsafe impl Plain for FixedSettings {}
const _: () = assert!(size_of::<FixedSettings>() == 64 + MAX_TRACES * 32);

/// Settings that may change while the session lasts. The drain changes them and then increments `control`;
/// programs read them.
#[repr(C)]
pub struct LiveSettings {
    /// Sampling period in ns of CPU time.
    pub period_ns: AtomicU64,
    /// CPU time that an event in the recording represents, ns. Samples may come less often while they cost
    /// too much.
    pub event_ns: AtomicU64,
    /// Interval within which equal samples are merged, ns; 0 if they are not. Stored here for recovery.
    pub aggregate_ns: AtomicU64,
    /// Mean number of allocated bytes between two samples.
    pub alloc_bytes: AtomicU64,
    /// Minimum duration of a lock wait that is recorded, ns.
    pub lock_ns: AtomicU64,
    /// Minimum duration of a read or write that is recorded, ns.
    pub io_ns: AtomicU64,
    /// Interval of the wall clock, ns.
    pub wall_ns: AtomicU64,
    /// The engines that record, see [`engines`].
    pub engines: AtomicU32,
    /// 1 while recording is paused and the session continues.
    pub paused: AtomicU32,
    /// Valid entries of [`SessionPage::events`].
    pub event_count: AtomicU32,
    /// Bit set of the events that are recorded now. A valid entry is never changed.
    pub event_mask: AtomicU32,
    /// Which spans are recorded, see [`spans`].
    pub spans: AtomicU32,
    /// Incremented with each change of `engines` (and of the settings that belong to it) that running
    /// programs must apply.
    pub control: AtomicU32,
}

/// Numbers of the session's processes. Programs increment them when they join; the drain increments `gone`.
#[repr(C)]
pub struct ProcessCounts {
    /// Incremented by each process that opened a ring, successful or not; also the `n` of `<pid>-<n>.proc`.
    pub joined: AtomicU64,
    /// Number of `joined` without memory in this session: refused, or removed by the drain after their end.
    pub gone: AtomicU64,
    /// Number of `joined` that were refused because of [`FixedSettings::most_processes`], or because there
    /// was no memory for them.
    pub refused: AtomicU64,
}

/// Requests to write out everything recorded so far. Any process increments `requested`; the drain sets `done`.
#[repr(C)]
pub struct FlushRequests {
    /// Incremented by a program that requests a flush (`flightline_dump`).
    pub requested: AtomicU64,
    /// The value of `requested` that the drain read before the last completed flush.
    pub done: AtomicU64,
}

/// The contents of the session file.
#[repr(C)]
pub struct SessionPage {
    /// Fixed: the layout.
    pub format: SharedCell<Format>,
    /// Pid of the drain (0 after it ended normally).
    pub drain_pid: AtomicU32,
    /// Set to 1 when sampling must stop in every program of the session.
    pub stop: AtomicU32,
    /// Fixed: settings that do not change.
    pub fixed: SharedCell<FixedSettings>,
    /// Settings that may change.
    pub live: LiveSettings,
    /// Numbers of processes.
    pub processes: ProcessCounts,
    /// Requests to write out everything.
    pub flush: FlushRequests,
    /// Perf events other than CPU time. An entry is written before [`LiveSettings::event_count`] includes it,
    /// and is not changed afterwards.
    pub events: [SharedCell<EventSpec>; MAX_EVENTS],
}

/// Bits of [`FixedSettings::flags`].
pub mod session_flags {
    /// Record children made by fork and exec too (default on).
    pub const FOLLOW: u32 = 1;
    /// Test mode: count handler runs and TSC cycles.
    pub const MEASURE: u32 = 2;
    /// Sample all threads when a signal ends the process.
    pub const FATAL_SIGNALS: u32 = 4;
}
