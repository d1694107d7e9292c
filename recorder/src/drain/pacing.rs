//! The drain's schedule: the pause between two rounds, and work that is due less often than every round.

use std::time::Duration;

use crate::process::wall::PollTimer;

/// Shortest and longest pause between two rounds.
pub(super) const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
/// Time between two comparisons of a process's CPU clock with the CPU time of its threads' samples, ns.
const SEARCH_NS: u64 = 90_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The drain's timers.
pub(super) struct Pacing {
    /// Pause until the next round.
    pub(super) pause: Duration,
    /// The timer for thread states, which are also read between two rounds.
    pub(super) wall: PollTimer,
    /// When the work of once a second was last done.
    second_ns: u64,
    /// When CPU time without samples was last searched for.
    search_ns: u64,
}

impl Pacing {
    pub(super) fn new(wall_ns: Option<u64>, now_ns: u64) -> Pacing {
        Pacing { pause: PAUSE[0], wall: PollTimer::new(wall_ns), second_ns: now_ns, search_ns: 0 }
    }

    /// Adapts the pause to the fullest ring. `fill` is in 1/256.
    pub(super) fn adapt(&mut self, fill: u32, longest: Duration) {
        self.pause = match fill {
            64.. => PAUSE[0],
            24.. => self.pause / 2,
            0..8 => self.pause * 2,
            _ => self.pause,
        }
        .clamp(PAUSE[0], longest);
    }

    /// Returns true once per [`SEARCH_NS`].
    pub(super) fn is_search_due(&mut self, now_ns: u64) -> bool {
        is_due(&mut self.search_ns, SEARCH_NS, now_ns)
    }

    /// Returns true once a second.
    pub(super) fn is_second_over(&mut self, now_ns: u64) -> bool {
        is_due(&mut self.second_ns, SECOND_NS, now_ns)
    }
}

/// Returns true if `every_ns` has passed since `last_ns`, and then sets `last_ns` to now.
pub(super) fn is_due(last_ns: &mut u64, every_ns: u64, now_ns: u64) -> bool {
    let due = now_ns.saturating_sub(*last_ns) >= every_ns;
    if due {
        *last_ns = now_ns;
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_follows_the_fullest_ring() {
        let mut pacing = Pacing::new(None, 0);
        let longest = Duration::from_millis(20);
        let pauses = [0, 0, 0, 0, 10, 30, 100].map(|fill| {
            pacing.adapt(fill, longest);
            pacing.pause.as_millis()
        });
        assert_eq!(pauses, [4, 8, 16, 20, 20, 10, 2]);
    }

    #[test]
    fn periodic_work_is_due_once_per_interval() {
        let mut pacing = Pacing::new(None, 5 * SECOND_NS);
        let times = [5 * SECOND_NS, 6 * SECOND_NS - 1, 6 * SECOND_NS, 6 * SECOND_NS + 1, 9 * SECOND_NS];
        assert_eq!(times.map(|now| pacing.is_second_over(now)), [false, false, true, false, true]);
        assert_eq!([1, 2].map(|n| pacing.is_search_due(n * SEARCH_NS)), [true, true]);
    }
}
