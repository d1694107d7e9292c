//! Limits the share of a thread's CPU time that taking samples may use.
//!
//! A stack of a thousand frames, or one whose memory is read by checked copies, takes longer to walk than a short period lasts. After such a
//! sample the thread runs for a while without one. The weight of the next sample includes this time, so that no CPU time is missing.
//!
//! The clock that has been read already, CLOCK_MONOTONIC, also counts off-CPU time. If a sample seems to take
//! long by this clock, the next one is measured by the thread's CPU clock, which costs two system calls.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::ThreadSlot;
use crate::os::clock;

/// The thread runs at least this many times as long as the last sample took: samples use at most a third of its CPU time.
const REST: u64 = 2;
/// [`crate::layout::ThreadEngine::rest_until_ns`] of a thread whose next sample is measured.
const MEASURE: u64 = 1;

/// The measurement of a sample that is being taken.
#[derive(Clone, Copy)]
pub struct Begun {
    monotonic_ns: u64,
    /// The thread's CPU clock; 0 if it is not measured.
    cpu_ns: u64,
}

/// Begins a sample at `now_ns` of CLOCK_MONOTONIC. Returns `None` if the last one took so long that none is due yet.
#[inline]
pub fn begin(slot: &ThreadSlot, now_ns: u64) -> Option<Begun> {
    let rest = slot.engine.rest_until_ns.load(Relaxed);
    if rest == 0 {
        return Some(Begun { monotonic_ns: now_ns, cpu_ns: 0 });
    }
    begin_at(rest, now_ns, clock::thread_cpu_ns())
}

fn begin_at(rest: u64, now_ns: u64, cpu_ns: u64) -> Option<Begun> {
    (cpu_ns >= rest).then_some(Begun { monotonic_ns: now_ns, cpu_ns })
}

/// Returns the CPU time, ns, from the last sample until the next one may be taken.
#[inline]
pub fn rested(slot: &ThreadSlot) -> u64 {
    slot.engine.rest_until_ns.load(Relaxed).saturating_sub(slot.ledger.last_cpu_ns.load(Relaxed))
}

/// Ends a sample.
#[inline]
pub fn end(slot: &ThreadSlot, begun: Begun, period_ns: u64) {
    let now_ns = clock::monotonic_ns();
    if begun.cpu_ns == 0 && !is_long(now_ns.saturating_sub(begun.monotonic_ns), period_ns) {
        return;
    }
    let cpu_ns = if begun.cpu_ns == 0 { 0 } else { clock::thread_cpu_ns() };
    slot.engine.rest_until_ns.store(rest_until(begun, cpu_ns, period_ns), Relaxed);
}

/// The value of [`crate::layout::ThreadEngine::rest_until_ns`] after a sample that ended at `cpu_ns` of the CPU clock, or that was long by the other clock.
fn rest_until(begun: Begun, cpu_ns: u64, period_ns: u64) -> u64 {
    if begun.cpu_ns == 0 {
        return MEASURE;
    }
    let took = cpu_ns.saturating_sub(begun.cpu_ns);
    if is_long(took, period_ns) { cpu_ns.saturating_add(took.saturating_mul(REST)) } else { 0 }
}

fn is_long(took_ns: u64, period_ns: u64) -> bool {
    took_ns.saturating_mul(REST + 1) > period_ns
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// The CPU times at which samples are taken of a thread whose signals come each `period`, if a sample takes `cost`.
    fn samples(period: u64, cost: u64) -> Vec<u64> {
        let (mut rest, mut taken) = (MEASURE, Vec::new());
        for now in (period..=10_000).step_by(period as usize) {
            if let Some(begun) = begin_at(rest, now, now) {
                rest = rest_until(begun, now + cost, period);
                taken.push(now);
            }
        }
        taken
    }

    #[test]
    fn sampling_uses_at_most_one_third_cpu_time() {
        assert_eq!(samples(100, 33).len(), 100);
        assert_eq!(samples(100, 34).len(), 50);
        assert_eq!(samples(100, 99).len(), 34);
        for cost in 1..100 {
            let share = samples(100, cost).len() as u64 * cost;
            assert!(share <= 10_000 / 3 + cost, "{cost}: {share}");
        }
    }

    #[test]
    fn preempted_sample_is_followed_by_measured_sample() {
        let preempted = Begun { monotonic_ns: 1_000, cpu_ns: 0 };
        let rest = rest_until(preempted, 0, 100);
        assert_eq!(rest, MEASURE);
        let measured = begin_at(rest, 9_000_000, 5_000).expect("a measured sample is taken at once");
        assert_eq!(rest_until(measured, 5_010, 100), 0);
        assert_eq!(rest_until(measured, 5_050, 100), 5_150);
    }
}
