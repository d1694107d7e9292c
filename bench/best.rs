//! Timing on a busy machine: other load only ever adds time, so the shortest of many rounds is used.

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the shortest time of `step`, and its result.
pub fn best<T>(rounds: usize, mut step: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let start = cpu_time();
        let result = black_box(step());
        (cpu_time().saturating_sub(start), result)
    };
    let (mut shortest, result) = once();
    for _ in 1..rounds {
        shortest = shortest.min(once().0);
    }
    (shortest, result)
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
