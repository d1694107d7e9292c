//! Events about the cost of recording.

use jfr_format::schema;

use super::Recording;
use crate::cost::Sum;

/// The cost since the last cost event.
pub struct CostInterval {
    sum: Sum,
    start_ns: u64,
    /// Bytes of the output at its start.
    start_bytes: u64,
}

impl CostInterval {
    pub(super) fn new(now_ns: u64) -> CostInterval {
        CostInterval { sum: Sum::default(), start_ns: now_ns, start_bytes: 0 }
    }

    /// Adds cost.
    pub fn add(&mut self, sum: &Sum) {
        self.sum.add(sum);
    }
}

impl Recording {
    /// Returns the time since the last cost event, ns.
    pub fn cost_age(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.cost.start_ns)
    }

    /// Writes the cost since the last event. `sampling_ns` is the current sampling interval.
    pub fn write_cost(&mut self, sampling_ns: u64, now_ns: u64) {
        let interval_ns = self.cost_age(now_ns);
        let bytes = self.bytes();
        let new_bytes = bytes.saturating_sub(self.cost.start_bytes);
        let Sum {
            handlers_ns, delivery_ns, calls_ns, writer_ns, symbols_ns, cpu_ns, lost_ns, signals, ..
        } = self.cost.sum;
        let share = self.cost.sum.share(interval_ns);
        let fixed_ns = self.cost.sum.fixed_ns();
        let (now, interval) = (self.ticks(now_ns), self.span(interval_ns));
        self.event(schema::RECORDER_COST, None, 72, |e, _| {
            e.ticks(now).ticks(interval);
            for ns in [handlers_ns, delivery_ns, calls_ns, writer_ns, fixed_ns, symbols_ns, cpu_ns, lost_ns] {
                e.long(ns as i64);
            }
            e.long(signals as i64).long(new_bytes as i64).long(sampling_ns as i64).float(share as f32);
        });
        self.cost = CostInterval { sum: Sum::default(), start_ns: now_ns, start_bytes: bytes };
    }
}
