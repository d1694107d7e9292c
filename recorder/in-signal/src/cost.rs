//! What the recorder's own work in the program costs, by who asks for it: a clock around one run in a few.

use core::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::state::ProcState;

/// One run in so many is timed: two readings of a clock for all of them.
const TIMED_EVERY: u64 = 16;
/// The first that is: not the very first of a process, which finds every cache cold.
const FIRST: u64 = 3;

/// Does `work` of the event kind `index`, 0 for CPU time. The thread's CPU clock is taken: what else runs meanwhile is not ours.
#[inline]
pub fn measure<R>(state: &ProcState, index: usize, work: impl FnOnce() -> R) -> R {
    let Some(cost) = state.header.costs.get(index) else { return work() };
    if cost.runs.fetch_add(1, Relaxed) % TIMED_EVERY != FIRST {
        return work();
    }
    let begun = clock::thread_cpu_ns();
    let result = work();
    let took = clock::thread_cpu_ns().saturating_sub(begun);
    cost.timed_ns.fetch_add(took, Relaxed);
    cost.timed.fetch_add(1, Relaxed);
    result
}
