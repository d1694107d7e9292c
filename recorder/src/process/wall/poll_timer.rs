//! The timer of the wall clock.

use crate::os::clock::monotonic_ns;

/// Longest pause while no thread runs, ns. Activity after a long rest is seen with this delay.
const MAX_PAUSE_NS: u64 = 100_000_000;
/// Examining threads may use at most this fraction of a processor (1/20).
const PART: u64 = 20;

/// Computes the time of the next examination: one interval after the last on average, and later while all
/// threads rest. The interval varies at random; otherwise a program with the same rate would always be seen
/// in the same activity.
pub struct PollTimer {
    period_ns: Option<u64>,
    pause_ns: u64,
    next_ns: u64,
    random: u64,
}

impl PollTimer {
    /// Returns a timer with this interval, or one that never fires.
    pub fn new(period_ns: Option<u64>) -> PollTimer {
        let now = monotonic_ns();
        PollTimer { period_ns, pause_ns: period_ns.unwrap_or(0), next_ns: now, random: now | 1 }
    }

    /// Returns CLOCK_MONOTONIC ns of the next examination, `None` if there is none.
    pub fn next_ns(&self) -> Option<u64> {
        self.period_ns.map(|_| self.next_ns)
    }

    /// Notes that an examination that began at `begun_ns` is done; `any`: a thread had run.
    pub fn done(&mut self, begun_ns: u64, any: bool) {
        self.done_at(begun_ns, monotonic_ns(), any);
    }

    fn done_at(&mut self, begun_ns: u64, now_ns: u64, any: bool) {
        let Some(period) = self.period_ns else { return };
        self.pause_ns =
            if any { period } else { (self.pause_ns + self.pause_ns / 2).min(period.max(MAX_PAUSE_NS)) };
        // xorshift
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let varied = self.pause_ns / 2 + ((u128::from(self.random) * u128::from(self.pause_ns)) >> 64) as u64;
        let took = now_ns.saturating_sub(begun_ns);
        self.next_ns = now_ns + varied.max(took.saturating_mul(PART - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_intervals_are_jittered_and_grow_when_idle() {
        const MS: u64 = 1_000_000;
        let mut beat = PollTimer::new(Some(10 * MS));
        let mut sum = 0;
        for _ in 0..10_000 {
            beat.done_at(0, 0, true);
            assert!((5 * MS..15 * MS).contains(&beat.next_ns));
            sum += beat.next_ns;
        }
        assert!((sum / 10_000).abs_diff(10 * MS) < MS / 5, "{sum}");
        for _ in 0..20 {
            beat.done_at(0, 0, false);
        }
        assert!((50 * MS..=150 * MS).contains(&beat.next_ns));
        beat.done_at(0, 0, true);
        assert!(beat.next_ns < 15 * MS);
        beat.done_at(0, 3 * MS, true);
        assert!(beat.next_ns >= 60 * MS, "an expensive look is followed by a longer pause");
        assert_eq!(PollTimer::new(None).next_ns(), None);
    }
}
