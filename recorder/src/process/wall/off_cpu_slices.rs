//! Time without a processor that threads report when they enter or leave a span, less the time that looks have recorded before.
//!
//! A thread's time without a processor is a clock: CLOCK_MONOTONIC less its CPU clock. The thread reads it before what it works for
//! changes, so between two readings it worked for one span: a slice. A look at a thread that waits knows the clock as well. It records
//! the time since the last reading, with the place of the wait. The thread then reports the rest.

use std::collections::VecDeque;

/// Where a thread was seen waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// State key.
    pub state: u64,
    /// Raw stack, as [`super::Wait`] has it.
    pub stack: Vec<u64>,
    /// What the thread worked for, as it was read.
    pub context: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Slice {
    /// The reading that it began with, ns.
    from_ns: u64,
    /// Time of it that looks have recorded, ns.
    told_ns: u64,
    /// The same, before recording was restarted.
    before_ns: u64,
    /// When a look first met it, ns.
    met_ns: u64,
    place: Option<WaitSite>,
}

/// Slices whose end is awaited. More than that only if threads' reports are lost.
const MOST: usize = 64;
/// A thread that stays in one slice for longer has its time in the queue recorded with its samples, ns.
const LONG_NS: u64 = 100_000_000;

/// The slices of one thread whose end is not read yet.
#[derive(Clone, Debug, Default)]
pub struct OffCpuSlices {
    list: VecDeque<Slice>,
    /// The reading up to which the thread has told everything, ns.
    over_ns: u64,
    /// Time in the queue for a processor that no sample was called so for yet, ns.
    pub queued_ns: u64,
    /// Time that the thread told, less what looks had told of it, ns.
    pub noticed_ns: u64,
}

impl OffCpuSlices {
    fn slice(&mut self, from_ns: u64, now_ns: u64) -> &mut Slice {
        if self.list.back().is_none_or(|last| last.from_ns != from_ns) {
            if self.list.len() >= MOST {
                self.list.pop_front();
            }
            self.list.push_back(Slice { from_ns, told_ns: 0, before_ns: 0, met_ns: now_ns, place: None });
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// The thread was waiting at `now_ns`, in the slice that began with this reading, its clock at `off_ns`. Returns the time that is
    /// not recorded yet, ns.
    pub fn seen(&mut self, from_ns: u64, off_ns: u64, now_ns: u64) -> u64 {
        if from_ns < self.over_ns {
            return 0;
        }
        let slice = self.slice(from_ns, now_ns);
        let new = off_ns.saturating_sub(from_ns).saturating_sub(slice.told_ns);
        slice.told_ns += new;
        new
    }

    /// It waits there.
    pub fn at(&mut self, from_ns: u64, place: WaitSite) {
        if let Some(slice) = self.list.back_mut().filter(|last| last.from_ns == from_ns) {
            slice.place = Some(place);
        }
    }

    /// The thread runs at `now_ns`; so long it was in the queue since it was looked at before. `true`: its samples shall tell that, as it
    /// works in this slice for long.
    pub fn queued(&mut self, from_ns: u64, ns: u64, now_ns: u64) -> bool {
        let slice = self.slice(from_ns, now_ns);
        let long = now_ns.saturating_sub(slice.met_ns) > LONG_NS;
        slice.told_ns += if long { ns } else { 0 };
        long
    }

    /// Recording begins anew: what goes on by now is told from here on.
    pub fn restart(&mut self) {
        self.list.iter_mut().for_each(|slice| slice.before_ns = slice.told_ns);
    }

    /// The thread left a slice in which it was without a processor for `waited_ns`, and represents `value_ns`; it is recorded since
    /// `recorded_ns`. Returns what of that is not told yet, and where the thread was seen waiting.
    pub fn ended(
        &mut self,
        from_ns: u64,
        waited_ns: u64,
        value_ns: u64,
        recorded_ns: u64,
    ) -> (u64, Option<WaitSite>) {
        while self.list.front().is_some_and(|first| first.from_ns < from_ns) {
            self.list.pop_front();
        }
        let of_it = self.list.pop_front_if(|first| first.from_ns == from_ns);
        self.over_ns = self.over_ns.max(from_ns.saturating_add(waited_ns));
        let (told, before) = of_it.as_ref().map_or((0, 0), |slice| (slice.told_ns, slice.before_ns));
        let left =
            waited_ns.saturating_sub(told).min(recorded_ns.saturating_sub(told.saturating_sub(before)));
        let left = u128::from(left);
        let ns = u128::from(value_ns) * left / u128::from(waited_ns.max(1));
        (u64::try_from(ns).unwrap_or(u64::MAX), of_it.and_then(|slice| slice.place))
    }

    /// Of `ns` the time that was spent in the queue, as far as that is known.
    pub fn queued_part(&mut self, ns: u64) -> u64 {
        let queued = self.queued_ns.min(ns);
        self.queued_ns -= queued;
        queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pc: u64) -> WaitSite {
        WaitSite { state: 2, stack: vec![0, 0, pc], context: Vec::new() }
    }

    #[test]
    fn looks_and_the_thread_record_all_time_once() {
        let mut slices = OffCpuSlices::default();
        assert_eq!(slices.seen(1000, 1300, 0), 300);
        slices.at(1000, place(7));
        assert_eq!((slices.seen(1000, 1300, 0), slices.seen(1000, 1700, 0)), (0, 400));
        assert_eq!(slices.ended(1000, 900, 900, u64::MAX), (200, Some(place(7))));
        // What is known to have lasted until now was over before.
        assert_eq!(slices.seen(1000, 1800, 0), 0);
        // Not looked at.
        assert_eq!(slices.ended(1900, 50, 50, u64::MAX), (50, None));
        // A look was faster than the thread's word of two slices before.
        assert_eq!(slices.seen(2000, 2010, 0), 10);
        assert_eq!(slices.ended(1950, 50, 50, u64::MAX), (50, None));
        assert_eq!(slices.ended(2000, 40, 40, u64::MAX), (30, None));
        // A word that was lost, or left out.
        assert_eq!(slices.seen(3000, 3010, 0), 10);
        assert_eq!(slices.ended(4000, 40, 40, u64::MAX), (40, None));
        assert!(slices.list.is_empty());
    }

    /// One short slice in so many is recorded, for all: together with the time that looks recorded it is the whole time.
    #[test]
    fn short_slices_are_recorded_in_proportion() {
        let (waited, grain) = (250, 1000);
        let mut slices = OffCpuSlices::default();
        let (mut sum, mut from) = (0, 1);
        for round in 0..4000u64 {
            sum += if round % 3 == 0 { slices.seen(from, from + 100, 0) } else { 0 };
            if round % 4 == 0 {
                sum += slices.ended(from, waited, grain, u64::MAX).0;
            }
            from += waited;
        }
        assert!(sum.abs_diff(4000 * waited) <= 4000 * waited / 1000, "{sum}");
    }

    #[test]
    fn queue_time_is_recorded_once() {
        let mut slices = OffCpuSlices::default();
        assert!(!slices.queued(10, 5, 0) && !slices.queued(10, 5, LONG_NS), "its end may be near");
        assert!(slices.queued(10, 5, LONG_NS + 1) && slices.queued(10, 2, LONG_NS + 2));
        assert_eq!(slices.ended(10, 20, 20, u64::MAX).0, 13);
        slices.queued_ns = 30;
        assert_eq!((slices.queued_part(20), slices.queued_part(20), slices.queued_part(20)), (20, 10, 0));
    }

    #[test]
    fn a_pause_is_nobodys() {
        let mut slices = OffCpuSlices::default();
        assert_eq!((slices.seen(100, 150, 0), slices.seen(500, 530, 0)), (50, 30));
        slices.restart();
        // It waited for 1000, the last 200 of it recorded; 60 of these were seen.
        assert_eq!(slices.seen(500, 590, 0), 60);
        assert_eq!(slices.ended(500, 1000, 1000, 200), (140, None));
        // One that began and ended since.
        assert_eq!(slices.ended(1500, 20, 20, 300), (20, None));
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut slices = OffCpuSlices::default();
        for from in 0..1000 {
            assert_eq!(slices.seen(u64::MAX - from, from, 0), 0);
        }
        assert!(slices.list.len() <= MOST);
        assert_eq!(slices.ended(u64::MAX, 0, u64::MAX, u64::MAX).0, 0);
        assert_eq!(slices.ended(u64::MAX, u64::MAX, u64::MAX, u64::MAX).0, u64::MAX);
    }
}
