//! The cost of the recorder's own work in the program, per engine: the CPU time of one run in `TIMED_EVERY`
//! is measured.

use core::sync::atomic::Ordering::Relaxed;

use crate::os::clock;
use crate::state::ProcState;

/// One run in this many is timed, which keeps the cost of reading the clock low.
const TIMED_EVERY: u64 = 16;
/// The first timed run. The very first run of a process is skipped, because it finds every cache cold.
const FIRST: u64 = 3;

/// Runs `work` of the event kind `index`, 0 for CPU time. The thread's CPU clock is used, so that other
/// threads on the processor do not count.
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
