//! Intervals that are over, on their way into the recording: stacks are walked and named, and files may have to be read for
//! that.

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

/// Intervals that may wait for names, and bytes of their stacks.
const WAITING: [usize; 2] = [200_000, 64 << 20];
/// So many times as long as trying it takes what waits is left alone.
const AGAIN: u64 = 4;
/// Time that a program which we started gets to join the recording, ns: its threads are known by then.
const JOIN_NS: u64 = 2_000_000_000;

/// An interval, or what goes on at the end.
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

/// Intervals that wait for names.
#[derive(Default)]
pub struct PendingIntervals {
    list: Vec<Ready>,
    /// Bytes of their stacks.
    bytes: usize,
    /// When they are tried again, CLOCK_MONOTONIC ns.
    again_ns: u64,
}

impl PendingIntervals {
    /// Returns how many wait.
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
    /// An interval is over; or several, if records are missing.
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

    /// Tells of a process that no other engine tells of.
    pub(super) fn describe_unknown_process(&mut self, outputs: &mut dyn Outputs, pid: u32) {
        if self.options.joins || self.tasks.process(pid).told {
            return;
        }
        self.tasks.process(pid).told = true;
        if let (false, Some(id)) = (outputs.knows(pid), self.output(outputs, pid)) {
            outputs.describe_running_process(pid, id);
        }
    }

    /// The output of a process.
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

    /// An interval is lost.
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

    /// Tries again what waits; `anyway`: with what is known.
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
        // Much that waits must not take the time that rings need.
        let now_ns = monotonic_ns();
        self.pending.again_ns = now_ns + AGAIN * (now_ns - begun_ns);
    }

    /// Lets go of threads and processes that are over.
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

    /// The end: what is out by now.
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

    /// Looks whether names of code made at run time are written by now.
    pub(super) fn read_names(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        for (pid, process) in self.tasks.all().filter(|(_, p)| p.recorded && !p.over) {
            let stacks = &mut process.stacks;
            stacks.frames.jit.look(pid, &stacks.modules, outputs.images(), now_ns);
        }
    }

    /// Whether a process may still join the recording, so that what waits since then for it keeps waiting.
    pub(super) fn may_join(&self, outputs: &dyn Outputs, pid: u32, since_ns: u64) -> bool {
        // At the end nobody joins any more, and names have to be asked for.
        let may = self.options.joins && !self.stopped && self.now_ns.saturating_sub(since_ns) < JOIN_NS;
        may && self.tasks.recorded(pid) && !outputs.knows(pid)
    }

    /// Writes an interval; gives it back if it has to wait.
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

    /// The stacks in the output: of the thread, if it has one, and what woke it, if something was seen to.
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

    /// A stack of a process in the output; `None` if it is empty.
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

    /// The constant of a thread: that which another engine has given it, if it is called so now.
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

/// Names are being read.
pub(super) struct Waiting;

/// Where it was woken from, when, and by which process and thread of which name, if by one.
type Woken<'a> = (Option<TraceIndex>, u64, Option<((u32, u32), &'a Arc<str>)>);
