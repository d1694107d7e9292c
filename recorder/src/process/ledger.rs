//! The CPU time accounting of one thread: the time that its samples represent, and the time that was lost.
//!
//! The weight of a sample is the CPU time since the previous one. JFR readers do not support weights, so a
//! sample of weight w becomes `round(w / period)` equal events, and the remainder is carried to the next
//! sample:
//!
//! ```text
//! events of all samples = (first carry + Σ weights − last carry) / period,      −½ ≤ last carry / period < ½
//! ```
//! The first carry is `period − first expiry`: a thread's first sample comes after a random part of a period,
//! but is exactly one event, so that threads shorter than a period appear in proportion to their CPU time.
//!
//! For each thread, Σ weights + Σ lost + tail = CPU clock, with a tail below one period (for threads recorded
//! from outside, below one period per processor, because each processor has its own event). The clock's value
//! at the beginning of the recording is not included.

use flightline_in_signal::layout::loss::{self, CAUSES};

/// Limit of events per sample. Only damaged memory can exceed it.
const MAX_EVENTS: u64 = 1 << 20;

/// The CPU time accounting of one thread.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// CPU time that an event represents.
    period_ns: i64,
    /// Interval between samples: the same, or longer if sampling has to cost less.
    sampling_ns: i64,
    carry_ns: i64,
    started: bool,
    /// Sum of the weights of recorded samples, ns.
    pub sampled_ns: u64,
    /// Number of recorded samples.
    pub samples: u64,
    /// Samples read from the ring, recorded or not.
    pub arrived: u64,
    /// Sum of the weights of these samples, ns.
    pub arrived_ns: u64,
    /// CPU time that is in no recorded sample, by cause, ns.
    pub lost_ns: [u64; CAUSES],
    /// Samples lost by cause.
    pub lost: [u64; CAUSES],
    /// The last known value of its CPU clock, ns.
    pub cpu_ns: u64,
    /// The value of its CPU clock at the start of the recording, ns. This time is not part of the recording.
    pub before_ns: u64,
    /// Its samples represent CPU time of the whole process (`itimer`), so only the sum over all threads is
    /// correct.
    pub of_process: bool,
}

impl Ledger {
    /// Returns the accounting of a thread sampled every `period_ns`. Its first expiry is assumed to be half a
    /// period until it is known.
    pub fn new(period_ns: u64) -> Ledger {
        let period = sane(period_ns);
        Ledger { period_ns: period, sampling_ns: period, carry_ns: period / 2, ..Ledger::default() }
    }

    /// Changes the interval between samples, but not the time that an event represents.
    pub fn sampled_every(&mut self, sampling_ns: u64) {
        self.sampling_ns = sane(sampling_ns).max(self.period_ns);
        if !self.started && !self.of_process {
            self.carry_ns = self.sampling_ns / 2;
        }
    }

    /// Restarts sampling after exec. The totals remain.
    pub fn restart(&mut self, period_ns: u64) {
        self.period_ns = sane(period_ns);
        self.sampling_ns = self.period_ns;
        self.carry_ns = self.period_ns / 2;
        self.arrived = 0;
        self.arrived_ns = 0;
        self.started = false;
    }

    /// Sets the CPU time before the first sample. No effect after the first sample.
    pub fn first_expiry(&mut self, first_ns: u64) {
        if !self.started && first_ns > 0 {
            self.carry_ns = self.sampling_ns - sane(first_ns).min(self.sampling_ns);
        }
    }

    /// Changes the time that an event represents. The carry remains.
    pub fn change_period(&mut self, period_ns: u64) {
        let fresh = Ledger::new(period_ns);
        self.period_ns = fresh.period_ns;
        self.sampling_ns = fresh.sampling_ns;
        if !self.started && !self.of_process {
            self.carry_ns = fresh.carry_ns;
        }
    }

    /// Adds a recorded sample. Returns how many events it becomes (possibly none).
    pub fn sample(&mut self, weight_ns: u64) -> u32 {
        self.started = true;
        self.samples += 1;
        self.sampled_ns = self.sampled_ns.saturating_add(weight_ns);
        let weight = i64::try_from(weight_ns).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let total = self.carry_ns + weight;
        let events = (total + self.period_ns / 2).div_euclid(self.period_ns).max(0);
        let events = (events as u64).min(MAX_EVENTS);
        self.carry_ns = (total - events as i64 * self.period_ns).clamp(-self.period_ns, self.period_ns);
        events as u32
    }

    /// Adds a sample from before the first expiry. Returns how many events it becomes. Its carry `carry_ns`
    /// is separate and starts at a random value in [−½, ½) periods, so that n periods become n events on
    /// average, however short the thread is.
    pub fn sample_before(&mut self, weight_ns: u64, carry_ns: &mut i64) -> u32 {
        let (own, begun) = (std::mem::replace(&mut self.carry_ns, *carry_ns), self.started);
        let events = self.sample(weight_ns);
        *carry_ns = std::mem::replace(&mut self.carry_ns, own);
        self.started = begun;
        events
    }

    /// Adds a loss that the drain noticed.
    pub fn lose(&mut self, cause: usize, samples: u64, ns: u64) {
        if let (Some(n), Some(t)) = (self.lost.get_mut(cause), self.lost_ns.get_mut(cause)) {
            *n = n.saturating_add(samples);
            *t = t.saturating_add(ns);
        }
    }

    /// Removes a loss that turned out to be none.
    pub fn unlose(&mut self, cause: usize, ns: u64) {
        if let Some(t) = self.lost_ns.get_mut(cause) {
            *t = t.saturating_sub(ns);
        }
    }

    /// Returns the best value of its CPU clock, from the clock, samples and losses, ns.
    pub fn clock_ns(&self) -> u64 {
        if self.of_process {
            return self.cpu_ns;
        }
        self.cpu_ns.max(self.booked_ns())
    }

    /// Returns the CPU time since the start of the recording, ns.
    pub fn known_ns(&self) -> u64 {
        self.clock_ns().saturating_sub(self.before_ns)
    }

    /// Returns the CPU time that is accounted for: from before the recording, sampled or lost, ns.
    pub fn booked_ns(&self) -> u64 {
        self.before_ns.saturating_add(self.sampled_ns).saturating_add(self.lost_total_ns())
    }

    /// Starts sampling with the CPU clock at `armed_ns`. `most_ns` is the duration of the recording so far:
    /// unaccounted CPU time up to this amount is lost, the rest is from before the recording.
    pub fn arm(&mut self, armed_ns: u64, most_ns: u64) {
        // Except for CPU time recorded before an exec.
        let known = if self.of_process { self.cpu_ns.max(self.before_ns) } else { self.booked_ns() };
        let unknown = armed_ns.saturating_sub(known);
        let lost = unknown.min(most_ns);
        self.before_ns = self.before_ns.saturating_add(unknown - lost);
        self.lose(loss::UNARMED, 0, lost);
    }

    /// Switches to samples that represent CPU time of the whole process. The first sample then counts with
    /// its full weight.
    pub fn count_whole_process(&mut self) {
        self.of_process = true;
        if !self.started {
            self.carry_ns = 0;
        }
    }

    /// Returns the CPU time that is neither sampled nor lost: normally less than one period.
    pub fn tail_ns(&self) -> u64 {
        if self.of_process {
            return 0;
        }
        self.cpu_ns.saturating_sub(self.booked_ns())
    }

    /// Returns the sum of [`Ledger::lost_ns`].
    pub fn lost_total_ns(&self) -> u64 {
        self.lost_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

/// Limits a time so that sums cannot overflow.
fn sane(ns: u64) -> i64 {
    i64::try_from(ns.max(1)).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn new_ledger(period_ns: u64, first_ns: u64) -> Ledger {
        let mut ledger = Ledger::new(period_ns);
        ledger.first_expiry(first_ns);
        ledger
    }

    #[test]
    fn one_sample_per_period_yields_one_event_each() {
        for first in [1, 5 * MS, 10 * MS] {
            let mut ledger = new_ledger(10 * MS, first);
            assert_eq!(ledger.sample(first), 1, "first sample after {first}");
            for _ in 0..1000 {
                assert_eq!(ledger.sample(10 * MS), 1);
            }
        }
    }

    #[test]
    fn weights_are_converted_to_events() {
        // (weights in ms with a period of 10 ms and a first expiry of 10 ms, events)
        let table: &[(&[u64], &[u32])] = &[
            (&[10, 10, 10], &[1, 1, 1]),
            (&[10, 30], &[1, 3]),
            (&[10, 4, 4, 4, 4, 4], &[1, 0, 1, 0, 1, 0]),
            (&[10, 15, 15], &[1, 2, 1]),
            (&[10, 1000], &[1, 100]),
            (&[0, 0, 0], &[0, 0, 0]),
        ];
        for (weights, events) in table {
            let mut ledger = new_ledger(10 * MS, 10 * MS);
            let got: Vec<u32> = weights.iter().map(|w| ledger.sample(w * MS)).collect();
            assert_eq!(&got, events, "{weights:?}");
        }
    }

    #[test]
    fn event_total_differs_from_weights_by_at_most_half_a_period() {
        let mut x = 12345u64;
        let mut ledger = new_ledger(1_000_003, 500_000);
        let (mut sum, mut events) = (500_003u64, 0u64);
        for _ in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let weight = (x >> 33) % 3_000_000;
            sum += weight;
            events += u64::from(ledger.sample(weight));
            let error = sum as i64 - (events * 1_000_003) as i64;
            assert!((-500_002..=500_002).contains(&error), "{error}");
        }
    }

    #[test]
    fn longer_sampling_periods_yield_equal_event_totals() {
        // The first sample represents the whole longer period, whatever part of it has passed.
        for first in [1, 3 * MS, 40 * MS] {
            let mut ledger = Ledger::new(10 * MS);
            ledger.sampled_every(40 * MS);
            ledger.first_expiry(first);
            assert_eq!(ledger.sample(first), 4, "first sample after {first}");
            assert_eq!((0..100).map(|_| ledger.sample(40 * MS)).sum::<u32>(), 400);
            // More frequent samples in between.
            ledger.sampled_every(15 * MS);
            assert_eq!((0..100).map(|_| ledger.sample(15 * MS)).sum::<u32>(), 150);
        }
    }

    #[test]
    fn samples_before_the_first_expiry_are_in_proportion() {
        let (mut events, mut first) = (0, 0);
        for start in 0..10 {
            let mut ledger = new_ledger(10 * MS, 4 * MS);
            let mut carry = (start * MS) as i64 - 5 * MS as i64;
            events += (0..3).map(|_| ledger.sample_before(MS, &mut carry)).sum::<u32>();
            first += ledger.sample(4 * MS);
            assert_eq!(ledger.sampled_ns, 7 * MS);
        }
        // Ten samples of 3 ms. The first regular sample is still one event.
        assert_eq!((events, first), (3, 10));
    }

    #[test]
    fn damaged_weights_stay_bounded() {
        let mut ledger = new_ledger(100_000, 1);
        assert_eq!(ledger.sample(u64::MAX), MAX_EVENTS as u32);
        assert!(ledger.sample(100_000) <= 3);
        let mut ledger = new_ledger(u64::MAX, u64::MAX);
        assert!(ledger.sample(u64::MAX) <= 2);
        new_ledger(0, 0).sample(5);
    }

    #[test]
    fn cpu_time_before_the_recording_is_not_lost() {
        // (clock when armed, duration of the recording by then) → lost, from before, in ms
        for ((armed, most), (lost, before)) in
            [((5, 1000), (5, 0)), ((5000, 2), (2, 4998)), ((5000, 0), (0, 5000)), ((0, 7), (0, 0))]
        {
            let mut ledger = new_ledger(10 * MS, 10 * MS);
            ledger.arm(armed * MS, most * MS);
            assert_eq!((ledger.lost_ns[loss::UNARMED], ledger.before_ns), (lost * MS, before * MS));
            ledger.sample(10 * MS);
            ledger.cpu_ns = (armed + 14) * MS;
            assert_eq!((ledger.known_ns(), ledger.tail_ns()), ((lost + 14) * MS, 4 * MS), "{armed} {most}");
            // The same clock continues after an exec.
            ledger.restart(10 * MS);
            ledger.arm((armed + 20) * MS, 60_000 * MS);
            assert_eq!((ledger.lost_ns[loss::UNARMED], ledger.before_ns), ((lost + 10) * MS, before * MS));
        }
    }

    #[test]
    fn sampled_lost_and_tail_time_add_up() {
        let mut ledger = new_ledger(10 * MS, 3 * MS);
        ledger.sample(3 * MS);
        ledger.sample(10 * MS);
        ledger.lose(flightline_in_signal::layout::loss::RING_FULL, 2, 20 * MS);
        ledger.lose(999, 1, 1);
        ledger.cpu_ns = 36 * MS;
        assert_eq!((ledger.sampled_ns, ledger.lost_total_ns(), ledger.tail_ns()), (13 * MS, 20 * MS, 3 * MS));
    }
}
