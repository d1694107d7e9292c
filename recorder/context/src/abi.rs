//! The interface between copies of this crate, C programs and the recorder. It is plain C, so that a
//! program's copy and the one in `libflightline.so` may be of different builds. Structs that are passed begin
//! with their size and grow at their end.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// [`Abi::version`] of this interface.
pub const VERSION: u32 = 1;
/// Name under which `libflightline.so` exports its [`Abi`].
pub const SYMBOL: &CStr = c"flightline_context_v1";

/// Values of the word that [`Abi::mode`] points to.
pub mod mode {
    /// No spans are recorded.
    pub const OFF: u32 = 0;
    /// Spans that contain a sample are recorded.
    pub const SAMPLED: u32 = 1;
    /// All spans are recorded when they end.
    pub const ALL: u32 = 2;
}

/// The thread-local variable `otel_thread_ctx_v1` of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// The active record ([`crate::record::Record`]), null if none. Only its own thread writes it.
    pub context: AtomicPtr<u8>,
}

/// The functions and words of a recorder. All functions are called outside signal handlers, on the thread
/// that they concern. None of them blocks, sets `errno` or stores a pointer that it was passed.
#[repr(C)]
#[derive(Debug)]
pub struct Abi {
    /// Bytes of this struct.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The calling thread's slot; stays valid until the thread's end.
    pub slot: unsafe extern "C" fn() -> *const Slot,
    /// A word that is incremented by every sample of any kind of the calling thread; null if the thread is
    /// not recorded. A returned word stays readable until the process ends.
    pub samples: unsafe extern "C" fn() -> *const AtomicU32,
    /// Which spans are recorded now ([`mode`]); never null.
    pub mode: *const AtomicU32,
    /// Index of a label's key (UTF-8) in the process's single table of keys; negative if the table is full.
    pub key: unsafe extern "C" fn(name: *const u8, len: usize) -> i32,
    /// Name of the key with this index, and its length; null if there is none. Names are never freed.
    pub key_name: unsafe extern "C" fn(index: u8, len: *mut usize) -> *const u8,
    /// Called when a span has ended.
    pub span: unsafe extern "C" fn(*const SpanEnd),
    /// Called when an activation of the calling thread has ended.
    pub scope: unsafe extern "C" fn(*const ScopeEnd),
    /// The words by which a thread detects that it was off its processor; never null.
    pub switches: *const Switches,
    /// Called when the calling thread may have been off its processor since its last call, before its active
    /// span changes.
    pub switched: unsafe extern "C" fn(),
}

/// The kernel clears the address of a restartable sequence (rseq(2)) in a thread's memory when it preempts
/// the thread, or sends it a signal, outside that sequence. So a thread that still finds its own mark there
/// has not left its processor since it wrote the mark.
#[repr(C)]
#[derive(Debug)]
pub struct Switches {
    /// The value that threads write to the word; 0: no recorder needs it.
    pub mark: AtomicU64,
    /// Distance from the thread pointer to the word.
    pub word: AtomicUsize,
}

// SAFETY: functions and pointers to atomics that live as long as the process.
unsafe impl Sync for Abi {}
// SAFETY: functions and pointers to atomics that live as long as the process, which any thread may use.
unsafe impl Send for Abi {}

/// A span that ended. Ids are numbers whose big-endian bytes are those of W3C Trace Context; 0: none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SpanEnd {
    /// Bytes of this struct.
    pub size: u32,
    /// Trace flags of W3C Trace Context.
    pub flags: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// As `start_ns`.
    pub end_ns: u64,
    /// This span.
    pub span_id: u64,
    /// Its parent span.
    pub parent_span_id: u64,
    /// The outermost span of this trace in this process.
    pub local_root_span_id: u64,
    /// As in W3C Trace Context.
    pub trace_id: [u8; 16],
    /// Samples within its activations, including those of inner spans.
    pub samples: u32,
    /// Length of `name` in bytes, at most 255.
    pub name_len: u32,
    /// UTF-8.
    pub name: *const u8,
    /// A JSON object's text, UTF-8; null if there are no labels.
    pub labels: *const u8,
    /// Length of `labels` in bytes, at most [`LABELS_MAX`].
    pub labels_len: u32,
    /// 0.
    pub reserved: u32,
}

/// Maximum length of the labels' text in a [`SpanEnd`]. A label that does not fit is omitted as a whole.
pub const LABELS_MAX: usize = 1024;
/// Maximum length of a name. Longer ones are cut between characters.
pub const NAME_MAX: usize = 255;

/// An activation that ended: the time in which a span was entered on one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ScopeEnd {
    /// Bytes of this struct.
    pub size: u32,
    /// Samples in this time, including those of inner activations.
    pub samples: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// As `start_ns`.
    pub end_ns: u64,
    /// The span that was entered.
    pub span_id: u64,
    /// The span that was active before on this thread; 0: none.
    pub previous_span_id: u64,
    /// The activation's number, unique in the process ([`crate::record::SideCar::seq`]).
    pub seq: u64,
}
