//! Chains of wakers: stores the sleeps of a recording by thread, and follows a sleep back through its
//! wakers.

use std::collections::HashMap;

use jfr_format::pool::KeyHash;

use super::interval::{Interval, Waker};
use super::state::KnownStates;
use crate::model::{Id, Thread};

/// Maximum number of stored intervals, at 80 bytes each.
const MOST: usize = 4 << 20;

/// The wakers of a stack, nearest first; 0 means none.
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

/// Intervals in input order.
#[derive(Debug, Default)]
pub(super) struct Chains {
    intervals: Vec<Interval>,
}

impl Chains {
    /// Stores an interval; returns false if the limit is reached.
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

/// Intervals ordered by thread and end.
#[derive(Debug)]
pub(super) struct Sorted {
    intervals: Vec<Interval>,
    /// For each thread, the index of its first interval; also the index after the last thread.
    first: Vec<usize>,
}

impl Sorted {
    pub(super) fn all(&self) -> &[Interval] {
        &self.intervals
    }

    /// Returns the wakers of an interval: the thread that ended it, then the waker of that thread's own
    /// last sleep if it slept during the first sleep, and so on. The chain ends at an unknown waker, an
    /// interrupt, or a thread that it already contains.
    pub(super) fn follow(&self, of: &Interval, depth: usize, states: &KnownStates) -> Vec<Waker> {
        let mut links = vec![of.waker];
        let mut met = vec![of.thread];
        let mut woken = of.woken();
        while let Some(&Waker::Thread(waker, _)) = links.last()
            && links.len() < depth
            && !met.contains(&waker)
        {
            met.push(waker);
            // A sleep that had ended before the first one began delayed nothing.
            let Some(slept) = self.last_sleep(waker, woken, states).filter(|sleep| sleep.end() > of.start)
            else {
                break;
            };
            links.push(slept.waker);
            woken = slept.woken();
        }
        links
    }

    /// Returns the last interval before `time` in which a thread was blocked.
    fn last_sleep(&self, thread: Id<Thread>, time: i64, states: &KnownStates) -> Option<&Interval> {
        let range = self.first.get(thread.index()).zip(self.first.get(thread.index() + 1));
        let of_thread = range.and_then(|(&from, &to)| self.intervals.get(from..to)).unwrap_or_default();
        let before = of_thread.partition_point(|interval| interval.end() <= time);
        let mut before = of_thread[..before].iter().rev();
        before.find(|interval| states.is_blocked(interval.state))
    }
}
