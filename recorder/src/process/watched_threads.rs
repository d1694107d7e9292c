//! The threads examined by the wall clock, and when each is due.

use crate::process::wall::schedstat::Files;
use crate::process::wall::thread_timeline::Watch;
use crate::process::wall::{Share, off_cpu_slices::OffCpuSlices};

/// A thread examined by the wall clock.
pub(super) struct WatchedThread {
    pub slot: u32,
    pub generation: u32,
    pub files: Files,
    pub watch: Watch,
    /// When it was last examined, ns.
    pub checked_ns: u64,
    /// The stack was cut because modules were still being read.
    pub again: bool,
    /// The reading that started the slice in which it was last seen
    /// ([`crate::process::wall::off_cpu_slices`]); 0: the thread makes no readings.
    pub slice_ns: u64,
}

impl WatchedThread {
    /// Notes that it has not run until `now_ns`.
    pub fn stayed(&mut self, share: &mut Share, now_ns: u64) {
        let Some(slices) = share.slices.as_mut().filter(|_| self.slice_ns != 0) else {
            return self.watch.stayed(now_ns);
        };
        if self.watch.waits() {
            let ns = self.seen(slices, self.watch.off_ns(now_ns), now_ns);
            self.watch.waited(now_ns, ns);
        }
    }

    /// Notes that it waits at `now_ns`, with its off-CPU clock at `off_ns`. Returns the time that is not
    /// recorded yet, ns.
    pub fn seen(&self, slices: &mut OffCpuSlices, off_ns: u64, now_ns: u64) -> u64 {
        let ns = slices.seen(self.slice_ns, off_ns, now_ns);
        self.watch.bounded(ns, now_ns, slices.noticed_ns)
    }
}

/// All examined threads of a process.
#[derive(Default)]
pub(super) struct WatchedThreads {
    list: Vec<WatchedThread>,
    /// When each thread is due, ns. Separate from the list, because all values are read at every tick.
    due_ns: Vec<u64>,
    /// Generation and index in the list of the thread in each slot.
    by_slot: Vec<Option<(u32, usize)>>,
}

impl WatchedThreads {
    /// Returns the number of threads.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns a thread by its index.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut WatchedThread> {
        self.list.get_mut(index)
    }

    /// Returns when a thread is due, ns; `u64::MAX` if it has ended.
    pub fn due_ns(&self, index: usize) -> Option<u64> {
        self.due_ns.get(index).copied()
    }

    /// Sets when a thread is due.
    pub fn set_due(&mut self, index: usize, due_ns: u64) {
        self.due_ns[index] = due_ns;
    }

    /// Returns all threads with their due times.
    pub fn iter(&self) -> impl Iterator<Item = (&WatchedThread, u64)> {
        self.list.iter().zip(self.due_ns.iter().copied())
    }

    /// Returns true if the thread with this slot and generation is in the list.
    pub fn holds(&self, slot: u32, generation: u32) -> bool {
        self.by_slot.get(slot as usize).copied().flatten().is_some_and(|(g, _)| g == generation)
    }

    /// Returns true if any thread with this slot is in the list.
    pub fn holds_slot(&self, slot: u32) -> bool {
        self.by_slot.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Adds a thread that is due immediately.
    pub fn push(&mut self, thread: WatchedThread) {
        let (at, generation) = (thread.slot as usize, thread.generation);
        self.list.push(thread);
        self.due_ns.push(0);
        if self.by_slot.len() <= at {
            self.by_slot.resize(at + 1, None);
        }
        self.by_slot[at] = Some((generation, self.list.len() - 1));
    }

    /// Removes a thread. Another one gets its index.
    pub fn remove(&mut self, slot: u32, generation: u32) -> Option<WatchedThread> {
        let known = self.by_slot.get_mut(slot as usize)?;
        let (_, index) = known.take_if(|(g, _)| *g == generation)?;
        let thread = self.list.swap_remove(index);
        self.due_ns.swap_remove(index);
        if let Some(moved) = self.list.get(index)
            && let Some(Some((generation, at))) = self.by_slot.get_mut(moved.slot as usize)
            && *generation == moved.generation
        {
            *at = index;
        }
        Some(thread)
    }

    /// Removes all threads.
    pub fn remove_all(&mut self) -> Vec<WatchedThread> {
        self.due_ns.clear();
        self.by_slot.clear();
        std::mem::take(&mut self.list)
    }
}
