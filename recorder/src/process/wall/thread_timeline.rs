//! The timeline of one thread: divides its time into running, waiting for a processor, and waiting.
//!
//! ```text
//! look      look        look                    look
//!  │ waits A │  waits A  │ …statistics changed…  │        time before a look with changed statistics:
//!  ├─────────┼───────────┼───────────────────────┤          Δran     is in the thread's own CPU samples
//!     idle        idle      idle │ ran │ idle B             Δqueued  one part for each time that it was put on a processor:
//!                                                                    the first is the end of A, the rest goes to the next sample
//!                                                           the rest was idle: half at A, half at B
//! ```
//! When times are converted to samples, the remainder is carried, so Σ samples × interval = Σ time within one
//! interval.

use jfr_format::schema::thread_state;

use super::off_cpu_slices::WaitSite;
use super::schedstat::SchedStat;

/// Longest time between two examinations of a waiting thread, ns.
const MAX_GAP_NS: u64 = 1_000_000_000;
/// A waiting thread is examined again after this fraction (1/8) of its wait so far, so that the error is a
/// small part of the wait.
const GAP_PART: u64 = 8;
/// A wait is recorded after this time at the latest, ns.
const TELL_NS: u64 = 5_000_000_000;

/// Reports of short waits represent several waits each, so their sum may be too high by this amount, ns.
const SLACK_NS: u64 = 1_000_000_000;

/// The state in which a thread was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// On a processor, or runnable.
    Running,
    /// Waiting, with this state key, raw stack (in the form of [`super::Wait`]; empty if unknown), and
    /// context.
    Waiting(u64, Vec<u64>, Vec<u64>),
}

/// Idle time at one place, to be written as one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// The idle part of it, ns.
    pub idle_ns: u64,
    /// State key.
    pub state: u64,
    /// Raw stack, may be empty.
    pub stack: Vec<u64>,
    /// Words of the thread's context ([`flightline_in_signal::context`]); may be empty.
    pub context: Vec<u64>,
}

/// The timeline of one thread.
#[derive(Clone, Debug)]
pub struct Watch {
    period_ns: u64,
    /// Time of the first examination, ns.
    begun_ns: u64,
    stat: SchedStat,
    /// Time of the last examination, ns.
    at_ns: u64,
    doing: Doing,
    /// Since when its state has been the same without a break, ns.
    since_ns: u64,
    /// The current wait: start, and idle time so far, ns.
    collected: (u64, u64),
    /// Idle time that is in no wait yet. Negative if too much was counted as idle, because the kernel's
    /// statistics of a running thread may be one tick old.
    owed_ns: i64,
    /// Total idle time so far, ns.
    pub idle_ns: u64,
    /// Total time in the run queue so far, ns.
    pub queued_ns: u64,
}

/// The time that a thread used between two examinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time, ns.
    pub ran_ns: u64,
    /// Time in the run queue, ns, except for the part that ends a wait.
    pub queued_ns: u64,
}

impl Watch {
    /// Returns the timeline after the first examination.
    pub fn new(period_ns: u64, now_ns: u64, stat: SchedStat, doing: Doing) -> Watch {
        Watch {
            period_ns,
            begun_ns: now_ns,
            stat,
            at_ns: now_ns,
            doing,
            since_ns: now_ns,
            collected: (now_ns, 0),
            owed_ns: 0,
            idle_ns: 0,
            queued_ns: 0,
        }
    }

    /// Returns true if the statistics are those of the last examination, so the thread did not run in
    /// between.
    pub fn unchanged(&self, stat: SchedStat) -> bool {
        self.stat == stat
    }

    /// Notes that the thread has not run until `now_ns`.
    pub fn stayed(&mut self, now_ns: u64) {
        // The statistics of a running thread are updated only at ticks; they show later how much of the time
        // it ran.
        if matches!(self.doing, Doing::Waiting(..)) {
            let gap = now_ns.saturating_sub(self.at_ns);
            self.at_ns = self.at_ns.max(now_ns);
            self.collected.1 += gap;
            self.idle_ns += gap;
        }
    }

    /// Replaces the state by a better one of the same wait.
    pub fn seen_better(&mut self, doing: Doing) {
        self.doing = doing;
    }

    /// Notes that the thread ran since the last examination, and its current state. Returns its CPU time and
    /// time in the run queue, the wait that ended, if any, and how long it then waited there for a processor.
    pub fn changed(&mut self, now_ns: u64, stat: SchedStat, doing: Doing) -> (Used, [Option<Wait>; 2]) {
        let gap = now_ns.saturating_sub(self.at_ns);
        let ran_ns = stat.ran_ns.saturating_sub(self.stat.ran_ns);
        let mut queued_ns = stat.queued_ns.saturating_sub(self.stat.queued_ns);
        if self.stat.slices == 0 {
            // A thread older than the recording may have waited before it too.
            queued_ns = queued_ns.min(gap.saturating_sub(ran_ns));
        }
        let off = signed(gap) - signed(ran_ns) - signed(queued_ns);
        let lately = off.max(0) as u64;
        self.owed_ns += off;
        let waited = matches!(self.doing, Doing::Waiting(..));
        let waits = matches!(doing, Doing::Waiting(..));
        if waited && self.owed_ns < 0 {
            // It was woken before it ran, so the end of the wait was spent in the run queue.
            let back = self.owed_ns.unsigned_abs().min(self.collected.1);
            self.collected.1 -= back;
            self.idle_ns = self.idle_ns.saturating_sub(back);
            self.owed_ns += signed(back);
        }
        let mut place = |yes: bool, parts: i64| {
            let part = if yes { self.owed_ns.max(0) / parts } else { 0 };
            self.owed_ns -= part;
            part
        };
        let before = place(waited, if waits { 2 } else { 1 });
        let after = place(waits, 1);
        let (before, after) = (before as u64, after as u64);
        self.idle_ns += before + after;
        self.queued_ns += queued_ns;
        self.collected.1 += before;
        let woken_ns =
            if waited { queued_ns / (stat.slices.saturating_sub(self.stat.slices)).max(1) } else { 0 };
        let woken = self.woken(woken_ns);
        let ended = self.take_wait();
        self.collected = (now_ns.saturating_sub(after.min(lately)), after);
        self.doing = doing;
        self.stat = stat;
        self.at_ns = self.at_ns.max(now_ns);
        self.since_ns = now_ns;
        let queued_ns = queued_ns - woken.as_ref().map_or(0, |wait| wait.idle_ns);
        (Used { ran_ns, queued_ns }, [ended, woken])
    }

    /// Returns true if it waits, as far as is known.
    pub fn waits(&self) -> bool {
        matches!(self.doing, Doing::Waiting(..))
    }

    /// Returns its off-CPU clock ([`super::off_cpu_slices`]) at `now_ns`, if it has not run since the last
    /// examination.
    pub fn off_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.stat.ran_ns)
    }

    /// Limits the time `ns`, which comes from the thread's memory: a thread cannot wait longer than it lives.
    /// `noticed_ns`: time that it has reported so far.
    pub fn bounded(&self, ns: u64, now_ns: u64, noticed_ns: u64) -> u64 {
        let life = now_ns.saturating_sub(self.begun_ns).saturating_add(SLACK_NS);
        ns.min(life.saturating_sub(self.idle_ns.saturating_add(noticed_ns)))
    }

    /// Switches to a thread that reports its own off-CPU time, starting at `first_off_ns` of that clock.
    /// Returns its earlier off-CPU time that is not recorded yet.
    pub fn hand_over(&mut self, first_off_ns: u64, now_ns: u64) -> Option<Wait> {
        self.owed_ns += signed(first_off_ns) - signed(self.off_ns(self.at_ns));
        let owed = std::mem::take(&mut self.owed_ns).max(0) as u64;
        let owed = self.bounded(owed, now_ns, 0);
        self.idle_ns += owed;
        if self.waits() {
            self.collected.1 += owed;
            return self.take_wait();
        }
        let (start_ns, state) = (self.at_ns, thread_state::SLEEPING);
        let unknown = Wait { start_ns, idle_ns: owed, state, stack: Vec::new(), context: Vec::new() };
        (owed > 0).then_some(unknown)
    }

    /// Notes that it still waits, with `ns` that are not recorded yet.
    pub fn waited(&mut self, now_ns: u64, ns: u64) {
        self.at_ns = self.at_ns.max(now_ns);
        self.collected.1 += ns;
        self.idle_ns += ns;
    }

    /// Notes that it ran since the last examination, and its current state, with `ns` that are not recorded
    /// yet. Returns its CPU time and time in the run queue, and the wait before.
    pub fn found(&mut self, now_ns: u64, stat: SchedStat, doing: Doing, ns: u64) -> (Used, Option<Wait>) {
        let ran_ns = stat.ran_ns.saturating_sub(self.stat.ran_ns);
        let mut queued_ns = stat.queued_ns.saturating_sub(self.stat.queued_ns);
        if self.stat.slices == 0 {
            // The time of a thread older than the recording is not part of it.
            queued_ns = 0;
        }
        let before = self.take_wait();
        (self.collected, self.doing, self.stat) = ((now_ns.saturating_sub(ns), ns), doing, stat);
        (self.at_ns, self.since_ns) = (self.at_ns.max(now_ns), now_ns);
        self.idle_ns += ns;
        (Used { ran_ns, queued_ns }, before)
    }

    /// Returns where it waits, if it does.
    pub fn place(&self) -> Option<WaitSite> {
        let Doing::Waiting(state, stack, context) = &self.doing else { return None };
        Some(WaitSite { state: *state, stack: stack.clone(), context: context.clone() })
    }

    /// Returns the time in the run queue at the end of the current wait, as a wait at the same place.
    fn woken(&self, ns: u64) -> Option<Wait> {
        let Doing::Waiting(_, stack, context) = &self.doing else { return None };
        let start_ns = self.collected.0.saturating_add(self.collected.1);
        let (stack, context) = (stack.clone(), context.clone());
        let state = thread_state::WAITING_FOR_CPU;
        (ns > 0).then_some(Wait { start_ns, idle_ns: ns, state, stack, context })
    }

    /// Returns when the next examination is due.
    pub fn next_ns(&self) -> u64 {
        let waited = self.at_ns.saturating_sub(self.since_ns);
        let gap = match self.doing {
            Doing::Running => self.period_ns,
            Doing::Waiting(..) => (waited / GAP_PART).clamp(self.period_ns, self.period_ns.max(MAX_GAP_NS)),
        };
        self.at_ns.saturating_add(gap)
    }

    /// Returns the wait so far, if it should be recorded now.
    pub fn long_wait(&mut self) -> Option<Wait> {
        let long = self.at_ns.saturating_sub(self.collected.0) >= TELL_NS;
        long.then(|| self.take_wait()).flatten()
    }

    /// Removes and returns the wait so far.
    pub fn take_wait(&mut self) -> Option<Wait> {
        let (start_ns, idle_ns) = std::mem::replace(&mut self.collected, (self.at_ns, 0));
        match &self.doing {
            Doing::Waiting(state, stack, context) if idle_ns > 0 => {
                let (stack, context) = (stack.clone(), context.clone());
                Some(Wait { start_ns, idle_ns, state: *state, stack, context })
            }
            _ => None,
        }
    }

    /// Removes time from the wait that was not idle.
    pub fn take_back(&mut self, ns: u64) {
        let back = ns.min(self.collected.1);
        self.collected.1 -= back;
        self.idle_ns = self.idle_ns.saturating_sub(back);
    }

    /// Adds idle time to the current wait. Returns false if there is none.
    pub fn add_idle(&mut self, ns: u64) -> bool {
        let waits = matches!(self.doing, Doing::Waiting(..));
        if waits {
            self.collected.1 += ns;
            self.idle_ns += ns;
        }
        waits
    }
}

/// Limits a time so that sums cannot overflow.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// Converts time to samples, with a carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carry {
    ns: i64,
}

impl Carry {
    /// Returns a carry with a random part of an interval, so that times shorter than one are sampled in
    /// proportion. `seed` must differ between threads.
    pub fn random(seed: u64, period_ns: u64) -> Carry {
        let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        Carry { ns: ((u128::from(x) * u128::from(period_ns)) >> 64) as i64 }
    }

    /// Adds `ns`. Returns the number of samples.
    pub fn samples(&mut self, ns: u64, period_ns: u64) -> u32 {
        let period = i64::try_from(period_ns.max(1)).unwrap_or(i64::MAX);
        let total = self.ns.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX / 2));
        let samples = total.div_euclid(period).clamp(0, i64::from(i32::MAX));
        self.ns = (total - samples.saturating_mul(period)).clamp(0, period);
        samples as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stat(ran_ms: u64, queued_ms: u64, slices: u64) -> SchedStat {
        SchedStat { ran_ns: ran_ms * MS, queued_ns: queued_ms * MS, slices }
    }

    fn at(place: u64) -> Doing {
        Doing::Waiting(2, vec![0, 0, place], Vec::new())
    }

    #[test]
    fn wait_is_one_event_for_any_poll_count() {
        let mut watch = Watch::new(10 * MS, 0, stat(1, 0, 1), at(7));
        let mut looks = 0;
        let mut now = 0;
        while now < 4000 * MS {
            now = watch.next_ns().min(4000 * MS);
            assert!(watch.unchanged(stat(1, 0, 1)));
            watch.stayed(now);
            assert_eq!(watch.long_wait(), None);
            looks += 1;
        }
        assert!(looks < 60, "{looks} looks in 400 intervals: they must become rare");
        let (used, [wait, woken]) = watch.changed(4010 * MS, stat(4, 2, 3), Doing::Running);
        // Put on a processor twice, once at the end of this wait.
        assert_eq!(used, Used { ran_ns: 3 * MS, queued_ns: MS });
        let (wait, woken) = (wait.unwrap(), woken.unwrap());
        assert_eq!((woken.start_ns, woken.idle_ns, woken.stack), (4005 * MS, MS, wait.stack.clone()));
        assert_eq!(woken.state, thread_state::WAITING_FOR_CPU);
        assert_eq!((wait.start_ns, wait.idle_ns, wait.stack[2]), (0, 4005 * MS, 7));
        assert_eq!(watch.next_ns(), 4020 * MS, "one that runs is looked at every interval");
    }

    #[test]
    fn idle_time_is_assigned_to_wait_sites() {
        let mut watch = Watch::new(10 * MS, 0, stat(0, 0, 1), Doing::Running);
        // It ran all the time.
        assert_eq!(watch.changed(10 * MS, stat(10, 0, 1), Doing::Running).1, [None, None]);
        // It ran 6 of 10 ms and still runs: the 4 ms of idle time have no place yet.
        assert_eq!(watch.changed(20 * MS, stat(16, 0, 2), Doing::Running).1, [None, None]);
        // It ran 1 ms, was in the run queue for 1 ms, and waits at A: 8 ms and the 4 ms.
        assert_eq!(watch.changed(30 * MS, stat(17, 1, 3), at(1)).1, [None, None]);
        // It woke up, ran 2 ms, and waits at B: 8 ms divided equally.
        let (_, [a, woken]) = watch.changed(40 * MS, stat(19, 1, 4), at(2));
        let a = a.unwrap();
        assert_eq!(woken, None);
        assert_eq!((a.start_ns, a.idle_ns, a.stack[2]), (22 * MS, 16 * MS, 1));
        watch.stayed(50 * MS);
        let b = watch.take_wait().unwrap();
        assert_eq!((b.start_ns, b.idle_ns, b.stack[2]), (36 * MS, 14 * MS, 2));
        assert_eq!(watch.take_wait(), None);
        assert_eq!(watch.idle_ns, 30 * MS, "50 ms less 19 on a processor less 1 in the queue");
    }

    #[test]
    fn delayed_statistics_add_up() {
        let mut watch = Watch::new(10 * MS, 0, stat(0, 0, 1), Doing::Running);
        // It runs all the time, but its statistics lag behind by up to 4 ms.
        for (now, ran) in [(10, 8), (20, 16), (30, 28), (40, 40), (50, 48)] {
            assert_eq!(watch.changed(now * MS, stat(ran, 0, 1), Doing::Running).1, [None, None]);
        }
        assert_eq!(watch.changed(60 * MS, stat(58, 0, 1), at(1)).1, [None, None]);
        assert_eq!(watch.take_wait().unwrap().idle_ns, 2 * MS, "60 ms less 58");
        // It wakes up immediately, but its statistics have not changed yet.
        watch.changed(70 * MS, stat(58, 0, 2), Doing::Running);
        watch.changed(80 * MS, stat(68, 0, 2), at(2));
        assert_eq!((watch.idle_ns, watch.owed_ns), (12 * MS, 0));
        // Counted as idle for 10 ms, then found to have run for 3 ms of them.
        watch.changed(90 * MS, stat(68, 0, 3), Doing::Running);
        watch.changed(100 * MS, stat(81, 0, 3), at(3));
        assert_eq!((watch.idle_ns, watch.owed_ns), (22 * MS, -3_000_000));
        // The next wait is reduced accordingly.
        watch.changed(110 * MS, stat(82, 0, 4), at(4));
        assert_eq!((watch.idle_ns as i64 + watch.owed_ns, watch.at_ns), (28_000_000, 110 * MS));
    }

    #[test]
    fn queue_time_does_not_count_as_waiting() {
        let mut watch = Watch::new(10 * MS, 0, stat(0, 0, 1), at(1));
        watch.stayed(150 * MS);
        // Woken after 50 ms, on a processor after 155 ms.
        let (used, [wait, woken]) = watch.changed(160 * MS, stat(5, 105, 2), Doing::Running);
        assert_eq!((wait.unwrap().idle_ns, watch.idle_ns), (50 * MS, 50 * MS));
        assert_eq!((used.queued_ns, woken.unwrap().idle_ns), (0, 105 * MS));
        assert_eq!(watch.owed_ns, 0);
    }

    #[test]
    fn long_waits_are_recorded_before_they_end() {
        let mut watch = Watch::new(10 * MS, 0, stat(0, 0, 1), at(1));
        watch.stayed(4_999 * MS);
        assert_eq!(watch.long_wait(), None);
        watch.stayed(5_500 * MS);
        assert_eq!(watch.long_wait().unwrap().idle_ns, 5_500 * MS);
        watch.stayed(6_000 * MS);
        assert_eq!(watch.long_wait(), None);
        assert_eq!(
            watch.take_wait().unwrap(),
            Wait {
                start_ns: 5_500 * MS,
                idle_ns: 500 * MS,
                state: 2,
                stack: vec![0, 0, 1],
                context: Vec::new()
            }
        );
    }

    #[test]
    fn rounding_loses_no_time_and_short_waits_are_proportional() {
        let mut carry = Carry::random(5, 10 * MS);
        let total: u64 = (0..1000).map(|i| u64::from(carry.samples((i % 17) * MS, 10 * MS))).sum();
        let exact: u64 = (0..1000).map(|i| i % 17).sum::<u64>() / 10;
        assert!(total.abs_diff(exact) <= 1, "{total} {exact}");
        // 10,000 times 3 ms of 10 ms: 3,000 ± 4 sigma of 46.
        let seen: u32 = (0..10_000).map(|seed| Carry::random(seed, 10 * MS).samples(3 * MS, 10 * MS)).sum();
        assert!((2816..=3184).contains(&seen), "{seen}");
    }

    #[test]
    fn decreasing_clocks_do_not_overflow() {
        let mut watch = Watch::new(10 * MS, 100 * MS, stat(50, 5, 9), at(1));
        watch.stayed(90 * MS);
        let (used, wait) = watch.changed(95 * MS, stat(40, 4, 10), Doing::Running);
        assert_eq!((used, wait), (Used::default(), [None, None]));
        assert_eq!(Carry::default().samples(u64::MAX, 1), i32::MAX as u32);
    }

    #[test]
    fn reported_time_is_bounded_by_thread_lifetime() {
        let mut watch = Watch::new(10 * MS, 100 * MS, stat(0, 0, 1), at(1));
        assert_eq!(watch.bounded(30 * MS, 150 * MS, 0), 30 * MS);
        assert_eq!(watch.bounded(u64::MAX, 150 * MS, 20 * MS), 1_030 * MS);
        let wait = watch.hand_over(u64::MAX, 150 * MS).unwrap();
        assert_eq!((wait.idle_ns, watch.bounded(u64::MAX, 150 * MS, 0)), (1_050 * MS, 0));
        for _ in 0..100 {
            watch.waited(150 * MS, watch.bounded(u64::MAX, 150 * MS, u64::MAX));
        }
        assert_eq!(watch.idle_ns, 1_050 * MS);
    }
}
