//! The waits of a process recorded from outside: the wall clock without code in the process.
//!
//! Running time comes from the process's CPU samples. Waits come from here, as for processes that record
//! themselves ([`crate::process::wall`]): a thread whose scheduler statistics do not change has waited, and
//! its stack is read once for each wait.

use std::{collections::HashMap, time::Instant};

use flightline_in_signal::layout::event_kind;
use jfr_format::schema::thread_state;

use super::{
    target::{RecordingContext, Sampled, Target},
    watched::Watched,
};
use crate::remote_unwinder::stacks::Stack;
use crate::{
    os::clock::process_cpu_ns,
    process::wall::Wait,
    process::wall::schedstat::{self, Files, SchedStat, SyscallState},
    process::wall::thread_timeline::{Doing, Watch},
    recording::events::Head,
};

/// A pass over all threads may use at most this fraction of a processor (1/50).
const SCAN_PART: u32 = 50;
/// Limit of frames of a waiting thread's stack.
const DEPTH: usize = 1024;

struct Entry {
    files: Files,
    watch: Watch,
    /// When it is examined next, CLOCK_MONOTONIC ns.
    due_ns: u64,
    /// The stack was cut because modules were still being read; walk it again.
    again: bool,
}

/// The waits of the threads of one process.
pub struct Waits {
    period_ns: u64,
    /// CPU time of the process at the last pass, ns.
    cpu_ns: Option<u64>,
    scan_after_ns: u64,
    entries: HashMap<u32, Entry>,
    /// The kernel does not permit us to see where threads wait.
    denied: bool,
    reported: bool,
}

/// Encodes a walked stack as the wall clock stores it: 1 + the reason if it is cut, its number of exact
/// frames, its addresses.
fn stack_words(stack: Stack) -> Vec<u64> {
    let mut words = Vec::with_capacity(stack.frames.len() + 2);
    words.push(stack.truncated.map_or(0, |reason| 1 + u64::from(reason)));
    words.push(stack.exact);
    words.extend(stack.frames);
    words
}

/// The inverse of [`stack_words`]; an empty stack has no words.
fn stack_from_words(words: &[u64]) -> Option<Stack> {
    let [cut, exact, frames @ ..] = words else { return None };
    Some(Stack {
        truncated: cut.checked_sub(1).map(|reason| reason as u16),
        exact: *exact,
        frames: frames.to_vec(),
    })
}

impl Waits {
    /// Returns a sampler that examines threads every `period_ns`.
    pub fn new(period_ns: u64) -> Waits {
        Waits {
            period_ns,
            cpu_ns: None,
            scan_after_ns: 0,
            entries: HashMap::new(),
            denied: false,
            reported: false,
        }
    }

    /// Restarts all waits, because sampling was paused until now.
    pub fn restart(&mut self) {
        self.entries.clear();
        self.cpu_ns = None;
    }

    /// Continues with a thread of `before` that executed another program. Its recorded stack belongs to the
    /// old program, so its stack is unknown.
    pub fn take_over(&mut self, tid: u32, before: &mut Waits) {
        let Some(mut entry) = before.entries.remove(&tid) else { return };
        if entry.watch.waits() {
            entry.watch.seen_better(Doing::Waiting(thread_state::SLEEPING, Vec::new(), Vec::new()));
        }
        self.entries.insert(tid, entry);
    }

    /// Returns a message for the user, once.
    pub fn notice(&mut self, pid: u32) -> Option<String> {
        (self.denied && !std::mem::replace(&mut self.reported, true)).then(|| {
            format!(
                "process {pid}: no permission to read stacks of waiting threads, so their waits have no \
                 stacks; run flightline as the same user, or with CAP_SYS_PTRACE"
            )
        })
    }

    /// Examines the threads that are due, and all threads if the process ran. Returns true if it ran since
    /// the last call.
    pub fn tick(&mut self, target: &mut Target, context: &mut RecordingContext<'_>, now_ns: u64) -> bool {
        let cpu_ns = process_cpu_ns(target.pid());
        let ran = cpu_ns != self.cpu_ns;
        self.cpu_ns = cpu_ns;
        self.find_threads(target, now_ns);
        let all = ran && now_ns >= self.scan_after_ns;
        let begun = Instant::now();
        let due = |entry: &Entry| entry.due_ns <= now_ns || all && entry.due_ns < u64::MAX;
        let tids: Vec<u32> = self.entries.iter().filter(|(_, e)| due(e)).map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.look(tid, target, context, now_ns);
        }
        if all {
            let pause = u64::try_from((begun.elapsed() * SCAN_PART).as_nanos()).unwrap_or(u64::MAX);
            self.scan_after_ns = now_ns.saturating_add(pause);
        }
        ran
    }

    fn find_threads(&mut self, target: &Target, now_ns: u64) {
        let pid = target.pid();
        for (tid, watched) in &target.threads {
            if watched.ended_ns.is_some() || self.entries.contains_key(tid) {
                continue;
            }
            let Ok(files) = Files::open(pid, *tid) else { continue };
            let Ok(stat) = files.schedstat() else { continue };
            // Subtract one slice, so that the first pass finds a change and reads where the thread is. Time
            // before the thread's events were opened is not recorded.
            let start_ns = watched.thread.start_ns.min(now_ns);
            let ran_ns = watched.base_ns.max(stat.ran_ns.saturating_sub(now_ns - start_ns));
            let before = SchedStat { ran_ns, slices: stat.slices.wrapping_sub(1), ..stat };
            let watch = Watch::new(self.period_ns, start_ns, before, Doing::Running);
            self.entries.insert(*tid, Entry { files, watch, due_ns: 0, again: false });
        }
    }

    fn look(&mut self, tid: u32, target: &mut Target, context: &mut RecordingContext<'_>, now_ns: u64) {
        let Some(entry) = self.entries.get_mut(&tid) else { return };
        let Ok(stat) = entry.files.schedstat() else {
            // It has ended. `finish` writes the rest.
            entry.due_ns = u64::MAX;
            return;
        };
        let mut waits = [None, None, None];
        if entry.watch.unchanged(stat) {
            entry.watch.stayed(now_ns);
            if entry.again && context.images.outstanding() == 0 {
                let (doing, again) = observe(entry, stat, target, context, &mut self.denied);
                entry.again = again;
                if matches!(doing, Doing::Waiting(..)) {
                    entry.watch.seen_better(doing);
                }
            }
        } else {
            let (doing, again) = observe(entry, stat, target, context, &mut self.denied);
            entry.again = again;
            let (used, [ended, woken]) = entry.watch.changed(now_ns, stat, doing);
            if let Some(watched) = target.threads.get_mut(&tid) {
                watched.thread.wall.add_queued(used.queued_ns);
            }
            (waits[0], waits[1]) = (ended, woken);
        }
        waits[2] = entry.watch.long_wait();
        entry.due_ns = entry.watch.next_ns();
        for wait in waits.into_iter().flatten() {
            self.record(tid, &wait, target, context);
        }
    }

    /// Writes the remaining waits of threads whose accounts are closed.
    pub fn finish(&mut self, target: &mut Target, context: &mut RecordingContext<'_>) {
        let closed = |w: &Watched| w.thread.end_ns.is_some() && !w.thread.wall.done;
        let tids: Vec<u32> = target.threads.iter().filter(|(_, w)| closed(w)).map(|(tid, _)| *tid).collect();
        for tid in tids {
            let Some(watched) = target.threads.get_mut(&tid) else { continue };
            let thread = &mut watched.thread;
            thread.wall.done = true;
            let end_ns = thread.end_ns.unwrap_or(thread.start_ns);
            let lived_ns = end_ns.saturating_sub(thread.start_ns);
            let used_ns = thread.ledger.cpu_ns;
            let queued_ns = thread.wall.take_queued();
            let mut entry = self.entries.remove(&tid);
            let seen = entry.as_ref().map_or(0, |e| e.watch.idle_ns + e.watch.queued_ns);
            let rest = lived_ns.saturating_sub(used_ns).saturating_sub(seen);
            // A thread cannot wait longer than it lived.
            let excess = seen.saturating_add(used_ns).saturating_sub(lived_ns);
            let mut placed = false;
            if let Some(entry) = &mut entry {
                entry.watch.take_back(excess);
                placed = entry.watch.add_idle(rest);
                if let Some(wait) = entry.watch.take_wait() {
                    self.record(tid, &wait, target, context);
                }
            }
            let unplaced_ns = if placed { 0 } else { rest };
            // Where these waits happened is unknown, but their time counts.
            for (state, ns) in
                [(thread_state::SLEEPING, unplaced_ns), (thread_state::WAITING_FOR_CPU, queued_ns)]
            {
                let start_ns = end_ns.saturating_sub(ns);
                let wait = Wait { start_ns, idle_ns: ns, state, stack: Vec::new(), context: Vec::new() };
                self.record(tid, &wait, target, context);
            }
        }
    }

    fn record(&self, tid: u32, wait: &Wait, target: &mut Target, context: &mut RecordingContext<'_>) {
        let Some(watched) = target.threads.get_mut(&tid) else { return };
        let thread = &mut watched.thread;
        if !thread.selected_outside(context.threads) {
            return;
        }
        let samples = thread.wall.without(wait.state, thread.seed(), wait.idle_ns, self.period_ns);
        if samples == 0 {
            return;
        }
        // Times add up as those of samples do: a wait shorter than an interval may have no sample.
        let extra = u64::from(samples).saturating_mul(self.period_ns);
        let head = Head { kind: event_kind::WALL, index: wait.state as u16, value: u64::from(samples) };
        target.record(
            tid,
            wait.start_ns,
            stack_from_words(&wait.stack),
            Sampled::Event(head, extra),
            context,
        );
    }
}

/// Returns what a thread with the statistics `stat` does, and true if its stack should be walked again.
fn observe(
    entry: &mut Entry,
    stat: SchedStat,
    target: &mut Target,
    context: &mut RecordingContext<'_>,
    denied: &mut bool,
) -> (Doing, bool) {
    let running = (Doing::Running, false);
    let (call, sp, pc) = match entry.files.place() {
        Ok(SyscallState::Waiting { call, sp, pc }) => (call, sp, pc),
        Ok(SyscallState::Denied) => {
            *denied = true;
            return (Doing::Waiting(thread_state::SLEEPING, Vec::new(), Vec::new()), false);
        }
        Ok(SyscallState::Running) | Err(_) => return running,
    };
    let disk = !schedstat::surely_interruptible(call) && entry.files.uninterruptible();
    let state = if disk { thread_state::DISK_SLEEP } else { thread_state::SLEEPING };
    let stack = target.walk_asleep((pc, sp), DEPTH, context);
    let again = stack.truncated.is_some() && context.images.outstanding() > 0;
    // If the thread ran in the meantime, its stack is not the one that its registers belong to.
    if entry.files.schedstat().ok() != Some(stat) {
        return running;
    }
    (Doing::Waiting(state, stack_words(stack), Vec::new()), again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_stacks_round_trip_through_words() {
        for stack in [
            Stack { truncated: None, exact: 1, frames: vec![7, 9] },
            Stack { truncated: Some(3), exact: 0, frames: Vec::new() },
        ] {
            assert_eq!(stack_from_words(&stack_words(stack.clone())), Some(stack));
        }
        assert_eq!(stack_from_words(&[]), None);
    }
}
