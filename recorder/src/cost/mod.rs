//! Measures what recording costs: in the program, in the kernel on its behalf, and in the drain.
//!
//! A handler's cost is measured by the thread's CPU clock in one run of sixteen. `delivery.rs` measures what
//! the kernel needs for an interrupt and a signal. A budget changes the distance between samples, never what
//! an event represents: the ledger computes events from weights, so no other part depends on the budget, and
//! no chunk ends. Symbols are measured but not limited, because they are read once at any rate. The cost of
//! reading records is separate from that of an empty round ([`Sum::fixed_ns`]): a lower rate reduces the
//! first; longer pauses and less frequent metrics reduce the second, as far as the rings suffice
//! (`drain/cost.rs`).

mod budget;
mod delivery;

pub use budget::{Budget, STEPS};
pub use delivery::{Delivery, is_measuring};

use flightline_in_signal::layout::event_kind::{self, KINDS};

/// Cost of a handler call until one has been timed, ns.
const TYPICAL_NS: u64 = 5_000;

/// Costs, and the work that caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// CPU time of signal handlers in the programs, ns.
    pub handlers_ns: u64,
    /// CPU time of the kernel for their interrupts and signals, by calibration, ns.
    pub delivery_ns: u64,
    /// CPU time of interposers in the programs: allocations, locks, slow I/O, exceptions, ns.
    pub calls_ns: u64,
    /// CPU time of the thread that writes, ns.
    pub writer_ns: u64,
    /// The part of `writer_ns` that reading samples and events took, ns. The rest is fixed.
    pub reading_ns: u64,
    /// CPU time of the thread that reads symbols, ns.
    pub symbols_ns: u64,
    /// CPU time of the programs, ns.
    pub cpu_ns: u64,
    /// The part of `cpu_ns` that is in no sample, ns.
    pub lost_ns: u64,
    /// Signals.
    pub signals: u64,
    /// Samples and events read.
    pub records: u64,
}

impl Sum {
    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Sum) {
        let Sum {
            handlers_ns,
            delivery_ns,
            calls_ns,
            writer_ns,
            reading_ns,
            symbols_ns,
            cpu_ns,
            lost_ns,
            signals,
            records,
        } = other;
        for (sum, more) in [
            (&mut self.handlers_ns, handlers_ns),
            (&mut self.delivery_ns, delivery_ns),
            (&mut self.calls_ns, calls_ns),
            (&mut self.writer_ns, writer_ns),
            (&mut self.reading_ns, reading_ns),
            (&mut self.symbols_ns, symbols_ns),
            (&mut self.cpu_ns, cpu_ns),
            (&mut self.lost_ns, lost_ns),
            (&mut self.signals, signals),
            (&mut self.records, records),
        ] {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Returns the continuous cost. Symbols are not included: they are read once, however rare samples are.
    pub fn steady_ns(&self) -> u64 {
        self.handlers_ns
            .saturating_add(self.delivery_ns)
            .saturating_add(self.calls_ns)
            .saturating_add(self.writer_ns)
    }

    /// Returns the fixed part of it: rounds, metrics, flushes.
    pub fn fixed_ns(&self) -> u64 {
        self.writer_ns.saturating_sub(self.reading_ns)
    }

    /// Returns [`Sum::steady_ns`] as a share of the programs' CPU time in `interval_ns`, or of one processor
    /// if they use less.
    pub fn share(&self, interval_ns: u64) -> f64 {
        self.steady_ns() as f64 / self.cpu_ns.max(interval_ns).max(1) as f64
    }
}

/// The costs of a process that have been reported.
#[derive(Clone, Debug, Default)]
pub struct ReportedCost {
    costs: [[u64; 3]; KINDS],
    cpu_ns: u64,
    lost_ns: u64,
    records: u64,
    reading_ns: u64,
}

impl ReportedCost {
    /// Returns the cost of a process since the last call. `costs`: cost of its handlers, by kind; `totals`:
    /// its CPU time, its lost CPU time, its records; `reading_ns`: CPU time for reading its ring;
    /// `signal_ns`: CPU time for one signal.
    pub fn take(
        &mut self,
        costs: [[u64; 3]; KINDS],
        totals: (u64, u64, u64),
        reading_ns: u64,
        signal_ns: u64,
    ) -> Sum {
        let mut sum = self.add_up(costs, totals, signal_ns);
        sum.reading_ns = reading_ns - self.reading_ns;
        self.reading_ns = reading_ns;
        sum
    }

    fn add_up(
        &mut self,
        costs: [[u64; 3]; KINDS],
        (cpu_ns, lost_ns, records): (u64, u64, u64),
        signal_ns: u64,
    ) -> Sum {
        let since = |now: u64, before: &mut u64| {
            let gone = now.saturating_sub(*before);
            *before = now.max(*before);
            gone
        };
        let mut sum = Sum {
            cpu_ns: since(cpu_ns, &mut self.cpu_ns),
            lost_ns: since(lost_ns, &mut self.lost_ns),
            records: since(records, &mut self.records),
            ..Sum::default()
        };
        for (kind, (now, before)) in costs.iter().zip(&mut self.costs).enumerate() {
            let [runs, timed, timed_ns] = [0, 1, 2].map(|i| since(now[i], &mut before[i]));
            let each = match (timed, before[1]) {
                (1.., _) => timed_ns / timed,
                (0, 1..) => before[2] / before[1],
                _ => TYPICAL_NS,
            };
            // A program can write any number, but its handlers cannot use more CPU time than the program did.
            let ns = runs.saturating_mul(each).min(sum.cpu_ns);
            if [0, event_kind::PERF, event_kind::TRACE].contains(&(kind as u16)) {
                sum.handlers_ns = sum.handlers_ns.saturating_add(ns);
                sum.signals = sum.signals.saturating_add(runs);
            } else {
                sum.calls_ns = sum.calls_ns.saturating_add(ns);
            }
        }
        sum.delivery_ns = sum.signals.saturating_mul(signal_ns).min(sum.cpu_ns);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untimed_runs_are_estimated_from_timed_runs() {
        let mut taken = ReportedCost::default();
        let mut costs = [[0; 3]; KINDS];
        costs[0] = [160, 10, 30_000];
        costs[usize::from(event_kind::LOCK)] = [2, 0, 0];
        let sum = taken.add_up(costs, (1_000_000_000, 5, 170), 1_000);
        assert_eq!((sum.handlers_ns, sum.calls_ns, sum.delivery_ns), (480_000, 2 * TYPICAL_NS, 160_000));
        assert_eq!((sum.cpu_ns, sum.lost_ns, sum.records, sum.signals), (1_000_000_000, 5, 170, 160));
        // Only new calls count. Without a timed call among them, the old mean applies.
        costs[0][0] += 3;
        let sum = taken.add_up(costs, (1_000_100_000, 5, 173), 1_000);
        assert_eq!((sum.handlers_ns, sum.calls_ns, sum.cpu_ns, sum.records), (9_000, 0, 100_000, 3));
        assert_eq!(sum.share(1_000_000), 12_000.0 / 1_000_000.0);
    }

    #[test]
    fn damaged_counts_stay_bounded() {
        let mut taken = ReportedCost::default();
        let sum = taken.add_up([[u64::MAX, 1, u64::MAX]; KINDS], (1_000, 0, 0), u64::MAX);
        let calls = KINDS as u64 - 3;
        assert_eq!((sum.handlers_ns, sum.delivery_ns, sum.calls_ns), (3_000, 1_000, calls * 1_000));
        assert_eq!(taken.add_up([[0; 3]; KINDS], (0, 0, 0), 7), Sum::default());
    }
}
