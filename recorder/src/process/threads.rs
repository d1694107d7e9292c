//! The threads of one process: their identity, their clocks, and their keys in the output.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_in_signal::layout::{ThreadSlot, engine, loss, slot_state};

use super::proc_status::{end_vanished, look_for_blocked, look_up_name, read_clock, unseen_limit};
use super::thread::{Account, Thread, slot_name};
use crate::settings::ThreadSelection;
use crate::{os::clock::process_cpu_ns, shared_memory::proc_file::ProcFile};

/// Index of a thread in its [`Threads`].
pub type ThreadIndex = usize;

/// Limit of threads of a process that have not ended or whose end is not written yet. Each uses less than a
/// kilobyte.
const MOST_THREADS: usize = 1 << 17;

/// The threads of one process.
#[derive(Default)]
pub struct Threads {
    /// All threads that have not been written completely.
    pub list: Vec<Thread>,
    by_slot: Vec<Option<ThreadIndex>>,
    by_tid: HashMap<u32, ThreadIndex>,
    /// Slots of threads that have ended. They are released once the ring has been read up to `.1`.
    ended: Vec<(u32, u64)>,
    /// CPU time is not sampled, so there is no accounting.
    pub cpu_off: bool,
    /// Interval between samples if it is longer than the time that an event represents, otherwise 0.
    pub sampling_ns: u64,
    /// If set, only these threads are recorded.
    pub selection: Option<ThreadSelection>,
    /// When the recording started, monotonic ns.
    pub recording_ns: u64,
    /// One more than the highest slot ever used.
    used_slots: u32,
    /// The totals of the first thread before exec: its clock continues in the new image.
    before_exec: Option<(u32, Box<Account>)>,
    /// CPU time of removed threads, ns.
    forgotten_ns: u64,
    /// Accounted CPU time of removed threads (samples and losses), ns.
    forgotten_booked_ns: u64,
    /// Losses of removed threads, ns.
    forgotten_lost_ns: u64,
    /// CPU time of the process that no thread accounts for, at the last search, ns.
    unseen_before: u64,
    /// The process's CPU clock at the last search, ns.
    searched_clock_ns: u64,
}

impl Threads {
    /// Returns the thread of a sample. `slot` is the sample's slot, `u32::MAX` for none.
    pub fn index_for_sample(
        &mut self,
        file: &ProcFile,
        slot: u32,
        tid: u32,
        time_ns: u64,
        period_ns: u64,
    ) -> ThreadIndex {
        if let Some(&Some(index)) = self.by_slot.get(slot as usize)
            && let Some(thread) = self.list.get_mut(index)
            && thread.tid == tid
            && thread.end_ns.is_none()
        {
            if !thread.program.is_armed()
                && let Some(shared) = file.slot(slot)
            {
                thread.read_slot(shared, self.recording_ns);
            }
            return index;
        }
        if let Some(shared) = file.slot(slot)
            && shared.tid.load(Relaxed) == tid
        {
            let index = self.index_for_slot(file, slot, shared, period_ns);
            self.used_slots = self.used_slots.max(slot + 1);
            return index;
        }
        match self.by_tid.get(&tid) {
            Some(&index) if self.list.get(index).is_some() => index,
            _ => {
                let index = self.list.len();
                let mut thread = Thread::new(tid, period_ns, time_ns);
                thread.ledger.sampled_every(self.sampling_ns.max(period_ns));
                if counts_whole_process(file) {
                    thread.ledger.count_whole_process();
                }
                self.list.push(thread);
                self.by_tid.insert(tid, index);
                index
            }
        }
    }

    /// Returns true if samples reference more threads than a process can have, which happens only with
    /// damaged memory.
    pub fn are_too_many(&self) -> bool {
        self.list.len() > MOST_THREADS
    }

    /// Returns a thread by its TID, if the program knows it. It may have ended a moment ago.
    pub fn by_id(&mut self, file: &ProcFile, tid: u32, period_ns: u64) -> Option<ThreadIndex> {
        if let Some(&index) = self.by_tid.get(&tid)
            && self.list.get(index).is_some_and(|t| t.tid == tid)
        {
            return Some(index);
        }
        let slots = (0..).map_while(|number| Some((number, file.slot(number)?)));
        let used = slots.take_while(|(_, slot)| slot.state.load(Acquire) != 0);
        let states = [slot_state::LIVE, slot_state::ENDED];
        let (number, slot) = used
            .filter(|(_, slot)| states.contains(&(slot.state.load(Acquire) & slot_state::MASK)))
            .find(|(_, slot)| slot.tid.load(Relaxed) == tid)?;
        Some(self.index_for_slot(file, number, slot, period_ns))
    }

    fn index_for_slot(
        &mut self,
        file: &ProcFile,
        number: u32,
        slot: &ThreadSlot,
        period_ns: u64,
    ) -> ThreadIndex {
        let state = slot.state.load(Acquire);
        let generation = state & !slot_state::MASK;
        if let Some(&Some(index)) = self.by_slot.get(number as usize)
            && self.list.get(index).is_some_and(|t| t.slot == Some((number, generation)))
        {
            return index;
        }
        let tid = slot.tid.load(Relaxed);
        let mut thread = Thread::new(tid, period_ns, slot.ledger.start_mono_ns.load(Relaxed));
        if let Some((_, account)) = self.before_exec.take_if(|(first, _)| *first == tid) {
            thread.resume(*account, period_ns);
        }
        thread.ledger.sampled_every(self.sampling_ns.max(period_ns));
        if counts_whole_process(file) {
            thread.ledger.count_whole_process();
        }
        thread.slot = Some((number, generation));
        thread.read_slot(slot, self.recording_ns);
        // The ring contains each later name, at its position among the samples.
        thread.name.is_known = file.names_recorded() && !thread.name().is_empty();
        let index = self.list.len();
        self.list.push(thread);
        if self.by_slot.len() <= number as usize {
            self.by_slot.resize(number as usize + 1, None);
        }
        self.by_slot[number as usize] = Some(index);
        self.by_tid.insert(tid, index);
        index
    }

    /// Returns the slots of running threads, with their generation, except for those that are `known`.
    pub fn new_live_slots(&self, file: &ProcFile, known: impl Fn(u32, u32) -> bool) -> Vec<(u32, u32)> {
        let mut new = Vec::new();
        let mut free = 0;
        for number in 0..file.slots() {
            let Some(slot) = file.slot(number) else { break };
            let state = slot.state.load(Acquire);
            let generation = state & !slot_state::MASK;
            match state & slot_state::MASK {
                slot_state::LIVE if !known(number, generation) => new.push((number, generation)),
                slot_state::FREE => free += 1,
                _ => free = 0,
            }
            // As in `note_ended`.
            if free > 64 && number >= self.used_slots {
                break;
            }
        }
        new
    }

    /// Returns the thread that uses a slot.
    pub fn at_slot(&mut self, file: &ProcFile, number: u32, period_ns: u64) -> Option<ThreadIndex> {
        let slot = file.slot(number)?;
        self.used_slots = self.used_slots.max(number + 1);
        Some(self.index_for_slot(file, number, slot, period_ns))
    }

    /// Returns the running thread of a slot, if it still has this generation.
    pub fn index_for_generation(&self, number: u32, generation: u32) -> Option<ThreadIndex> {
        let index = self.by_slot.get(number as usize).copied().flatten()?;
        self.list.get(index).filter(|t| t.slot == Some((number, generation))).map(|_| index)
    }

    /// Before the ring is read: notes which slots have ended. All their samples are in the ring by now.
    pub fn note_ended(&mut self, file: &ProcFile, period_ns: u64) {
        let mut free = 0;
        for number in 0..file.slots() {
            let Some(slot) = file.slot(number) else { break };
            let state = slot.state.load(Acquire) & slot_state::MASK;
            if state == slot_state::FREE {
                // Slots are allocated from the front, so a run of free slots after the last used one is the
                // end.
                free += 1;
                if number >= self.used_slots && free > 64 {
                    break;
                }
                continue;
            }
            free = 0;
            self.used_slots = self.used_slots.max(number + 1);
            if state == slot_state::ENDED && !self.ended.iter().any(|(n, _)| *n == number) {
                let index = self.index_for_slot(file, number, slot, period_ns);
                // The last name that the thread set. For a short thread, we may only have seen its initial
                // name.
                let name = slot_name(slot);
                if let Some(thread) = self.list.get_mut(index)
                    && !name.is_empty()
                    && !file.names_recorded()
                {
                    thread.rename(name);
                }
                self.ended.push((number, file.head()));
            }
        }
    }

    /// After the ring was read up to `tail`: closes the accounting of ended threads and releases their slots.
    pub fn settle_ended(&mut self, file: &ProcFile, tail: u64, period_ns: u64, stopped: bool) {
        let ended = std::mem::take(&mut self.ended);
        for (number, head) in ended {
            if tail < head {
                self.ended.push((number, head));
                continue;
            }
            let Some(slot) = file.slot(number) else { continue };
            let index = self.index_for_slot(file, number, slot, period_ns);
            if let Some(thread) = self.list.get_mut(index) {
                thread.read_slot(slot, self.recording_ns);
                thread.end_ns = Some(slot.ledger.end_mono_ns.load(Relaxed).max(thread.start_ns));
                thread.close(period_ns.max(self.sampling_ns), stopped);
                self.by_tid.retain(|_, i| *i != index);
            }
            if let Some(entry) = self.by_slot.get_mut(number as usize) {
                *entry = None;
            }
            let generation = slot.state.load(Relaxed) & !slot_state::MASK;
            slot.state.store(generation | slot_state::FREE, Release);
        }
    }

    /// Reads the counters of all slots in use.
    pub fn read_slots(&mut self, file: &ProcFile, period_ns: u64) {
        for number in 0..self.used_slots {
            let Some(slot) = file.slot(number) else { break };
            if matches!(slot.state.load(Acquire) & slot_state::MASK, slot_state::LIVE | slot_state::ENDED) {
                let index = self.index_for_slot(file, number, slot, period_ns);
                if let Some(thread) = self.list.get_mut(index) {
                    thread.read_slot(slot, self.recording_ns);
                }
            }
        }
    }

    /// Once a second: looks up names and finds threads that are gone.
    pub fn look(&mut self, file: &ProcFile) {
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            let progress = thread.progress();
            if thread.name.look_up_is_due(progress) && !look_up_name(thread, file) {
                end_vanished(thread, file);
            }
            if thread.ledger.of_process {
                read_clock(thread, file);
            }
        }
    }

    /// Searches for threads whose CPU clock advances without samples. Checks all threads if `all` (once a
    /// second), otherwise only if the process's clock shows that there must be one.
    pub fn search_blocked(&mut self, file: &ProcFile, period_ns: u64, all: bool) {
        if self.cpu_off || !file.trusted_pid() {
            return;
        }
        let clock_ns = process_cpu_ns(file.pid).unwrap_or(0);
        // Without CPU time, no sample can be missing.
        if std::mem::replace(&mut self.searched_clock_ns, clock_ns) == clock_ns {
            return;
        }
        if counts_whole_process(file) {
            return;
        }
        let period_ns = period_ns.max(self.sampling_ns);
        let live = self.list.iter().filter(|t| t.end_ns.is_none()).count() as u64;
        let known: u64 = self.list.iter().filter(|t| !t.moved).map(|t| t.ledger.clock_ns()).sum();
        let unseen = clock_ns.saturating_sub(known + self.forgotten_ns);
        if !all && unseen < self.unseen_before + unseen_limit(period_ns) + live * period_ns {
            return;
        }
        let mut any = false;
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            let progress = thread.progress();
            if thread.blocked.search_is_due(progress) {
                any |= look_for_blocked(thread, file, period_ns);
            }
        }
        // CPU time of threads without a slot must not cause endless searches.
        if all && !any {
            self.unseen_before = unseen;
        }
    }

    /// Changes the interval between samples.
    pub fn sampled_every(&mut self, sampling_ns: u64) {
        self.sampling_ns = sampling_ns;
        self.list.iter_mut().for_each(|thread| thread.ledger.sampled_every(sampling_ns));
    }

    /// Returns the CPU time of all its threads, including ended ones, and the lost part of it, ns.
    pub fn clock_ns(&self) -> (u64, u64) {
        let own = self.list.iter().filter(|t| !t.moved);
        own.fold((self.forgotten_ns, self.forgotten_lost_ns), |(known, lost), thread| {
            let ledger = &thread.ledger;
            (known.saturating_add(ledger.clock_ns()), lost.saturating_add(ledger.lost_total_ns()))
        })
    }

    /// Removes and returns the totals of thread `tid`, which continue elsewhere after exec.
    pub fn take_account(&mut self, tid: u32) -> Option<(u32, Box<Account>)> {
        let thread = self.list.iter_mut().find(|t| t.tid == tid && !t.reported.end)?;
        // The totals here have been written, or will be by the successor.
        thread.reported.end = true;
        thread.moved = true;
        let account = Account {
            ledger: thread.ledger.clone(),
            reported: thread.reported.clone(),
            stacks: thread.stacks.clone(),
        };
        Some((tid, Box::new(account)))
    }

    /// Sets the totals that the first thread had before exec.
    pub fn resume(&mut self, account: Option<(u32, Box<Account>)>) {
        self.before_exec = account;
    }

    /// Removes threads that ended and have been written completely, unless their index is in use (`held`);
    /// `report` receives them. Returns the new index of each thread. Indices change, so call this only
    /// between drains.
    pub fn forget_complete(
        &mut self,
        used: &HashSet<ThreadIndex>,
        mut report: impl FnMut(&Thread),
    ) -> Option<Vec<Option<ThreadIndex>>> {
        let goes = |(index, thread): (usize, &Thread)| thread.reported.end && !used.contains(&index);
        if !self.list.iter().enumerate().any(goes) {
            return None;
        }
        let keep: Vec<bool> = self.list.iter().enumerate().map(|entry| !goes(entry)).collect();
        for (thread, _) in self.list.iter().zip(&keep).filter(|(_, keep)| !**keep) {
            report(thread);
            if !thread.moved {
                self.forgotten_ns += thread.ledger.clock_ns();
                self.forgotten_booked_ns += thread.ledger.booked_ns();
                self.forgotten_lost_ns += thread.ledger.lost_total_ns();
            }
        }
        let mut next = 0;
        let moved: Vec<Option<ThreadIndex>> = keep
            .iter()
            .map(|&k| {
                k.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        let mut flags = keep.iter();
        self.list.retain(|_| *flags.next().unwrap_or(&true));
        let new = |index: ThreadIndex| moved.get(index).copied().flatten();
        for entry in &mut self.by_slot {
            *entry = entry.and_then(new);
        }
        self.by_tid = self.by_tid.iter().filter_map(|(tid, i)| Some((*tid, new(*i)?))).collect();
        Some(moved)
    }

    /// Closes all threads after the end of the process. Records that were claimed but never completed are
    /// torn.
    pub fn close(&mut self, file: &ProcFile, now_ns: u64, period_ns: u64, stopped: bool) {
        self.read_slots(file, period_ns);
        let period_ns = period_ns.max(self.sampling_ns);
        let end_ns = file.exit_mono_ns().unwrap_or(now_ns);
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            thread.end_ns = Some(end_ns.max(thread.start_ns));
            thread.book_torn();
            thread.close(period_ns, stopped);
        }
        self.close_process(file, period_ns, stopped);
    }

    /// For samples that represent CPU time of the whole process: counts the CPU time missing in the sum of
    /// all threads as lost.
    fn close_process(&mut self, file: &ProcFile, period_ns: u64, stopped: bool) {
        if !counts_whole_process(file) {
            return;
        }
        let own = |count: fn(&Thread) -> u64| self.list.iter().filter(|t| !t.moved).map(count).sum::<u64>();
        let cpu = self.forgotten_ns.saturating_add(own(|t| t.ledger.cpu_ns));
        let booked = self.forgotten_booked_ns.saturating_add(own(|t| t.ledger.booked_ns()));
        let missing = cpu.saturating_sub(booked);
        let at = self.list.iter().position(|t| t.tid == file.pid).unwrap_or(0);
        if let Some(thread) = self.list.get_mut(at).filter(|_| missing > period_ns) {
            let lost = missing - period_ns / 2;
            let cause = if stopped { loss::STOPPED } else { loss::UNSEEN };
            thread.ledger.lose(cause, lost.div_ceil(period_ns.max(1)), lost);
        }
    }

    /// Closes all threads after exec, except the one that called exec, which continues with TID `first`.
    pub fn close_others(&mut self, file: &ProcFile, first: u32, now_ns: u64, period_ns: u64) {
        self.read_slots(file, period_ns);
        let period_ns = period_ns.max(self.sampling_ns);
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            thread.book_torn();
            if thread.tid != first {
                thread.end_ns = Some(now_ns.max(thread.start_ns));
                thread.close(period_ns, true);
            }
        }
        self.close_process(file, period_ns, true);
    }
}

/// Returns true if samples of this process represent CPU time of all its threads.
fn counts_whole_process(file: &ProcFile) -> bool {
    file.engine().0 == engine::ITIMER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_threads_updates_indices() {
        let mut threads = Threads::default();
        for tid in 10..14 {
            threads.list.push(Thread::new(tid, 1000, 0));
            threads.by_tid.insert(tid, tid as usize - 10);
            threads.by_slot.push(Some(tid as usize - 10));
        }
        threads.list[1].reported.end = true;
        threads.list[2].reported.end = true;
        let mut gone = Vec::new();
        let moved = threads.forget_complete(&HashSet::from([2]), |thread| gone.push(thread.tid));
        assert_eq!((moved.unwrap(), gone), (vec![Some(0), None, Some(1), Some(2)], vec![11]));
        assert_eq!(threads.list.iter().map(|t| t.tid).collect::<Vec<_>>(), [10, 12, 13]);
        assert_eq!(threads.by_slot, [Some(0), None, Some(1), Some(2)]);
        assert_eq!(threads.by_tid.get(&11), None);
        assert_eq!(threads.by_tid[&13], 2);
    }
}
