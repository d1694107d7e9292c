//! One output: its chunks, its clock, and everything that is written into it.

use std::{collections::BTreeMap, sync::Arc};

use flightline_in_signal::layout::loss;
use jfr_format::{
    ids::{Ticks, TypeId},
    metadata::Declared,
    schema::{self, thread_state},
    write::{ChunkWriter, ClockLine, FieldWriter, Geometry, WriteError},
};

use crate::{
    cost::Sum,
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
mod declared;
pub(crate) mod events;
mod lazy_output;
mod notices;
mod outage;
mod readers;
mod slots;
mod spans;

use aggregate::Aggregate;
use chunks::{first_content, fixed_size};
pub use constants::ThreadHandle;
use constants::{Group, Interface, ThreadTable};
use lazy_output::Later;
use outage::Outage;
pub use slots::{RecordingId, RecordingSlots};
pub use spans::{OpenSpan, Scope, Span, SpanContext, Worked};

/// A recording being written.
pub struct Recording {
    sink: Sink,
    writer: ChunkWriter,
    /// Event types that the next chunk declares, see [`declared`].
    types: Vec<TypeId>,
    declared: Declared,
    line: ClockLine,
    ticks: TickLine,
    fixed: bool,
    flush_ns: u64,
    /// Names of the perf events beside CPU time, by index, and the chunk that has their constant.
    event_names: Vec<(String, u32)>,
    interfaces: Vec<Interface>,
    last_interface: u64,
    /// Constants of spans.
    spans: spans::Constants,
    /// What the samples that are being written were taken for: thread, begin, context.
    note_sampled_span: Option<(usize, u64, Arc<Worked>)>,
    /// Activations that go on, to be told at a chunk's end.
    open: spans::OpenNow,
    /// Dictionary of stacks.
    pub interner: Interner,
    threads: ThreadTable,
    groups: Vec<Option<Group>>,
    last_group: u64,
    redact_arguments: bool,
    chunk: u32,
    chunk_start_ns: u64,
    chunk_start_byte: u64,
    /// What the next fixed chunk should have room for.
    wished_bytes: u64,
    last_flush_ns: u64,
    last_anchor_ns: u64,
    /// ExecutionSample events written.
    pub events: u64,
    /// Panics written.
    pub panics: u64,
    /// Signals that ended a process, written, and what the last one was.
    pub fatal: (u64, String),
    /// Anything but accounts and descriptions was written.
    worth: bool,
    /// Bytes and number of chunks.
    pub chunks: u64,
    failure: Option<String>,
    /// What is made on disk with the first record or flush.
    later: Option<Later>,
    /// What is not in the output yet, where it outlives us.
    pub journal: Option<Journal>,
    /// What is flushed goes on to the disk.
    pub syncer: Option<Arc<Syncer>>,
    /// A repository that refuses is tried again.
    outage: Option<Outage>,
    /// The chunk that was begun for readers who have seen nothing before, or a later one.
    pub newcomers_chunk: u32,
    /// Losses that there was nobody to be told of, by type of event and cause or kind.
    untold: BTreeMap<(TypeId, &'static str), (u64, u64)>,
    /// The chunk in which machine, settings and processes were told last.
    pub told_chunk: u32,
    /// Equal samples are added up first.
    aggregate: Option<Aggregate>,
    /// What it cost since that was told last.
    pub cost: Sum,
    cost_told_ns: u64,
    cost_bytes: u64,
    finished: bool,
    /// Samples written since the last bytes went out.
    unsent: u64,
    unwritten: u64,
    period_ns: u64,
}

impl Recording {
    /// Goes on with a recording of a drain that was killed: a chunk begins at `start`, where its last one ended.
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
        let fixed = sink.stream().is_some();
        let types = declared::at_start(settings, fixed, cgroup::in_container);
        let declared = Declared::new(types.iter().copied());
        let wished_bytes = first_content(settings);
        let geometry = match fixed {
            true => Geometry::Fixed { size: fixed_size(wished_bytes, &declared) },
            false => Geometry::Patched,
        };
        let writer = ChunkWriter::declaring(&declared, geometry, &line, sink.position(), start);
        let mut writer = writer.map_err(defect)?;
        if fixed {
            writer.enable_segments(0);
        }
        let chunk_start_byte = sink.bytes();
        Ok(Recording {
            sink,
            writer,
            types,
            declared,
            line,
            ticks,
            fixed,
            flush_ns: u64::try_from(settings.flush.as_nanos()).unwrap_or(u64::MAX),
            event_names: Vec::new(),
            interfaces: Vec::new(),
            last_interface: 0,
            spans: spans::Constants::default(),
            note_sampled_span: None,
            open: spans::OpenNow::default(),
            interner: Interner::telling(settings.records_lines()),
            threads: ThreadTable::default(),
            groups: Vec::new(),
            last_group: 0,
            redact_arguments: settings.redact_args,
            chunk: 1,
            chunk_start_ns: now_ns,
            chunk_start_byte,
            wished_bytes,
            last_flush_ns: now_ns,
            last_anchor_ns: 0,
            events: 0,
            panics: 0,
            fatal: (0, String::new()),
            worth: false,
            chunks: 1,
            failure: None,
            later: None,
            journal: None,
            syncer: None,
            outage: None,
            told_chunk: 0,
            newcomers_chunk: 0,
            untold: BTreeMap::new(),
            aggregate: settings.aggregate_ns().map(|ns| Aggregate::new(ns, settings.period_ns(), now_ns)),
            cost: Sum::default(),
            cost_told_ns: now_ns,
            cost_bytes: 0,
            finished: false,
            unsent: 0,
            unwritten: 0,
            period_ns: settings.period_ns(),
        })
    }

    /// Returns true if arguments of programs are left out.
    pub fn redacts_arguments(&self) -> bool {
        self.redact_arguments
    }

    /// Why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether samples must be dropped: too much waits for the reader, or the output is gone.
    #[inline]
    pub fn full(&self) -> bool {
        self.failure.is_some() || self.sink.full()
    }

    /// Why a sample that comes while it is [`full`](Self::full) is lost: an index of the causes.
    pub fn full_cause(&self) -> usize {
        let nobody = |stream: &StreamSink| self.failure.is_none() && stream.has_no_reader();
        if self.sink.stream().is_some_and(nobody) { loss::NO_READER } else { loss::OUTPUT_FULL }
    }

    /// The stream, if the output is one.
    pub fn stream(&self) -> Option<&StreamSink> {
        self.sink.stream().filter(|_| self.failure.is_none())
    }

    /// The same, to be changed.
    pub fn stream_mut(&mut self) -> Option<&mut StreamSink> {
        self.sink.stream_mut().filter(|_| self.failure.is_none())
    }

    /// Bytes of the output so far.
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    /// The events of a record in the journal are queued, or it has none.
    #[inline]
    pub fn queued(&mut self, entry: Option<Entry>) {
        if let Some(aggregate) = &mut self.aggregate
            && std::mem::take(&mut aggregate.newest)
        {
            return entry.into_iter().for_each(|entry| aggregate.hold(entry));
        }
        if let (Some(journal), Some(entry)) = (&self.journal, entry) {
            journal.queued(entry);
        }
    }

    /// The last batch that was committed and the one that events are queued for; `None` without a journal.
    pub fn batches(&self) -> Option<[u64; 2]> {
        self.journal.as_ref().map(Journal::batches)
    }

    /// Whether the output is files, which can be copied.
    pub fn can_be_copied(&self) -> bool {
        !self.fixed
    }

    /// What to call the output in messages.
    pub fn name(&self) -> String {
        self.sink.name().display().to_string()
    }

    /// Its process has these labels from now on.
    pub fn relabel(&mut self, labels: &[crate::settings::labels::Label]) {
        if let Some(repository) = self.sink.repository() {
            repository.relabel(labels);
        }
    }

    /// Ticks of a CLOCK_MONOTONIC time.
    pub fn ticks(&self, mono_ns: u64) -> Ticks {
        Ticks(self.ticks.ticks(mono_ns))
    }

    /// Ticks of a length of time.
    pub fn span(&self, ns: u64) -> Ticks {
        Ticks((ns / (1_000_000_000 / TICKS_PER_SECOND as u64)) as i64)
    }

    /// Start and length of something, in ticks: rounded, as both ends are.
    pub fn interval(&self, start_ns: u64, took_ns: u64) -> (Ticks, Ticks) {
        let (start, end) = (self.ticks(start_ns), self.ticks(start_ns.saturating_add(took_ns)));
        (start, Ticks(end.0.saturating_sub(start.0)))
    }

    /// Writes a sample as `count` events.
    #[inline]
    pub fn sample(&mut self, thread: usize, trace: TraceIndex, time_ns: u64, count: u32) {
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.add(thread, trace, time_ns, count);
            self.worth = true;
            if aggregate.full() {
                self.write_sums(time_ns);
            }
            return;
        }
        let time = self.ticks(time_ns);
        for done in 0..count {
            let cost = |r: &Recording| r.interner.cost(trace) + r.thread_cost(thread) + EVENT_BYTES;
            if !self.make_room(schema::EXECUTION_SAMPLE, cost) {
                self.unwritten += u64::from(count - done);
                return;
            }
            let key = self.thread_key(thread);
            let trace_key = self.interner.key(trace);
            let constants = self.interner.write(trace, &mut self.writer);
            let written = constants.and_then(|()| {
                self.writer.event(schema::EXECUTION_SAMPLE, |e| {
                    e.ticks(time).key(key).key(trace_key).key(thread_state::DEFAULT);
                })
            });
            match written {
                Ok(()) => {
                    self.events += 1;
                    self.unsent += 1;
                    self.worth = true;
                    self.write_sampled_spans();
                }
                Err(_) => self.unwritten += 1,
            }
        }
    }

    /// Writes another event; it may need `bytes` and belong to a thread (key 0: to none).
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
        let written = self.writer.event(id, |e| fields(e, key));
        debug_assert!(written.is_ok(), "{written:?}");
    }

    /// Writes an event with a thread and, if there is one, a stack; it may need `bytes` beside those. `fields` gets the
    /// keys of both (0: none).
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

    /// The same, with further constants of the event's own: `constants` runs when there is room for `bytes`.
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
            if self.interner.write(trace, &mut self.writer).is_err() {
                return;
            }
        }
        let own = constants(self);
        self.worth = true;
        let written = self.writer.event(id, |e| fields(e, key, trace_key, own));
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
        let event = self.writer.event(schema::NETWORK_UTILIZATION, |e| {
            e.ticks(now).key(key).long(read).long(written);
        });
        debug_assert!(event.is_ok(), "{event:?}");
    }

    /// Events that could not be written although their samples were booked (the output failed in between).
    pub fn unwritten(&self) -> u64 {
        self.unwritten
    }
}

/// Most bytes of an event without text: size, type, time, keys, a few numbers.
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
    use std::{path::Path, sync::Arc};

    fn open(dir: &Path) -> Recording {
        Recording::open(&Target::Path(dir.join("x.jfr")), &Owner::default(), &Settings::default()).unwrap()
    }

    #[test]
    fn keys_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("prog (1)".into());
        let keys: Vec<u64> = [(17, "a"), (18, "b"), (17, "renamed"), (0, "none")]
            .iter()
            .map(|(tid, name)| {
                let thread = recording.add_thread(*tid, name, group);
                recording.thread_key(thread.index)
            })
            .collect();
        assert_eq!(keys[..2], [17, 18]);
        assert!(keys[2] > constants::FIRST_FREE_KEY && keys[3] > keys[2]);
    }

    #[test]
    fn group_of_a_title_has_the_process_name_and_the_title_as_parent() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("postgres (7)".into());
        let titled = recording.add_titled_group(group, "postgres: bench [local] UPDATE");
        let mut thread = crate::process::thread::Thread::outside(7, "postgres".into(), 1, 0);
        let plain = thread.named_constant(group, &mut recording);
        let other = thread.titled_constant(titled, &mut recording);
        assert_eq!(thread.titled_constant(titled, &mut recording), other, "the constant is used again");
        assert_ne!(recording.thread_key(plain), recording.thread_key(other));
        let now_ns = recording.chunk_start_ns;
        [plain, other].into_iter().for_each(|thread| recording.sample(thread, 0, now_ns, 1));
        recording.finish();
        let written = std::fs::read(dir.path().join("x.jfr")).unwrap();
        let times =
            |text: &str| written.windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count();
        assert_eq!((times("postgres (7)"), times("postgres: bench [local] UPDATE")), (2, 1));
    }

    #[test]
    fn threads_are_forgotten_and_keep_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("prog (1)".into());
        let mut first = recording.add_thread(7, "first", group);
        let old = first.index;
        let mut keys = std::collections::HashSet::from([recording.thread_key(old)]);
        for round in 0..6 {
            for i in 0..20_000u32 {
                let thread = recording.add_thread(100 + i, "short", group);
                assert!(keys.insert(recording.thread_key(thread.index)), "round {round}: a key given twice");
            }
            assert!(recording.many_constants(), "round {round}");
            recording.cut(round);
        }
        assert!(recording.threads.len() <= 20_000, "{}", recording.threads.len());
        assert_eq!(recording.thread_key(old), 0, "what is forgotten names nobody");
        let again = recording.thread_index(&mut first, 7, "first", group);
        assert!(again != old && recording.thread_key(again) == 7);
        let (ended, other) = (recording.add_group("ended".into()), recording.add_group("other".into()));
        recording.end_group(ended);
        recording.cut(7);
        assert!(recording.groups[ended as usize].is_none() && recording.groups[other as usize].is_some());
        assert_eq!(recording.add_group("new".into()), ended, "its place is used again, its key is not");
    }

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
            recording.sample(thread, trace, recording.chunk_start_ns + i * 1000, 1 + (i % 2) as u32);
        }
        recording.finish();
    }

    #[test]
    fn chunks_of_a_pipe_fill_their_size() {
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
        let (events, chunks, expected) = (recording.events, recording.chunks, recording.bytes());
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
    fn full_device_is_told_once() {
        let target = Target::Path("/dev/full".into());
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        fill(&mut recording, 100);
        assert!(recording.full() || recording.failure().is_some() || recording.unwritten() > 0);
    }
}
