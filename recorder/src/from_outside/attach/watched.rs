//! A thread sampled from outside, and the counts of its events.

use std::collections::HashMap;

use crate::{os::process_info::cpu_ns, process::thread::Thread};

/// The sampling mode: each thread has an event for each processor.
#[derive(Clone, Copy, Debug)]
pub struct PerProcessor {
    /// Sampling interval in CPU time of a thread on one processor, ns.
    pub period_ns: u64,
    /// Number of processors with a ring.
    pub processors: usize,
}

/// A thread and the counts of its events.
pub struct Watched {
    /// Its totals.
    pub thread: Thread,
    /// Last count of its event on each processor, ns.
    pub counts: Vec<u64>,
    /// Last counts of its perf events, by event and ring.
    pub event_counts: HashMap<(u16, usize), u64>,
    /// CPU time that it had used before its events were opened.
    pub base_ns: u64,
    /// Final counts after its last samples, ns; known once it has ended.
    pub tail_ns: u64,
    /// Its samples carry the count of their event.
    pub samples_count: bool,
    /// CPU time in no sample at the start of the pause.
    pub before_pause_ns: u64,
    /// Sampling has stopped, so its CPU clock is no longer read.
    pub clock_is_final: bool,
    /// CLOCK_MONOTONIC ns of its end, once reported.
    pub ended_ns: Option<u64>,
}

impl Watched {
    /// Returns a thread with all counts at zero.
    pub fn new(thread: Thread, base_ns: u64) -> Watched {
        Watched {
            thread,
            counts: Vec::new(),
            event_counts: HashMap::new(),
            base_ns,
            tail_ns: 0,
            samples_count: true,
            before_pause_ns: 0,
            clock_is_final: false,
            ended_ns: None,
        }
    }

    /// Returns the CPU time that its event of ring `ring` counted since the last call.
    pub fn counted(&mut self, ring: usize, count_ns: u64) -> u64 {
        if self.counts.len() <= ring {
            self.counts.resize(ring + 1, 0);
        }
        let last = &mut self.counts[ring];
        let new = count_ns.saturating_sub(*last);
        *last = count_ns.max(*last);
        new
    }

    /// Returns by how much perf event `index` of ring `ring` has advanced since the last call.
    pub fn counted_event(&mut self, index: u16, ring: usize, count: u64) -> u64 {
        let last = self.event_counts.entry((index, ring)).or_default();
        let new = count.saturating_sub(*last);
        *last = count.max(*last);
        new
    }

    /// Returns the counted CPU time that no sample reported. If samples carry no counts, the end reports all
    /// of it.
    pub fn rest_ns(&self) -> u64 {
        let ledger = &self.thread.ledger;
        let recorded_ns = ledger.sampled_ns.saturating_add(ledger.lost_total_ns());
        if self.samples_count { self.tail_ns } else { self.tail_ns.saturating_sub(recorded_ns) }
    }

    /// Reads its CPU clock, if it still has one.
    pub fn read_clock(&mut self, pid: u32) {
        self.read_clock_up_to(pid, u64::MAX);
    }

    /// Returns the CPU time that may be in no sample although nothing is lost: one period per processor. For
    /// a thread that ended, only processors on which it ran count, because its final counts come from these.
    pub fn due_ns(&self, sampling: PerProcessor) -> u64 {
        let ran_on = self.counts.iter().filter(|count| **count > 0).count();
        let events = if self.tail_ns > 0 { ran_on } else { sampling.processors };
        sampling.period_ns.saturating_mul(events.max(1) as u64)
    }

    /// Reads its CPU clock while sampling continues. CPU time of more than `due_ns` after the last sample
    /// belongs to a sample that is due, and counts when that sample is read.
    pub fn read_clock_while_sampled(&mut self, pid: u32, due_ns: u64) {
        let most_ns = self.thread.ledger.booked_ns().saturating_add(due_ns);
        self.read_clock_up_to(pid, most_ns);
    }

    fn read_clock_up_to(&mut self, pid: u32, most_ns: u64) {
        if self.clock_is_final {
            return;
        }
        if let Some(ran) = cpu_ns(pid, self.thread.tid) {
            let since = ran.saturating_sub(self.base_ns).min(most_ns);
            self.thread.ledger.cpu_ns = self.thread.ledger.cpu_ns.max(since);
        }
    }
}

/// The parts of a sample's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Weight of the sample itself, ns.
    pub own_ns: u64,
    /// Lost samples for which the ring had no room, and their CPU time.
    pub lost: (u64, u64),
    /// Hidden CPU time in the kernel, ns.
    pub hidden_ns: u64,
}

/// Splits the CPU time counted since the last sample. Each of the `missing` records that the ring had no room
/// for gets one period. Without permission to see the kernel (`blind`), the rest beyond one period was spent
/// there.
pub fn split(counted_ns: u64, period_ns: u64, missing: u64, blind: bool) -> Split {
    let beyond = counted_ns.saturating_sub(period_ns);
    let periods = (beyond + period_ns / 2) / period_ns.max(1);
    let lost = periods.min(missing);
    let lost_ns = (lost * period_ns).min(beyond);
    let hidden = if blind { periods - lost } else { 0 };
    let hidden_ns = (hidden * period_ns).min(beyond - lost_ns);
    Split { own_ns: counted_ns - lost_ns - hidden_ns, lost: (lost, lost_ns), hidden_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_split_without_losing_any() {
        const P: u64 = 10_000;
        for counted in [0, 1, P / 2, P, P + 1, 2 * P, 7 * P + 4_000, 7 * P + 6_000, 1000 * P] {
            for missing in [0, 1, 5, 10_000] {
                for blind in [false, true] {
                    let s = split(counted, P, missing, blind);
                    assert_eq!(s.own_ns + s.lost.1 + s.hidden_ns, counted, "{counted} {missing} {blind}");
                    assert!(s.lost.0 <= missing);
                    assert!(blind || s.hidden_ns == 0);
                }
            }
        }
        assert_eq!(split(7 * P, P, 2, false), Split { own_ns: 5 * P, lost: (2, 2 * P), hidden_ns: 0 });
        assert_eq!(split(7 * P, P, 2, true), Split { own_ns: P, lost: (2, 2 * P), hidden_ns: 4 * P });
        assert_eq!(split(P + P / 3, P, 9, true).own_ns, P + P / 3, "a late interrupt is no loss");
    }
}
