//! The state of a recorded process: counts and resolves its samples and events, and writes them to its
//! recording.

use flightline_in_signal::{
    layout::{alloc_flags, event_kind},
    payload::{lock, scope},
};

use super::{
    context::Contexts,
    direct_calls::DirectCalls,
    open::OpenScopes,
    parse::{Parsed, Record, Renamed, Sample},
    ring_statistics::RingStatistics,
    sample::{Origin, RawSample, SampleSink},
    sampling_clocks::SamplingClocks,
    stack_resolver::{Missing, STACK_HEAD, StackResolver},
    thread::Thread,
    threads::{ThreadIndex, Threads},
    title::Titles,
    waiting_samples::{Payload, WaitingSample, WaitingSamples},
};
use crate::{
    names::images::ImageId,
    names::intern::TraceIndex,
    names::modules::ModuleMap,
    os::clock::{monotonic_ns, not_in_future},
    output::dump::Runs,
    recording::{Recording, RecordingId, events},
    shared_memory::proc_file::ProcFile,
};

/// The state of a recorded process.
pub struct ProcessState {
    /// Its mapped modules.
    pub modules: ModuleMap,
    /// Its threads.
    pub threads: Threads,
    /// Key of its recording.
    pub recording: RecordingId,
    /// Group of its threads in the recording.
    pub group: u32,
    /// The title of the process.
    pub titles: Titles,
    /// Modules whose allocations are not recorded.
    pub direct_calls: DirectCalls,
    /// Threads that run with the same callers, for automatic dumps.
    pub runs: Option<Box<Runs>>,
    /// The state of engines other than CPU time.
    pub engines: events::Engines,
    /// The process has ended.
    pub over: bool,
    /// Progress and totals of reading its ring.
    pub ring: RingStatistics,
    pub(super) sampling: SamplingClocks,
    pub(super) stacks: StackResolver,
    pub(super) waiting: WaitingSamples,
    pub(super) contexts: Contexts,
    /// Unfinished span activations.
    pub(super) open: OpenScopes,
}

impl ProcessState {
    pub(super) fn new(recording: RecordingId, group: u32, period_ns: u64) -> ProcessState {
        ProcessState {
            modules: ModuleMap::default(),
            threads: Threads::default(),
            recording,
            group,
            titles: Titles::default(),
            direct_calls: DirectCalls::default(),
            runs: None,
            engines: events::Engines::default(),
            over: false,
            ring: RingStatistics::default(),
            sampling: SamplingClocks::new(period_ns),
            stacks: StackResolver::new(),
            waiting: WaitingSamples::default(),
            contexts: Contexts::default(),
            open: OpenScopes::default(),
        }
    }

    /// Limits its memory for stacks to its share among `processes`.
    pub fn share(&mut self, processes: usize) {
        self.stacks.share_memory(processes);
    }

    /// Returns the numbers of cached stacks, cached addresses, and threads.
    pub fn counts(&self) -> [usize; 3] {
        [self.stacks.len(), self.stacks.frames.count(), self.threads.list.len()]
    }

    /// Returns the time before which all events that ended are in the output, or lost.
    pub fn watermark(&self) -> u64 {
        if self.over && self.waiting() == 0 {
            return u64::MAX;
        }
        self.waiting.times_ns().fold(self.ring.drained_ns, u64::min)
    }

    /// Returns the images that its samples may reference.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.modules.images().chain(self.waiting.maps().into_iter().flat_map(|map| map.images()))
    }

    /// Counts a parsed record and handles it.
    #[inline]
    pub(super) fn take_parsed(
        &mut self,
        parsed: Parsed,
        record: &mut Record,
        sink: &mut SampleSink<'_>,
        now_ns: u64,
    ) {
        self.ring.records += 1;
        record.context = match parsed {
            Parsed::Name(_) => None,
            _ => self.contexts.context(sink.file, &record.context_words),
        };
        match parsed {
            Parsed::Sample(sample) => self.take_sample(&sample, record, sink, now_ns),
            Parsed::Event(sample, head) => self.take_event(&sample, head, record, sink, now_ns),
            Parsed::Name(renamed) => self.take_name(sink.file, renamed),
        }
    }

    /// Renames a thread.
    fn take_name(&mut self, file: &ProcFile, renamed: Renamed) {
        let Renamed { time_ns, tid, slot, name } = renamed;
        let index = self.threads.index_for_sample(file, slot, tid, time_ns, self.sampling.period_ns);
        let waits = self.waiting() > 0;
        if let Some(thread) = self.threads.list.get_mut(index) {
            thread.rename_at(name, time_ns, waits);
        }
    }

    /// Returns the thread of a sample from the ring.
    #[inline]
    pub(super) fn sample_thread(&mut self, file: &ProcFile, sample: &Sample) -> ThreadIndex {
        let period_ns = self.sampling.period_ns;
        self.threads.index_for_sample(file, sample.slot, sample.tid, sample.time_ns, period_ns)
    }

    /// Handles an event of another engine: resolves its stack and writes it.
    fn take_event(
        &mut self,
        sample: &Sample,
        head: events::Head,
        record: &mut Record,
        sink: &mut SampleSink<'_>,
        now_ns: u64,
    ) {
        if head.kind == event_kind::WAITED {
            return self.take_off_cpu_time(sample, record, sink, now_ns);
        }
        let thread = self.sample_thread(sink.file, sample);
        let time_ns = not_in_future(sample.time_ns, now_ns);
        self.note_open(Origin { thread, time_ns, context: record.context.as_ref() });
        if head.kind == event_kind::SCOPE
            && let (Some(seq), Some(span)) = (record.extra.get(scope::SEQ), record.extra.get(scope::SPAN))
        {
            self.open.ended(thread, *seq);
            sink.recording.open_no_more(sink.file.key(), *seq, *span);
        }
        if matches!(head.kind, event_kind::ALLOC | event_kind::FREE) {
            self.note_allocation(thread, time_ns, head, record, sink);
            if head.kind == event_kind::FREE && head.index & alloc_flags::MAPPED != 0 {
                return;
            }
        }
        if sink.recording.full() {
            self.engines.lose(head.kind, head.value);
            return;
        }
        if head.kind == event_kind::LOCK {
            self.name_owner(&mut record.extra, sink);
        }
        let Record { stack, extra, context, entry, .. } = record;
        let origin = Origin { thread, time_ns, context: context.as_ref() };
        let raw = RawSample { origin, stack, truncation: sample.reason, entry };
        self.pass_on(raw, &events::Event { head, extra }, sink);
    }

    /// Updates the live allocations after an allocation or a free, and writes the frees that it implies.
    fn note_allocation(
        &mut self,
        thread: ThreadIndex,
        time_ns: u64,
        head: events::Head,
        record: &mut Record,
        sink: &mut SampleSink<'_>,
    ) {
        let event = events::Event { head, extra: &record.extra };
        let mut gone = Vec::new();
        self.engines.live.arrived(thread, &record.stack, time_ns, &event, &mut gone);
        for address in gone {
            if sink.recording.full() {
                self.engines.lose(event_kind::FREE, 0);
                continue;
            }
            let head = events::Head { kind: event_kind::FREE, index: 0, value: 0 };
            let free = events::Event { head, extra: &[address] };
            let origin = Origin { thread, time_ns, context: None };
            let raw = RawSample { origin, stack: &[], truncation: None, entry: &mut record.entry };
            self.pass_on(raw, &free, sink);
        }
    }

    /// Writes an event, immediately or once its symbols are available.
    pub(super) fn pass_on(
        &mut self,
        mut raw: RawSample<'_>,
        event: &events::Event<'_>,
        sink: &mut SampleSink<'_>,
    ) {
        let behind = self.waiting.must_follow(event.head.kind);
        let payload = || Payload::Event(Box::new(event.owned()));
        if raw.stack.len() <= STACK_HEAD {
            raw.origin.context = None;
            if behind {
                // It must not be written before its allocation, which may be waiting.
                return self.put_aside(&mut raw, None, payload(), Missing::Symbols);
            }
            return self.write_event(raw.origin, None, event, sink);
        }
        if let Some(thread) = self.threads.list.get_mut(raw.origin.thread) {
            thread.count_other_stack();
            if let Some(reason) = raw.truncation {
                thread.stacks.add_truncated(reason);
                self.ring.cut += 1;
            }
        }
        self.ring.samples += 1;
        let stack = self.stacks.intern(raw.stack);
        let anyway = self.overdue();
        let trace = match behind {
            true => Err(Missing::Symbols),
            false => self.trace(stack, sink, anyway),
        };
        match trace {
            Ok(trace) => self.write_event(raw.origin, Some(trace), event, sink),
            Err(missing) => self.put_aside(&mut raw, Some(stack), payload(), missing),
        }
    }

    /// Returns the trace of a stored stack. `anyway`: uses offsets instead of missing symbols and names.
    #[inline]
    pub(super) fn trace(
        &mut self,
        stack: u32,
        sink: &mut SampleSink<'_>,
        anyway: bool,
    ) -> Result<TraceIndex, Missing> {
        self.stacks.trace(stack, &self.modules, sink.recording, sink.images, anyway)
    }

    /// Stores a sample until its symbols or names are available.
    pub(super) fn put_aside(
        &mut self,
        raw: &mut RawSample<'_>,
        stack: Option<u32>,
        payload: Payload,
        missing: Missing,
    ) {
        let map = self.waiting.map(&self.modules);
        let (Origin { thread, time_ns, context }, entry) = (raw.origin, raw.entry.take());
        let context = context.cloned();
        self.waiting.add(WaitingSample { map, thread, stack, time_ns, payload, context, entry }, missing);
    }

    /// Returns the group of the process, and that of its title, for a sample of `time_ns`.
    #[inline]
    fn groups(&mut self, file: &ProcFile, time_ns: u64, recording: &mut Recording) -> (u32, u32) {
        if self.titles.is_due(time_ns) {
            // After the process has ended, its PID may belong to another one.
            let pid = (file.trusted_pid() && file.alive()).then_some(file.pid);
            self.titles.read(pid, self.group, recording, monotonic_ns());
        }
        (self.group, self.titles.group(self.group))
    }

    /// Writes an event.
    pub(super) fn write_event(
        &mut self,
        origin: Origin<'_>,
        trace: Option<TraceIndex>,
        event: &events::Event<'_>,
        sink: &mut SampleSink<'_>,
    ) {
        let Origin { thread, time_ns, context } = origin;
        let SampleSink { file, recording, .. } = sink;
        let groups = self.groups(file, time_ns, recording);
        let Some(thread) = self.threads.list.get_mut(thread) else { return };
        if !thread.selected(file, self.threads.selection.as_ref()) {
            return;
        }
        let constant = thread.constant_at(time_ns, file, groups, recording);
        let place = events::EventSite { thread: constant, tid: thread.tid, trace, time_ns };
        recording.note_sampled_span(constant, event.start_ns(time_ns), context);
        self.engines.write(recording, &place, event);
        recording.note_sampled_span(constant, 0, None);
    }

    /// Replaces the TID of a lock's holder in `extra` by 1 + its constant in the recording, or 0 if it is
    /// unknown. This happens early, because the holder may have ended by the time symbols are read.
    fn name_owner(&mut self, extra: &mut [u64], sink: &mut SampleSink<'_>) {
        let Some(word) = extra.get_mut(lock::OWNER) else { return };
        let tid = u32::try_from(*word).unwrap_or(0);
        let index = if tid == 0 { None } else { self.threads.by_id(sink.file, tid, self.sampling.period_ns) };
        let owner = index.and_then(|index| self.threads.list.get_mut(index));
        let constant = |owner: &mut Thread| owner.constant(sink.file, self.group, sink.recording) as u64 + 1;
        *word = owner.map_or(0, constant);
    }

    /// Counts a CPU time sample and writes it.
    fn take_sample(&mut self, sample: &Sample, record: &mut Record, sink: &mut SampleSink<'_>, now_ns: u64) {
        let index = self.sample_thread(sink.file, sample);
        let time_ns = not_in_future(sample.time_ns, now_ns);
        let Record { stack: words, context, entry, .. } = record;
        let origin = Origin { thread: index, time_ns, context: context.as_ref() };
        self.note_open(origin);
        self.ring.add_cpu_sample(sample.weight_ns);
        // A thread cannot use more CPU time than has passed: damaged weights must not flood the output.
        let life = now_ns.saturating_sub(sink.file.start_mono_ns()).saturating_add(1_000_000_000);
        let at_once = self.sampling.threads_at_once;
        if self.threads.are_too_many() || self.ring.exceeds(life, at_once) {
            self.ring.damaged = true;
            return;
        }
        let Some(thread) = self.threads.list.get_mut(index) else { return };
        // With `itimer`, its samples represent other threads too.
        let life = if thread.ledger.of_process { life.saturating_mul(at_once) } else { life };
        let weight = sample.weight_ns.min(life.saturating_sub(thread.ledger.arrived_ns));
        thread.ledger.arrived += 1;
        thread.ledger.arrived_ns += weight;
        let weight = thread.own_weight(weight, self.sampling.period_ns.max(self.threads.sampling_ns));
        if !thread.selected(sink.file, self.threads.selection.as_ref()) {
            return;
        }
        if sink.recording.full() {
            thread.ledger.lose(sink.recording.full_cause(), 1, weight);
            sink.recording.refuse(weight);
            return;
        }
        let events = thread.ledger.sample(weight);
        thread.stacks.by_timer += u64::from(sample.by_timer);
        if let Some(runs) = &mut self.runs {
            runs.sample(thread.tid, time_ns, &words[STACK_HEAD..]);
        }
        if let Some(reason) = sample.reason {
            thread.stacks.add_truncated(reason);
            self.ring.cut += 1;
        }
        if events == 0 {
            return;
        }
        let stack = self.stacks.intern(words);
        let anyway = self.overdue();
        let trace = self.trace(stack, sink, anyway);
        let mut raw = RawSample { origin, stack: words, truncation: sample.reason, entry };
        if self.sampling.wall_ns.is_some() {
            self.write_running(&mut raw, stack, trace, events, sink);
        }
        match trace {
            _ if !self.sampling.cpu_samples => {}
            Ok(trace) => self.write_cpu(origin, trace, events, sink),
            Err(missing) => self.put_aside(&mut raw, Some(stack), Payload::Cpu(events), missing),
        }
    }

    /// Writes `events` equal CPU time samples.
    #[inline]
    pub(super) fn write_cpu(
        &mut self,
        origin: Origin<'_>,
        trace: TraceIndex,
        events: u32,
        sink: &mut SampleSink<'_>,
    ) {
        let Origin { thread, time_ns, context } = origin;
        let SampleSink { file, recording, .. } = sink;
        let groups = self.groups(file, time_ns, recording);
        let Some(thread) = self.threads.list.get_mut(thread) else { return };
        let constant = thread.constant_at(time_ns, file, groups, recording);
        recording.note_sampled_span(constant, time_ns, context);
        recording.sample(constant, trace, time_ns, events);
        recording.note_sampled_span(constant, 0, None);
    }

    /// Changes the CPU time that an event represents.
    pub fn change_period(&mut self, period_ns: u64) {
        self.sampling.period_ns = period_ns;
        self.threads.sampling_ns = 0;
        self.threads.list.iter_mut().for_each(|thread| thread.ledger.change_period(period_ns));
    }

    /// Returns the thread that uses a slot.
    pub fn thread_at(&mut self, file: &ProcFile, slot: u32) -> Option<ThreadIndex> {
        self.threads.at_slot(file, slot, self.sampling.period_ns)
    }
}
