//! Times without a processor, put together from switches and wake-ups in order of time.

use std::collections::HashMap;

/// A thread that was switched out.
#[derive(Debug)]
pub struct Out<S> {
    /// Its process.
    pub pid: u32,
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

/// What became of intervals that were not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// A thread was switched out twice, so its coming back was not seen.
    pub unseen: u64,
    /// Records were missing while it went on: it may have been several.
    pub doubtful: u64,
}

/// The threads that are out now.
#[derive(Debug)]
pub struct Intervals<S> {
    out: HashMap<u32, Out<S>>,
    /// Records were missing up to this time; what began before is not believed.
    missing_ns: u64,
    /// See there.
    pub broken: Broken,
}

impl<S> Default for Intervals<S> {
    fn default() -> Intervals<S> {
        Intervals { out: HashMap::new(), missing_ns: 0, broken: Broken::default() }
    }
}

impl<S> Intervals<S> {
    /// A thread was switched out.
    pub fn switched_out(&mut self, tid: u32, out: Out<S>) {
        if self.out.insert(tid, out).is_some() {
            self.broken.unseen += 1;
        }
    }

    /// A thread is being woken. The first one after its switch counts: until it runs others find it awake.
    pub fn waking(&mut self, tid: u32, wake: impl FnOnce() -> Wake<S>) {
        if let Some(out) = self.out.get_mut(&tid)
            && !out.runnable
            && out.wake.is_none()
        {
            out.wake = Some(wake());
        }
    }

    /// A thread was switched in.
    pub fn switched_in(&mut self, tid: u32, time_ns: u64) -> Option<Interval<S>> {
        let out = self.out.remove(&tid)?;
        if out.since_ns < self.missing_ns {
            self.broken.doubtful += 1;
            return None;
        }
        Some(Interval { tid, out, end_ns: time_ns })
    }

    /// Records are missing up to now.
    pub fn missing(&mut self, time_ns: u64) {
        self.missing_ns = self.missing_ns.max(time_ns);
    }

    /// A thread has ended: it does not come back.
    pub fn ended(&mut self, tid: u32) {
        self.out.remove(&tid);
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes out what goes on, with thread ids; what may have been several intervals is counted instead.
    pub fn take_open(&mut self) -> Vec<(u32, Out<S>)> {
        let (open, doubtful): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().partition(|(_, out)| out.since_ns >= self.missing_ns);
        self.broken.doubtful += doubtful.len() as u64;
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(since_ns: u64, runnable: bool) -> Out<&'static str> {
        Out { pid: 1, since_ns, state: u64::from(!runnable), runnable, stack: "there", wake: None }
    }

    fn wake(time_ns: u64, waker: u32) -> Wake<&'static str> {
        Wake { time_ns, waker: (1, waker), interrupt: false, stack: "by" }
    }

    #[test]
    fn off_is_wake_and_run_queue() {
        let mut all = Intervals::default();
        all.waking(7, || wake(5, 1));
        all.switched_out(7, out(10, false));
        all.waking(7, || wake(30, 2));
        all.waking(7, || wake(35, 3));
        let done = all.switched_in(7, 42).unwrap();
        let woken = done.out.wake.as_ref().unwrap();
        assert_eq!(woken.waker.1, 2, "the first after the switch");
        assert_eq!((done.took_ns(), done.queued_ns()), (32, 12));
        assert_eq!(woken.time_ns - done.out.since_ns + done.queued_ns(), done.took_ns());
        assert!(all.switched_in(7, 50).is_none(), "it was in already");
    }

    #[test]
    fn involuntary_ones_are_run_queue_altogether() {
        let mut all = Intervals::default();
        all.switched_out(7, out(10, true));
        all.waking(7, || wake(11, 2));
        let done = all.switched_in(7, 25).unwrap();
        assert!(done.out.wake.is_none());
        assert_eq!((done.took_ns(), done.queued_ns()), (15, 15));
    }

    #[test]
    fn what_spans_missing_records_is_counted() {
        let mut all = Intervals::default();
        all.switched_out(7, out(10, false));
        all.switched_out(8, out(12, false));
        all.missing(20);
        all.switched_out(9, out(21, false));
        assert!(all.switched_in(7, 30).is_none());
        assert!(all.switched_in(9, 30).is_some());
        assert!(all.take_open().is_empty());
        assert_eq!(all.broken, Broken { unseen: 0, doubtful: 2 });
        all.switched_out(7, out(40, false));
        all.switched_out(7, out(50, false));
        assert_eq!(all.broken.unseen, 1);
        assert_eq!(all.take_open().len(), 1);
        all.switched_out(7, out(60, false));
        all.ended(7);
        assert_eq!(all.len(), 0);
    }
}
