//! The drain's memory of a process: samples and events are booked here and passed on.

use std::sync::Arc;

use flightline_in_signal::{
    layout::{SampleRecord, alloc_flags, event_kind},
    payload::{lock, scope},
};

use super::{
    MAPS_WAIT_NS,
    context::Contexts,
    open::OpenScopes,
    otel_thread_context::Writers,
    parse::{Renamed, Sample},
};
use crate::{
    names::frames::Frames,
    names::images::{ImageId, Images},
    names::intern::TraceIndex,
    names::modules::ModuleMap,
    names::stack_table::StackTable,
    os::clock::{monotonic_ns, not_in_future},
    output::dump::Runs,
    process::direct_calls::DirectCalls,
    process::thread::WALK_ENDS,
    process::threads::{ThreadIndex, Threads},
    process::title::Titles,
    recording::{Recording, Worked, events},
    settings::{STACK_BYTES, STACKS_BYTES},
    shared_memory::journal::Entry,
    shared_memory::proc_file::ProcFile,
};

/// Words of a sample before its addresses.
pub(super) const FIXED: usize = size_of::<SampleRecord>() / 8;
/// Words of a remembered stack before its addresses: truncated or not, exact frames.
pub(super) const STACK_HEAD: usize = 2;

/// A sample or event whose stack waits for a module's symbols.
pub(super) struct Pending {
    /// What was mapped where when it came: another module may lie there by now.
    pub(super) map: Arc<ModuleMap>,
    pub(super) thread: ThreadIndex,
    /// `None`: it has none, but comes after something that waits.
    pub(super) stack: Option<u32>,
    pub(super) time_ns: u64,
    pub(super) what: What,
    /// What it was taken for.
    pub(super) worked: Option<Arc<Worked>>,
    /// Its record in the journal.
    pub(super) entry: Option<Entry>,
}

/// What is written once the stack is resolved.
pub(super) enum What {
    /// So many equal samples of CPU time.
    Cpu(u32),
    /// Something an engine has to say.
    Event(Box<events::Owned>),
}

/// The drain's own memory of a process.
pub struct Book {
    /// What is mapped where.
    pub modules: ModuleMap,
    /// Its threads.
    pub threads: Threads,
    /// Index of its recording.
    pub recording: usize,
    /// Bytes of remembered stacks before they are forgotten.
    pub(super) stack_bytes: usize,
    /// Group of its threads in the recording.
    pub group: u32,
    /// The title of the process.
    pub titles: Titles,
    pub(super) stacks: StackTable<u64>,
    /// Trace index + 1 of each stack, 0 = not resolved yet.
    pub(super) traces: Vec<u32>,
    pub(super) frames: Frames,
    /// Versions for which `traces` and `frames` hold.
    pub(super) versions: (u64, u32, u64),
    pub(super) pending: Vec<Pending>,
    /// Allocations among what waits for symbols or names, and frees behind them.
    pub(super) allocations_waiting: [usize; 2],
    /// When it was told last what is alive.
    pub(super) alive_told_ns: u64,
    /// A copy of `modules` for samples that wait.
    pub(super) map: Option<Arc<ModuleMap>>,
    /// Samples in code whose name the program has not written down yet.
    pub(super) unnamed: Vec<Pending>,
    /// The stack resolved last waits for names only.
    pub(super) names_missing: bool,
    /// There are names that were not there when samples were put aside.
    pub(super) news: bool,
    /// The record in the journal of what is being booked, until somebody has taken it over.
    pub(super) entry: Option<Entry>,
    /// What it was taken for.
    pub(super) worked: Option<Arc<Worked>>,
    /// The same as it was read.
    pub(super) context_words: Vec<u64>,
    pub(super) contexts: Contexts,
    /// Other writers of contexts.
    pub(super) writers: Writers,
    /// Modules whose allocations are not seen.
    pub direct_calls: DirectCalls,
    /// Activations of spans that had not ended.
    pub(super) open: OpenScopes,
    /// Everything in the ring was read then.
    pub(super) drained_ns: u64,
    pub(super) words: Vec<u64>,
    pub(super) extra: Vec<u64>,
    pub(super) sequence: Vec<u32>,
    /// Who runs in one place, if anybody wants to know.
    pub runs: Option<Box<Runs>>,
    /// What engines other than CPU time keep of this process.
    pub engines: events::Engines,
    /// The ring held something no producer writes: it is not read any more.
    pub damaged: bool,
    /// The process is gone.
    pub over: bool,
    /// Up to where in the ring a flush that was asked for reads.
    pub flush_to: u64,
    /// Records read: samples and events.
    pub records: u64,
    /// CPU time that reading them took, ns.
    pub reading_ns: u64,
    /// Records that were being written when the process was killed.
    pub torn: u64,
    /// CPU time of all samples read, ns.
    arrived_ns: u64,
    /// Samples read.
    pub samples: u64,
    /// Samples whose stack did not reach its root.
    pub cut: u64,
    pub(super) period_ns: u64,
    /// Threads that this machine can run at a time.
    pub(super) threads_at_once: u64,
    /// Interval of the wall clock, if it is recorded.
    pub(super) wall_ns: Option<u64>,
    /// Since when, in time of CLOCK_MONOTONIC; 0: since the program began.
    pub(super) wall_since_ns: u64,
    /// Samples of CPU time are events of their own.
    pub(super) cpu_samples: bool,
    /// An address was in no known mapping.
    pub(super) unknown: bool,
    pub(super) unknown_seen: u64,
    pub(super) maps_read_ns: u64,
    pub(super) maps_wait_ns: u64,
    pub(super) published: (u64, u64),
}

impl Book {
    pub(super) fn new(recording: usize, group: u32, period_ns: u64) -> Book {
        Book {
            modules: ModuleMap::default(),
            threads: Threads::default(),
            recording,
            group,
            titles: Titles::default(),
            stack_bytes: STACK_BYTES[1],
            stacks: StackTable::new(),
            traces: Vec::new(),
            frames: Frames::default(),
            versions: (0, 0, 0),
            pending: Vec::new(),
            allocations_waiting: [0; 2],
            alive_told_ns: 0,
            map: None,
            unnamed: Vec::new(),
            names_missing: false,
            news: false,
            entry: None,
            worked: None,
            context_words: Vec::new(),
            contexts: Contexts::default(),
            writers: Writers::default(),
            direct_calls: DirectCalls::default(),
            open: OpenScopes::default(),
            drained_ns: 0,
            words: Vec::new(),
            extra: Vec::new(),
            sequence: Vec::new(),
            runs: None,
            engines: events::Engines::default(),
            damaged: false,
            over: false,
            flush_to: 0,
            records: 0,
            reading_ns: 0,
            torn: 0,
            arrived_ns: 0,
            samples: 0,
            cut: 0,
            period_ns,
            threads_at_once: crate::os::system::processors_online(),
            wall_ns: None,
            wall_since_ns: 0,
            cpu_samples: true,
            unknown: false,
            unknown_seen: 0,
            maps_read_ns: 0,
            maps_wait_ns: MAPS_WAIT_NS[0],
            published: (0, 0),
        }
    }

    /// One of so many processes: they share the memory for stacks.
    pub fn share(&mut self, processes: usize) {
        self.stack_bytes = (STACKS_BYTES / processes.max(1)).clamp(STACK_BYTES[0], STACK_BYTES[1]);
    }

    /// How many stacks of addresses, addresses and threads it keeps in mind.
    pub fn counts(&self) -> [usize; 3] {
        [self.stacks.len(), self.frames.count(), self.threads.list.len()]
    }

    /// What ended before this time is in the output, or lost.
    pub fn watermark(&self) -> u64 {
        if self.over && self.waiting() == 0 {
            return u64::MAX;
        }
        let waiting = self.pending.iter().chain(&self.unnamed).map(|sample| sample.time_ns);
        waiting.fold(self.drained_ns, u64::min)
    }

    /// The images that its samples may name.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        let waiting = self.pending.iter().chain(&self.unnamed);
        // Samples that came one after the other mostly have the same map.
        let mut maps: Vec<&Arc<ModuleMap>> = waiting.map(|sample| &sample.map).chain(&self.map).collect();
        maps.dedup_by(|a, b| Arc::ptr_eq(a, b));
        self.modules.images().chain(maps.into_iter().flat_map(|map| map.images()))
    }

    /// Takes over the name that a thread got.
    pub(super) fn take_name(&mut self, file: &ProcFile, renamed: Renamed) {
        let Renamed { time_ns, tid, slot, name } = renamed;
        let index = self.threads.index_for_sample(file, slot, tid, time_ns, self.period_ns);
        let waits = self.waiting() > 0;
        if let Some(thread) = self.threads.list.get_mut(index) {
            thread.rename_at(name, time_ns, waits);
        }
    }

    /// Passes an event on to its engine, once its stack is resolved.
    pub(super) fn take_event(
        &mut self,
        file: &ProcFile,
        sample: &Sample,
        head: events::Head,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        if head.kind == event_kind::WAITED {
            return self.waited(file, sample, recording, images, now_ns);
        }
        let index =
            self.threads.index_for_sample(file, sample.slot, sample.tid, sample.time_ns, self.period_ns);
        let time_ns = not_in_future(sample.time_ns, now_ns);
        self.note_open(index, time_ns);
        if head.kind == event_kind::SCOPE
            && let (Some(seq), Some(span)) = (self.extra.get(scope::SEQ), self.extra.get(scope::SPAN))
        {
            self.open.ended(index, *seq);
            recording.open_no_more(file.key(), *seq, *span);
        }
        if matches!(head.kind, event_kind::ALLOC | event_kind::FREE) {
            let event = events::Event { head, extra: &self.extra };
            let mut gone = Vec::new();
            self.engines.live.arrived(index, &self.words, time_ns, &event, &mut gone);
            let words = std::mem::take(&mut self.words);
            for address in gone {
                if recording.full() {
                    self.engines.lose(event_kind::FREE, 0);
                    continue;
                }
                let head = events::Head { kind: event_kind::FREE, index: 0, value: 0 };
                let free = events::Event { head, extra: &[address] };
                self.pass_on(file, index, time_ns, None, &free, recording, images);
            }
            self.words = words;
            if head.kind == event_kind::FREE && head.index & alloc_flags::MAPPED != 0 {
                return;
            }
        }
        if recording.full() {
            self.engines.lose(head.kind, head.value);
            return;
        }
        if head.kind == event_kind::LOCK {
            self.name_owner(file, recording);
        }
        let extra = std::mem::take(&mut self.extra);
        let event = events::Event { head, extra: &extra };
        self.pass_on(file, index, time_ns, sample.reason, &event, recording, images);
        self.extra = extra;
    }

    /// Writes an event whose stack, cut for a reason or not, is in `self.words`, at once or when its symbols are there.
    #[allow(clippy::too_many_arguments)] // of one event
    pub(super) fn pass_on(
        &mut self,
        file: &ProcFile,
        index: ThreadIndex,
        time_ns: u64,
        reason: Option<u16>,
        event: &events::Event<'_>,
        recording: &mut Recording,
        images: &mut Images,
    ) {
        if self.words.len() <= STACK_HEAD && self.must_follow(event.head.kind) {
            // Not before the allocation, which may be waiting.
            let what = What::Event(Box::new(event.owned()));
            let (map, entry) = (self.map_now(), self.entry.take());
            let worked = None;
            return self.wait(Pending { map, thread: index, stack: None, time_ns, what, worked, entry });
        }
        if self.words.len() <= STACK_HEAD {
            return self.write_event(file, index, None, time_ns, event, None, recording);
        }
        if let Some(thread) = self.threads.list.get_mut(index) {
            thread.other_stacks += 1;
            if let Some(reason) = reason {
                thread.cut[usize::from(reason).min(WALK_ENDS - 1)] += 1;
                self.cut += 1;
            }
        }
        self.samples += 1;
        let (stack, new) = self.stacks.intern(&self.words);
        if new {
            self.traces.push(0);
        }
        let anyway = self.overdue();
        let behind = self.must_follow(event.head.kind);
        let trace = if behind { None } else { self.trace(stack, recording, images, anyway) };
        let worked = self.worked.clone();
        match trace {
            Some(trace) => {
                self.write_event(file, index, Some(trace), time_ns, event, worked.as_ref(), recording)
            }
            None => {
                let what = What::Event(Box::new(event.owned()));
                let (map, entry) = (self.map_now(), self.entry.take());
                let sample = Pending { map, thread: index, stack: Some(stack), time_ns, what, worked, entry };
                if behind { self.wait(sample) } else { self.put_aside(sample) }
            }
        }
    }

    /// The group of the process, and that of its title when a sample of `time_ns` is written.
    #[inline]
    fn groups(&mut self, file: &ProcFile, time_ns: u64, recording: &mut Recording) -> (u32, u32) {
        if self.titles.is_due(time_ns) {
            // The id of a process that has ended may be another's.
            let pid = (file.trusted_pid() && file.alive()).then_some(file.pid);
            self.titles.read(pid, self.group, recording, monotonic_ns());
        }
        (self.group, self.titles.group(self.group))
    }

    #[allow(clippy::too_many_arguments)] // of one event
    pub(super) fn write_event(
        &mut self,
        file: &ProcFile,
        thread: ThreadIndex,
        trace: Option<TraceIndex>,
        time_ns: u64,
        event: &events::Event<'_>,
        worked: Option<&Arc<Worked>>,
        recording: &mut Recording,
    ) {
        let groups = self.groups(file, time_ns, recording);
        let Some(thread) = self.threads.list.get_mut(thread) else { return };
        if !thread.selected(file, self.threads.selection.as_ref()) {
            return;
        }
        let constant = thread.constant_at(time_ns, file, groups, recording);
        let place = events::EventSite { thread: constant, tid: thread.tid, trace, time_ns };
        recording.note_sampled_span(constant, event.start_ns(time_ns), worked);
        self.engines.write(recording, &place, event);
        recording.note_sampled_span(constant, 0, None);
    }

    /// Replaces the thread id of the holder of a lock in `self.extra` by 1 + its constant in the recording, 0 if it is
    /// not known: by the time that symbols are read it may have ended.
    fn name_owner(&mut self, file: &ProcFile, recording: &mut Recording) {
        let Some(tid) = self.extra.get(lock::OWNER).map(|&tid| u32::try_from(tid).unwrap_or(0)) else {
            return;
        };
        let index = if tid == 0 { None } else { self.threads.by_id(file, tid, self.period_ns) };
        let owner = index.and_then(|index| self.threads.list.get_mut(index));
        let constant = owner.map_or(0, |owner| owner.constant(file, self.group, recording) as u64 + 1);
        if let Some(word) = self.extra.get_mut(lock::OWNER) {
            *word = constant;
        }
    }

    /// Books a sample and passes it on.
    pub(super) fn take(
        &mut self,
        file: &ProcFile,
        sample: &Sample,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let index =
            self.threads.index_for_sample(file, sample.slot, sample.tid, sample.time_ns, self.period_ns);
        self.note_open(index, not_in_future(sample.time_ns, now_ns));
        self.samples += 1;
        // No thread uses more CPU time than time goes by: damaged weights must not flood the output.
        let life = now_ns.saturating_sub(file.start_mono_ns).saturating_add(1_000_000_000);
        self.arrived_ns = self.arrived_ns.saturating_add(sample.weight_ns);
        if self.threads.are_too_many() || self.arrived_ns / 2 > life.saturating_mul(self.threads_at_once) {
            self.damaged = true;
            return;
        }
        let Some(thread) = self.threads.list.get_mut(index) else { return };
        // With `itimer` its samples stand for other threads too.
        let life = if thread.ledger.of_process { life.saturating_mul(self.threads_at_once) } else { life };
        let weight = sample.weight_ns.min(life.saturating_sub(thread.ledger.arrived_ns));
        thread.ledger.arrived += 1;
        thread.ledger.arrived_ns += weight;
        let weight = thread.own_weight(weight, self.period_ns.max(self.threads.sampling_ns));
        if !thread.selected(file, self.threads.selection.as_ref()) {
            return;
        }
        if recording.full() {
            thread.ledger.lose(recording.full_cause(), 1, weight);
            recording.refuse(weight);
            return;
        }
        let events = thread.ledger.sample(weight);
        thread.by_timer += u64::from(sample.by_timer);
        if let Some(runs) = &mut self.runs {
            runs.sample(thread.tid, not_in_future(sample.time_ns, now_ns), &self.words[STACK_HEAD..]);
        }
        if let Some(reason) = sample.reason {
            thread.cut[usize::from(reason).min(WALK_ENDS - 1)] += 1;
            self.cut += 1;
        }
        if events == 0 {
            return;
        }
        let (stack, new) = self.stacks.intern(&self.words);
        if new {
            self.traces.push(0);
        }
        let time_ns = not_in_future(sample.time_ns, now_ns);
        let anyway = self.overdue();
        let trace = self.trace(stack, recording, images, anyway);
        if self.wall_ns.is_some() {
            self.running(file, index, stack, trace, time_ns, events, recording);
        }
        match trace {
            _ if !self.cpu_samples => {}
            Some(trace) => self.write(file, index, trace, time_ns, events, recording),
            None => {
                let (map, entry) = (self.map_now(), self.entry.take());
                self.put_aside(Pending {
                    map,
                    thread: index,
                    stack: Some(stack),
                    time_ns,
                    what: What::Cpu(events),
                    worked: self.worked.clone(),
                    entry,
                });
            }
        }
    }

    /// Events of CPU time stand for another time from now on.
    pub fn change_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns;
        self.threads.sampling_ns = 0;
        self.threads.list.iter_mut().for_each(|thread| thread.ledger.change_period(period_ns));
    }

    /// The thread that holds a slot.
    pub fn thread_at(&mut self, file: &ProcFile, slot: u32) -> Option<ThreadIndex> {
        self.threads.at_slot(file, slot, self.period_ns)
    }

    /// An address was found in no known mapping.
    pub fn unknown_address(&mut self) {
        self.unknown = true;
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        file: &ProcFile,
        thread: ThreadIndex,
        trace: u32,
        time_ns: u64,
        events: u32,
        recording: &mut Recording,
    ) {
        let groups = self.groups(file, time_ns, recording);
        let Some(thread) = self.threads.list.get_mut(thread) else { return };
        let constant = thread.constant_at(time_ns, file, groups, recording);
        recording.note_sampled_span(constant, time_ns, self.worked.as_ref());
        recording.sample(constant, trace, time_ns, events);
        recording.note_sampled_span(constant, 0, None);
    }

    /// Gives the program's handlers a new table if there is something new to say.
    pub(super) fn publish(&mut self, file: &ProcFile, images: &Images) {
        let rows: u64 =
            self.modules.current().iter().filter(|m| images.get(m.image).rows_off != 0).count() as u64;
        let state = (self.modules.version, rows);
        if state == self.published || self.modules.current().is_empty() {
            return;
        }
        let seq = file.dlclose_seq();
        if file.publish(&self.modules.table(images), seq) {
            self.published = state;
        } else {
            // A dlclose was running: what we know is out of date.
            self.maps_read_ns = 0;
        }
    }
}
