//! A thread of a recorded process: its accounting, and the part of it that has been written to the output.

use std::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{
    ThreadSlot,
    loss::{self, CAUSES},
};

use super::proc_status::look_up_name;
use super::program_account::{Counted, ProgramAccount};
use super::thread_name::ThreadName;
use crate::{
    process::ledger::Ledger,
    process::wall::Share,
    recording::{Recording, ThreadHandle},
    settings::ThreadSelection,
    shared_memory::proc_file::ProcFile,
};

/// Number of reasons why a walk can end early ([`flightline_in_signal::layout::walk_end`]).
pub const WALK_ENDS: usize = 9;

/// A thread of a recorded process.
pub struct Thread {
    /// The kernel's TID.
    pub tid: u32,
    /// Its slot and the slot's generation, while it has one.
    pub(super) slot: Option<(u32, u32)>,
    pub(super) name: ThreadName,
    /// Its CPU time accounting.
    pub ledger: Ledger,
    /// The part of the accounting that the program maintains.
    pub(super) program: ProgramAccount,
    /// CPU time without samples because the signal is blocked.
    pub(super) blocked: BlockedSignal,
    /// Counts of its stacks.
    pub stacks: StackCounts,
    /// The part of its totals that has been written to the output.
    pub reported: ReportedThread,
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC ns of its end, if it has ended.
    pub end_ns: Option<u64>,
    /// Its accounting continues in another image.
    pub moved: bool,
    /// True if the thread is recorded; known once its name is known.
    selected: Option<bool>,
    load: LoadReading,
    /// Its accounting of wall-clock time.
    pub wall: Share,
}

/// Counts of recorded stacks.
#[derive(Clone, Default)]
pub struct StackCounts {
    /// Truncated stacks, by [`flightline_in_signal::layout::walk_end`].
    pub cut: [u64; WALK_ENDS],
    /// Stacks of events other than CPU samples, whose truncated ones `cut` includes.
    pub other: u64,
    /// Samples triggered by a timer.
    pub by_timer: u64,
}

impl StackCounts {
    /// Counts a truncated stack.
    #[inline]
    pub fn add_truncated(&mut self, reason: u16) {
        self.cut[usize::from(reason).min(WALK_ENDS - 1)] += 1;
    }
}

/// CPU time without samples because the program blocks the signal.
#[derive(Default)]
pub(super) struct BlockedSignal {
    /// CPU time attributed to a blocked signal until more is known, ns. The ledger counts it as lost.
    pub ns: u64,
    /// Progress of the thread at the last search.
    searched_at: Option<u64>,
}

impl BlockedSignal {
    /// Returns true if the thread has made no progress since the last search.
    pub fn search_is_due(&mut self, progress: u64) -> bool {
        self.searched_at.replace(progress) == Some(progress)
    }

    /// Removes this loss: the time has another cause, or its cause is known exactly.
    fn withdraw(&mut self, ledger: &mut Ledger) {
        ledger.unlose(loss::BLOCKED, std::mem::take(&mut self.ns));
    }
}

/// The last reading of a thread's CPU load.
#[derive(Default)]
struct LoadReading {
    /// User and system time in clock ticks, and the time of the reading.
    ticks: Option<([u64; 2], u64)>,
    /// Progress of the thread at the reading.
    progress: u64,
}

/// The part of a thread's totals that has been written.
#[derive(Default, Clone)]
pub struct ReportedThread {
    /// ThreadStart has been written.
    pub start: bool,
    /// ThreadEnd has been written.
    pub end: bool,
    /// The values of the last ThreadCpu event: cpuTime, sampled, lost, and samples by timer.
    pub cpu: [u64; 4],
    /// Samples and ns of all SampleLoss events, by cause.
    pub lost: ([u64; CAUSES], [u64; CAUSES]),
    /// Samples of all SampleTruncated events.
    pub cut: [u64; WALK_ENDS],
    /// The part of it that the program counts itself, in the form of [`Thread::accounted`].
    pub counted: Counted,
}

/// The totals that a thread retains after exec.
#[derive(Clone)]
pub struct Account {
    pub(super) ledger: Ledger,
    pub(super) reported: ReportedThread,
    pub(super) stacks: StackCounts,
}

/// A signal that stays blocked for this CPU time is blocked by the program, ns.
const CONFIRMED_NS: u64 = 200_000_000;

impl Thread {
    pub(super) fn new(tid: u32, period_ns: u64, start_ns: u64) -> Thread {
        Thread {
            tid,
            slot: None,
            name: ThreadName::default(),
            ledger: Ledger::new(period_ns),
            program: ProgramAccount::default(),
            blocked: BlockedSignal::default(),
            stacks: StackCounts::default(),
            reported: ReportedThread::default(),
            start_ns,
            end_ns: None,
            moved: false,
            selected: None,
            load: LoadReading::default(),
            wall: Share::default(),
        }
    }

    /// Returns a thread that is sampled from outside. Its name is known, and its first sample comes after a
    /// whole period.
    pub fn outside(tid: u32, name: String, period_ns: u64, start_ns: u64) -> Thread {
        let mut thread = Thread::new(tid, period_ns, start_ns);
        thread.ledger.first_expiry(period_ns);
        thread.name.rename(name);
        thread.name.is_known = true;
        thread
    }

    /// Returns its last known name.
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Returns the handle of its constant in the output under its current name, if it has one.
    pub fn handle(&self) -> Option<ThreadHandle> {
        self.name.handle()
    }

    /// Counts a stack of an event other than a CPU sample.
    pub fn count_other_stack(&mut self) {
        self.stacks.other += 1;
    }

    /// Drops its constants, because it continues in another process.
    pub fn leave_group(&mut self) {
        self.name.forget_constants();
    }

    /// Renames the thread, which gets another key in the output.
    pub fn rename(&mut self, name: String) {
        self.name.rename(name);
    }

    /// Renames the thread from `time_ns` on. `waits`: earlier samples may still have to be written.
    pub(super) fn rename_at(&mut self, name: String, time_ns: u64, waits: bool) {
        if self.name.rename_at(name, time_ns, waits) {
            self.selected = None;
        }
    }

    /// Returns the thread's constant in the output under its name at `time_ns`. `titled` is the group of the
    /// process's title.
    #[inline]
    pub fn constant_at(
        &mut self,
        time_ns: u64,
        file: &ProcFile,
        (group, titled): (u32, u32),
        recording: &mut Recording,
    ) -> usize {
        if let Some(former) = self.name.former_constant(time_ns, self.tid, group, recording) {
            return former;
        }
        let constant = self.constant(file, group, recording);
        if titled == group { constant } else { self.titled_constant(titled, recording) }
    }

    /// Returns the thread's constant in the output in the group of a title.
    pub fn titled_constant(&mut self, titled: u32, recording: &mut Recording) -> usize {
        self.name.titled_constant(self.tid, titled, recording)
    }

    /// Returns the thread's constant in the output under its current name.
    pub fn named_constant(&mut self, group: u32, recording: &mut Recording) -> usize {
        self.name.constant(self.tid, group, recording)
    }

    /// Closes the accounting of a thread sampled from outside. `tail_ns` is the CPU time that its events
    /// counted after their last samples. Each processor has its own event, so CPU time of up to `due_ns`, one
    /// period per processor, may be in no sample without being lost. CPU time beyond it is lost by `cause`,
    /// if it exceeds the difference between the clocks.
    pub fn close_outside(
        &mut self,
        tail_ns: u64,
        end_ns: u64,
        (period_ns, due_ns): (u64, u64),
        cause: usize,
    ) {
        self.end_ns = Some(end_ns.max(self.start_ns));
        let ledger = &mut self.ledger;
        let booked = ledger.sampled_ns.saturating_add(ledger.lost_total_ns());
        ledger.cpu_ns = ledger.cpu_ns.max(booked.saturating_add(tail_ns));
        let excess = ledger.tail_ns().saturating_sub(due_ns);
        if excess == 0 {
            return;
        }
        // A busy machine interrupts late, and a sample may be due when sampling stops and the clock is read.
        // Neither is a loss, because the sample would have come later.
        let clocks_differ_ns = (ledger.known_ns() / CLOCKS_DIFFER_PART).max(period_ns / 2);
        if cause != loss::RING_FULL && excess <= clocks_differ_ns {
            // A total that has already been recorded must not decrease: readers treat that as another thread
            // with the same TID.
            let recorded_ns = ledger.before_ns.saturating_add(self.reported.cpu[0]);
            ledger.cpu_ns = ledger.cpu_ns.saturating_sub(excess).max(recorded_ns);
            let rest = ledger.tail_ns().saturating_sub(due_ns);
            ledger.lose(cause, u64::from(rest > 0), rest);
        } else {
            let lost = excess + due_ns / 2;
            ledger.lose(cause, lost.div_ceil(period_ns.max(1)), lost);
        }
    }

    /// Returns the thread's constant in the output.
    #[inline]
    pub fn constant(&mut self, file: &ProcFile, group: u32, recording: &mut Recording) -> usize {
        if self.name.handle().is_none() && !self.name.is_known {
            look_up_name(self, file);
        }
        self.named_constant(group, recording)
    }

    /// Reads the program's part of the accounting. The recording began at `recording_ns`, monotonic.
    pub(super) fn read_slot(&mut self, slot: &ThreadSlot, recording_ns: u64) {
        if let Some((armed_ns, first_ns)) = self.program.read_armed(slot) {
            self.ledger.first_expiry(first_ns);
            self.ledger.arm(armed_ns, self.start_ns.saturating_sub(recording_ns));
        }
        for cause in 0..CAUSES {
            let Some((samples, ns)) = self.program.read_lost(slot, cause) else { continue };
            if cause == loss::BLOCKED && ns > 0 {
                // The handler has the exact value of what was only estimated from outside.
                self.blocked.withdraw(&mut self.ledger);
            }
            self.ledger.lose(cause, samples, ns);
        }
        self.ledger.cpu_ns = self.ledger.cpu_ns.max(self.program.read_written(slot));
        self.name.set_first(|| slot_name(slot));
    }

    /// Returns the losses that the program counted itself, at the last reading.
    pub fn counted(&self) -> Counted {
        self.program.lost()
    }

    /// Returns the CPU time that seems to be lost because the signal is blocked, and that is not recorded as
    /// lost yet. The next sample can show that it is not lost: the recorder's own handler blocks the signal
    /// too.
    pub fn unconfirmed_ns(&self) -> u64 {
        if self.end_ns.is_some() || self.blocked.ns >= CONFIRMED_NS { 0 } else { self.blocked.ns }
    }

    /// Returns the same losses, plus the time recorded as lost because of a blocked signal before the program
    /// counted it.
    pub fn accounted(&self) -> Counted {
        let mut counted = self.counted();
        let recorded = self.blocked.ns - self.unconfirmed_ns();
        counted.0[loss::BLOCKED] = counted.0[loss::BLOCKED].saturating_add(recorded);
        counted
    }

    /// Returns its slot and the slot's generation, if it had one.
    pub fn slot(&self) -> Option<(u32, u32)> {
        self.slot
    }

    /// Returns its CPU clock when the drain first saw it, ns.
    pub fn armed_ns(&self) -> u64 {
        self.program.armed_ns()
    }

    /// Returns true if the thread is selected for recording.
    pub fn selected(&mut self, file: &ProcFile, selection: Option<&ThreadSelection>) -> bool {
        let Some(selection) = selection else { return true };
        if let Some(known) = self.selected {
            return known;
        }
        if !self.name.is_known {
            look_up_name(self, file);
        }
        let selected = selection.holds(self.tid, self.name.text());
        self.selected = Some(selected);
        selected
    }

    /// Returns the same for a thread recorded from outside, whose name changes are reported.
    pub fn selected_outside(&mut self, selection: Option<&ThreadSelection>) -> bool {
        let selected = selection.is_none_or(|selection| selection.holds(self.tid, self.name.text()));
        self.selected = Some(selected);
        selected
    }

    /// Returns true if the thread is known not to be selected.
    pub fn left_out(&self) -> bool {
        self.selected == Some(false)
    }

    /// Returns the previous reading of its load (inner), if the thread has made progress since (outer).
    pub fn load_due(&mut self) -> Option<Option<([u64; 2], u64)>> {
        let progress = self.progress();
        (progress != std::mem::replace(&mut self.load.progress, progress)).then_some(self.load.ticks)
    }

    /// Stores a reading of its load.
    pub fn load_read(&mut self, ticks: [u64; 2], now_ns: u64) {
        self.load.ticks = Some((ticks, now_ns));
    }

    /// Returns a number that differs between threads.
    pub fn seed(&self) -> u64 {
        self.start_ns.rotate_left(32) ^ u64::from(self.tid)
    }

    /// Continues with the totals that the same thread had before exec.
    pub(super) fn resume(&mut self, account: Account, period_ns: u64) {
        let Account { mut ledger, reported, stacks } = account;
        ledger.restart(period_ns);
        self.ledger = ledger;
        // The new image counts from zero.
        self.reported = ReportedThread { start: true, end: false, counted: Default::default(), ..reported };
        self.stacks = stacks;
    }

    /// Sets the CPU time without samples because the signal is blocked.
    pub(super) fn set_blocked(&mut self, ns: u64) {
        let new = ns.max(self.blocked.ns);
        self.ledger.lose(loss::BLOCKED, 0, new - self.blocked.ns);
        self.blocked.ns = new;
    }

    /// Returns the CPU time that a sample of `weight_ns` represents. The first sample after our signal was
    /// unblocked also carries the CPU time while it was blocked, which is unrelated to its stack.
    pub fn own_weight(&mut self, weight_ns: u64, period_ns: u64) -> u64 {
        if self.blocked.ns == 0 {
            return weight_ns;
        }
        let own = weight_ns.min(period_ns);
        self.blocked.withdraw(&mut self.ledger);
        self.ledger.lose(loss::BLOCKED, 0, weight_ns - own);
        own
    }

    /// Counts samples as lost that the program wrote but that never came out of the ring.
    pub(super) fn book_torn(&mut self) {
        let (written, written_ns) = self.program.written();
        let missing = written_ns.saturating_sub(self.ledger.arrived_ns);
        let samples = written.saturating_sub(self.ledger.arrived);
        if missing > 0 && samples > 0 {
            self.ledger.lose(loss::TORN, samples, missing);
        }
    }

    /// Closes the accounting: CPU time in which a sample was due is lost too.
    pub(super) fn close(&mut self, period_ns: u64, stopped: bool) {
        let tail = self.ledger.tail_ns();
        // Before the first sample, its random expiry decides whether one was due.
        if tail <= period_ns && !self.program.first_sample_is_overdue(tail) {
            return;
        }
        let cause = match (stopped, self.blocked.ns) {
            (true, _) => loss::STOPPED,
            (false, 0) => loss::UNSEEN,
            _ => loss::BLOCKED,
        };
        let lost = if tail > period_ns { tail - period_ns / 2 } else { tail };
        self.ledger.lose(cause, lost.div_ceil(period_ns.max(1)), lost);
    }

    /// Returns the number of samples and losses. A thread without progress is idle, or not sampled.
    pub(super) fn progress(&self) -> u64 {
        self.ledger.arrived + self.program.lost_samples()
    }
}

/// The scheduler's clock of a thread may be ahead of its events by this fraction (1/8). On a busy virtual
/// machine it was ahead by 6 %.
const CLOCKS_DIFFER_PART: u64 = 8;

/// Returns the stack with which a thread was registered, as reported by its program.
pub fn registered_stack(slot: &ThreadSlot) -> (u64, u64) {
    (slot.memory.stack_lo.load(Relaxed), slot.memory.stack_hi.load(Relaxed))
}

pub(super) fn slot_name(slot: &ThreadSlot) -> String {
    let [low, high] = &slot.name;
    name_from_words([low.load(Relaxed), high.load(Relaxed)])
}

/// Returns a name of up to 16 bytes from two words.
pub(super) fn name_from_words(words: [u64; 2]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_time_does_not_count_for_the_next_sample() {
        let mut thread = Thread::new(1, 1000, 0);
        assert_eq!(thread.own_weight(9_000, 1000), 9_000, "a long system call");
        thread.set_blocked(5_000);
        assert_eq!(thread.own_weight(8_000, 1000), 1_000);
        assert_eq!((thread.ledger.lost_ns[loss::BLOCKED], thread.blocked.ns), (7_000, 0));
    }

    #[test]
    fn tail_has_loss_cause_only_if_sample_was_due() {
        // (first expiry, samples, tail, blocked signal seen, stopped) → (cause, lost)
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
            thread.program = ProgramAccount::for_test(first, samples);
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
    fn the_last_cpu_total_is_not_below_one_already_recorded() {
        // (CPU time, total recorded before, processors) → (total at the end, lost). A period is 1000 ns.
        for ((cpu_ns, recorded_ns, processors), (total, lost)) in [
            ((1_300, 0, 1), (1_000, 0)),
            ((1_300, 1_300, 1), (1_300, 300)),
            ((1_300, 1_200, 1), (1_200, 200)),
            ((900, 800, 1), (900, 0)),
            ((1_900, 0, 1), (1_900, 1_400)),
            ((1_900, 0, 2), (1_900, 0)),
            ((2_300, 0, 2), (2_000, 0)),
            ((3_000, 0, 2), (3_000, 2_000)),
            // An eighth of its CPU time is in no event.
            ((8_900, 0, 8), (8_000, 0)),
            ((10_000, 0, 8), (10_000, 6_000)),
        ] {
            let mut thread = Thread::new(1, 1000, 0);
            thread.ledger.cpu_ns = cpu_ns;
            thread.reported.cpu[0] = recorded_ns;
            thread.close_outside(0, 10_000, (1000, processors * 1000), loss::STOPPED);
            let of = (cpu_ns, recorded_ns, processors);
            assert_eq!((thread.ledger.known_ns(), thread.ledger.lost_total_ns()), (total, lost), "{of:?}");
        }
    }

    #[test]
    fn blocked_time_is_recorded_once() {
        let mut thread = Thread::new(1, 1000, 0);
        thread.set_blocked(5_000);
        thread.set_blocked(7_000);
        thread.set_blocked(6_000);
        assert_eq!(thread.ledger.lost_ns[loss::BLOCKED], 7_000);
    }
}
