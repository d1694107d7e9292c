//! Records processes without preloaded code: static, Go and set-user-id programs, and processes that already
//! run.
//!
//! ```text
//! open.rs    attaches to a running process, or to the program that is started next
//! event_set.rs the perf events of CPU time (`perf_events/attr.rs`), one per thread and processor, inherited by child threads, with
//!            fewer features if the kernel permits fewer; each processor has a ring (`perf_events/ring.rs`)
//! target.rs  a process: its totals; its modules and stacks are in `remote_unwinder/stacks.rs`; watched.rs: a thread
//! waits.rs   where its threads wait (the wall clock)
//! refused.rs why the kernel refuses, and the remedy
//! startup.rs a preloaded program until it samples itself
//! ```
//! The recorded program is not affected: it gets no signal, no memory and no descriptor.
//!
//! **Weights.** A sample carries the count of its thread's event on its processor. The difference to the
//! previous sample is its weight, so samples that the kernel drops (a full ring, throttling) leave no gap:
//! they are counted as lost. An event begins with a whole period on each processor. When a thread ends, the
//! kernel reports its CPU time after the last sample. The perf events that no sample represents are known at
//! the end, from the counts of all their descriptors, and reported as lost.
//!
//! Everything that the kernel writes is parsed with checked lengths. A process that records itself is not
//! sampled from outside.

use std::{
    collections::{HashMap, HashSet},
    os::fd::BorrowedFd,
};

use flightline_in_signal::layout::{event_kind, loss};

use crate::perf_events::record::{self, Record};
use crate::{
    from_outside::outputs::{KnownThread, Outputs},
    info_events,
    loss::Report,
    names::images::ImageId,
    os::process_info::ProcessInfo,
    process::thread::Thread,
    recording::{Recording, RecordingId},
    settings::ThreadSelection,
};

mod event_set;
mod open;
pub(crate) mod refused;
pub mod startup;
mod target;
mod waits;
pub(crate) mod watched;

pub use event_set::NamedEvent;
use event_set::{EventSet, Source};
use target::{Kinds, RecordingContext, Target};

/// A record may appear in its ring up to this long after its timestamp, ns.
const SETTLE_NS: u64 = 2_000_000;

/// A record in a ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RecordPosition {
    time_ns: u64,
    source: usize,
    at: u64,
    len: usize,
}

/// All processes recorded from outside.
pub struct Watch {
    kinds: Kinds,
    events: EventSet,
    targets: Vec<Target>,
    /// The output that receives the loss of perf events that no sample represents.
    rest_in: Option<RecordingId>,
    /// Processes that record themselves, and since when.
    themselves: HashMap<u32, u64>,
    positions: Vec<RecordPosition>,
    written_libraries: HashSet<(RecordingId, u64, u32)>,
    depth: usize,
    /// The selection of threads, if not all are recorded.
    threads: Option<ThreadSelection>,
    stopped: bool,
    paused: bool,
    /// A ring was full when it was last read, so an unknown number of later records is lost.
    overflowed: bool,
}

/// A ring with less room than this for another record counts as full, bytes.
const FULL_ROOM: u64 = 64 << 10;

impl Watch {
    /// Returns true if time in the kernel is recorded.
    pub fn sees_kernel(&self) -> bool {
        self.events.sampling.kernel
    }

    /// Returns the bytes of each stack that are copied with a CPU time sample.
    pub fn stack_bytes(&self) -> u32 {
        self.events.sampling.stack_bytes
    }

    /// Returns the descriptors that are readable when a ring fills up.
    pub fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.wake()
    }

    /// Returns the sampled processes and their recordings.
    pub fn processes(&self) -> Vec<(u32, RecordingId)> {
        let live = self.targets.iter().filter(|t| !t.over && t.records_itself_ns.is_none());
        live.map(|t| (t.pid(), t.recording)).collect()
    }

    /// Returns the number of processes that still run.
    pub fn running(&self) -> usize {
        self.targets.iter().filter(|t| !t.over).count()
    }

    /// Returns true if a process still runs. Unlike [`Self::running`], this does not count processes that
    /// have ended since the last check.
    pub fn any_alive(&self) -> bool {
        let exists = |pid: u32| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), None).is_ok();
        self.targets.iter().any(|t| !t.over && exists(t.pid()))
    }

    fn add(&mut self, outputs: &mut dyn Outputs, mut target: Target, now_ns: u64) {
        let themselves = self.themselves.get(&target.pid()).copied();
        target.records_itself_ns = themselves.filter(|from| *from >= target.about.start_mono_ns);
        outputs.describe_process(&target.about, target.recording, now_ns);
        if !self.events.named.is_empty() {
            self.rest_in.get_or_insert(target.recording);
        }
        self.targets.push(target);
    }

    /// Stops recording a preloaded process at `from_ns`, when it begins to record itself.
    pub fn give_up(&mut self, pid: u32, from_ns: u64) {
        // Its first records may still be in the rings.
        self.themselves.insert(pid, from_ns);
        for target in self.targets.iter_mut().filter(|t| !t.over && t.pid() == pid) {
            target.records_itself_ns = Some(from_ns);
        }
    }

    /// Resumes recording a process that could not record itself after all (Go). Returns false if it is not
    /// watched yet.
    pub fn take_back(&mut self, pid: u32) -> bool {
        self.themselves.remove(&pid);
        let mut targets = self.targets.iter_mut().filter(|t| !t.over && t.pid() == pid);
        targets.any(|target| {
            target.records_itself_ns = None;
            true
        })
    }

    /// Returns true if process `pid` is sampled.
    pub fn samples(&self, pid: u32) -> bool {
        self.targets.iter().any(|t| !t.over && t.pid() == pid && t.records_itself_ns.is_none())
    }

    /// Returns the sampled processes: PID, name and threads.
    pub fn sampled(&self) -> impl Iterator<Item = (u32, String, Vec<&Thread>)> {
        let live = self.targets.iter().filter(|t| !t.over && t.records_itself_ns.is_none());
        live.map(|target| {
            let threads = target.threads.values().map(|watched| &watched.thread).collect();
            (target.pid(), target.about.called(), threads)
        })
    }

    /// Returns the constant of a thread in a recording and the group of its process. `name` is the thread's
    /// latest name.
    pub fn known_thread(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        id: RecordingId,
        recording: &mut Recording,
    ) -> Option<KnownThread> {
        let mut live = self.targets.iter_mut().filter(|t| t.pid() == pid && t.recording == id);
        let target = live.next_back()?;
        let group = target.group();
        let thread = target.threads.get_mut(&tid).and_then(|watched| {
            if !name.is_empty() {
                watched.thread.rename(name.to_owned());
            }
            watched.thread.named_constant(group, recording);
            watched.thread.handle()
        });
        Some(KnownThread { thread, group: Some(group) })
    }

    /// Reads the rings. Returns how full the fullest was, in 1/256.
    pub fn round(&mut self, outputs: &mut dyn Outputs, now_ns: u64) -> u32 {
        self.read(outputs, now_ns, now_ns.saturating_sub(SETTLE_NS))
    }

    fn read(&mut self, outputs: &mut dyn Outputs, now_ns: u64, until_ns: u64) -> u32 {
        let mut positions = std::mem::take(&mut self.positions);
        positions.clear();
        let mut fill = 0;
        self.overflowed = false;
        for (number, source) in self.events.sources.iter().enumerate() {
            let head = source.ring.head();
            let mut at = source.ring.tail();
            let size = source.ring.size() as u64;
            fill = fill.max((head.saturating_sub(at).saturating_mul(256) / size.max(1)).min(256) as u32);
            self.overflowed |= head.saturating_sub(at) + FULL_ROOM.min(size / 2) >= size;
            let mut last_ns = 0;
            let time_at =
                if self.events.sampling.numbered { record::numbered_time_at } else { record::time_at };
            while let Some((len, time_ns)) = source.ring.look(at, head, time_at) {
                // Within a ring, records are in the order in which they were written.
                last_ns = time_ns.max(last_ns);
                if last_ns > until_ns {
                    break;
                }
                positions.push(RecordPosition { time_ns: last_ns, source: number, at, len });
                at += len as u64;
            }
        }
        positions.sort_unstable();
        for one in &positions {
            self.take(outputs, *one, now_ns);
            if let Some(source) = self.events.sources.get(one.source) {
                source.ring.release(one.at + one.len as u64);
            }
        }
        self.positions = positions;
        let (sampling, cause) = (self.events.per_processor(), self.cause());
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            // The counts of a thread that ended follow immediately after its end.
            target.settle(until_ns.saturating_sub(SETTLE_NS), sampling, cause);
        }
        self.finish_waits(outputs);
        self.read_names(outputs, now_ns);
        self.remove_settled(outputs, now_ns);
        fill
    }

    fn read_names(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let (period_ns, depth, threads) = (self.events.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in &mut self.targets {
            let Some((recording, images, rows)) = outputs.parts(target.recording) else { continue };
            if target.read_names(images, now_ns) && target.waiting() > 0 {
                target.resolve(
                    false,
                    &mut RecordingContext { recording, images, rows, period_ns, depth, threads },
                );
            }
        }
    }

    fn finish_waits(&mut self, outputs: &mut dyn Outputs) {
        if self.kinds.wall_ns.is_none() {
            return;
        }
        let (period_ns, depth, threads) = (self.events.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in &mut self.targets {
            let Some((recording, images, rows)) = outputs.parts(target.recording) else { continue };
            target.finish_waits(&mut RecordingContext { recording, images, rows, period_ns, depth, threads });
        }
    }

    /// Samples the wall clock of all processes. Returns true if any of them ran since the last call.
    pub fn look_at_waits(&mut self, outputs: &mut dyn Outputs, now_ns: u64) -> bool {
        let mut ran = false;
        let (period_ns, depth, threads) = (self.events.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            let Some((recording, images, rows)) = outputs.parts(target.recording) else { continue };
            let mut context = RecordingContext { recording, images, rows, period_ns, depth, threads };
            ran |= target.look_at_waits(&mut context, now_ns);
        }
        ran
    }

    /// Returns the new messages for the user.
    pub fn notices(&mut self) -> Vec<String> {
        let mut notices: Vec<String> = self.targets.iter_mut().filter_map(Target::notice).collect();
        notices.extend(self.events.notices());
        notices
    }

    /// Returns the cause of loss for CPU time at the end of a thread.
    fn cause(&self) -> usize {
        match (self.overflowed, self.stopped) {
            (true, _) => loss::RING_FULL,
            (false, true) => loss::STOPPED,
            (false, false) => loss::UNSEEN,
        }
    }

    fn take(&mut self, outputs: &mut dyn Outputs, one: RecordPosition, now_ns: u64) {
        let Watch { events, targets, depth, threads, .. } = self;
        let EventSet { sources, sampling, named, numbers, .. } = events;
        let Some(source) = sources.get_mut(one.source) else { return };
        let Source { ring, missing, .. } = source;
        let Some(record) = record::parse(ring.record(one.at, one.len), sampling.sample_type()) else {
            return;
        };
        let live = |targets: &[Target], pid: u32| targets.iter().rposition(|t| !t.over && t.pid() == pid);
        let period_ns = sampling.period_ns;
        let earlier = |t: &Target, pid: u32| !t.over && t.pid() == pid && one.time_ns < t.since_ns;
        let is_earlier = record.pid().is_some_and(|pid| targets.iter().any(|t| earlier(t, pid)));
        match record {
            Record::Sample(sample) => {
                let event = sample.number.and_then(|number| named.get_mut(*numbers.get(&number)?));
                let Some(at) = live(targets, sample.pid).filter(|_| !is_earlier) else {
                    return event.into_iter().for_each(|event| event.represented = None);
                };
                let target = &mut targets[at];
                let Some((recording, images, rows)) = outputs.parts(target.recording) else { return };
                let threads = threads.as_ref();
                let mut context =
                    RecordingContext { recording, images, rows, period_ns, depth: *depth, threads };
                match event {
                    Some(event) => {
                        let kind = (event.index, event.spec.period);
                        let counted = target.take_event(&sample, kind, one.source, missing, &mut context);
                        event.represented = event.represented.and_then(|sum| sum.checked_add(counted?));
                    }
                    None => target.take(&sample, one.source, missing, !sampling.kernel, &mut context),
                }
            }
            _ if is_earlier => {}
            Record::Mapped(mapped) => {
                if let Some(at) = live(targets, mapped.pid) {
                    targets[at].mapped(&mapped, outputs.images());
                }
            }
            Record::Lost(count) => {
                *missing += count;
                // The lost records may include mappings.
                for target in targets.iter_mut().filter(|t| !t.over) {
                    target.read_maps(outputs.images());
                }
            }
            Record::Throttled { number } => {
                if let Some(event) = numbers.get(&number).and_then(|at| named.get_mut(*at)) {
                    event.throttled = true;
                }
            }
            Record::Counted { pid, tid, count_ns } => {
                if let Some(at) = live(targets, pid) {
                    targets[at].counted(tid, one.source, count_ns);
                }
            }
            Record::Ended { pid, tid, time_ns } => {
                events.thread_ended(tid);
                if let Some(at) = live(targets, pid) {
                    targets[at].ended(tid, time_ns);
                }
            }
            Record::Begun { pid, parent, tid, time_ns, .. } => {
                if let Some(at) = live(targets, pid) {
                    let name = targets[at].first_thread_name();
                    targets[at].begin(tid, name, 0, time_ns, period_ns);
                } else {
                    let parent = live(targets, parent);
                    self.begun(outputs, pid, parent, time_ns, now_ns);
                }
            }
            Record::Name { pid, tid, name, exec } => {
                let name = String::from_utf8_lossy(name).into_owned();
                match live(targets, pid) {
                    Some(at) if !exec => targets[at].thread(tid, one.time_ns, period_ns).thread.rename(name),
                    before if exec => self.executed(outputs, pid, before, &name, one.time_ns, now_ns),
                    _ => {}
                }
            }
            Record::Switched { .. } | Record::Other => {}
        }
    }

    /// Handles a fork.
    fn begun(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        parent: Option<usize>,
        time_ns: u64,
        now_ns: u64,
    ) {
        let Some(parent) = parent.and_then(|p| self.targets.get(p)) else { return };
        let about = ProcessInfo {
            pid,
            exe: parent.about.exe.clone(),
            arguments: parent.about.arguments.clone(),
            start_mono_ns: time_ns,
        };
        let Ok((id, recording)) = outputs.recording_for(pid) else { return };
        let mut target = Target::new(about, self.kinds, id, recording);
        target.inherit(parent);
        target.begin(pid, parent.first_thread_name(), 0, time_ns, self.events.sampling.period_ns);
        self.add(outputs, target, now_ns);
    }

    /// Handles an exec: the old image is complete, and the totals of its first thread continue.
    fn executed(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        before: Option<usize>,
        name: &str,
        time_ns: u64,
        now_ns: u64,
    ) {
        let about = ProcessInfo::read(pid, now_ns).filter(|a| !a.arguments.is_empty());
        let mut about = about.unwrap_or_else(|| ProcessInfo::named(pid, name, time_ns));
        about.start_mono_ns = time_ns;
        let Ok((id, recording)) = outputs.recording_for(pid) else { return };
        let mut target = Target::new(about, self.kinds, id, recording);
        let sampling = self.events.per_processor();
        match before.and_then(|at| self.targets.get_mut(at)) {
            Some(old) => {
                old.hand_over(&mut target, name, time_ns);
                old.close(time_ns, sampling, loss::STOPPED);
            }
            None => target.begin(pid, name.to_owned(), 0, time_ns, sampling.period_ns),
        }
        target.read_maps(outputs.images());
        self.add(outputs, target, now_ns);
    }

    /// Once a second: reads clocks and names, and finds processes whose end was not reported.
    pub fn look(&mut self, now_ns: u64) {
        let sampling = self.events.per_processor();
        self.events.find_ended_threads();
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.look(now_ns, sampling);
        }
    }

    /// Continues with samples that waited for files which have been read.
    pub fn resolve(&mut self, outputs: &mut dyn Outputs, anyway: bool) {
        let (period_ns, depth, threads) = (self.events.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in self.targets.iter_mut().filter(|t| t.waiting() > 0) {
            let Some((recording, images, rows)) = outputs.parts(target.recording) else { continue };
            target.resolve(
                anyway,
                &mut RecordingContext { recording, images, rows, period_ns, depth, threads },
            );
        }
    }

    /// Returns true if a process is recorded into this output.
    pub fn uses(&self, recording: RecordingId) -> bool {
        self.rest_in == Some(recording) || self.targets.iter().any(|t| t.recording == recording)
    }

    /// Returns the number of samples that wait for files.
    pub fn waiting(&self) -> usize {
        self.targets.iter().map(Target::waiting).sum()
    }

    /// Writes the thread totals of the processes of a recording.
    pub fn write_accounts(
        &mut self,
        outputs: &mut dyn Outputs,
        id: RecordingId,
        report: &mut Report,
        now_ns: u64,
    ) {
        for target in self.targets.iter_mut().filter(|t| t.recording == id) {
            let Some((recording, images, _)) = outputs.parts(id) else { continue };
            info_events::libraries(
                target.modules(),
                id,
                recording,
                images,
                &mut self.written_libraries,
                now_ns,
            );
            target.write_accounts(recording, self.threads.as_ref(), now_ns);
            for thread in target.take_complete_threads() {
                report.add_thread(&thread);
            }
        }
    }

    /// Forgets which processes record themselves, except for those for which `run` returns true.
    pub fn forget_others(&mut self, run: impl Fn(u32) -> bool) {
        self.themselves.retain(|pid, _| run(*pid));
    }

    /// Returns the images that samples may reference.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.targets.iter().flat_map(Target::images)
    }

    /// Forgets which libraries were written to these outputs, if they are many.
    pub fn repeat_libraries(&mut self) {
        info_events::forget_libraries(
            &mut self.written_libraries,
            self.targets.iter().map(|t| (t.recording, t.modules())),
        );
    }

    fn remove_settled(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let mut i = 0;
        while i < self.targets.len() {
            if !self.targets[i].over || self.targets[i].waiting() > 0 {
                i += 1;
                continue;
            }
            let mut target = self.targets.remove(i);
            let id = target.recording;
            let Some((recording, images, _)) = outputs.parts(id) else { continue };
            info_events::libraries(
                target.modules(),
                id,
                recording,
                images,
                &mut self.written_libraries,
                now_ns,
            );
            target.write_accounts(recording, self.threads.as_ref(), now_ns);
            target.end_groups(recording);
            target.threads.values().for_each(|watched| outputs.report_thread(&watched.thread));
            outputs.report_kinds(&target.counts());
        }
    }

    /// Pauses or resumes sampling. CPU time used during the pause is lost.
    pub fn pause(&mut self, paused: bool) {
        if paused == self.paused || self.stopped {
            return;
        }
        self.paused = paused;
        self.events.count(!paused);
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.paused(paused, self.events.sampling.period_ns);
        }
    }

    /// Stops sampling.
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            // The threads continue to run, but their CPU time from here on is not part of the recording. Read
            // the clocks first, so that no sample is expected that will not come.
            for target in self.targets.iter_mut().filter(|t| !t.over) {
                target.read_last_clocks();
            }
            self.events.count(false);
        }
    }

    /// Reads the rest of the rings and closes all accounts at the end.
    pub fn close(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        self.stop();
        self.read(outputs, now_ns, u64::MAX);
        let (sampling, cause) = (self.events.per_processor(), self.cause());
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.close(now_ns, sampling, cause);
        }
        self.lose_rest(outputs, now_ns);
        self.read_names(outputs, now_ns);
        self.remove_settled(outputs, now_ns);
    }

    /// Reports as lost the perf events that no sample represents.
    fn lose_rest(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let Some(id) = self.rest_in.take() else { return };
        let mut engines = self.events.lost_rest();
        if let Some((recording, ..)) = outputs.parts(id) {
            engines.write_losses(recording, &[(0, 0); event_kind::KINDS], now_ns);
        }
        outputs.report_kinds(&engines.counts());
    }

    /// Completes the recordings, after the last symbols.
    pub fn finish(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        self.remove_settled(outputs, now_ns);
        self.events.close();
    }
}
