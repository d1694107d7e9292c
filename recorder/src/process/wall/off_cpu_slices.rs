//! Off-CPU time that threads report when they enter or leave a span, minus the time that the sampler has
//! already recorded.
//!
//! A thread's off-CPU time is a clock: CLOCK_MONOTONIC minus its CPU clock. The thread reads it before its
//! context changes, so the time between two readings belongs to one span: a slice. An examination of a
//! waiting thread computes the same clock. It records the time since the last reading, with the place of the
//! wait. The thread reports the rest later.

use std::collections::VecDeque;

/// The place where a thread was found waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// State key.
    pub state: u64,
    /// Raw stack, in the form of [`super::Wait`].
    pub stack: Vec<u64>,
    /// Words of the thread's context.
    pub context: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Slice {
    /// The reading at its start, ns.
    from_ns: u64,
    /// Recorded time of it, ns.
    written_ns: u64,
    /// The part of `written_ns` from before recording was restarted.
    before_ns: u64,
    /// When the sampler first saw it, ns.
    noticed_ns: u64,
    place: Option<WaitSite>,
}

/// Limit of slices without a reported end. There are more only if reports are lost.
const MOST: usize = 64;
/// If a thread stays in one slice for longer, its time in the run queue is recorded with its samples, ns.
const LONG_NS: u64 = 100_000_000;

/// The slices of one thread whose end has not been read yet.
#[derive(Clone, Debug, Default)]
pub struct OffCpuSlices {
    list: VecDeque<Slice>,
    /// The reading up to which the thread has reported everything, ns.
    over_ns: u64,
    /// Time in the run queue that is not attributed to a sample yet, ns.
    pub queued_ns: u64,
    /// Time that the thread reported, minus the time that was already recorded, ns.
    pub noticed_ns: u64,
}

impl OffCpuSlices {
    fn slice(&mut self, from_ns: u64, now_ns: u64) -> &mut Slice {
        if self.list.back().is_none_or(|last| last.from_ns != from_ns) {
            if self.list.len() >= MOST {
                self.list.pop_front();
            }
            self.list.push_back(Slice {
                from_ns,
                written_ns: 0,
                before_ns: 0,
                noticed_ns: now_ns,
                place: None,
            });
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Notes that the thread was waiting at `now_ns`, in the slice that started with reading `from_ns`, with
    /// its clock at `off_ns`. Returns the time that is not recorded yet, ns.
    pub fn seen(&mut self, from_ns: u64, off_ns: u64, now_ns: u64) -> u64 {
        if from_ns < self.over_ns {
            return 0;
        }
        let slice = self.slice(from_ns, now_ns);
        let new = off_ns.saturating_sub(from_ns).saturating_sub(slice.written_ns);
        slice.written_ns += new;
        new
    }

    /// Sets the place of the current wait.
    pub fn at(&mut self, from_ns: u64, place: WaitSite) {
        if let Some(slice) = self.list.back_mut().filter(|last| last.from_ns == from_ns) {
            slice.place = Some(place);
        }
    }

    /// Notes that the thread runs at `now_ns`, after `ns` in the run queue since the last examination.
    /// Returns true if its samples should report this time, because it stays in this slice for long.
    pub fn queued(&mut self, from_ns: u64, ns: u64, now_ns: u64) -> bool {
        let slice = self.slice(from_ns, now_ns);
        let long = now_ns.saturating_sub(slice.noticed_ns) > LONG_NS;
        slice.written_ns += if long { ns } else { 0 };
        long
    }

    /// Restarts recording: only time from now on is recorded.
    pub fn restart(&mut self) {
        self.list.iter_mut().for_each(|slice| slice.before_ns = slice.written_ns);
    }

    /// Ends a slice that started with reading `from_ns` and had `waited_ns` off CPU. The slice represents
    /// `value_ns`; `recorded_ns` of it is after the start of the recording. Returns the time that is not
    /// recorded yet, and where the thread was found waiting.
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
        let (written, before) = of_it.as_ref().map_or((0, 0), |slice| (slice.written_ns, slice.before_ns));
        let left =
            waited_ns.saturating_sub(written).min(recorded_ns.saturating_sub(written.saturating_sub(before)));
        let left = u128::from(left);
        let ns = u128::from(value_ns) * left / u128::from(waited_ns.max(1));
        (u64::try_from(ns).unwrap_or(u64::MAX), of_it.and_then(|slice| slice.place))
    }

    /// Returns the part of `ns` that was spent in the run queue, as far as that is known.
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
    fn polls_and_thread_reports_record_time_once() {
        let mut slices = OffCpuSlices::default();
        assert_eq!(slices.seen(1000, 1300, 0), 300);
        slices.at(1000, place(7));
        assert_eq!((slices.seen(1000, 1300, 0), slices.seen(1000, 1700, 0)), (0, 400));
        assert_eq!(slices.ended(1000, 900, 900, u64::MAX), (200, Some(place(7))));
        // The slice had already ended before this examination.
        assert_eq!(slices.seen(1000, 1800, 0), 0);
        // A slice that was not examined.
        assert_eq!(slices.ended(1900, 50, 50, u64::MAX), (50, None));
        // The examination was read before the thread's reports of the two previous slices.
        assert_eq!(slices.seen(2000, 2010, 0), 10);
        assert_eq!(slices.ended(1950, 50, 50, u64::MAX), (50, None));
        assert_eq!(slices.ended(2000, 40, 40, u64::MAX), (30, None));
        // A report that was lost, or left out.
        assert_eq!(slices.seen(3000, 3010, 0), 10);
        assert_eq!(slices.ended(4000, 40, 40, u64::MAX), (40, None));
        assert!(slices.list.is_empty());
    }

    /// Only one of several short slices is reported, and represents all of them. Together with the time
    /// recorded by the sampler, it is the whole time.
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
    fn paused_time_is_not_recorded() {
        let mut slices = OffCpuSlices::default();
        assert_eq!((slices.seen(100, 150, 0), slices.seen(500, 530, 0)), (50, 30));
        slices.restart();
        // It waited for 1000; the last 200 are in the recording, and 60 of these were already recorded.
        assert_eq!(slices.seen(500, 590, 0), 60);
        assert_eq!(slices.ended(500, 1000, 1000, 200), (140, None));
        // A slice that started and ended since.
        assert_eq!(slices.ended(1500, 20, 20, 300), (20, None));
    }

    #[test]
    fn invalid_times_do_not_overflow_or_accumulate() {
        let mut slices = OffCpuSlices::default();
        for from in 0..1000 {
            assert_eq!(slices.seen(u64::MAX - from, from, 0), 0);
        }
        assert!(slices.list.len() <= MOST);
        assert_eq!(slices.ended(u64::MAX, 0, u64::MAX, u64::MAX).0, 0);
        assert_eq!(slices.ended(u64::MAX, u64::MAX, u64::MAX, u64::MAX).0, u64::MAX);
    }
}
