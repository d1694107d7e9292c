//! Traced functions and the calls of them that have not returned, in the memory private to the process.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use crate::layout::MAX_TRACES;

/// Debug registers of a thread.
pub(crate) const REGISTERS: usize = 4;
/// Calls of one thread that can be open at once.
pub(crate) const DEEPEST: usize = 32;
/// Threads of a process that can be traced: by the index of their slot.
pub(crate) const THREADS: usize = 1024;

/// A call that has not returned.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Stack pointer after its return.
    pub(crate) sp: u64,
    /// CLOCK_MONOTONIC ns of its entry.
    pub(crate) since_ns: u64,
    /// Address that it returns to.
    pub(crate) to: u64,
    /// Index of the function.
    pub(crate) function: u32,
}

/// Open calls; only the thread's own handler touches them.
pub(crate) struct Calls {
    pub(crate) depth: usize,
    pub(crate) list: [Call; DEEPEST],
}

/// The breakpoints and open calls of a thread.
pub(crate) struct Thread {
    /// Handles of its breakpoints: first those on functions, then those on return addresses.
    pub(crate) handles: [AtomicU64; REGISTERS],
    /// The return addresses.
    pub(crate) addresses: [AtomicU64; REGISTERS],
    pub(crate) calls: UnsafeCell<Calls>,
}

/// Traced functions of this process. All zero at the start; pages are present only for threads that trace.
pub struct Traces {
    /// Address of each function, 0 until its file is found.
    pub entry: [AtomicU64; MAX_TRACES],
    pub(crate) threads: [Thread; THREADS],
}

// SAFETY: a thread's calls are reached only by its own handler, which no signal interrupts.
unsafe impl Sync for Traces {}
