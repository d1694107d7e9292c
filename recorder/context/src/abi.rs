//! What copies of this crate, C programs and the recorder agree on: plain C, so that a program's copy and the one in
//! `libflightline.so` need not be of one build. Structs that are passed begin with their size and grow at their end.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// [`Abi::version`] of this description.
pub const VERSION: u32 = 1;
/// Name under which `libflightline.so` exports its [`Abi`].
pub const SYMBOL: &CStr = c"flightline_context_v1";

/// Values of the word behind [`Abi::mode`].
pub mod mode {
    /// Nothing is told.
    pub const OFF: u32 = 0;
    /// What a sample fell into is told.
    pub const SAMPLED: u32 = 1;
    /// Everything that ends is told.
    pub const ALL: u32 = 2;
}

/// The thread-local variable `otel_thread_ctx_v1` of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// The record in force ([`crate::record::Record`]), null if none. Written by its own thread only.
    pub context: AtomicPtr<u8>,
}

/// What a recorder offers. All functions are called outside signal handlers, on the thread they are about; none blocks, sets
/// `errno` or keeps a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct Abi {
    /// Bytes of this struct.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The calling thread's slot; stays valid until the thread's end.
    pub slot: unsafe extern "C" fn() -> *const Slot,
    /// A word that goes up with every sample of any kind of the calling thread; null if the thread is not recorded. What was
    /// returned once stays readable until the process ends.
    pub samples: unsafe extern "C" fn() -> *const AtomicU32,
    /// What is told at the moment ([`mode`]); never null.
    pub mode: *const AtomicU32,
    /// Index of a label's key (UTF-8) in the process's one table of keys; negative if that is full.
    pub key: unsafe extern "C" fn(name: *const u8, len: usize) -> i32,
    /// Name of the key with this index, and its length; null if there is none. Names stay.
    pub key_name: unsafe extern "C" fn(index: u8, len: *mut usize) -> *const u8,
    /// A span ended.
    pub span: unsafe extern "C" fn(*const SpanEnd),
    /// An activation of the calling thread ended.
    pub scope: unsafe extern "C" fn(*const ScopeEnd),
    /// How a thread finds out that it was off its processor; never null.
    pub switches: *const Switches,
    /// The calling thread may have been off its processor since it called this last; to be called before what it works for changes.
    pub switched: unsafe extern "C" fn(),
}

/// The kernel takes the address of a restartable sequence (rseq(2)) out of a thread's memory when it puts the thread aside, or sends it a
/// signal, outside that sequence. So whoever finds there what it put there has been on its processor ever since.
#[repr(C)]
#[derive(Debug)]
pub struct Switches {
    /// What is put there; 0: nobody wants to know.
    pub mark: AtomicU64,
    /// Distance from the thread pointer to the word.
    pub word: AtomicUsize,
}

// SAFETY: functions and a pointer to an atomic that lives as long as the process.
unsafe impl Sync for Abi {}
// SAFETY: as above.
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
    /// The span it is a child of.
    pub parent_span_id: u64,
    /// The outermost span of this trace in this process.
    pub local_root_span_id: u64,
    /// As in W3C Trace Context.
    pub trace_id: [u8; 16],
    /// Samples within its activations, those of spans entered meanwhile included.
    pub samples: u32,
    /// Bytes at `name`, at most 255.
    pub name_len: u32,
    /// UTF-8.
    pub name: *const u8,
    /// A JSON object's text, UTF-8; null if there are no labels.
    pub labels: *const u8,
    /// Bytes at `labels`, at most [`LABELS_MAX`].
    pub labels_len: u32,
    /// 0.
    pub reserved: u32,
}

/// The longest text of labels in a [`SpanEnd`]; labels that do not fit are left out whole.
pub const LABELS_MAX: usize = 1024;
/// The longest name; longer ones are cut between characters.
pub const NAME_MAX: usize = 255;

/// An activation that ended: the time a span was entered on one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ScopeEnd {
    /// Bytes of this struct.
    pub size: u32,
    /// Samples meanwhile, those of inner activations included.
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
