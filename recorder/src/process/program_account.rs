//! The program's side of a thread's account, as read from the thread's slot.

use std::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{ThreadSlot, loss::CAUSES};

/// Losses by cause: ns and samples.
pub type Counted = ([u64; CAUSES], [u64; CAUSES]);

/// Two years: more CPU time than any thread has, and far from where sums overflow.
const SANE_NS: u64 = 1 << 56;

/// Counters that a program maintains for one of its threads.
#[derive(Default)]
pub(super) struct ProgramAccount {
    /// Losses as last read. They never decrease.
    lost: Counted,
    /// Samples that the program wrote, and their weights.
    written: (u64, u64),
    /// The thread's CPU clock when its sampling began, ns; `None`: not yet.
    armed_ns: Option<u64>,
    /// CPU time before the first sample, ns; 0: not known.
    first_ns: u64,
}

impl ProgramAccount {
    /// Returns true if sampling has begun.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed_ns.is_some()
    }

    /// The CPU clock when sampling began, ns; 0 if it has not.
    pub fn armed_ns(&self) -> u64 {
        self.armed_ns.unwrap_or(0)
    }

    /// Losses as last read.
    pub fn lost(&self) -> Counted {
        self.lost
    }

    /// Samples lost, of all causes.
    pub fn lost_samples(&self) -> u64 {
        self.lost.1.iter().sum()
    }

    /// Samples that the program wrote, and their weights.
    pub fn written(&self) -> (u64, u64) {
        self.written
    }

    /// Reads whether sampling has begun, if that is not known. Returns the CPU clock then, and the CPU time before the first sample.
    pub fn read_armed(&mut self, slot: &ThreadSlot) -> Option<(u64, u64)> {
        let armed_ns = slot.armed_cpu_ns.load(Relaxed).min(SANE_NS);
        if armed_ns == 0 || self.is_armed() {
            return None;
        }
        self.armed_ns = Some(armed_ns);
        self.first_ns = slot.first_ns.load(Relaxed);
        Some((armed_ns, self.first_ns))
    }

    /// Reads the losses by one cause. Returns samples and ns that are new.
    pub fn read_lost(&mut self, slot: &ThreadSlot, cause: usize) -> Option<(u64, u64)> {
        let ns = slot.lost_ns.get(cause).map_or(0, |v| v.load(Relaxed)).min(SANE_NS);
        let samples = slot.lost.get(cause).map_or(0, |v| u64::from(v.load(Relaxed)));
        let (old_ns, old_samples) = (self.lost.0[cause], self.lost.1[cause]);
        // The counters decrease only if the program's memory is damaged: then they are ignored.
        let new = (samples.checked_sub(old_samples)?, ns.checked_sub(old_ns)?);
        (self.lost.0[cause], self.lost.1[cause]) = (ns, samples);
        Some(new)
    }

    /// Reads what the program wrote. Returns the thread's CPU clock, ns.
    pub fn read_written(&mut self, slot: &ThreadSlot) -> u64 {
        self.written = (slot.samples.load(Relaxed).min(SANE_NS), slot.sampled_ns.load(Relaxed).min(SANE_NS));
        slot.last_cpu_ns.load(Relaxed).max(slot.end_cpu_ns.load(Relaxed)).min(SANE_NS)
    }

    /// Returns true if no sample came although one was due: the first one comes after a random CPU time.
    pub fn first_sample_is_overdue(&self, unsampled_ns: u64) -> bool {
        let never_sampled = self.written.0 == 0 && self.lost_samples() == 0;
        never_sampled && self.first_ns > 0 && unsampled_ns >= self.first_ns
    }
}

#[cfg(test)]
impl ProgramAccount {
    /// A thread that wrote so many samples; its first one was due after `first_ns`.
    pub fn for_test(first_ns: u64, samples: u64) -> ProgramAccount {
        ProgramAccount { first_ns, written: (samples, 0), ..ProgramAccount::default() }
    }
}
