//! Spans, their scopes, and the contexts of samples.
//!
//! A sample is written only if there is room for its context too. Keys of contexts are never reused, so
//! stored contexts can be dropped at any time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jfr_format::{ids::Ticks, schema};

use super::{EVENT_BYTES, Recording, current_chunk::CurrentChunk};

/// A span, as far as it is known while it is active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Its ID: like all IDs here, a number whose big-endian bytes are W3C's.
    pub span: u64,
    /// The outermost span of its trace in the process, 0: unknown.
    pub local_root: u64,
    /// ID of its trace, high half first.
    pub trace: [u64; 2],
    /// W3C trace flags.
    pub flags: u8,
    /// The labels as a JSON object, empty without labels.
    pub labels: String,
}

/// The span that was active on a thread when it was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// The span.
    pub context: SpanContext,
    /// Number of its activation, 0 if activations are not counted.
    pub seq: u64,
}

/// A span that ended.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// Its duration, ns.
    pub took_ns: u64,
    /// Its name.
    pub name: &'a str,
    /// Its parent span, 0: none.
    pub parent: u64,
    /// Number of samples in it; unknown for an unfinished span.
    pub samples: Option<u32>,
    /// Its IDs and labels.
    pub context: SpanContext,
}

/// An activation of a span on one thread.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// Its duration, ns.
    pub took_ns: u64,
    /// The span.
    pub span: u64,
    /// The span that was active before, 0: none.
    pub previous: u64,
    /// Number of the activation.
    pub seq: u64,
    /// The activation has not ended.
    pub open: bool,
}

/// An unfinished span, as far as it is known.
#[derive(Clone, Debug)]
pub struct OpenSpan {
    /// The thread on which it is active.
    pub thread: usize,
    /// The activation.
    pub scope: Scope,
    /// Its name; empty if the library that created the span records it.
    pub name: String,
    /// Its parent span, 0: none.
    pub parent: u64,
    /// Its IDs and labels.
    pub context: SpanContext,
}

/// Active spans by process, for chunks that must be complete in themselves.
#[derive(Default)]
struct OpenSpans {
    processes: HashMap<u64, Vec<OpenSpan>>,
    /// The spans are being written.
    writing: bool,
}

/// The span of a thread's samples.
struct SampledSpan {
    thread: usize,
    /// Start time of the samples.
    start_ns: u64,
    worked: Arc<Worked>,
}

/// The spans of a recording.
#[derive(Default)]
pub(super) struct Spans {
    constants: Constants,
    /// The span of the samples that are being written.
    sampled: Option<SampledSpan>,
    open: OpenSpans,
}

impl Spans {
    /// Returns true while the open spans are written at a chunk's end.
    pub(super) fn is_writing_open(&self) -> bool {
        self.open.writing
    }

    /// Returns the bytes to reserve after a sample for its context.
    #[inline]
    pub(super) fn sampled_context_bytes(&self) -> usize {
        let bytes =
            |sampled: &SampledSpan| sampled.worked.context.labels.len() + CONSTANT_BYTES + EVENT_BYTES;
        self.sampled.as_ref().map_or(0, bytes)
    }
}

/// Limit of remembered contexts, and of texts.
const MOST: usize = 1 << 15;
/// Limit of remembered texts, bytes.
const MOST_BYTES: usize = 4 << 20;

/// Constants of spans: their keys, and the chunks that have them.
#[derive(Default)]
struct Constants {
    contexts: HashMap<SpanContext, (u64, u32)>,
    last_context: u64,
    texts: HashMap<Box<str>, (u64, u32)>,
    last_text: u64,
    bytes: usize,
    /// Thread, time and chunk of the last context, because several samples may have the same time.
    last_written: Option<(usize, i64, u32)>,
}

impl Constants {
    /// Drops all constants if there are many. Keys are never reused, so the same text gets another key later.
    fn trim(&mut self) {
        if self.contexts.len() > MOST || self.texts.len() > MOST || self.bytes > MOST_BYTES {
            self.contexts.clear();
            self.texts.clear();
            self.bytes = 0;
        }
    }

    /// Returns the number of remembered constants.
    fn len(&self) -> usize {
        self.contexts.len() + self.texts.len()
    }

    /// Returns the key of a text, and queues it if this chunk does not have it yet; 0 for an empty text. The
    /// caller must have made room.
    fn text_key(&mut self, text: &str, chunk: &mut CurrentChunk) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if !self.texts.contains_key(text) {
            self.last_text += 1;
            self.bytes += text.len();
            self.texts.insert(text.into(), (self.last_text, 0));
        }
        let Some((key, written_in)) = self.texts.get_mut(text) else { return 0 };
        let key = *key;
        if *written_in != chunk.number {
            let written = chunk.writer.constant(schema::STRING, key, |c| {
                c.string(text);
            });
            if written.is_err() {
                return 0;
            }
            *written_in = chunk.number;
        }
        key
    }

    fn context_key(&mut self, context: &SpanContext, chunk: &mut CurrentChunk) -> u64 {
        if let Some(&(key, written_in)) = self.contexts.get(context)
            && written_in == chunk.number
        {
            return key;
        }
        let labels = self.text_key(&context.labels, chunk);
        let key = self.contexts.get(context).map_or(self.last_context + 1, |(key, _)| *key);
        let [high, low] = context.trace;
        let written = chunk.writer.constant(schema::SPAN_CONTEXT, key, |c| {
            c.long(context.span as i64).long(context.local_root as i64).long(high as i64).long(low as i64);
            c.int(i32::from(context.flags)).key(labels);
        });
        if written.is_err() {
            return 0;
        }
        self.last_context = self.last_context.max(key);
        self.contexts.insert(context.clone(), (key, chunk.number));
        key
    }
}

impl Recording {
    /// Sets the span of the following samples of a thread, which start at `start_ns`. The span is written to
    /// the chunk of each sample. Merged samples have no span.
    pub fn note_sampled_span(&mut self, thread: usize, start_ns: u64, worked: Option<&Arc<Worked>>) {
        let worked = worked.filter(|_| self.aggregate.is_none());
        self.spans.sampled = worked.map(|worked| SampledSpan { thread, start_ns, worked: worked.clone() });
    }

    /// Writes the context of a sample that has just been written to the same chunk.
    #[inline]
    pub(super) fn write_sampled_spans(&mut self) {
        if let Some(sampled) = self.spans.sampled.take() {
            self.write_sample_context(&sampled);
            self.spans.sampled = Some(sampled);
        }
    }

    fn write_sample_context(&mut self, SampledSpan { thread, start_ns, worked }: &SampledSpan) {
        let time = self.ticks(*start_ns);
        if self.spans.constants.last_written == Some((*thread, time.0, self.chunk.number)) {
            return;
        }
        self.spans.constants.trim();
        let bytes = worked.context.labels.len() + CONSTANT_BYTES;
        self.event_with_constants(
            schema::SAMPLE_CONTEXT,
            *thread,
            None,
            bytes,
            |r| r.spans.constants.context_key(&worked.context, &mut r.chunk),
            |e, thread, _, context| {
                e.ticks(time).key(thread).key(context).long(worked.seq as i64);
            },
        );
        self.spans.constants.last_written = Some((*thread, time.0, self.chunk.number));
    }

    /// Writes a span in our form and in async-profiler's. `thread` is the thread on which it ended, or is
    /// active.
    pub fn span_end(&mut self, thread: usize, span: &Span<'_>) {
        self.own_span(thread, span);
        let (start, took) = self.interval(span.start_ns, span.took_ns);
        self.event_with_constants(
            schema::PROFILER_SPAN,
            thread,
            None,
            span.name.len() + CONSTANT_BYTES,
            |r| r.spans.constants.text_key(span.name, &mut r.chunk),
            |e, thread, _, name| {
                e.ticks(start).ticks(took).key(thread).key(name);
            },
        );
    }

    fn own_span(&mut self, thread: usize, span: &Span<'_>) {
        self.spans.constants.trim();
        let (start, took) = self.interval(span.start_ns, span.took_ns);
        let context = &span.context;
        let bytes = context.labels.len() + span.name.len() + 2 * CONSTANT_BYTES;
        let [high, low] = context.trace;
        self.event_with_constants(
            if span.samples.is_some() { schema::SPAN } else { schema::OPEN_SPAN },
            thread,
            None,
            bytes,
            |r| {
                let constants = &mut r.spans.constants;
                let name = constants.text_key(span.name, &mut r.chunk);
                (name, constants.text_key(&context.labels, &mut r.chunk))
            },
            |e, thread, _, (name, labels)| {
                e.ticks(start).ticks(took).key(thread).key(name);
                e.long(context.span as i64).long(span.parent as i64).long(context.local_root as i64);
                e.long(high as i64).long(low as i64).int(i32::from(context.flags));
                if let Some(samples) = span.samples {
                    e.int(samples as i32);
                }
                e.key(labels);
            },
        );
    }

    /// Returns true if chunks must be complete in themselves, so that each ends with the open spans.
    pub fn writes_open_spans(&mut self) -> bool {
        self.output.sink.repository().is_some()
    }

    /// Sets the active spans of a process.
    pub fn open_now(&mut self, process: u64, open: Vec<OpenSpan>) {
        if open.is_empty() {
            self.spans.open.processes.remove(&process);
        } else {
            self.spans.open.processes.insert(process, open);
        }
    }

    /// Removes an activation that ended.
    pub fn open_no_more(&mut self, process: u64, seq: u64, span: u64) {
        if let Some(open) = self.spans.open.processes.get_mut(&process) {
            open.retain(|open| (open.scope.seq, open.scope.span) != (seq, span));
        }
    }

    /// Writes the open spans at a chunk's end. They are not written as `profiler.Span`, whose readers would
    /// count them again at their end.
    pub(super) fn write_open_spans(&mut self) {
        let declared = self.chunk.writer.declares(schema::OPEN_SPAN);
        if self.spans.open.processes.is_empty() || !declared || self.output.has_failed() {
            return;
        }
        self.spans.open.writing = true;
        let processes = std::mem::take(&mut self.spans.open.processes);
        let mut written = HashSet::new();
        for (process, open) in &processes {
            for OpenSpan { thread, scope, name, parent, context } in open {
                self.scope_end(*thread, scope);
                if !name.is_empty() && written.insert((process, scope.span)) {
                    let (start_ns, took_ns, samples) = (scope.start_ns, scope.took_ns, None);
                    let span =
                        Span { start_ns, took_ns, name, parent: *parent, samples, context: context.clone() };
                    self.own_span(*thread, &span);
                }
            }
        }
        self.spans.open.processes = processes;
        self.spans.open.writing = false;
    }

    /// Writes an activation of a span.
    pub fn scope_end(&mut self, thread: usize, scope: &Scope) {
        let (start, took) = self.interval(scope.start_ns, scope.took_ns);
        self.event_with_stack(schema::SPAN_SCOPE, thread, None, 48, |e, thread, _| {
            e.ticks(start).ticks(took).key(thread);
            e.long(scope.span as i64).long(scope.previous as i64).long(scope.seq as i64).boolean(scope.open);
        });
    }

    /// Records that all events that ended before `time_ns` have been written, if the recording has spans.
    pub fn watermark(&mut self, time_ns: u64) {
        if self.chunk.next_declares(schema::WATERMARK) {
            let time: Ticks = self.ticks(time_ns);
            self.event(schema::WATERMARK, None, 0, |e, _| {
                e.ticks(time);
            });
        }
    }

    /// Returns the number of remembered contexts and texts.
    pub fn span_constants(&self) -> usize {
        self.spans.constants.len()
    }
}

/// Upper bound of a constant without its text, bytes.
const CONSTANT_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::path::Path;

    use jfr_format::event::Value;
    use jfr_format::read::{Input, Item};
    use jfr_format::schema::frame_type;

    use super::*;
    use crate::names::intern::{Frame, Origin, TraceIndex};
    use crate::output::repository::{Owner, Repository};
    use crate::output::sink::Target;
    use crate::settings::Settings;

    fn trace(recording: &mut Recording, i: u64) -> TraceIndex {
        let name = || (Origin::default(), format!("function_{i}"));
        let method = recording.interner.method(1, i, name);
        let frame = recording.interner.frame(Frame { method, line: 0, address: 0, kind: frame_type::CPP });
        recording.interner.trace(&[0, frame])
    }

    fn context(span: u64) -> SpanContext {
        let labels = format!(r#"{{"path":"/{}"}}"#, "x".repeat((span % 500) as usize));
        SpanContext { span, local_root: span, trace: [1, span], flags: 1, labels }
    }

    /// Returns, for each chunk, the start times by event type, including those of the samples'
    /// [`SpanContext`]s.
    fn chunks(path: &Path) -> Vec<HashMap<String, Vec<i64>>> {
        let mut input = Input::open(path).unwrap();
        let mut chunks: Vec<HashMap<String, Vec<i64>>> = Vec::new();
        while let Some(item) = input.next().unwrap() {
            match item {
                Item::ChunkStart(_) => chunks.push(HashMap::new()),
                Item::Events(batch) => {
                    for event in batch.events() {
                        let start = event.fields().field("startTime").ok().flatten();
                        let start = start.and_then(Value::as_i64).unwrap_or(0);
                        let of =
                            chunks.last_mut().unwrap().entry(event.class().name.to_string()).or_default();
                        of.push(start);
                    }
                }
                Item::Warning(warning) => panic!("{warning}"),
                Item::ChunkEnd(_) => {}
            }
        }
        chunks
    }

    #[test]
    fn sample_and_its_context_are_in_one_chunk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jfr");
        let (mut read, write) = std::os::unix::net::UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            read.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let target = Target::Descriptor(Arc::new(write.into()));
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        drop(target);
        let group = recording.add_group("prog (1)".into());
        let thread = recording.add_thread(5, "main", group).index;
        let start_ns = recording.chunk.start_ns;
        for i in 0..6_000 {
            let (time_ns, trace) = (start_ns + i * 1_000_000, trace(&mut recording, i % 300));
            let worked = Arc::new(Worked { context: context(1 + i % 700), seq: i });
            recording.note_sampled_span(thread, time_ns, Some(&worked).filter(|_| i > 50));
            recording.sample(thread, trace, time_ns, 1 + (i % 4) as u32);
            recording.note_sampled_span(thread, 0, None);
            while recording.waiting() > 0 {
                recording.push();
            }
        }
        recording.finish();
        while recording.waiting() > 0 {
            recording.push();
        }
        drop(recording);
        std::fs::write(&path, reader.join().unwrap()).unwrap();
        let chunks = chunks(&path);
        assert!(chunks.len() > 5, "{}", chunks.len());
        let all = |chunk: &HashMap<String, Vec<i64>>, event: &str| -> BTreeSet<i64> {
            chunk.get(event).into_iter().flatten().copied().collect()
        };
        let mut without = 0;
        for chunk in &chunks {
            let contexts = all(chunk, "flightline.SampleContext");
            assert_eq!(
                chunk.get("flightline.SampleContext").map_or(0, Vec::len),
                contexts.len(),
                "told twice"
            );
            without += all(chunk, "jdk.ExecutionSample").difference(&contexts).count();
        }
        assert_eq!(without, 51, "samples whose context is elsewhere");
        // The first span starts a chunk, which contains its sample.
        assert_eq!(all(&chunks[0], "flightline.SampleContext").len(), 0);
        assert_eq!(all(&chunks[0], "jdk.ExecutionSample").len(), 51);
    }

    #[test]
    fn each_repository_chunk_has_the_open_spans() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Repository(Repository::new(folder.path()));
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        let group = recording.add_group("prog (1)".into());
        let thread = recording.add_thread(5, "main", group).index;
        let (start_ns, sample_trace) = (recording.chunk.start_ns, trace(&mut recording, 1));
        let scope = |seq| Scope { start_ns, took_ns: 5_000, span: 9, previous: 0, seq, open: true };
        let open = |seq, name: &str| OpenSpan {
            thread,
            scope: scope(seq),
            name: name.into(),
            parent: 0,
            context: context(9),
        };
        assert!(recording.writes_open_spans());
        // Spans known before the chunk that declares them.
        recording.open_now(7, vec![open(1, "shop")]);
        let worked = Arc::new(Worked { context: context(9), seq: 3 });
        recording.note_sampled_span(thread, start_ns, Some(&worked));
        recording.sample(thread, sample_trace, start_ns, 1);
        recording.note_sampled_span(thread, 0, None);
        // Active on two threads; one activation ends.
        recording.open_now(7, vec![open(1, "shop"), open(2, "shop"), open(3, "shop")]);
        recording.open_no_more(7, 2, 9);
        recording.cut(start_ns + 1_000_000);
        recording.cut(start_ns + 2_000_000);
        recording.open_now(7, Vec::new());
        recording.cut(start_ns + 3_000_000);
        recording.finish();
        let mut counts: Vec<[usize; 3]> = Vec::new();
        let mut files = Vec::new();
        let mut folders = vec![folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.retain(|path| path.extension().is_some_and(|e| e == "jfr"));
        files.sort();
        for path in &files {
            for chunk in chunks(path) {
                let count = |event| chunk.get(event).map_or(0, Vec::len);
                counts.push(["flightline.OpenSpan", "flightline.SpanScope", "profiler.Span"].map(count));
            }
        }
        // The first chunk does not declare them yet.
        assert_eq!(counts, [[0; 3], [1, 2, 0], [1, 2, 0], [0; 3], [0; 3]]);
    }
}
