//! Times without a processor, put together from switches and wake-ups in order of time.
//!
//! Each interval consists of the wait for the wake-up and the wait for a processor, in ns. An interval during
//! which records are missing is counted as lost, because it may have been several.

use std::{collections::HashMap, sync::Arc};

/// A thread that was switched out.
#[derive(Debug)]
pub struct Out<S> {
    /// Its process.
    pub pid: u32,
    /// What it was called.
    pub name: Arc<str>,
    /// CLOCK_MONOTONIC ns of the switch.
    pub since_ns: u64,
    /// The tracepoint's `prev_state`.
    pub state: u64,
    /// Whether it could have gone on.
    pub runnable: bool,
    /// Where it was.
    pub stack: S,
    /// Who woke it.
    pub wake: Option<Wake<S>>,
}

/// A wake-up.
#[derive(Debug)]
pub struct Wake<S> {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Process and thread in whose context it was.
    pub waker: (u32, u32),
    /// What that thread was called.
    pub name: Arc<str>,
    /// In an interrupt, which the thread has nothing to do with.
    pub interrupt: bool,
    /// Where the waker was.
    pub stack: S,
}

/// A time that is over.
#[derive(Debug)]
pub struct Interval<S> {
    /// Thread.
    pub tid: u32,
    /// Its beginning, and who ended it.
    pub out: Out<S>,
    /// CLOCK_MONOTONIC ns of its end.
    pub end_ns: u64,
}

impl<S> Interval<S> {
    /// How long it was, ns.
    pub fn took_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.out.since_ns)
    }

    /// How much of it the thread was ready to run, ns: of an involuntary one everything, of others what came after the
    /// wake-up; 0 if none was seen.
    pub fn queued_ns(&self) -> u64 {
        match &self.out.wake {
            _ if self.out.runnable => self.took_ns(),
            Some(wake) => self.end_ns.saturating_sub(wake.time_ns),
            None => 0,
        }
    }
}

/// A wake-up may be told so long before the switch that it ends, ns: a waker on another processor is seen first, and waits
/// until the thread is off its own.
const EARLY_NS: u64 = 1_000_000;
/// What is told of the same switch by two events lies no further apart, ns.
const TWICE_NS: u64 = 10_000;
/// Wake-ups of running threads that are remembered.
const MOST_EARLY: usize = 1 << 10;

/// The threads that are out now.
#[derive(Debug)]
pub struct Intervals<S> {
    out: HashMap<u32, Out<S>>,
    /// The last wake-ups of threads that were not out.
    early: HashMap<u32, Wake<S>>,
    /// Records were missing up to this time; what began before is not believed.
    missing_ns: u64,
}

impl<S> Default for Intervals<S> {
    fn default() -> Intervals<S> {
        Intervals { out: HashMap::new(), early: HashMap::new(), missing_ns: 0 }
    }
}

impl<S> Intervals<S> {
    /// A thread was switched out. Gives back what it was out for before, if nobody saw it come back.
    pub fn switched_out(&mut self, tid: u32, out: Out<S>) -> Option<Out<S>> {
        if out.runnable || self.early.get(&tid).is_some_and(|wake| wake.time_ns + EARLY_NS < out.since_ns) {
            self.early.remove(&tid);
        }
        // While filters are replaced two events tell of one switch.
        let twice = |before: &Out<S>| {
            out.since_ns.saturating_sub(before.since_ns) < TWICE_NS && out.state == before.state
        };
        if self.out.get(&tid).is_some_and(twice) {
            return None;
        }
        self.out.insert(tid, out)
    }

    /// Whether it matters who wakes a thread, which may be `ours`. The first wake-up after its switch counts: until it runs
    /// others find it awake.
    pub fn wants(&self, tid: u32, ours: bool) -> bool {
        self.out.get(&tid).map_or(ours, |out| !out.runnable && out.wake.is_none())
    }

    /// A thread is being woken.
    pub fn waking(&mut self, tid: u32, wake: Wake<S>) {
        match self.out.get_mut(&tid) {
            Some(out) if out.runnable || out.wake.is_some() => {}
            Some(out) => out.wake = Some(wake),
            None => {
                if self.early.len() >= MOST_EARLY {
                    self.early.clear();
                }
                self.early.insert(tid, wake);
            }
        }
    }

    /// A thread was switched in. The flag: records are missing, it may have been several intervals.
    pub fn switched_in(&mut self, tid: u32, time_ns: u64) -> Option<(Interval<S>, bool)> {
        let mut out = self.out.remove(&tid)?;
        let early = self.early.remove(&tid);
        if out.wake.is_none()
            && let Some(mut wake) = early
        {
            wake.time_ns = wake.time_ns.max(out.since_ns);
            out.wake = Some(wake);
        }
        let doubtful = out.since_ns < self.missing_ns;
        Some((Interval { tid, out, end_ns: time_ns }, doubtful))
    }

    /// Records are missing up to now.
    pub fn missing(&mut self, time_ns: u64) {
        self.missing_ns = self.missing_ns.max(time_ns);
    }

    /// A thread has ended: it does not come back. Gives back what it was out for, if nobody saw it come back before.
    pub fn ended(&mut self, tid: u32) -> Option<Out<S>> {
        self.early.remove(&tid);
        self.out.remove(&tid)
    }

    /// Returns true if a thread is off CPU.
    pub fn is_out(&self, tid: u32) -> bool {
        self.out.contains_key(&tid)
    }

    /// The threads that are out.
    pub fn all_out(&mut self) -> impl Iterator<Item = (u32, &mut Out<S>)> {
        self.out.iter_mut().map(|(tid, out)| (*tid, out))
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes out what goes on, with the flag of [`Intervals::switched_in`].
    pub fn take_open(&mut self, now_ns: u64) -> Vec<(Interval<S>, bool)> {
        let tids: Vec<u32> = self.out.keys().copied().collect();
        tids.into_iter().filter_map(|tid| self.switched_in(tid, now_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(since_ns: u64, runnable: bool) -> Out<&'static str> {
        Out {
            pid: 1,
            name: "".into(),
            since_ns,
            state: u64::from(!runnable),
            runnable,
            stack: "there",
            wake: None,
        }
    }

    fn wake(time_ns: u64, waker: u32) -> Wake<&'static str> {
        Wake { time_ns, waker: (1, waker), name: "".into(), interrupt: false, stack: "by" }
    }

    #[test]
    fn off_is_wake_and_run_queue() {
        let mut all = Intervals::default();
        all.waking(7, wake(5, 1));
        all.switched_out(7, out(10, false));
        all.waking(7, wake(30, 2));
        all.waking(7, wake(35, 3));
        let (done, doubtful) = all.switched_in(7, 42).unwrap();
        let woken = done.out.wake.as_ref().unwrap();
        assert_eq!((woken.waker.1, doubtful), (2, false), "the first after the switch");
        assert_eq!((done.took_ns(), done.queued_ns()), (32, 12));
        assert_eq!(woken.time_ns - done.out.since_ns + done.queued_ns(), done.took_ns());
        assert!(all.switched_in(7, 50).is_none(), "it was in already");
    }

    #[test]
    fn a_waker_may_be_seen_before_the_switch() {
        let mut all = Intervals::default();
        all.waking(7, wake(9_000_000, 1));
        all.switched_out(7, out(9_000_100, false));
        let (done, _) = all.switched_in(7, 9_000_300).unwrap();
        assert_eq!(done.out.wake.as_ref().map(|w| (w.waker.1, w.time_ns)), Some((1, 9_000_100)));
        assert_eq!(done.queued_ns(), 200);
        // Not one of long ago, nor one that only made it runnable before it waited for a processor.
        all.waking(7, wake(10_000_000, 2));
        all.switched_out(7, out(12_000_000, false));
        assert!(all.switched_in(7, 13_000_000).unwrap().0.out.wake.is_none());
        all.waking(7, wake(14_000_000, 3));
        all.switched_out(7, out(14_000_100, true));
        assert!(all.switched_in(7, 14_000_200).unwrap().0.out.wake.is_none());
        all.switched_out(7, out(14_000_300, false));
        assert!(all.switched_in(7, 14_000_400).unwrap().0.out.wake.is_none());
    }

    #[test]
    fn involuntary_ones_are_run_queue_altogether() {
        let mut all = Intervals::default();
        all.switched_out(7, out(10, true));
        all.waking(7, wake(11, 2));
        let (done, _) = all.switched_in(7, 25).unwrap();
        assert!(done.out.wake.is_none());
        assert_eq!((done.took_ns(), done.queued_ns()), (15, 15));
    }

    #[test]
    fn interval_across_missing_records_is_doubtful() {
        let mut all = Intervals::default();
        all.switched_out(7, out(10, false));
        all.switched_out(8, out(12, false));
        all.missing(20);
        all.switched_out(9, out(21, false));
        assert!(all.switched_in(7, 30).unwrap().1);
        assert!(!all.switched_in(9, 30).unwrap().1);
        assert_eq!(
            all.take_open(40).iter().map(|(one, doubtful)| (one.tid, *doubtful)).collect::<Vec<_>>(),
            [(8, true)]
        );
        assert!(all.switched_out(7, out(40, false)).is_none());
        assert!(all.switched_out(7, out(50, false)).is_none(), "the same one, told twice");
        assert_eq!(all.switched_out(7, out(90_000, false)).map(|before| before.since_ns), Some(40));
        all.ended(7);
        assert_eq!(all.len(), 0);
    }
}
