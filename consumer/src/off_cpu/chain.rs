//! Who woke the waker: sleeps of a recording by thread, and the way from one back through them.

use std::collections::HashMap;

use jfr_format::pool::KeyHash;

use super::interval::{Interval, Waker};
use super::state::Known;
use crate::model::{Id, Thread};

/// Intervals kept to be followed through, 80 bytes each.
const MOST: usize = 4 << 20;

/// Wakers of a stack, the nearest first; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Path(u32);

impl Path {
    pub(super) const NONE: Self = Self(0);
}

/// Distinct paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    ids: HashMap<Box<[Waker]>, u32, KeyHash>,
    all: Vec<Box<[Waker]>>,
}

impl Paths {
    pub(super) fn intern(&mut self, links: &[Waker]) -> Path {
        if let Some(&id) = self.ids.get(links) {
            return Path(id);
        }
        let links: Box<[Waker]> = links.into();
        self.all.push(links.clone());
        let id = self.all.len() as u32;
        self.ids.insert(links, id);
        Path(id)
    }

    pub(super) fn links(&self, path: Path) -> &[Waker] {
        (path.0 as usize).checked_sub(1).and_then(|at| self.all.get(at)).map_or(&[], |links| links)
    }
}

/// Intervals as they come.
#[derive(Debug, Default)]
pub(super) struct Chains {
    intervals: Vec<Interval>,
}

impl Chains {
    /// `false` if there is no room.
    pub(super) fn keep(&mut self, interval: Interval) -> bool {
        let room = self.intervals.len() < MOST;
        if room {
            self.intervals.push(interval);
        }
        room
    }

    pub(super) fn sorted(mut self) -> Sorted {
        let thread = |interval: &Interval| interval.thread.index();
        self.intervals.sort_unstable_by_key(|interval| (thread(interval), interval.end(), interval.start));
        let threads = self.intervals.last().map_or(0, |last| thread(last) + 1);
        let first = (0..=threads).map(|id| self.intervals.partition_point(|interval| thread(interval) < id));
        Sorted { first: first.collect(), intervals: self.intervals }
    }
}

/// Intervals by thread and end.
#[derive(Debug)]
pub(super) struct Sorted {
    intervals: Vec<Interval>,
    /// By thread, where its intervals begin; and behind the last one.
    first: Vec<usize>,
}

impl Sorted {
    pub(super) fn all(&self) -> &[Interval] {
        &self.intervals
    }

    /// The wakers of an interval: who ended it; who ended that one's last sleep, if the thread slept while the first one did, and so
    /// on. What has no waker that is known, an interrupt, and a thread that is in the chain already end it.
    pub(super) fn follow(&self, of: &Interval, depth: usize, states: &Known) -> Vec<Waker> {
        let mut links = vec![of.waker];
        let mut met = vec![of.thread];
        let mut woken = of.woken();
        while let Some(&Waker::Thread(waker, _)) = links.last()
            && links.len() < depth
            && !met.contains(&waker)
        {
            met.push(waker);
            // A sleep that was over before the first one began held nobody up.
            let Some(slept) = self.last_sleep(waker, woken, states).filter(|sleep| sleep.end() > of.start)
            else {
                break;
            };
            links.push(slept.waker);
            woken = slept.woken();
        }
        links
    }

    /// The last time before `time` that a thread waited for something.
    fn last_sleep(&self, thread: Id<Thread>, time: i64, states: &Known) -> Option<&Interval> {
        let range = self.first.get(thread.index()).zip(self.first.get(thread.index() + 1));
        let of_thread = range.and_then(|(&from, &to)| self.intervals.get(from..to)).unwrap_or_default();
        let before = of_thread.partition_point(|interval| interval.end() <= time);
        let mut before = of_thread[..before].iter().rev();
        before.find(|interval| states.is_blocked(interval.state))
    }
}
