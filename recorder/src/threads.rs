//! The threads of one process: who they are, what their clocks say, which key they have in the output.

use std::{collections::HashMap, fs};

use flightline_in_signal::layout::{
    ThreadSlot, engine,
    loss::{self, CAUSES},
    slot_state,
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::{clock::process_cpu_ns, ledger::Ledger, proc_file::ProcFile, recording::Recording};

/// Index of a thread in its [`Threads`].
pub type ThreadIndex = usize;

/// Number of reasons why a walk can end early ([`flightline_in_signal::layout::walk_end`]).
pub const WALK_ENDS: usize = 8;

/// A thread of a recorded process.
pub struct Thread {
    /// Kernel thread id.
    pub tid: u32,
    /// Slot and its generation, while it has one.
    slot: Option<(u32, u32)>,
    /// Name as last seen.
    pub name: String,
    /// Handle of the output's thread constant, given by [`crate::recording`] at first use.
    pub constant: Option<usize>,
    /// Its account.
    pub ledger: Ledger,
    /// What the output was told of the account so far.
    pub told: Told,
    /// Samples whose stack was cut, by [`flightline_in_signal::layout::walk_end`].
    pub cut: [u64; WALK_ENDS],
    /// CLOCK_MONOTONIC ns of start and, if it is over, of the end.
    pub start_ns: u64,
    /// See `start_ns`.
    pub end_ns: Option<u64>,
    /// Losses counted by the program, by cause, as last read: ns and samples.
    shared: ([u64; CAUSES], [u64; CAUSES]),
    /// Samples the program says it wrote, and their weights.
    written: (u64, u64),
    /// Progress at the last search for blocked threads.
    searched_at: u64,
    /// CPU time without sample, put down to a blocked signal until more is known.
    blocked_ns: u64,
    name_checked: bool,
    /// Progress when the name was looked up.
    named_at: u64,
    armed: bool,
    first_ns: u64,
    /// Its account went on in another image.
    pub moved: bool,
}

/// What has been written of a thread's account.
#[derive(Default, Clone)]
pub struct Told {
    /// Whether ThreadStart was written.
    pub start: bool,
    /// Whether ThreadEnd was written.
    pub end: bool,
    /// Σ cpuTime, sampled, lost of all ThreadCpu events.
    pub cpu: [u64; 3],
    /// Samples and ns of all SampleLoss events, by cause.
    pub lost: ([u64; CAUSES], [u64; CAUSES]),
    /// Samples of all SampleTruncated events.
    pub cut: [u64; WALK_ENDS],
}

/// The threads of one process.
#[derive(Default)]
pub struct Threads {
    /// All that were seen and are not yet told to the end.
    pub list: Vec<Thread>,
    by_slot: Vec<Option<ThreadIndex>>,
    by_tid: HashMap<u32, ThreadIndex>,
    /// Slots whose thread has ended, to be given back when the ring has been read up to `.1`.
    ended: Vec<(u32, u64)>,
    /// One past the highest slot ever used.
    used_slots: u32,
    /// The account of the first thread before exec: its clock runs on in the new image.
    before_exec: Option<(u32, Box<Account>)>,
    /// CPU time of threads no longer in the list, ns.
    forgotten_ns: u64,
    /// CPU time of the process that no thread accounts for, as of the last search, ns.
    unseen_before: u64,
}

/// What a thread keeps through exec.
#[derive(Clone)]
pub struct Account {
    ledger: Ledger,
    told: Told,
    cut: [u64; WALK_ENDS],
}

impl Thread {
    fn new(tid: u32, period_ns: u64, start_ns: u64) -> Thread {
        Thread {
            tid,
            slot: None,
            name: String::new(),
            constant: None,
            ledger: Ledger::new(period_ns),
            told: Told::default(),
            cut: [0; WALK_ENDS],
            start_ns,
            end_ns: None,
            shared: ([0; CAUSES], [0; CAUSES]),
            written: (0, 0),
            blocked_ns: 0,
            name_checked: false,
            named_at: u64::MAX,
            armed: false,
            first_ns: 0,
            searched_at: u64::MAX,
            moved: false,
        }
    }

    /// The thread's constant in the output.
    #[inline]
    pub fn constant(&mut self, file: &ProcFile, group: u32, recording: &mut Recording) -> usize {
        match self.constant {
            Some(constant) => constant,
            None => self.new_constant(file, group, recording),
        }
    }

    #[cold]
    fn new_constant(&mut self, file: &ProcFile, group: u32, recording: &mut Recording) -> usize {
        if !self.name_checked {
            look_up_name(self, file);
        }
        let constant = recording.add_thread(self.tid, &self.name, group);
        self.constant = Some(constant);
        constant
    }

    /// Reads the program's side of the account.
    fn read_slot(&mut self, slot: &ThreadSlot) {
        let armed = slot.armed_cpu_ns.load(Relaxed).min(SANE_NS);
        if armed != 0 && !self.armed {
            self.armed = true;
            self.first_ns = slot.first_ns.load(Relaxed);
            self.ledger.first_expiry(self.first_ns);
            // CPU time before sampling was armed is in no sample, but for what was recorded before an exec.
            let known = self.ledger.sampled_ns.saturating_add(self.ledger.lost_total_ns());
            self.ledger.lose(loss::UNARMED, 0, armed.saturating_sub(known));
        }
        for cause in 0..CAUSES {
            let ns = slot.lost_ns.get(cause).map_or(0, |v| v.load(Relaxed)).min(SANE_NS);
            let samples = slot.lost.get(cause).map_or(0, |v| u64::from(v.load(Relaxed)));
            let (old_ns, old_samples) = (self.shared.0[cause], self.shared.1[cause]);
            // What a program writes may go backwards only by damage: then it is ignored.
            if ns >= old_ns && samples >= old_samples {
                if cause == loss::BLOCKED && ns > old_ns {
                    // The handler knows exactly what was only estimated from outside.
                    self.ledger.unlose(loss::BLOCKED, self.blocked_ns);
                    self.blocked_ns = 0;
                }
                self.ledger.lose(cause, samples - old_samples, ns - old_ns);
                self.shared.0[cause] = ns;
                self.shared.1[cause] = samples;
            }
        }
        self.written = (slot.samples.load(Relaxed).min(SANE_NS), slot.sampled_ns.load(Relaxed).min(SANE_NS));
        let clock = slot.last_cpu_ns.load(Relaxed).max(slot.end_cpu_ns.load(Relaxed)).min(SANE_NS);
        self.ledger.cpu_ns = self.ledger.cpu_ns.max(clock);
        if self.name.is_empty() {
            self.name = slot_name(slot);
        }
    }

    /// Goes on with the account that the same thread had before exec.
    fn resume(&mut self, account: Account, period_ns: u64) {
        let Account { mut ledger, told, cut } = account;
        ledger.restart(period_ns);
        self.ledger = ledger;
        self.told = Told { start: true, end: false, ..told };
        self.cut = cut;
    }

    /// CPU time that went by unseen because the signal is blocked, as of now.
    fn set_blocked(&mut self, ns: u64) {
        let new = ns.max(self.blocked_ns);
        self.ledger.lose(loss::BLOCKED, 0, new - self.blocked_ns);
        self.blocked_ns = new;
    }

    /// What a sample of `weight_ns` stands for: the first one after our signal was unblocked carries the CPU time since
    /// it was blocked too, which its stack has nothing to do with.
    pub fn own_weight(&mut self, weight_ns: u64, period_ns: u64) -> u64 {
        if self.blocked_ns == 0 {
            return weight_ns;
        }
        let own = weight_ns.min(period_ns);
        self.ledger.unlose(loss::BLOCKED, self.blocked_ns);
        self.ledger.lose(loss::BLOCKED, 0, weight_ns - own);
        self.blocked_ns = 0;
        own
    }

    /// Samples that the program wrote and that never came out of the ring.
    fn book_torn(&mut self) {
        let missing = self.written.1.saturating_sub(self.ledger.arrived_ns);
        let samples = self.written.0.saturating_sub(self.ledger.arrived);
        if missing > 0 && samples > 0 {
            self.ledger.lose(loss::TORN, samples, missing);
        }
    }

    /// The thread is over: CPU time in which a sample was due has a cause too.
    fn close(&mut self, period_ns: u64, stopped: bool) {
        let tail = self.ledger.tail_ns();
        // Before the first sample its random expiry says whether one was due.
        let never_sampled = self.written.0 == 0 && self.shared.1.iter().sum::<u64>() == 0;
        let first_due = never_sampled && self.first_ns > 0 && tail >= self.first_ns;
        if tail <= period_ns && !first_due {
            return;
        }
        let cause = match (stopped, self.blocked_ns) {
            (true, _) => loss::STOPPED,
            (false, 0) => loss::UNSEEN,
            _ => loss::BLOCKED,
        };
        let lost = if tail > period_ns { tail - period_ns / 2 } else { tail };
        self.ledger.lose(cause, lost.div_ceil(period_ns.max(1)), lost);
    }

    /// Samples and losses so far: a thread without progress is idle, or unseen.
    fn progress(&self) -> u64 {
        self.ledger.arrived + self.shared.1.iter().sum::<u64>()
    }
}

/// Two years: more CPU time than any thread has, and far from where sums overflow.
const SANE_NS: u64 = 1 << 56;

/// CPU time that may go by without a sample in good order: a period, twice for safety, and the kernel's tick.
fn unseen_limit(period_ns: u64) -> u64 {
    2 * period_ns + 10_000_000
}

fn slot_name(slot: &ThreadSlot) -> String {
    let bytes: Vec<u8> = slot.name.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
    let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

impl Threads {
    /// The thread of a sample. `slot` as in the sample, `u32::MAX` for none.
    pub fn of_sample(
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
            if !thread.armed
                && let Some(shared) = file.slot(slot)
            {
                thread.read_slot(shared);
            }
            return index;
        }
        if let Some(shared) = file.slot(slot)
            && shared.tid.load(Relaxed) == tid
        {
            let index = self.of_slot(slot, shared, period_ns);
            self.used_slots = self.used_slots.max(slot + 1);
            return index;
        }
        match self.by_tid.get(&tid) {
            Some(&index) if self.list.get(index).is_some() => index,
            _ => {
                let index = self.list.len();
                self.list.push(Thread::new(tid, period_ns, time_ns));
                self.by_tid.insert(tid, index);
                index
            }
        }
    }

    fn of_slot(&mut self, number: u32, slot: &ThreadSlot, period_ns: u64) -> ThreadIndex {
        let state = slot.state.load(Acquire);
        let generation = state & !slot_state::MASK;
        if let Some(&Some(index)) = self.by_slot.get(number as usize)
            && self.list.get(index).is_some_and(|t| t.slot == Some((number, generation)))
        {
            return index;
        }
        let tid = slot.tid.load(Relaxed);
        let mut thread = Thread::new(tid, period_ns, slot.start_mono_ns.load(Relaxed));
        if let Some((_, account)) = self.before_exec.take_if(|(first, _)| *first == tid) {
            thread.resume(*account, period_ns);
        }
        thread.slot = Some((number, generation));
        thread.read_slot(slot);
        let index = self.list.len();
        self.list.push(thread);
        if self.by_slot.len() <= number as usize {
            self.by_slot.resize(number as usize + 1, None);
        }
        self.by_slot[number as usize] = Some(index);
        self.by_tid.insert(tid, index);
        index
    }

    /// Before the ring is read: notes which slots have ended. Their samples are all in the ring by now.
    pub fn note_ended(&mut self, file: &ProcFile, period_ns: u64) {
        let mut free = 0;
        for number in 0..file.slots() {
            let Some(slot) = file.slot(number) else { break };
            let state = slot.state.load(Acquire) & slot_state::MASK;
            if state == slot_state::FREE {
                // Slots are taken from the front: a run of free ones behind the last used is the end.
                free += 1;
                if number >= self.used_slots && free > 64 {
                    break;
                }
                continue;
            }
            free = 0;
            self.used_slots = self.used_slots.max(number + 1);
            if state == slot_state::ENDED && !self.ended.iter().any(|(n, _)| *n == number) {
                self.of_slot(number, slot, period_ns);
                self.ended.push((number, file.head()));
            }
        }
    }

    /// After the ring was read up to `tail`: closes the accounts of ended threads and gives their slots back.
    pub fn settle_ended(&mut self, file: &ProcFile, tail: u64, period_ns: u64, stopped: bool) {
        let ended = std::mem::take(&mut self.ended);
        for (number, head) in ended {
            if tail < head {
                self.ended.push((number, head));
                continue;
            }
            let Some(slot) = file.slot(number) else { continue };
            let index = self.of_slot(number, slot, period_ns);
            if let Some(thread) = self.list.get_mut(index) {
                thread.read_slot(slot);
                thread.end_ns = Some(slot.end_mono_ns.load(Relaxed).max(thread.start_ns));
                thread.close(period_ns, stopped);
                self.by_tid.retain(|_, i| *i != index);
            }
            if let Some(entry) = self.by_slot.get_mut(number as usize) {
                *entry = None;
            }
            let generation = slot.state.load(Relaxed) & !slot_state::MASK;
            slot.state.store(generation | slot_state::FREE, Release);
        }
    }

    /// Reads the accounts of all slots in use.
    pub fn read_slots(&mut self, file: &ProcFile, period_ns: u64) {
        for number in 0..self.used_slots {
            let Some(slot) = file.slot(number) else { break };
            if matches!(slot.state.load(Acquire) & slot_state::MASK, slot_state::LIVE | slot_state::ENDED) {
                let index = self.of_slot(number, slot, period_ns);
                if let Some(thread) = self.list.get_mut(index) {
                    thread.read_slot(slot);
                }
            }
        }
    }

    /// Once a second: names, and threads that are gone.
    pub fn look(&mut self, file: &ProcFile) {
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            let idle = thread.progress() == thread.named_at;
            thread.named_at = thread.progress();
            if (!idle || !thread.name_checked) && !look_up_name(thread, file) {
                end_vanished(thread, file);
            }
        }
    }

    /// Looks for threads whose CPU clock runs although no sample comes. All of them once a second (`all`), otherwise
    /// only if the process's clock shows that there must be one.
    pub fn search_blocked(&mut self, file: &ProcFile, period_ns: u64, all: bool) {
        if !file.trusted_pid() {
            return;
        }
        let live = self.list.iter().filter(|t| t.end_ns.is_none()).count() as u64;
        let known: u64 = self.list.iter().filter(|t| !t.moved).map(|t| t.ledger.known_ns()).sum();
        let unseen = process_cpu_ns(file.pid).unwrap_or(0).saturating_sub(known + self.forgotten_ns);
        if !all && unseen < self.unseen_before + unseen_limit(period_ns) + live * period_ns {
            return;
        }
        let mut any = false;
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            let progress = thread.progress();
            if progress == thread.searched_at {
                any |= look_for_blocked(thread, file, period_ns);
            }
            thread.searched_at = progress;
        }
        // What belongs to nobody (threads without a slot) must not make us search for ever.
        if all && !any {
            self.unseen_before = unseen;
        }
    }

    /// Takes the account of thread `tid` out: after exec it goes on elsewhere.
    pub fn take_account(&mut self, tid: u32) -> Option<(u32, Box<Account>)> {
        let thread = self.list.iter_mut().find(|t| t.tid == tid && !t.told.end)?;
        // What is left here is told already or by the successor.
        thread.told.end = true;
        thread.moved = true;
        let account = Account { ledger: thread.ledger.clone(), told: thread.told.clone(), cut: thread.cut };
        Some((tid, Box::new(account)))
    }

    /// Gives the first thread the account it had before exec.
    pub fn resume(&mut self, account: Option<(u32, Box<Account>)>) {
        self.before_exec = account;
    }

    /// Drops threads that ended and are told to the end; indices change, so only call it between drains.
    pub fn forget_told(&mut self) {
        if !self.list.iter().any(|t| t.told.end) {
            return;
        }
        let keep: Vec<bool> = self.list.iter().map(|t| !t.told.end).collect();
        let told = self.list.iter().filter(|t| t.told.end && !t.moved);
        self.forgotten_ns += told.map(|t| t.ledger.known_ns()).sum::<u64>();
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
        let mut kept = keep.iter();
        self.list.retain(|_| *kept.next().unwrap_or(&true));
        let new = |index: ThreadIndex| moved.get(index).copied().flatten();
        for entry in &mut self.by_slot {
            *entry = entry.and_then(new);
        }
        self.by_tid = self.by_tid.iter().filter_map(|(tid, i)| Some((*tid, new(*i)?))).collect();
    }

    /// The process is gone: whatever was claimed and never arrived is torn, and every thread has ended.
    pub fn close(&mut self, file: &ProcFile, now_ns: u64, period_ns: u64, stopped: bool) {
        self.read_slots(file, period_ns);
        let end_ns = file.exit_mono_ns().unwrap_or(now_ns);
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            thread.end_ns = Some(end_ns.max(thread.start_ns));
            thread.book_torn();
            thread.close(period_ns, stopped);
        }
    }

    /// The same after exec, which ended all threads but goes on with the one that called it under id `first`.
    pub fn close_others(&mut self, file: &ProcFile, first: u32, now_ns: u64, period_ns: u64) {
        self.read_slots(file, period_ns);
        for thread in self.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            thread.book_torn();
            if thread.tid != first {
                thread.end_ns = Some(now_ns.max(thread.start_ns));
                thread.close(period_ns, true);
            }
        }
    }
}

/// Reads the thread's present name; a new one needs a new key in the output. `false` if the thread is gone.
fn look_up_name(thread: &mut Thread, file: &ProcFile) -> bool {
    let name = fs::read(format!("/proc/{}/task/{}/comm", file.pid, thread.tid));
    let Ok(name) = name else { return !file.trusted_pid() };
    thread.name_checked = true;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\n');
    if name != thread.name {
        thread.name = name.to_owned();
        thread.constant = None;
    }
    true
}

/// A thread that went without passing through `pthread` (raw clone): its slot ends here.
fn end_vanished(thread: &Thread, file: &ProcFile) {
    if let Some((number, generation)) = thread.slot
        && let Some(slot) = file.slot(number)
    {
        let ended = generation | slot_state::ENDED;
        let _ = slot.state.compare_exchange(generation | slot_state::LIVE, ended, AcqRel, Relaxed);
    }
}

/// If the thread's CPU clock ran on although no sample came: is our signal blocked?
fn look_for_blocked(thread: &mut Thread, file: &ProcFile, period_ns: u64) -> bool {
    let dir = format!("/proc/{}/task/{}", file.pid, thread.tid);
    let Ok(text) = fs::read_to_string(format!("{dir}/schedstat")) else {
        if file.alive() {
            end_vanished(thread, file);
        }
        return false;
    };
    let Some(ran) = text.split(' ').next().and_then(|n| n.parse::<u64>().ok()) else { return false };
    let seen = thread.ledger.sampled_ns + thread.ledger.lost_total_ns() - thread.blocked_ns;
    thread.ledger.cpu_ns = thread.ledger.cpu_ns.max(ran);
    let unseen = ran.saturating_sub(seen);
    if unseen < unseen_limit(period_ns) {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("{dir}/status")) else { return false };
    let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    let ours = match file.engine().0 {
        engine::TIMER => 1 << (libc::SIGPROF - 1),
        _ => 1 << (libc::SIGTRAP - 1),
    };
    if mask & ours == 0 {
        return false;
    }
    thread.set_blocked(unseen);
    if let Some((number, _)) = thread.slot
        && let Some(slot) = file.slot(number)
    {
        slot.blocked_seen.store(1, Relaxed);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgetting_moves_indices() {
        let mut threads = Threads::default();
        for tid in 10..14 {
            threads.list.push(Thread::new(tid, 1000, 0));
            threads.by_tid.insert(tid, tid as usize - 10);
            threads.by_slot.push(Some(tid as usize - 10));
        }
        threads.list[1].told.end = true;
        threads.forget_told();
        assert_eq!(threads.list.iter().map(|t| t.tid).collect::<Vec<_>>(), [10, 12, 13]);
        assert_eq!(threads.by_slot, [Some(0), None, Some(1), Some(2)]);
        assert_eq!(threads.by_tid.get(&11), None);
        assert_eq!(threads.by_tid[&13], 2);
    }

    #[test]
    fn blocked_time_is_no_weight_of_the_next_sample() {
        let mut thread = Thread::new(1, 1000, 0);
        assert_eq!(thread.own_weight(9_000, 1000), 9_000, "a long system call");
        thread.set_blocked(5_000);
        assert_eq!(thread.own_weight(8_000, 1000), 1_000);
        assert_eq!((thread.ledger.lost_ns[loss::BLOCKED], thread.blocked_ns), (7_000, 0));
    }

    #[test]
    fn tails_have_a_cause_only_if_a_sample_was_due() {
        // (first expiry, samples, tail, seen blocked, stopped) → (cause, lost)
        let table = [
            (300, 0, 200, false, false, None),
            (300, 0, 400, false, false, Some((loss::UNSEEN, 400))),
            (300, 1, 400, false, false, None),
            (300, 1, 5_000, false, false, Some((loss::UNSEEN, 4_500))),
            (300, 1, 5_000, true, false, Some((loss::BLOCKED, 4_500))),
            (300, 1, 5_000, false, true, Some((loss::STOPPED, 4_500))),
        ];
        for (first, samples, tail, blocked, stopped, expected) in table {
            let mut thread = Thread::new(1, 1000, 0);
            thread.first_ns = first;
            thread.written.0 = samples;
            thread.ledger.cpu_ns = tail;
            if blocked {
                thread.ledger.cpu_ns += 10;
                thread.set_blocked(10);
            }
            let before = thread.ledger.lost_ns;
            thread.close(1000, stopped);
            let booked = (0..CAUSES).find(|&c| thread.ledger.lost_ns[c] != before[c]);
            assert_eq!(
                booked.map(|c| (c, thread.ledger.lost_ns[c] - before[c])),
                expected,
                "{first} {samples} {tail}"
            );
        }
    }

    #[test]
    fn blocked_time_is_booked_once() {
        let mut thread = Thread::new(1, 1000, 0);
        thread.set_blocked(5_000);
        thread.set_blocked(7_000);
        thread.set_blocked(6_000);
        assert_eq!(thread.ledger.lost_ns[loss::BLOCKED], 7_000);
    }
}
