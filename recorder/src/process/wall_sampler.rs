//! Samples the wall clock of one process: see [`crate::process::wall`].

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed},
    },
    time::{Duration, Instant},
};

use flightline_in_signal::context;
use flightline_in_signal::layout::{MAX_CONTEXT, sample_flags};
use flightline_in_signal::unwind::interrupted::{Regs, arch};
use jfr_format::schema::thread_state;

use super::process_activity::{ProcessActivity, Reading};
use super::process_state::ProcessState;
use super::sample::SampleSink;
use super::thread::registered_stack;
use super::threads::ThreadIndex;
use super::watched_threads::{WatchedThread, WatchedThreads};
use crate::{
    process::wall::schedstat::{self, Files, SchedStat, SyscallState},
    process::wall::thread_timeline::{self, Doing, Watch},
    process::wall::{Share, Wait},
    remote_unwinder::{RemoteUnwinder, Stopped},
    shared_memory::proc_file::ProcFile,
};

/// From this number of threads on, the process's CPU clock is made cheap to read.
const MANY: usize = 64;
/// All threads are examined once this much CPU time is not accounted for by examined threads, ns.
const MISSING_NS: u64 = 2_000_000;
/// A pass over all threads may use at most this fraction of a processor (1/50).
const SCAN_PART: u32 = 50;
/// Limit of frames of a waiting thread's stack.
const DEPTH: usize = 1024;

/// A wall-clock sample to write.
#[derive(Clone, Debug)]
pub struct Sample {
    /// CLOCK_MONOTONIC ns of its start.
    pub time_ns: u64,
    /// [`thread_state`].
    pub state: u64,
    /// Number of intervals that it represents.
    pub samples: u32,
    /// Its duration, ns.
    pub span_ns: u64,
    /// Words of the thread's context; may be empty.
    pub context: Vec<u64>,
}

/// Reads the context of a waiting thread. The result is consistent if the thread has not run until the end of
/// the call.
fn read_context(pid: u32, slot: u32, file: &ProcFile) -> Vec<u64> {
    let pointer = file.slot(slot).map_or(0, |slot| slot.memory.thread_pointer.load(Relaxed));
    let mut words = [0; MAX_CONTEXT];
    let len = context::outside(pid, pointer, file.context_offsets(), &file.context_places(), &mut words);
    words.get(..len).unwrap_or_default().to_vec()
}

/// Samples the wall clock of the threads of one process.
pub struct Sampler {
    pid: u32,
    period_ns: u64,
    activity: ProcessActivity,
    /// Some threads have not been examined since a thread last ran. One of them may be the one that ran.
    behind: bool,
    scan: FullScan,
    threads: WatchedThreads,
    unwinder: RemoteUnwinder,
    /// Time before this is not recorded, CLOCK_MONOTONIC ns.
    since_ns: u64,
    denied: bool,
    denied_reported: bool,
}

/// Decides when all threads are examined, regardless of whether they are due.
#[derive(Default)]
struct FullScan {
    /// CPU time that no examined thread accounts for, ns.
    missing_ns: u64,
    /// No scan before this time, CLOCK_MONOTONIC ns.
    after_ns: u64,
}

impl FullScan {
    /// Returns true if so much CPU time is missing that a thread must have run before it was due.
    fn is_due(&self, period_ns: u64, now_ns: u64) -> bool {
        self.missing_ns > MISSING_NS.max(period_ns / 2) && now_ns >= self.after_ns
    }

    /// Notes that all threads were examined in the time `took`.
    fn done(&mut self, took: Duration, now_ns: u64) {
        self.missing_ns = 0;
        let pause_ns = u64::try_from((took * SCAN_PART).as_nanos()).unwrap_or(u64::MAX);
        self.after_ns = now_ns.saturating_add(pause_ns);
    }
}

/// The process that is sampled, and the destination of its waits.
pub struct Output<'a> {
    /// The process's state.
    pub state: &'a mut ProcessState,
    /// The file, recording and images of the process.
    pub sink: SampleSink<'a>,
    /// The arena of unwind tables.
    pub rows: &'a [AtomicU64],
    /// The current time, CLOCK_MONOTONIC ns.
    pub now_ns: u64,
}

impl Sampler {
    /// Returns a sampler for process `pid`.
    pub fn new(pid: u32, period_ns: u64) -> Sampler {
        Sampler {
            pid,
            period_ns,
            activity: ProcessActivity::new(pid),
            behind: false,
            scan: FullScan::default(),
            threads: WatchedThreads::default(),
            unwinder: RemoteUnwinder::new(),
            since_ns: 0,
            denied: false,
            denied_reported: false,
        }
    }

    /// Restarts all waits. Time since the last examination is not recorded.
    pub fn restart(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
        self.activity.restart();
        self.scan.missing_ns = 0;
        self.threads.remove_all();
    }

    /// Examines the threads that are due. Returns false if no thread of the process ran since the last call.
    pub fn tick(&mut self, out: &mut Output<'_>) -> bool {
        if !out.sink.file.trusted_pid() {
            return false;
        }
        let ran_ns = match self.activity.read(out.now_ns) {
            Reading::Ran(ran_ns) => ran_ns,
            Reading::Still => {
                self.look_at_those_behind(out);
                return false;
            }
            Reading::Unknown => return false,
        };
        self.scan.missing_ns += ran_ns;
        self.find_threads(out);
        self.look_at_due(out);
        self.behind = true;
        if self.scan.is_due(self.period_ns, out.now_ns) {
            self.look_at_all(out);
        }
        true
    }

    /// Examines the due threads that were not examined since a thread last ran.
    fn look_at_those_behind(&mut self, out: &mut Output<'_>) {
        if !self.behind {
            return;
        }
        self.look_at_due(out);
        let is_behind = |(thread, due): (&WatchedThread, u64)| {
            self.activity.moved_since(thread.checked_ns) && due < u64::MAX
        };
        self.behind = self.threads.iter().any(is_behind);
    }

    fn look_at_due(&mut self, out: &mut Output<'_>) {
        for index in 0..self.threads.len() {
            if self.threads.due_ns(index).is_some_and(|due| due <= out.now_ns) {
                self.look(index, out);
            }
        }
    }

    /// Examines all threads, because one ran before it was due.
    fn look_at_all(&mut self, out: &mut Output<'_>) {
        let begun = Instant::now();
        for index in 0..self.threads.len() {
            if self.threads.due_ns(index).is_some_and(|due| (out.now_ns + 1..u64::MAX).contains(&due)) {
                self.look(index, out);
            }
        }
        self.scan.done(begun.elapsed(), out.now_ns);
    }

    fn find_threads(&mut self, out: &mut Output<'_>) {
        let known = |slot: u32, generation: u32| self.threads.holds(slot, generation);
        let new = out.state.threads.new_live_slots(out.sink.file, known);
        // A slot was reused, so record the waits of its previous thread now.
        if new.iter().any(|(slot, _)| self.threads.holds_slot(*slot)) {
            self.finish(out, false);
        }
        for (slot, generation) in new {
            let Some(index) = out.state.thread_at(out.sink.file, slot) else { continue };
            let Some(thread) = out.state.threads.list.get(index) else { continue };
            let Ok(files) = Files::open(self.pid, thread.tid) else { continue };
            let mut before = SchedStat { ran_ns: thread.armed_ns(), queued_ns: 0, slices: 0 };
            if self.since_ns > thread.start_ns {
                let Ok(stat) = files.schedstat() else { continue };
                // Subtract one slice, so that the first examination finds a change and reads where the thread
                // is.
                before = SchedStat { slices: stat.slices.wrapping_sub(1), ..stat };
            }
            let start_ns = thread.start_ns.max(self.since_ns).min(out.now_ns);
            let watch = Watch::new(self.period_ns, start_ns, before, Doing::Running);
            self.threads.push(WatchedThread {
                slot,
                generation,
                files,
                watch,
                checked_ns: 0,
                again: false,
                slice_ns: 0,
            });
        }
        if self.threads.len() >= MANY {
            self.activity.make_clock_cheap();
        }
    }

    fn look(&mut self, index: usize, out: &mut Output<'_>) {
        let Some(entry) = self.threads.get_mut(index) else { return };
        let Some(thread) = out.state.threads.index_for_generation(entry.slot, entry.generation) else {
            // It has ended, although the kernel may still have it: `finish` records the rest.
            self.threads.set_due(index, u64::MAX);
            return;
        };
        let Some(share) = out.state.threads.list.get_mut(thread).map(|thread| &mut thread.wall) else {
            return;
        };
        if let Some(still_ns) = self.activity.still_until(entry.checked_ns) {
            entry.stayed(share, still_ns);
        }
        entry.checked_ns = out.now_ns;
        let Ok(stat) = entry.files.schedstat() else {
            // It has ended; its slot will have the time.
            self.threads.set_due(index, u64::MAX);
            return;
        };
        // Read between two readings of the statistics. If these are equal, all values belong to the same
        // time.
        let readings = out.sink.file.slot(entry.slot).map_or([0; 2], |slot| {
            let now = slot.spans.off_ns.load(Acquire);
            [now, slot.spans.first_off_ns.load(Relaxed)]
        });
        let mut ended = [None, None];
        let mut used = thread_timeline::Used::default();
        if entry.watch.unchanged(stat) {
            entry.stayed(share, out.now_ns);
            if entry.again && out.sink.images.outstanding() == 0 {
                self.walk_again(index, stat, out);
            }
        } else {
            let (doing, again) = self.observe(index, stat, out);
            let Some(entry) = self.threads.get_mut(index) else { return };
            entry.again = again;
            let Some(thread) = out.state.threads.list.get_mut(thread) else { return };
            (used, ended) = match readings {
                [0, _] => entry.watch.changed(out.now_ns, stat, doing),
                readings => changed(entry, &mut thread.wall, readings, out.now_ns, stat, doing),
            };
            self.scan.missing_ns = self.scan.missing_ns.saturating_sub(used.ran_ns);
        }
        let Some(entry) = self.threads.get_mut(index) else { return };
        let (long, next_ns) = (entry.watch.long_wait(), entry.watch.next_ns());
        self.threads.set_due(index, next_ns);
        if let Some(thread) = out.state.threads.list.get_mut(thread) {
            thread.wall.queued_ns += used.queued_ns;
        }
        for wait in ended.into_iter().flatten().chain(long) {
            self.record_wait(thread, &wait, out);
        }
    }

    /// Returns the state of a thread with the statistics `stat`, and true if its stack should be walked
    /// again.
    fn observe(&mut self, index: usize, stat: SchedStat, out: &mut Output<'_>) -> (Doing, bool) {
        let running = (Doing::Running, false);
        let Some(entry) = self.threads.get_mut(index) else { return running };
        let Ok(place) = entry.files.place() else { return running };
        let (call, sp, pc) = match place {
            SyscallState::Running => return running,
            SyscallState::Waiting { call, sp, pc } => (call, sp, pc),
            SyscallState::Denied => {
                self.denied = true;
                return (Doing::Waiting(thread_state::SLEEPING, Vec::new(), Vec::new()), false);
            }
        };
        let disk = !schedstat::surely_interruptible(call) && entry.files.uninterruptible();
        let state = if disk { thread_state::DISK_SLEEP } else { thread_state::SLEEPING };
        let mut regs = Regs::unknown();
        regs.pc = pc;
        regs.set(arch::SP, sp);
        let stack = out.sink.file.slot(entry.slot).map_or((0, 0), registered_stack);
        let (pid, jvm) = (self.pid, Some(out.sink.file.jvm()));
        let stopped = Stopped { pid, regs: &regs, stack, copied: (0, &[]), runs_on: false, jvm };
        let (walked, frames) =
            self.unwinder.walk(&stopped, &out.state.modules, out.sink.images, out.rows, DEPTH);
        let interner = &mut out.sink.recording.interner;
        out.state.stacks.frames.java.read_ahead(frames, walked.exact_frames, interner);
        let cut = walked.flags & sample_flags::TRUNCATED != 0;
        let mut words = Vec::with_capacity(frames.len() + 2);
        words.push(if cut { 1 + u64::from(walked.end) } else { 0 });
        words.push(walked.exact_frames);
        words.extend_from_slice(frames);
        if walked.unknown_pcs != 0 {
            out.state.stacks.note_unknown_address();
        }
        let context = read_context(self.pid, entry.slot, out.sink.file);
        // If the thread ran after its registers were read, its stack does not belong to them.
        if entry.files.schedstat().ok() != Some(stat) {
            return running;
        }
        if !context.is_empty()
            && let Some(slot) = out.sink.file.slot(entry.slot)
        {
            // The span may have ended by the time the wait is recorded.
            slot.ledger.span_samples.fetch_add(1, Relaxed);
        }
        (Doing::Waiting(state, words, context), cut && out.sink.images.outstanding() > 0)
    }

    /// Walks the stack of a wait again, because more modules are known now.
    fn walk_again(&mut self, index: usize, stat: SchedStat, out: &mut Output<'_>) {
        let (doing, again) = self.observe(index, stat, out);
        if let Some(entry) = self.threads.get_mut(index) {
            entry.again = again;
            if matches!(doing, Doing::Waiting(..)) {
                entry.watch.seen_better(doing);
            }
        }
    }

    fn record_wait(&self, thread: ThreadIndex, wait: &Wait, out: &mut Output<'_>) {
        let Some(thread_of) = out.state.threads.list.get_mut(thread) else { return };
        let seed = thread_of.seed();
        let samples = thread_of.wall.without(wait.state, seed, wait.idle_ns, self.period_ns);
        if samples > 0 {
            let context = wait.context.clone();
            let (time_ns, state) = (wait.start_ns, wait.state);
            // Times add up as those of samples do: a wait shorter than an interval may have no sample.
            let span_ns = u64::from(samples).saturating_mul(self.period_ns);
            let sample = Sample { time_ns, state, samples, span_ns, context };
            out.state.take_wait(thread, &sample, &wait.stack, &mut out.sink, out.now_ns);
        }
    }

    /// Updates all waits and records the long ones; called about once a second.
    pub fn settle(&mut self, out: &mut Output<'_>) {
        // A thread that was examined after the last activity waits until there is new activity in the
        // process.
        if self.tick(out) || self.activity.is_first() {
            return;
        }
        for index in 0..self.threads.len() {
            let live = self.threads.due_ns(index).is_some_and(|due| due < u64::MAX);
            let Some(entry) = self.threads.get_mut(index) else { break };
            let behind = live && self.activity.moved_since(entry.checked_ns);
            if behind || entry.again && out.sink.images.outstanding() == 0 {
                self.look(index, out);
                continue;
            }
            let Some(thread) = out.state.threads.index_for_generation(entry.slot, entry.generation) else {
                continue;
            };
            let Some(share) = out.state.threads.list.get_mut(thread).map(|thread| &mut thread.wall) else {
                continue;
            };
            entry.stayed(share, out.now_ns);
            if let Some(wait) = entry.watch.long_wait() {
                self.record_wait(thread, &wait, out);
            }
        }
    }

    /// Records the rest of threads that have ended, or of all threads if `all`.
    pub fn finish(&mut self, out: &mut Output<'_>, all: bool) {
        for index in 0..out.state.threads.list.len() {
            let Some(thread) = out.state.threads.list.get_mut(index) else { break };
            let Some(end_ns) = thread.end_ns.filter(|_| !thread.wall.done) else { continue };
            thread.wall.done = true;
            let lived = end_ns.saturating_sub(thread.start_ns);
            let used = thread.ledger.cpu_ns.saturating_sub(thread.armed_ns());
            let queued_ns = std::mem::take(&mut thread.wall.queued_ns);
            let slot = thread.slot();
            let mut entry = slot.and_then(|(number, generation)| self.threads.remove(number, generation));
            let noticed = thread.wall.slices.as_ref().map_or(0, |slices| slices.noticed_ns);
            let seen = entry.as_ref().map_or(0, |e| e.watch.idle_ns + e.watch.queued_ns);
            let seen = seen.saturating_add(noticed);
            // For a thread older than the recording, only the examined time is known.
            let whole = self.since_ns <= thread.start_ns;
            let rest = if whole { lived.saturating_sub(used).saturating_sub(seen) } else { 0 };
            // A thread cannot wait longer than it lived.
            let excess = if whole { seen.saturating_add(used).saturating_sub(lived) } else { 0 };
            if let Some(entry) = &mut entry {
                entry.watch.take_back(excess);
            }
            let placed = entry.as_mut().is_some_and(|e| e.watch.add_idle(rest));
            if let Some(wait) = entry.as_mut().and_then(|e| e.watch.take_wait()) {
                self.record_wait(index, &wait, out);
            }
            let unplaced = if placed { 0 } else { rest };
            // Waits that were never examined have an unknown place, but their time counts.
            let start_ns = end_ns.saturating_sub(unplaced);
            let (state, stack) = (thread_state::SLEEPING, Vec::new());
            self.record_wait(
                index,
                &Wait { start_ns, idle_ns: unplaced, state, stack, context: Vec::new() },
                out,
            );
            let start_ns = end_ns.saturating_sub(queued_ns);
            let (state, stack) = (thread_state::WAITING_FOR_CPU, Vec::new());
            self.record_wait(
                index,
                &Wait { start_ns, idle_ns: queued_ns, state, stack, context: Vec::new() },
                out,
            );
        }
        if all {
            for mut entry in self.threads.remove_all() {
                if let (Some(wait), Some(thread)) = (
                    entry.watch.take_wait(),
                    out.state.threads.index_for_generation(entry.slot, entry.generation),
                ) {
                    self.record_wait(thread, &wait, out);
                }
            }
        }
    }

    /// Returns a message for the user, once.
    pub fn notice(&mut self) -> Option<String> {
        if self.denied && !std::mem::replace(&mut self.denied_reported, true) {
            return Some(format!(
                "process {}: no permission to read stacks of waiting threads, so their waits have no \
                 stacks; run flightline as the same user, or with CAP_SYS_PTRACE",
                self.pid
            ));
        }
        None
    }
}

/// Updates a thread that measures its own off-CPU time. Returns the time that it used, and the waits that
/// ended.
fn changed(
    entry: &mut WatchedThread,
    share: &mut Share,
    [slice_ns, first_ns]: [u64; 2],
    now_ns: u64,
    stat: SchedStat,
    doing: Doing,
) -> (thread_timeline::Used, [Option<Wait>; 2]) {
    let before = if entry.slice_ns == 0 { entry.watch.hand_over(first_ns, now_ns) } else { None };
    entry.slice_ns = slice_ns;
    let slices = share.slices.get_or_insert_default();
    let waits = matches!(doing, Doing::Waiting(..));
    let off_ns = now_ns.saturating_sub(stat.ran_ns);
    let ns = if waits { entry.seen(slices, off_ns, now_ns) } else { 0 };
    let (mut used, ended) = entry.watch.found(now_ns, stat, doing, ns);
    match entry.watch.place() {
        Some(place) => slices.at(slice_ns, place),
        // A thread that stays in one span for long makes no reading; its next sample gets this time.
        None if slices.queued(slice_ns, used.queued_ns, now_ns) => {
            entry.watch.queued_ns += used.queued_ns;
            return (used, [before, ended]);
        }
        None => {}
    }
    slices.queued_ns = slices.queued_ns.saturating_add(std::mem::take(&mut used.queued_ns));
    (used, [before, ended])
}
