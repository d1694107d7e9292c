//! Intervals that are over, on their way into the recording: stacks are walked and named, and files may have to be read for
//! that.

use std::{collections::HashSet, sync::Arc};

use super::{
    Kept, OffCpu,
    intervals::Interval,
    ledger::Cause,
    write::{self, Waker},
};
use crate::{attach::stacks::Stack, clock::monotonic_ns, drain::Drain, names::intern::TraceIndex, tell};

/// Intervals that may wait for names, and bytes of their stacks.
const WAITING: [usize; 2] = [200_000, 64 << 20];
/// So many times as long as trying it takes what waits is left alone.
const AGAIN: u64 = 4;
/// Time that a program which we started gets to join the recording, ns: its threads are known by then.
const JOIN_NS: u64 = 2_000_000_000;

/// An interval, or what goes on at the end.
pub struct Ready {
    interval: Interval<Kept>,
    open: bool,
    since_ns: u64,
}

impl Ready {
    fn bytes(&self) -> usize {
        let out = &self.interval.out;
        out.stack.bytes() + out.wake.as_ref().map_or(0, |wake| wake.stack.bytes())
    }
}

impl OffCpu {
    /// An interval is over; or several, if records are missing.
    pub(super) fn ended(&mut self, drain: &mut Drain, interval: Interval<Kept>, doubtful: bool) {
        let (pid, took_ns) = (interval.out.pid, interval.took_ns());
        if doubtful {
            self.lose(drain, pid, Cause::Doubtful, took_ns);
        } else if took_ns >= self.settings.min_ns() {
            self.enter(drain, interval, false);
        } else if let Some(index) = self.output(drain, pid) {
            self.ledger.short("off-cpu", index, took_ns);
        }
    }

    /// Tells of a process that no other engine tells of.
    pub(super) fn tell_process(&mut self, drain: &mut Drain, pid: u32) {
        if self.joins || self.tasks.process(pid).told {
            return;
        }
        self.tasks.process(pid).told = true;
        if let (false, Some(index)) = (drain.knows(pid), self.output(drain, pid)) {
            drain.tell_process(pid, index);
        }
    }

    /// The output of a process.
    pub(super) fn output(&mut self, drain: &mut Drain, pid: u32) -> Option<usize> {
        let process = self.tasks.process(pid);
        if process.output.is_none() {
            process.output = drain.recording_of(pid).ok().map(|(index, _)| index);
            if let Some(index) = process.output
                && self.ledger.uses(index)
                && let Some(lacks) = &self.lacks
            {
                tell::notice(drain.parts(index).0, lacks, monotonic_ns());
            }
        }
        process.output
    }

    /// An interval is lost.
    pub(super) fn lose(&mut self, drain: &mut Drain, pid: u32, cause: Cause, ns: u64) {
        if let Some(index) = self.output(drain, pid) {
            self.ledger.lose(index, cause, ns);
        }
    }

    fn enter(&mut self, drain: &mut Drain, interval: Interval<Kept>, open: bool) {
        self.tell_process(drain, interval.out.pid);
        let ready = Ready { interval, open, since_ns: self.now_ns };
        let full = self.pending.len() >= WAITING[0] || self.pending_bytes >= WAITING[1];
        if let Some(ready) = self.write(drain, ready, full) {
            self.pending_bytes += ready.bytes();
            self.pending.push(ready);
        }
    }

    /// Tries again what waits; `anyway`: with what is known.
    pub fn resolve(&mut self, drain: &mut Drain, anyway: bool) {
        let begun_ns = monotonic_ns();
        self.now_ns = begun_ns;
        if begun_ns < self.again_ns && !self.stopped && !anyway {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        for ready in pending {
            if let Some(ready) = self.write(drain, ready, anyway) {
                self.pending_bytes += ready.bytes();
                self.pending.push(ready);
            }
        }
        self.resolve_io(drain, anyway);
        self.forget(drain);
        // Much that waits must not take the time that rings need.
        let now_ns = monotonic_ns();
        self.again_ns = now_ns + AGAIN * (now_ns - begun_ns);
    }

    /// Lets go of threads and processes that are over.
    fn forget(&mut self, drain: &mut Drain) {
        if !self.tasks.any_over() {
            return;
        }
        let mut needed = HashSet::new();
        for Ready { interval, .. } in &self.pending {
            let waker = interval.out.wake.as_ref().map_or((0, 0), |wake| wake.waker);
            needed.extend([interval.tid, interval.out.pid, waker.0, waker.1]);
        }
        needed.extend(self.io.needed());
        for (pid, process) in self.tasks.forget(&needed) {
            self.io.forget(pid);
            for (index, group) in process.groups() {
                drain.parts(*index).0.end_group(*group);
            }
        }
    }

    /// The end: what is out by now.
    pub fn close(&mut self, drain: &mut Drain, now_ns: u64) {
        self.release(drain, now_ns);
        let blind_ns = monotonic_ns();
        self.stop();
        self.read(drain, u64::MAX);
        self.io_end(drain, blind_ns);
        self.read_names(drain, now_ns);
        for (tid, _) in std::mem::take(&mut self.ending) {
            self.intervals.ended(tid);
        }
        if !self.paused && !self.guard.holds() {
            self.find_last_earlier_waits(drain);
        }
        for (interval, doubtful) in self.intervals.take_open(now_ns) {
            match doubtful {
                true => self.lose(drain, interval.out.pid, Cause::Doubtful, interval.took_ns()),
                false => self.enter(drain, interval, true),
            }
        }
        self.resolve(drain, false);
    }

    /// Looks whether names of code made at run time are written by now.
    pub(super) fn read_names(&mut self, drain: &mut Drain, now_ns: u64) {
        for (pid, process) in self.tasks.all().filter(|(_, p)| p.recorded && !p.over) {
            let stacks = &mut process.stacks;
            stacks.frames.jit.look(pid, &stacks.modules, drain.images(), now_ns);
        }
    }

    /// Whether a process may still join the recording, so that what waits since then for it keeps waiting.
    pub(super) fn may_join(&self, drain: &Drain, pid: u32, since_ns: u64) -> bool {
        // At the end nobody joins any more, and names have to be asked for.
        let may = self.joins && !self.stopped && self.now_ns.saturating_sub(since_ns) < JOIN_NS;
        may && self.tasks.recorded(pid) && !drain.knows(pid)
    }

    /// Writes an interval; gives it back if it has to wait.
    fn write(&mut self, drain: &mut Drain, mut ready: Ready, anyway: bool) -> Option<Ready> {
        let pid = ready.interval.out.pid;
        if !anyway && self.may_join(drain, pid, ready.since_ns) {
            return Some(ready);
        }
        let took_ns = ready.interval.took_ns();
        let index = self.output(drain, pid)?;
        if drain.parts(index).0.full() {
            self.ledger.lose(index, Cause::OutputFull, took_ns);
            return None;
        }
        let out = &mut ready.interval.out;
        if !self.walk(drain, pid, &mut out.stack, false, anyway) {
            return Some(ready);
        }
        if let Some(wake) = &mut out.wake
            && !self.walk(drain, wake.waker.0, &mut wake.stack, wake.interrupt, anyway)
        {
            return Some(ready);
        }
        let (Ok(trace), Ok(waker)) = self.traces(drain, index, &ready, anyway) else { return Some(ready) };
        let (tid, out) = (ready.interval.tid, &ready.interval.out);
        let thread = self.constant(drain, (pid, tid), &out.name, index);
        let waker = waker.map(|(trace, time_ns, who)| {
            let thread = who.map(|(who, name)| self.constant(drain, who, name, index));
            Waker { thread, trace, time_ns }
        });
        let states = &self.states;
        let (recording, ..) = drain.parts(index);
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
        drain: &mut Drain,
        index: usize,
        ready: &'a Ready,
        anyway: bool,
    ) -> (Result<Option<TraceIndex>, Waiting>, Result<Option<Woken<'a>>, Waiting>) {
        let out = &ready.interval.out;
        let own = self.stack_in(drain, index, out.pid, out.stack.stack.as_ref(), anyway);
        let Some(wake) = &out.wake else { return (own, Ok(None)) };
        let who = (!wake.interrupt).then_some((wake.waker, &wake.name));
        let found = self.stack_in(drain, index, wake.waker.0, wake.stack.stack.as_ref(), anyway);
        (own, found.map(|found| Some((found, wake.time_ns, who))))
    }

    /// A stack of a process in the output; `None` if it is empty.
    pub(super) fn stack_in(
        &mut self,
        drain: &mut Drain,
        index: usize,
        pid: u32,
        stack: Option<&Stack>,
        anyway: bool,
    ) -> Result<Option<TraceIndex>, Waiting> {
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else { return Ok(None) };
        let (recording, images, _) = drain.parts(index);
        let stacks = &mut self.tasks.process(pid).stacks;
        stacks.trace(stack, anyway, index, &mut recording.interner, images).map(Some).ok_or(Waiting)
    }

    /// The constant of a thread: that which another engine has given it, if it is called so now.
    pub(super) fn constant(
        &mut self,
        drain: &mut Drain,
        who: (u32, u32),
        name: &Arc<str>,
        index: usize,
    ) -> usize {
        if self.tasks.wants_constant(who.1, name, index) {
            let known = drain.known_thread(who.0, who.1, name, index);
            self.tasks.adopt(who.0, who.1, index, known);
        }
        self.tasks.constant(who, name, index, drain.parts(index).0)
    }
}

/// Names are being read.
pub(super) struct Waiting;

/// Where it was woken from, when, and by which process and thread of which name, if by one.
type Woken<'a> = (Option<TraceIndex>, u64, Option<((u32, u32), &'a Arc<str>)>);
