//! The clocks of a recording, and the conversion to ticks of its output.

use nix::time::{ClockId, clock_gettime};

/// Ticks per second of recordings. With 1 µs, a sample's time fits into four bytes for four minutes.
pub const TICKS_PER_SECOND: i64 = 1_000_000;

fn ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// Returns CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    ns(ClockId::CLOCK_MONOTONIC)
}

/// Returns CLOCK_REALTIME in ns since the epoch.
pub fn realtime_ns() -> u64 {
    ns(ClockId::CLOCK_REALTIME)
}

/// Limits a time that a program reported to the present. `now_ns` was read a while ago, so later times can be
/// valid.
pub fn not_in_future(reported_ns: u64, now_ns: u64) -> u64 {
    if reported_ns <= now_ns { reported_ns } else { reported_ns.min(monotonic_ns()) }
}

/// Returns both clocks at nearly the same moment: the pair of three readings with the least time in between.
pub fn both_ns() -> (u64, u64) {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let wall = realtime_ns();
            let after = monotonic_ns();
            (after.wrapping_sub(before), before + after.wrapping_sub(before) / 2, wall)
        })
        .min()
        .map_or((0, 0), |(_, mono, wall)| (mono, wall))
}

/// Returns the CPU time of a whole process (including threads that ended), ns. `None` if it is gone.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // The kernel's encoding of a process's CPU clock: ~pid << 3 | CPUCLOCK_SCHED (2).
    let clock = (!(pid as i32) << 3) | 2;
    clock_gettime(ClockId::from_raw(clock))
        .ok()
        .map(|t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// Returns the CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Converts CLOCK_MONOTONIC to ticks of one output.
#[derive(Clone, Copy, Debug)]
pub struct TickLine {
    origin_ns: u64,
}

impl TickLine {
    /// Returns a conversion whose tick 0 is `origin_ns`.
    pub fn new(origin_ns: u64) -> TickLine {
        TickLine { origin_ns }
    }

    /// Returns CLOCK_MONOTONIC ns of tick 0.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// Converts a CLOCK_MONOTONIC time to ticks; times before the origin become 0.
    pub fn ticks(&self, mono_ns: u64) -> i64 {
        (mono_ns.saturating_sub(self.origin_ns) / 1_000) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_clock_advances() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let mut x = 0u64;
        while process_cpu_ns(std::process::id()).unwrap() < before + 2_000_000 {
            x = std::hint::black_box(x + 1);
        }
        assert_eq!(process_cpu_ns(u32::MAX >> 4), None);
    }

    #[test]
    fn time_after_round_start_is_accepted() {
        let round_ns = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let reported_ns = round_ns + 1_000_000;
        assert_eq!(not_in_future(reported_ns, round_ns), reported_ns);
        assert_eq!(not_in_future(round_ns - 5, round_ns), round_ns - 5);
        assert!(not_in_future(u64::MAX, round_ns) <= monotonic_ns());
    }

    #[test]
    fn tick_line_is_clamped_at_its_start() {
        let line = TickLine::new(5_000_000);
        assert_eq!(line.ticks(5_001_999), 1);
        assert_eq!(line.ticks(1), 0);
    }
}
