//! One recording: its chunks, its clock, and all its events.

use std::sync::Arc;

use flightline_in_signal::layout::loss;
use jfr_format::{
    ids::{Ticks, TypeId},
    schema::{self, thread_state},
    write::{ClockLine, FieldWriter, WriteError},
};

use crate::{
    error::Error,
    names::intern::{Interner, TraceIndex},
    os::cgroup,
    os::clock::{TICKS_PER_SECOND, TickLine},
    output::sink::{Sink, StreamSink, Syncer},
    settings::Settings,
    shared_memory::journal::{Entry, Journal},
};

mod aggregate;
mod chunks;
mod constants;
mod cost;
mod counters;
mod current_chunk;
mod declared;
pub(crate) mod events;
mod lazy_output;
mod notices;
mod outage;
mod output_state;
mod readers;
mod slots;
mod spans;

use aggregate::Aggregate;
use chunks::FlushSchedule;
pub use constants::ThreadHandle;
use constants::{NameConstants, ThreadConstants};
use cost::CostInterval;
pub use counters::Counters;
use current_chunk::CurrentChunk;
use output_state::OutputState;
use readers::{InfoChunks, PendingLosses};
pub use slots::{RecordingId, RecordingSlots};
use spans::Spans;
pub use spans::{OpenSpan, Scope, Span, SpanContext, Worked};

/// A recording being written.
pub struct Recording {
    output: OutputState,
    chunk: CurrentChunk,
    flushes: FlushSchedule,
    /// Dictionary of stacks.
    pub interner: Interner,
    threads: ThreadConstants,
    names: NameConstants,
    spans: Spans,
    counters: Counters,
    pending_losses: PendingLosses,
    info_chunks: InfoChunks,
    /// Merges equal samples, if enabled.
    aggregate: Option<Aggregate>,
    /// The cost since the last cost event.
    pub cost: CostInterval,
    redact_arguments: bool,
    period_ns: u64,
}

impl Recording {
    /// Continues a recording of a drain that was killed. A chunk starts at `start`, where the last one ended.
    pub fn resume(
        sink: Sink,
        line: ClockLine,
        ticks: TickLine,
        start: Ticks,
        settings: &Settings,
    ) -> std::io::Result<Recording> {
        let now_ns = crate::os::clock::monotonic_ns();
        Recording::with(sink, line, ticks, start, now_ns, settings).map_err(std::io::Error::other)
    }

    fn with(
        sink: Sink,
        line: ClockLine,
        ticks: TickLine,
        start: Ticks,
        now_ns: u64,
        settings: &Settings,
    ) -> Result<Recording, Error> {
        let types = declared::at_start(settings, sink.stream().is_some(), cgroup::in_container);
        let chunk = CurrentChunk::first(&sink, types, (line, ticks), start, now_ns, settings);
        Ok(Recording {
            chunk: chunk.map_err(defect)?,
            output: OutputState::new(sink),
            flushes: FlushSchedule::new(settings.output.flush, now_ns),
            interner: Interner::with_lines(settings.cpu.records_lines()),
            threads: ThreadConstants::default(),
            names: NameConstants::default(),
            spans: Spans::default(),
            counters: Counters::default(),
            pending_losses: PendingLosses::default(),
            info_chunks: InfoChunks::default(),
            aggregate: settings.cpu.aggregate_ns().map(|ns| Aggregate::new(ns, settings.period_ns(), now_ns)),
            cost: CostInterval::new(now_ns),
            redact_arguments: settings.processes.redact_args,
            period_ns: settings.period_ns(),
        })
    }

    /// Returns true if program arguments are omitted.
    pub fn redacts_arguments(&self) -> bool {
        self.redact_arguments
    }

    /// Returns the reason why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.output.failure()
    }

    /// Returns true if samples must be dropped, because too many bytes are queued or the output has failed.
    #[inline]
    pub fn full(&self) -> bool {
        self.output.has_failed() || self.output.sink.full()
    }

    /// Returns the cause of loss (an index) for samples that are dropped while it is [`full`](Self::full).
    pub fn full_cause(&self) -> usize {
        if self.output.has_no_reader() { loss::NO_READER } else { loss::OUTPUT_FULL }
    }

    /// Returns the stream, if the output is one.
    pub fn stream(&self) -> Option<&StreamSink> {
        self.output.stream()
    }

    /// Returns the mutable stream, if the output is one.
    pub fn stream_mut(&mut self) -> Option<&mut StreamSink> {
        self.output.stream_mut()
    }

    /// Returns the bytes of the output so far.
    pub fn bytes(&self) -> u64 {
        self.output.sink.bytes()
    }

    /// Notes that the events of a record in the journal are queued, or that it has none.
    #[inline]
    pub fn queued(&mut self, entry: Option<Entry>) {
        if let Some(aggregate) = &mut self.aggregate
            && std::mem::take(&mut aggregate.newest)
        {
            return entry.into_iter().for_each(|entry| aggregate.hold(entry));
        }
        self.output.queued(entry);
    }

    /// Returns the last committed batch and the one for which events are queued; `None` without a journal.
    pub fn batches(&self) -> Option<[u64; 2]> {
        self.output.journal.as_ref().map(Journal::batches)
    }

    /// Returns true if the output consists of files, which can be copied.
    pub fn can_be_copied(&self) -> bool {
        !self.chunk.fixed
    }

    /// Returns the output's name for messages.
    pub fn name(&self) -> String {
        self.output.sink.name().display().to_string()
    }

    /// Sets the labels of its process.
    pub fn relabel(&mut self, labels: &[crate::settings::labels::Label]) {
        if let Some(repository) = self.output.sink.repository() {
            repository.relabel(labels);
        }
    }

    /// Converts a CLOCK_MONOTONIC time to ticks.
    pub fn ticks(&self, mono_ns: u64) -> Ticks {
        self.chunk.ticks(mono_ns)
    }

    /// Converts a duration to ticks.
    pub fn span(&self, ns: u64) -> Ticks {
        Ticks((ns / (1_000_000_000 / TICKS_PER_SECOND as u64)) as i64)
    }

    /// Converts start and duration to ticks, rounded like both ends.
    pub fn interval(&self, start_ns: u64, took_ns: u64) -> (Ticks, Ticks) {
        let (start, end) = (self.ticks(start_ns), self.ticks(start_ns.saturating_add(took_ns)));
        (start, Ticks(end.0.saturating_sub(start.0)))
    }

    /// Writes a sample as `count` events.
    #[inline]
    pub fn sample(&mut self, thread: usize, trace: TraceIndex, time_ns: u64, count: u32) {
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.add(thread, trace, time_ns, count);
            self.counters.has_content = true;
            if aggregate.full() {
                self.write_sums(time_ns);
            }
            return;
        }
        let time = self.ticks(time_ns);
        for done in 0..count {
            let cost = |r: &Recording| r.interner.cost(trace) + r.thread_cost(thread) + EVENT_BYTES;
            if !self.make_room(schema::EXECUTION_SAMPLE, cost) {
                self.counters.unwritten += u64::from(count - done);
                return;
            }
            let key = self.thread_key(thread);
            let trace_key = self.interner.key(trace);
            let constants = self.interner.write(trace, &mut self.chunk.writer);
            let written = constants.and_then(|()| {
                self.chunk.writer.event(schema::EXECUTION_SAMPLE, |e| {
                    e.ticks(time).key(key).key(trace_key).key(thread_state::DEFAULT);
                })
            });
            match written {
                Ok(()) => {
                    self.counters.add_sample();
                    self.write_sampled_spans();
                }
                Err(_) => self.counters.unwritten += 1,
            }
        }
    }

    /// Writes another event, which may need `bytes` and belong to a thread (key 0: none).
    pub fn event(
        &mut self,
        id: TypeId,
        thread: Option<usize>,
        bytes: usize,
        fields: impl FnOnce(&mut FieldWriter<'_>, u64),
    ) {
        if !self.make_room(id, |r| bytes + EVENT_BYTES + thread.map_or(0, |t| r.thread_cost(t))) {
            return;
        }
        let key = thread.map_or(0, |t| self.thread_key(t));
        let written = self.chunk.writer.event(id, |e| fields(e, key));
        debug_assert!(written.is_ok(), "{written:?}");
    }

    /// Writes an event with a thread and, if there is one, a stack. It may need `bytes` in addition. `fields`
    /// gets the keys of both (0: none).
    pub fn event_with_stack(
        &mut self,
        id: TypeId,
        thread: usize,
        trace: Option<TraceIndex>,
        bytes: usize,
        fields: impl FnOnce(&mut FieldWriter<'_>, u64, u64),
    ) {
        self.event_with_constants(
            id,
            thread,
            trace,
            bytes,
            |_| (),
            |e, thread, stack, ()| fields(e, thread, stack),
        );
    }

    /// Writes such an event with constants of its own. `constants` runs when there is room for `bytes`.
    pub fn event_with_constants<K>(
        &mut self,
        id: TypeId,
        thread: usize,
        trace: Option<TraceIndex>,
        bytes: usize,
        constants: impl FnOnce(&mut Recording) -> K,
        fields: impl FnOnce(&mut FieldWriter<'_>, u64, u64, K),
    ) {
        let stack_cost = |r: &Recording| trace.map_or(0, |t| r.interner.cost(t));
        if !self.make_room(id, |r| bytes + EVENT_BYTES + r.thread_cost(thread) + stack_cost(r)) {
            return;
        }
        let key = self.thread_key(thread);
        let mut trace_key = 0;
        if let Some(trace) = trace {
            trace_key = self.interner.key(trace);
            if self.interner.write(trace, &mut self.chunk.writer).is_err() {
                return;
            }
        }
        let own = constants(self);
        self.counters.has_content = true;
        let written = self.chunk.writer.event(id, |e| fields(e, key, trace_key, own));
        debug_assert!(written.is_ok(), "{written:?}");
        if trace.is_some() {
            self.write_sampled_spans();
        }
    }

    /// Writes bits per second of a network interface.
    pub fn network_utilization(&mut self, name: &str, read: i64, written: i64, now_ns: u64) {
        let now = self.ticks(now_ns);
        if !self.make_room(schema::NETWORK_UTILIZATION, |_| name.len() + 32 + EVENT_BYTES) {
            return;
        }
        let key = self.interface_key(name);
        let event = self.chunk.writer.event(schema::NETWORK_UTILIZATION, |e| {
            e.ticks(now).key(key).long(read).long(written);
        });
        debug_assert!(event.is_ok(), "{event:?}");
    }

    /// Returns the counts of events that were or could not be written.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets the thread that synchronizes flushed bytes with the disk.
    pub fn set_syncer(&mut self, syncer: Option<&Arc<Syncer>>) {
        self.output.syncer = syncer.cloned();
    }
}

/// Upper bound of an event without text: size, type, time, keys, a few numbers.
const EVENT_BYTES: usize = 96;

fn defect(error: WriteError) -> Error {
    Error::Unavailable { name: "output", problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::intern::{Frame, Origin};
    use crate::{output::repository::Owner, output::sink::Target};
    use jfr_format::schema::frame_type;

    fn fill(recording: &mut Recording, samples: u64) {
        let group = recording.add_group("prog (1)".into());
        let thread = recording.add_thread(5, "main", group).index;
        for i in 0..samples {
            let method = recording
                .interner
                .method(1, i % 300, || (Origin::default(), format!("function_{}", i % 300)));
            let frame = Frame { method, line: 0, address: 0, kind: frame_type::CPP };
            let frame = recording.interner.frame(frame);
            let trace = recording.interner.trace(&[0, frame]);
            recording.sample(thread, trace, recording.chunk.start_ns + i * 1000, 1 + (i % 2) as u32);
        }
        recording.finish();
    }

    #[test]
    fn pipe_chunks_fill_their_size() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut bytes).unwrap();
            bytes
        });
        let target = Target::Descriptor(Arc::new(write));
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        drop(target);
        fill(&mut recording, 30_000);
        while recording.waiting() > 0 {
            recording.push();
            std::thread::yield_now();
        }
        let (events, chunks, expected) =
            (recording.counters.events, recording.counters.chunks, recording.bytes());
        assert_eq!((events, recording.failure()), (45_000, None));
        drop(recording);
        let bytes = reader.join().unwrap();
        assert_eq!(bytes.len() as u64, expected);
        let mut at = 0;
        let mut found = 0;
        let mut start = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 4], b"FLR\0", "chunk {found} at {at}");
            let before = std::mem::replace(
                &mut start,
                u64::from_be_bytes(bytes[at + 32..at + 40].try_into().unwrap()),
            );
            assert!(start > before, "chunk {found} starts with the one before");
            at += u64::from_be_bytes(bytes[at + 8..at + 16].try_into().unwrap()) as usize;
            found += 1;
        }
        assert_eq!((at, found), (bytes.len(), chunks));
        assert!(found > 1);
    }

    #[test]
    fn full_device_loses_samples() {
        let target = Target::Path("/dev/full".into());
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        fill(&mut recording, 100);
        assert!(recording.full() || recording.failure().is_some() || recording.counters.unwritten > 0);
    }
}
