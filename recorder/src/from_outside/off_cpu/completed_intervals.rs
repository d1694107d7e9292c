//! Completed intervals on their way into the recording. Their stacks are walked and symbolized, for which
//! files may have to be read first.

use std::{collections::HashSet, sync::Arc};

use super::{
    OffCpu, SampledStack,
    intervals::Interval,
    ledger::Cause,
    write::{self, Waker},
};
use crate::{
    from_outside::outputs::Outputs, names::intern::TraceIndex, os::clock::monotonic_ns,
    recording::RecordingId, remote_unwinder::stacks::Stack,
};

/// Limits of intervals that wait for symbols, and of the bytes of their stacks.
const WAITING: [usize; 2] = [200_000, 64 << 20];
/// Waiting intervals are retried after this many times the duration of the last attempt.
const AGAIN: u64 = 4;
/// How long a program that we started may take to join the recording, ns. Until then its threads are unknown.
const JOIN_NS: u64 = 2_000_000_000;

/// An interval to write; at the end of the recording it may still be open.
pub struct Ready {
    interval: Interval<SampledStack>,
    open: bool,
    since_ns: u64,
}

impl Ready {
    fn bytes(&self) -> usize {
        let out = &self.interval.out;
        out.stack.bytes() + out.wake.as_ref().map_or(0, |wake| wake.stack.bytes())
    }
}

/// Intervals that wait for symbols.
#[derive(Default)]
pub struct PendingIntervals {
    list: Vec<Ready>,
    /// Bytes of their stacks.
    bytes: usize,
    /// Time of the next attempt, CLOCK_MONOTONIC ns.
    again_ns: u64,
}

impl PendingIntervals {
    /// Returns the number of waiting intervals.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    fn is_full(&self) -> bool {
        self.list.len() >= WAITING[0] || self.bytes >= WAITING[1]
    }

    fn push(&mut self, ready: Ready) {
        self.bytes += ready.bytes();
        self.list.push(ready);
    }

    fn take(&mut self) -> Vec<Ready> {
        self.bytes = 0;
        std::mem::take(&mut self.list)
    }
}

impl OffCpu {
    /// Adds a completed interval. If records are missing, it may be several.
    pub(super) fn ended(
        &mut self,
        outputs: &mut dyn Outputs,
        interval: Interval<SampledStack>,
        doubtful: bool,
    ) {
        let (pid, took_ns) = (interval.out.pid, interval.took_ns());
        if doubtful {
            self.lose(outputs, pid, Cause::Doubtful, took_ns);
        } else if took_ns >= self.options.selected.min_ns() {
            self.enter(outputs, interval, false);
        } else if let Some(id) = self.output(outputs, pid) {
            self.ledger.short("off-cpu", id, took_ns);
        }
    }

    /// Describes a process that no other engine describes.
    pub(super) fn describe_unknown_process(&mut self, outputs: &mut dyn Outputs, pid: u32) {
        if self.options.joins || self.tasks.process(pid).described {
            return;
        }
        self.tasks.process(pid).described = true;
        if let (false, Some(id)) = (outputs.knows(pid), self.output(outputs, pid)) {
            outputs.describe_running_process(pid, id);
        }
    }

    /// Returns the recording of a process.
    pub(super) fn output(&mut self, outputs: &mut dyn Outputs, pid: u32) -> Option<RecordingId> {
        let process = self.tasks.process(pid);
        if process.output.is_none() {
            process.output = outputs.recording_for(pid).ok().map(|(id, _)| id);
            if let Some(id) = process.output
                && self.ledger.uses(id)
                && let Some(lacks) = &self.kernel.lacks
                && let Some((recording, ..)) = outputs.parts(id)
            {
                recording.notice(lacks, monotonic_ns());
            }
        }
        process.output
    }

    /// Counts a lost interval.
    pub(super) fn lose(&mut self, outputs: &mut dyn Outputs, pid: u32, cause: Cause, ns: u64) {
        if let Some(id) = self.output(outputs, pid) {
            self.ledger.lose(id, cause, ns);
        }
    }

    fn enter(&mut self, outputs: &mut dyn Outputs, interval: Interval<SampledStack>, open: bool) {
        self.describe_unknown_process(outputs, interval.out.pid);
        let ready = Ready { interval, open, since_ns: self.now_ns };
        let full = self.pending.is_full();
        if let Some(ready) = self.write(outputs, ready, full) {
            self.pending.push(ready);
        }
    }

    /// Retries waiting intervals. `anyway`: writes them with the symbols available.
    pub fn resolve(&mut self, outputs: &mut dyn Outputs, anyway: bool) {
        let begun_ns = monotonic_ns();
        self.now_ns = begun_ns;
        if begun_ns < self.pending.again_ns && !self.stopped && !anyway {
            return;
        }
        for ready in self.pending.take() {
            if let Some(ready) = self.write(outputs, ready, anyway) {
                self.pending.push(ready);
            }
        }
        self.resolve_io(outputs, anyway);
        self.forget(outputs);
        // Retrying many intervals must not take the time needed for the rings.
        let now_ns = monotonic_ns();
        self.pending.again_ns = now_ns + AGAIN * (now_ns - begun_ns);
    }

    /// Forgets threads and processes that have ended.
    fn forget(&mut self, outputs: &mut dyn Outputs) {
        if !self.tasks.any_over() {
            return;
        }
        let mut needed = HashSet::new();
        for Ready { interval, .. } in &self.pending.list {
            let waker = interval.out.wake.as_ref().map_or((0, 0), |wake| wake.waker);
            needed.extend([interval.tid, interval.out.pid, waker.0, waker.1]);
        }
        needed.extend(self.io.needed());
        for (pid, process) in self.tasks.forget(&needed) {
            self.io.forget(pid);
            for (id, group) in process.groups() {
                if let Some((recording, ..)) = outputs.parts(*id) {
                    recording.end_group(*group);
                }
            }
        }
    }

    /// Handles the threads that are off CPU at the end of the recording.
    pub fn close(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        self.release(outputs, now_ns);
        let blind_ns = monotonic_ns();
        self.stop();
        self.read(outputs, u64::MAX);
        self.io_end(outputs, blind_ns);
        self.read_names(outputs, now_ns);
        for (tid, _) in std::mem::take(&mut self.ending) {
            self.intervals.ended(tid);
        }
        if !self.paused && !self.guard.holds() {
            self.find_last_earlier_waits(outputs);
        }
        for (interval, doubtful) in self.intervals.take_open(now_ns) {
            match doubtful {
                true => self.lose(outputs, interval.out.pid, Cause::Doubtful, interval.took_ns()),
                false => self.enter(outputs, interval, true),
            }
        }
        self.resolve(outputs, false);
    }

    /// Checks whether processes have written names of JIT-compiled code.
    pub(super) fn read_names(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        for (pid, process) in self.tasks.all().filter(|(_, p)| p.recorded && !p.over) {
            let stacks = &mut process.stacks;
            stacks.frames.jit.look(pid, &stacks.modules, outputs.images(), now_ns);
        }
    }

    /// Returns true if a process may still join the recording, so that intervals waiting since `since_ns` go
    /// on waiting.
    pub(super) fn may_join(&self, outputs: &dyn Outputs, pid: u32, since_ns: u64) -> bool {
        // At the end no process joins any more, so names must be read from /proc.
        let may = self.options.joins && !self.stopped && self.now_ns.saturating_sub(since_ns) < JOIN_NS;
        may && self.tasks.recorded(pid) && !outputs.knows(pid)
    }

    /// Writes an interval; returns it if it has to wait.
    fn write(&mut self, outputs: &mut dyn Outputs, mut ready: Ready, anyway: bool) -> Option<Ready> {
        let pid = ready.interval.out.pid;
        if !anyway && self.may_join(outputs, pid, ready.since_ns) {
            return Some(ready);
        }
        let took_ns = ready.interval.took_ns();
        let id = self.output(outputs, pid)?;
        if outputs.parts(id)?.0.full() {
            self.ledger.lose(id, Cause::OutputFull, took_ns);
            return None;
        }
        let out = &mut ready.interval.out;
        if !self.walk(outputs, pid, &mut out.stack, false, anyway) {
            return Some(ready);
        }
        if let Some(wake) = &mut out.wake
            && !self.walk(outputs, wake.waker.0, &mut wake.stack, wake.interrupt, anyway)
        {
            return Some(ready);
        }
        let (Ok(trace), Ok(waker)) = self.traces(outputs, id, &ready, anyway) else { return Some(ready) };
        let (tid, out) = (ready.interval.tid, &ready.interval.out);
        let thread = self.constant(outputs, (pid, tid), &out.name, id)?;
        let waker = waker.map(|(trace, time_ns, who)| {
            let thread = who.and_then(|(who, name)| self.constant(outputs, who, name, id));
            Waker { thread, trace, time_ns }
        });
        let states = &self.kernel.states;
        let (recording, ..) = outputs.parts(id)?;
        match ready.open {
            true => write::open(recording, &ready.interval, states, thread, trace),
            false => write::interval(recording, &ready.interval, states, thread, trace, waker.as_ref()),
        }
        self.ledger.written += 1;
        None
    }

    /// Returns the stacks in the output: that of the thread, if it has one, and that of its waker, if there
    /// was one.
    fn traces<'a>(
        &mut self,
        outputs: &mut dyn Outputs,
        id: RecordingId,
        ready: &'a Ready,
        anyway: bool,
    ) -> (Result<Option<TraceIndex>, Waiting>, Result<Option<Woken<'a>>, Waiting>) {
        let out = &ready.interval.out;
        let own = self.stack_in(outputs, id, out.pid, out.stack.stack.as_ref(), anyway);
        let Some(wake) = &out.wake else { return (own, Ok(None)) };
        let who = (!wake.interrupt).then_some((wake.waker, &wake.name));
        let found = self.stack_in(outputs, id, wake.waker.0, wake.stack.stack.as_ref(), anyway);
        (own, found.map(|found| Some((found, wake.time_ns, who))))
    }

    /// Returns a stack of a process in the output; `None` if it is empty.
    pub(super) fn stack_in(
        &mut self,
        outputs: &mut dyn Outputs,
        id: RecordingId,
        pid: u32,
        stack: Option<&Stack>,
        anyway: bool,
    ) -> Result<Option<TraceIndex>, Waiting> {
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else { return Ok(None) };
        let Some((recording, images, _)) = outputs.parts(id) else { return Ok(None) };
        let stacks = &mut self.tasks.process(pid).stacks;
        stacks.trace(stack, anyway, id, &mut recording.interner, images).map(Some).ok_or(Waiting)
    }

    /// Returns the constant of a thread: the one from another engine, if the name is still the same.
    pub(super) fn constant(
        &mut self,
        outputs: &mut dyn Outputs,
        who: (u32, u32),
        name: &Arc<str>,
        id: RecordingId,
    ) -> Option<usize> {
        if self.tasks.wants_constant(who.1, name, id) {
            let known = outputs.known_thread(who.0, who.1, name, id);
            self.tasks.adopt(who.0, who.1, id, known);
        }
        Some(self.tasks.constant(who, name, id, outputs.parts(id)?.0))
    }
}

/// Symbols are still being read.
pub(super) struct Waiting;

/// Stack of the waker, time of the wake-up, and the waker's process, thread and name, if a thread was the
/// waker.
type Woken<'a> = (Option<TraceIndex>, u64, Option<((u32, u32), &'a Arc<str>)>);
