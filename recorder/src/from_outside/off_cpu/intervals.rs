//! Builds off-CPU intervals from switches and wake-ups in order of time.
//!
//! Each interval consists of the wait for the wake-up and the wait for a processor, in ns. An interval during
//! which records are missing is counted as lost, because it may have been several.

use std::{collections::HashMap, sync::Arc};

/// A thread that is off CPU.
#[derive(Debug)]
pub struct Out<S> {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// CLOCK_MONOTONIC ns of the switch.
    pub since_ns: u64,
    /// The tracepoint's `prev_state`.
    pub state: u64,
    /// True if the thread was still runnable, that is, preempted.
    pub runnable: bool,
    /// Its stack at the switch.
    pub stack: S,
    /// Its wake-up.
    pub wake: Option<Wake<S>>,
}

/// A wake-up.
#[derive(Debug)]
pub struct Wake<S> {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Process and thread that ran when the wake-up happened.
    pub waker: (u32, u32),
    /// Name of that thread.
    pub name: Arc<str>,
    /// The wake-up came from an interrupt, so that thread is unrelated.
    pub interrupt: bool,
    /// Stack of the waker.
    pub stack: S,
}

/// A completed interval.
#[derive(Debug)]
pub struct Interval<S> {
    /// Thread.
    pub tid: u32,
    /// The start of the interval, and its wake-up.
    pub out: Out<S>,
    /// CLOCK_MONOTONIC ns of its end.
    pub end_ns: u64,
}

impl<S> Interval<S> {
    /// Returns its duration, ns.
    pub fn took_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.out.since_ns)
    }

    /// Returns how long the thread was runnable, ns: the whole interval if it was preempted, otherwise the
    /// time after the wake-up; 0 if none was recorded.
    pub fn queued_ns(&self) -> u64 {
        match &self.out.wake {
            _ if self.out.runnable => self.took_ns(),
            Some(wake) => self.end_ns.saturating_sub(wake.time_ns),
            None => 0,
        }
    }
}

/// A wake-up may be reported this long before the switch that it belongs to, ns: a waker on another processor
/// waits until the thread has left its own.
const EARLY_NS: u64 = 1_000_000;
/// Two events that report the same switch are at most this far apart, ns.
const TWICE_NS: u64 = 10_000;
/// Limit of remembered wake-ups of running threads.
const MOST_EARLY: usize = 1 << 10;

/// The threads that are off CPU.
#[derive(Debug)]
pub struct Intervals<S> {
    out: HashMap<u32, Out<S>>,
    /// The last wake-ups of threads that were not off CPU.
    early: HashMap<u32, Wake<S>>,
    /// Records are missing up to this time, so intervals that began earlier are unreliable.
    missing_ns: u64,
}

impl<S> Default for Intervals<S> {
    fn default() -> Intervals<S> {
        Intervals { out: HashMap::new(), early: HashMap::new(), missing_ns: 0 }
    }
}

impl<S> Intervals<S> {
    /// Adds a thread that was switched out. Returns its previous interval if no switch-in ended it.
    pub fn switched_out(&mut self, tid: u32, out: Out<S>) -> Option<Out<S>> {
        if out.runnable || self.early.get(&tid).is_some_and(|wake| wake.time_ns + EARLY_NS < out.since_ns) {
            self.early.remove(&tid);
        }
        // While filters are replaced, two events report the same switch.
        let twice = |before: &Out<S>| {
            out.since_ns.saturating_sub(before.since_ns) < TWICE_NS && out.state == before.state
        };
        if self.out.get(&tid).is_some_and(twice) {
            return None;
        }
        self.out.insert(tid, out)
    }

    /// Returns true if the waker of a thread, which may be `ours`, is relevant. Only the first wake-up after
    /// a switch counts; the thread is awake for later ones.
    pub fn wants(&self, tid: u32, ours: bool) -> bool {
        self.out.get(&tid).map_or(ours, |out| !out.runnable && out.wake.is_none())
    }

    /// Adds a wake-up.
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

    /// Ends the interval of a thread that was switched in. The flag is true if records are missing, so that
    /// it may have been several intervals.
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

    /// Notes that records before `time_ns` are missing.
    pub fn missing(&mut self, time_ns: u64) {
        self.missing_ns = self.missing_ns.max(time_ns);
    }

    /// Removes a thread that ended. Returns its interval if no switch-in ended it.
    pub fn ended(&mut self, tid: u32) -> Option<Out<S>> {
        self.early.remove(&tid);
        self.out.remove(&tid)
    }

    /// Returns true if a thread is off CPU.
    pub fn is_out(&self, tid: u32) -> bool {
        self.out.contains_key(&tid)
    }

    /// Returns the threads that are off CPU.
    pub fn all_out(&mut self) -> impl Iterator<Item = (u32, &mut Out<S>)> {
        self.out.iter_mut().map(|(tid, out)| (*tid, out))
    }

    /// Returns the number of threads that are off CPU.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Removes and returns the open intervals, with the flag of [`Intervals::switched_in`].
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
    fn off_cpu_time_is_wait_plus_run_queue_time() {
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
    fn wakeup_may_precede_the_switch() {
        let mut all = Intervals::default();
        all.waking(7, wake(9_000_000, 1));
        all.switched_out(7, out(9_000_100, false));
        let (done, _) = all.switched_in(7, 9_000_300).unwrap();
        assert_eq!(done.out.wake.as_ref().map(|w| (w.waker.1, w.time_ns)), Some((1, 9_000_100)));
        assert_eq!(done.queued_ns(), 200);
        // Neither an old wake-up, nor one that made the thread runnable before it was preempted.
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
    fn involuntary_intervals_are_run_queue_time() {
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
