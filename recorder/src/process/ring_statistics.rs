//! Totals of reading a process's ring.

/// Progress and totals of reading a ring.
#[derive(Default)]
pub struct RingStatistics {
    /// The ring contained invalid data and is not read any more.
    pub damaged: bool,
    /// Ring position up to which a requested flush reads.
    pub flush_to: u64,
    /// Records read: samples and events.
    pub records: u64,
    /// CPU time for reading them, ns.
    pub reading_ns: u64,
    /// Records that were half written when the process was killed.
    pub torn: u64,
    /// Samples read.
    pub samples: u64,
    /// Samples whose stack did not reach its root.
    pub cut: u64,
    /// When the ring was last read completely, CLOCK_MONOTONIC ns.
    pub(super) drained_ns: u64,
    /// CPU time of all samples read, ns.
    arrived_ns: u64,
}

impl RingStatistics {
    /// Counts a CPU time sample from the ring.
    pub(super) fn add_cpu_sample(&mut self, weight_ns: u64) {
        self.samples += 1;
        self.arrived_ns = self.arrived_ns.saturating_add(weight_ns);
    }

    /// Returns true if samples carry more than twice the CPU time that a process of this age can have used.
    /// Their weights are damaged then, and must not flood the output.
    pub(super) fn exceeds(&self, age_ns: u64, threads_at_once: u64) -> bool {
        self.arrived_ns / 2 > age_ns.saturating_mul(threads_at_once)
    }
}
