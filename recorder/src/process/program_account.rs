//! The part of a thread's accounting that the program maintains, read from the thread's slot.

use std::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{ThreadSlot, loss::CAUSES};

/// Losses by cause: ns and samples.
pub type Counted = ([u64; CAUSES], [u64; CAUSES]);

/// Two years: more CPU time than any thread has, and small enough that sums cannot overflow.
const SANE_NS: u64 = 1 << 56;

/// Counters that a program maintains for one of its threads.
#[derive(Default)]
pub(super) struct ProgramAccount {
    /// Losses at the last reading. They never decrease.
    lost: Counted,
    /// Number of samples that the program wrote, and the sum of their weights.
    written: (u64, u64),
    /// The thread's CPU clock when its sampling started, ns; `None`: not yet.
    armed_ns: Option<u64>,
    /// CPU time before the first sample, ns; 0: unknown.
    first_ns: u64,
}

impl ProgramAccount {
    /// Returns true if sampling has started.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed_ns.is_some()
    }

    /// Returns the CPU clock when sampling started, ns; 0 if it has not.
    pub fn armed_ns(&self) -> u64 {
        self.armed_ns.unwrap_or(0)
    }

    /// Returns the losses at the last reading.
    pub fn lost(&self) -> Counted {
        self.lost
    }

    /// Returns the number of lost samples of all causes.
    pub fn lost_samples(&self) -> u64 {
        self.lost.1.iter().sum()
    }

    /// Returns the number of samples that the program wrote, and the sum of their weights.
    pub fn written(&self) -> (u64, u64) {
        self.written
    }

    /// Checks whether sampling has started, if that is not known yet. Returns the CPU clock at that time, and
    /// the CPU time before the first sample.
    pub fn read_armed(&mut self, slot: &ThreadSlot) -> Option<(u64, u64)> {
        let armed_ns = slot.ledger.armed_cpu_ns.load(Relaxed).min(SANE_NS);
        if armed_ns == 0 || self.is_armed() {
            return None;
        }
        self.armed_ns = Some(armed_ns);
        self.first_ns = slot.ledger.first_ns.load(Relaxed);
        Some((armed_ns, self.first_ns))
    }

    /// Reads the losses by one cause. Returns the new samples and ns.
    pub fn read_lost(&mut self, slot: &ThreadSlot, cause: usize) -> Option<(u64, u64)> {
        let ns = slot.ledger.lost_ns.get(cause).map_or(0, |v| v.load(Relaxed)).min(SANE_NS);
        let samples = slot.ledger.lost.get(cause).map_or(0, |v| u64::from(v.load(Relaxed)));
        let (old_ns, old_samples) = (self.lost.0[cause], self.lost.1[cause]);
        // Counters decrease only in damaged memory, and are ignored then.
        let new = (samples.checked_sub(old_samples)?, ns.checked_sub(old_ns)?);
        (self.lost.0[cause], self.lost.1[cause]) = (ns, samples);
        Some(new)
    }

    /// Reads the number and weight of written samples. Returns the thread's CPU clock, ns.
    pub fn read_written(&mut self, slot: &ThreadSlot) -> u64 {
        self.written = (
            slot.ledger.samples.load(Relaxed).min(SANE_NS),
            slot.ledger.sampled_ns.load(Relaxed).min(SANE_NS),
        );
        slot.ledger.last_cpu_ns.load(Relaxed).max(slot.ledger.end_cpu_ns.load(Relaxed)).min(SANE_NS)
    }

    /// Returns true if a sample was due but none came. The first sample comes after a random CPU time.
    pub fn first_sample_is_overdue(&self, unsampled_ns: u64) -> bool {
        let never_sampled = self.written.0 == 0 && self.lost_samples() == 0;
        never_sampled && self.first_ns > 0 && unsampled_ns >= self.first_ns
    }
}

#[cfg(test)]
impl ProgramAccount {
    /// Returns the counters of a thread that wrote `samples` samples, the first after `first_ns`.
    pub fn for_test(first_ns: u64, samples: u64) -> ProgramAccount {
        ProgramAccount { first_ns, written: (samples, 0), ..ProgramAccount::default() }
    }
}
