//! What samples were taken for, spans and their scopes.

use std::collections::HashMap;

use jfr_format::{ids::Ticks, schema};

use super::Recording;

/// A span and what is known of it while it is active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Its id, as all here a number whose big-endian bytes are W3C's.
    pub span: u64,
    /// The outermost span of its trace in the process, 0: not known.
    pub local_root: u64,
    /// Id of its trace, high half first.
    pub trace: [u64; 2],
    /// W3C trace flags.
    pub flags: u8,
    /// A JSON object's text, empty without labels.
    pub labels: String,
}

/// What a thread worked for when it was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// The span.
    pub context: SpanContext,
    /// Number of its activation, 0 if nobody counts.
    pub seq: u64,
}

/// A span that ended.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// CLOCK_MONOTONIC ns of its beginning.
    pub start_ns: u64,
    /// How long it lasted, ns.
    pub took_ns: u64,
    /// Its name.
    pub name: &'a str,
    /// The span it is a child of, 0: none.
    pub parent: u64,
    /// Samples within it; not known of one that is not over.
    pub samples: Option<u32>,
    /// The rest.
    pub context: SpanContext,
}

/// An activation of a span on one thread.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// CLOCK_MONOTONIC ns of its beginning.
    pub start_ns: u64,
    /// How long it lasted, ns.
    pub took_ns: u64,
    /// The span.
    pub span: u64,
    /// The span that was active before, 0: none.
    pub previous: u64,
    /// Number of the activation.
    pub seq: u64,
    /// It was not over yet.
    pub open: bool,
}

/// Contexts and texts that are remembered at most, each.
const MOST: usize = 1 << 15;
/// Bytes of texts that are remembered at most.
const MOST_BYTES: usize = 4 << 20;

/// Constants of spans: their keys, and the chunks that have them.
#[derive(Default)]
pub(super) struct Constants {
    contexts: HashMap<SpanContext, (u64, u32)>,
    last_context: u64,
    texts: HashMap<Box<str>, (u64, u32)>,
    last_text: u64,
    bytes: usize,
    /// Thread, time and chunk of what was told last: several samples may have been taken at once.
    told: Option<(usize, i64, u32)>,
}

impl Constants {
    /// Forgets all if it is much. Keys are never given twice, so what comes again has another one.
    fn trim(&mut self) {
        if self.contexts.len() > MOST || self.texts.len() > MOST || self.bytes > MOST_BYTES {
            self.contexts.clear();
            self.texts.clear();
            self.bytes = 0;
        }
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.contexts.len() + self.texts.len()
    }
}

impl Recording {
    /// The key of a text, queued if this chunk does not have it yet; 0 for none. Room must have been asked for.
    fn text_key(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let spans = &mut self.spans;
        if !spans.texts.contains_key(text) {
            spans.last_text += 1;
            spans.bytes += text.len();
            spans.texts.insert(text.into(), (spans.last_text, 0));
        }
        let Some((key, chunk)) = spans.texts.get_mut(text) else { return 0 };
        let key = *key;
        if *chunk != self.chunk {
            let written = self.writer.constant(schema::STRING, key, |c| {
                c.string(text);
            });
            if written.is_err() {
                return 0;
            }
            *chunk = self.chunk;
        }
        key
    }

    fn context_key(&mut self, context: &SpanContext) -> u64 {
        if let Some(&(key, chunk)) = self.spans.contexts.get(context)
            && chunk == self.chunk
        {
            return key;
        }
        let labels = self.text_key(&context.labels);
        let spans = &mut self.spans;
        let key = spans.contexts.get(context).map_or(spans.last_context + 1, |(key, _)| *key);
        let [high, low] = context.trace;
        let written = self.writer.constant(schema::SPAN_CONTEXT, key, |c| {
            c.long(context.span as i64).long(context.local_root as i64).long(high as i64).long(low as i64);
            c.int(i32::from(context.flags)).key(labels);
        });
        if written.is_err() {
            return 0;
        }
        spans.last_context = spans.last_context.max(key);
        spans.contexts.insert(context.clone(), (key, self.chunk));
        key
    }

    /// Tells what a thread worked for when its samples that begin at `start_ns` were taken. Samples that are added up have
    /// lost it.
    pub fn worked_for(&mut self, thread: usize, start_ns: u64, worked: &Worked) {
        let time = self.ticks(start_ns);
        if self.aggregate.is_some() || self.spans.told == Some((thread, time.0, self.chunk)) {
            return;
        }
        self.spans.trim();
        let bytes = worked.context.labels.len() + CONSTANT_BYTES;
        self.event_with_constants(
            schema::SAMPLE_CONTEXT,
            thread,
            None,
            bytes,
            |recording| recording.context_key(&worked.context),
            |e, thread, _, context| {
                e.ticks(time).key(thread).key(context).long(worked.seq as i64);
            },
        );
        self.spans.told = Some((thread, time.0, self.chunk));
    }

    /// Writes a span, as ours and as async-profiler has it; `thread` is where it ended, or goes on.
    pub fn span_end(&mut self, thread: usize, span: &Span<'_>) {
        self.spans.trim();
        let (start, took) = self.interval(span.start_ns, span.took_ns);
        let context = &span.context;
        let bytes = context.labels.len() + span.name.len() + 2 * CONSTANT_BYTES;
        let [high, low] = context.trace;
        self.event_with_constants(
            if span.samples.is_some() { schema::SPAN } else { schema::OPEN_SPAN },
            thread,
            None,
            bytes,
            |recording| (recording.text_key(span.name), recording.text_key(&context.labels)),
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
        self.event_with_constants(
            schema::PROFILER_SPAN,
            thread,
            None,
            span.name.len() + CONSTANT_BYTES,
            |recording| recording.text_key(span.name),
            |e, thread, _, name| {
                e.ticks(start).ticks(took).key(thread).key(name);
            },
        );
    }

    /// Writes an activation of a span.
    pub fn scope_end(&mut self, thread: usize, scope: &Scope) {
        let (start, took) = self.interval(scope.start_ns, scope.took_ns);
        self.event_with_stack(schema::SPAN_SCOPE, thread, None, 48, |e, thread, _| {
            e.ticks(start).ticks(took).key(thread);
            e.long(scope.span as i64).long(scope.previous as i64).long(scope.seq as i64).boolean(scope.open);
        });
    }

    /// Of what ended before `time_ns` nothing comes any more; told where spans are.
    pub fn watermark(&mut self, time_ns: u64) {
        if self.declared.has(schema::WATERMARK) {
            let time: Ticks = self.ticks(time_ns);
            self.event(schema::WATERMARK, None, 0, |e, _| {
                e.ticks(time);
            });
        }
    }

    /// How many contexts and texts of spans it knows.
    pub fn span_constants(&self) -> usize {
        self.spans.len()
    }
}

/// Most bytes of a constant here beside its text.
const CONSTANT_BYTES: usize = 96;
