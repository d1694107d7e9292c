//! Limits the share of a thread's time that taking samples of CPU time may use.
//!
//! A stack of a thousand frames, or one whose memory is read by checked copies, takes longer to walk than a short period lasts. After such a
//! sample the thread runs for a while without one. The next sample stands for this time, so that no CPU time is missing.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::ThreadSlot;

/// The thread runs at least this many times as long as the last sample took: samples use at most a third of the time.
const REST: u64 = 2;
/// The longest time, ns, that a sample is taken to have needed. More is time without a processor: the work of a walk is limited.
const MOST_NS: u64 = 500_000;

/// Returns true if the last sample took so long that none is due at `now_ns` of CLOCK_MONOTONIC.
#[inline]
pub fn is_resting(slot: &ThreadSlot, now_ns: u64) -> bool {
    now_ns < slot.rest_until_ns.load(Relaxed)
}

/// Returns the time, ns, from the last sample until the next one may be taken.
#[inline]
pub fn rested(slot: &ThreadSlot) -> u64 {
    slot.rest_until_ns.load(Relaxed).saturating_sub(slot.last_mono_ns.load(Relaxed))
}

/// Records that a sample took the time from `begun_ns` to `ended_ns` of CLOCK_MONOTONIC.
#[inline]
pub fn took(slot: &ThreadSlot, begun_ns: u64, ended_ns: u64) {
    let took = ended_ns.saturating_sub(begun_ns).min(MOST_NS);
    slot.rest_until_ns.store(ended_ns.saturating_add(took.wrapping_mul(REST)), Relaxed);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// The times at which samples are taken of a thread whose signals come each `period`, if a sample takes `cost`.
    fn samples(period: u64, cost: u64) -> Vec<u64> {
        // SAFETY: a ThreadSlot is atomics and padding, for which zeros are values.
        let slot: ThreadSlot = unsafe { core::mem::zeroed() };
        let mut taken = Vec::new();
        for now in (0..10_000).step_by(period as usize) {
            if !is_resting(&slot, now) {
                took(&slot, now, now + cost);
                taken.push(now);
            }
        }
        taken
    }

    #[test]
    fn samples_use_at_most_a_third_of_the_time() {
        assert_eq!(samples(100, 33).len(), 100);
        assert_eq!(samples(100, 34).len(), 50);
        assert_eq!(samples(100, 99).len(), 34);
        for cost in 1..100 {
            let share = samples(100, cost).len() as u64 * cost;
            assert!(share <= 10_000 / 3 + cost, "{cost}: {share}");
        }
    }

    #[test]
    fn a_preempted_sample_does_not_end_sampling() {
        // SAFETY: as above.
        let slot: ThreadSlot = unsafe { core::mem::zeroed() };
        took(&slot, 0, 1 << 40);
        assert!(is_resting(&slot, (1 << 40) + MOST_NS) && !is_resting(&slot, (1 << 40) + 2 * MOST_NS));
    }
}
