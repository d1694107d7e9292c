//! Merges the records of all rings in order of time.

use std::sync::Arc;

use super::{
    OffCpu, SampledStack,
    intervals::{Out, Wake},
    ledger::Cause,
    open::{Kind, Source},
    thread_polls,
};
use crate::{
    from_outside::outputs::Outputs,
    os::clock::monotonic_ns,
    perf_events::attr::Telling,
    perf_events::record::{self, Record, Traced},
};

/// A record in a ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPosition {
    time_ns: u64,
    source: usize,
    at: u64,
    len: usize,
}

impl OffCpu {
    /// Reads the records before `until_ns`. Returns how full the fullest ring was, in 1/256.
    pub(super) fn read(&mut self, outputs: &mut dyn Outputs, until_ns: u64) -> u32 {
        self.now_ns = monotonic_ns();
        let mut found = std::mem::take(&mut self.kernel.positions);
        found.clear();
        let mut fill = 0;
        for (number, source) in self.kernel.sources.iter().enumerate() {
            let (head, size) = (source.ring.head(), source.ring.size() as u64);
            let mut at = source.ring.tail();
            fill = fill.max((head.saturating_sub(at).saturating_mul(256) / size.max(1)).min(256) as u32);
            let mut last_ns = 0;
            while let Some((len, time_ns)) = source.ring.look(at, head, record::numbered_time_at) {
                last_ns = time_ns.max(last_ns);
                if last_ns > until_ns {
                    break;
                }
                found.push(RecordPosition { time_ns: last_ns, source: number, at, len });
                at += len as u64;
            }
        }
        // The records of each ring are already in order.
        found.sort();
        let mut sources = std::mem::take(&mut self.kernel.sources);
        for one in &found {
            if let Some(source) = sources.get_mut(one.source) {
                self.take(outputs, source, *one);
                source.ring.release(one.at + one.len as u64);
            }
        }
        self.kernel.sources = sources;
        self.kernel.positions = found;
        self.io.seen_ns = until_ns;
        fill
    }

    fn take(&mut self, outputs: &mut dyn Outputs, source: &mut Source, one: RecordPosition) {
        let bytes = source.ring.record(one.at, one.len);
        let Some(number) = record::number(bytes) else {
            if let Some(other) = record::parse(bytes, Telling::SAMPLE_TYPE) {
                self.note(outputs, other, one.time_ns);
            }
            return;
        };
        let Some(kind) = source.kind(number) else {
            // The event was replaced twice since, so the kind of this record is unknown.
            self.missing(outputs, 1, one.time_ns);
            return;
        };
        let bytes = source.ring.record(one.at, one.len);
        let Some(head) = record::traced(bytes, kind.has_stack()) else { return };
        match kind {
            Kind::In => {
                let point = self.kernel.points.as_ref().map(|points| &points.switch);
                if let Some(switch) = point.and_then(|point| point.read(head.raw)) {
                    self.comes(outputs, switch.next, head.time_ns);
                }
            }
            Kind::Out => self.goes(outputs, &head, bytes),
            Kind::Waking => self.woken(outputs, &head, bytes),
            Kind::Enter => self.enters(outputs, &head),
            Kind::Exit => self.leaves(outputs, &head, bytes),
            Kind::Queued => self.queued(outputs, &head, bytes),
            Kind::Completed => self.completed(outputs, &head),
        }
    }

    /// Handles the switch-out of a thread that may be recorded.
    fn goes(&mut self, outputs: &mut dyn Outputs, sample: &Traced<'_>, bytes: &[u8]) {
        let Some(point) = self.kernel.points.as_ref().map(|points| &points.switch) else { return };
        let Some(switch) = point.read(sample.raw) else { return };
        let (states, tasks) = (&point.states, &mut self.tasks);
        let (tid, time_ns) = (switch.prev, sample.time_ns);
        if states.over(switch.state) {
            self.ending.retain(|(other, _)| *other != tid);
            tasks.ended(tid);
            self.io_ended(outputs, tid, time_ns);
            if let Some(before) = self.intervals.ended(tid) {
                self.lose(outputs, before.pid, Cause::Unseen, time_ns.saturating_sub(before.since_ns));
            }
            return;
        }
        // A sample of a thread that is about to end may lack its PID.
        let sampled_pid = (sample.tid == tid).then_some(sample.pid);
        let Some(pid) = sampled_pid.or_else(|| tasks.process_id(tid)) else { return };
        let (state, runnable) = (switch.state, states.runnable(switch.state));
        if !self.takes(pid, time_ns) {
            return;
        }
        self.guard.took();
        let name = self.tasks.seen(pid, tid, Some(switch.prev_comm));
        let stack = self.keep(outputs, pid, bytes, false);
        self.out(outputs, tid, Out { pid, name, since_ns: time_ns, state, runnable, stack, wake: None });
    }

    /// Returns true if events of a process at `time_ns` are recorded.
    pub(super) fn takes(&mut self, pid: u32, time_ns: u64) -> bool {
        if self.options.selected.all && !self.tasks.recorded(pid) {
            self.tasks.process(pid).recorded = pid != std::process::id();
        }
        let takes = self.tasks.records(pid, time_ns);
        self.kernel.strangers += u64::from(!takes);
        takes
    }

    /// Notes that records before `time_ns` are missing.
    fn missing(&mut self, outputs: &mut dyn Outputs, records: u64, time_ns: u64) {
        self.ledger.no_room(records);
        self.intervals.missing(time_ns);
        self.io_missing(outputs, time_ns);
    }

    /// Like [`Self::goes`], where the kernel only reports the switch.
    fn goes_by_switch(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        tid: u32,
        preempted: bool,
        time_ns: u64,
    ) {
        if !self.tasks.records(pid, time_ns) {
            return;
        }
        self.guard.took();
        let name = self.tasks.seen(pid, tid, None);
        let (state, runnable) = (if preempted { 0 } else { thread_polls::UNKNOWN }, preempted);
        let stack = SampledStack::default();
        self.out(outputs, tid, Out { pid, name, since_ns: time_ns, state, runnable, stack, wake: None });
    }

    /// Notes that a thread is off CPU. If no event ended its previous wait, that wait is counted as lost.
    pub(super) fn out(&mut self, outputs: &mut dyn Outputs, tid: u32, out: Out<SampledStack>) {
        if self.options.threads.as_ref().is_some_and(|threads| !threads.holds(tid, &out.name)) {
            return;
        }
        let time_ns = out.since_ns;
        if let Some(before) = self.intervals.switched_out(tid, out) {
            self.lose(outputs, before.pid, Cause::Unseen, time_ns.saturating_sub(before.since_ns));
        }
    }

    /// Handles a switch-in. The first of several events counts.
    fn comes(&mut self, outputs: &mut dyn Outputs, tid: u32, time_ns: u64) {
        if let Some((mut interval, doubtful)) = self.intervals.switched_in(tid, time_ns) {
            interval.out.stack.check(time_ns);
            self.ended(outputs, interval, doubtful);
        }
    }

    /// Handles the wake-up of a thread that may be recorded.
    fn woken(&mut self, outputs: &mut dyn Outputs, sample: &Traced<'_>, bytes: &[u8]) {
        let point = self.kernel.points.as_ref().and_then(|points| points.waking.as_ref());
        let Some(waking) = point.and_then(|point| point.read(sample.raw)) else { return };
        let of = self.tasks.process_id(waking.tid).filter(|pid| self.tasks.recorded(*pid));
        self.kernel.strangers += u64::from(of.is_none());
        if !self.intervals.wants(waking.tid, of.is_some()) {
            return;
        }
        self.guard.took();
        let real = sample.pid != 0 && sample.pid != u32::MAX && !waking.interrupt;
        let name = if real { self.tasks.seen(sample.pid, sample.tid, None) } else { Arc::default() };
        let wake = Wake {
            name,
            time_ns: sample.time_ns,
            waker: (sample.pid, sample.tid),
            interrupt: waking.interrupt,
            stack: self.keep(outputs, sample.pid, bytes, waking.interrupt),
        };
        self.intervals.waking(waking.tid, wake);
    }

    /// Handles all other records.
    fn note(&mut self, outputs: &mut dyn Outputs, record: Record<'_>, time_ns: u64) {
        let tasks = &mut self.tasks;
        match record {
            Record::Switched { tid, out: None, .. } => self.comes(outputs, tid, time_ns),
            Record::Switched { pid, tid, out: Some(preempted) } if self.kernel.points.is_none() => {
                self.goes_by_switch(outputs, pid, tid, preempted, time_ns);
            }
            Record::Mapped(mapped) => {
                let known = tasks.known(mapped.pid).filter(|process| process.mapped);
                if let Some(process) = known {
                    process.stacks.mapped(&mapped, outputs.images());
                }
            }
            Record::Begun { pid, parent, tid, by, .. }
                if pid != parent && self.options.follow && tasks.recorded(parent) =>
            {
                tasks.forked(parent, pid, time_ns);
                self.io.forked(parent, pid);
                tasks.began(pid, tid, by);
            }
            Record::Begun { pid, parent, tid, by, .. } if pid == parent && tasks.recorded(pid) => {
                tasks.began(pid, tid, by);
            }
            Record::Ended { tid, .. } if tasks.process_id(tid).is_some() => {
                self.ending.push((tid, time_ns));
            }
            Record::Name { pid, tid, name, exec } => {
                if exec && tasks.known(pid).is_some() {
                    tasks.executed(pid, time_ns);
                    self.io.executed(pid, time_ns);
                    let process = tasks.process(pid);
                    process.mapped = true;
                    process.stacks.read_maps(pid, outputs.images());
                }
                if tasks.process_id(tid).is_some() {
                    tasks.seen(pid, tid, Some(name));
                }
            }
            Record::Lost(count) => {
                self.missing(outputs, count, time_ns);
                // The lost records may include mappings.
                self.tasks.all().for_each(|(_, process)| process.mapped = false);
            }
            _ => {}
        }
    }
}
