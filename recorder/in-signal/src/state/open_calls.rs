//! Traced functions and their calls that have not returned yet, in memory private to the process.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use crate::layout::MAX_TRACES;

/// Number of debug registers of a thread.
pub(crate) const REGISTERS: usize = 4;
/// Maximum number of open calls of one thread.
pub(crate) const DEEPEST: usize = 32;
/// Number of threads of a process that can be traced, by the index of their slot.
pub(crate) const THREADS: usize = 1024;

/// A call that has not returned.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The stack pointer after its return.
    pub(crate) sp: u64,
    /// Time of its entry, CLOCK_MONOTONIC ns.
    pub(crate) since_ns: u64,
    /// The address to which it returns.
    pub(crate) to: u64,
    /// Index of the function.
    pub(crate) function: u32,
}

/// Open calls; only the thread's own handler accesses them.
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

/// Traced functions of this process. All zero at the start; only threads that trace touch their pages.
pub struct Traces {
    /// Address of each function, 0 until its file is found.
    pub entry: [AtomicU64; MAX_TRACES],
    pub(crate) threads: [Thread; THREADS],
}

// SAFETY: only the thread's own handler accesses its calls, and no signal interrupts it.
unsafe impl Sync for Traces {}
