//! Samples as rows, with strings and shared values replaced by indices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flightline_consumer::live;
use flightline_consumer::model::{Thread, Unit};
use flightline_consumer::spans::SpanContext;
use jfr_format::pool::KeyHash;

use super::dictionary::Dictionary;
use super::labels::Labels;
use crate::footer::Id;

/// Represents no string, thread or context.
pub(super) const NONE: u32 = u32::MAX;
/// Maximum rows per file; the rest goes to another file of the delivery.
pub(super) const MOST_ROWS: usize = 2 << 20;
/// Limits on path nodes, strings and contexts, which also use memory.
const MOST_STEPS: usize = 16 << 20;
const MOST_TEXTS: usize = 1 << 20;
const MOST_CONTEXTS: usize = 1 << 18;

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// µs since 1970.
    pub(super) ts: i64,
    pub(super) samples: i64,
    pub(super) value: i64,
    /// ns; negative if unknown.
    pub(super) duration: i64,
    pub(super) stack: u32,
    pub(super) event: u32,
    pub(super) variant: u32,
    pub(super) state: u32,
    pub(super) thread: u32,
    pub(super) context: u32,
    /// Index in the delivery's chunks.
    pub(super) chunk: u32,
    pub(super) unit: Unit,
}

/// Lost events.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) ts: i64,
    pub(super) told_by: Arc<str>,
    pub(super) cause: Arc<str>,
    pub(super) event: Option<Arc<str>>,
    pub(super) thread: Option<Arc<str>>,
    pub(super) events: Option<i64>,
    pub(super) bytes: Option<i64>,
    pub(super) cpu: Option<i64>,
    pub(super) chunk: u32,
}

/// A thread: name index and TID.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledThread {
    pub(super) name: u32,
    pub(super) tid: Option<i64>,
}

/// Values shared by the samples of a span.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) span: Option<String>,
    pub(super) root: Option<String>,
    pub(super) trace: Option<String>,
    /// Label columns and value indices.
    pub(super) labels: Vec<(usize, u32)>,
    /// Labels without a column.
    pub(super) others: BTreeMap<String, String>,
}

/// Interned strings.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) all: Vec<Arc<str>>,
    known: HashMap<Arc<str>, u32, KeyHash>,
    /// The last string looked up; the same one often repeats.
    last: Option<(Arc<str>, u32)>,
}

impl Texts {
    pub(super) fn number(&mut self, text: &Arc<str>) -> u32 {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, text)
        {
            return *number;
        }
        let number = match self.known.get(text) {
            Some(&known) => known,
            None => {
                let number = self.all.len() as u32;
                self.all.push(text.clone());
                self.known.insert(text.clone(), number);
                number
            }
        };
        self.last = Some((text.clone(), number));
        number
    }

    pub(super) fn maybe(&mut self, text: Option<&Arc<str>>) -> u32 {
        text.map_or(NONE, |text| self.number(text))
    }
}

/// Rows that have not been written yet.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) lost: Vec<Lost>,
    pub(super) dictionary: Dictionary,
    pub(super) events: Texts,
    pub(super) variants: Texts,
    pub(super) states: Texts,
    pub(super) names: Texts,
    pub(super) values: Texts,
    pub(super) threads: Vec<SampledThread>,
    pub(super) contexts: Vec<Context>,
    pub(super) labels: Labels,
    /// Chunks of the rows.
    pub(super) chunks: Vec<Id>,
    /// Indices by address, for the current chunk; each value is held so that its address is not reused.
    met_threads: HashMap<usize, (Arc<Thread>, u32), KeyHash>,
    met_contexts: HashMap<usize, (Arc<SpanContext>, u32), KeyHash>,
    /// By content, across chunks.
    known_contexts: HashMap<Arc<SpanContext>, u32, KeyHash>,
    known_threads: HashMap<(u32, Option<i64>), u32, KeyHash>,
    plain: Option<u32>,
    /// Number of rows from finished chunks.
    pub(super) settled: usize,
}

/// Values shared by all samples of a delivery.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) labels: Vec<(String, Arc<str>)>,
    pub(super) lines: bool,
}

impl Rows {
    /// Starts the chunk `id`.
    pub(super) fn chunk(&mut self, id: Id) {
        self.keys_change();
        self.chunks.push(id);
    }

    /// Forgets the addresses of the previous chunk.
    pub(super) fn keys_change(&mut self) {
        self.met_threads.clear();
        self.met_contexts.clear();
        self.dictionary.chunk_ends();
    }

    /// Returns true if there are enough rows for a file.
    pub(super) fn full(&self) -> bool {
        self.rows.len() >= MOST_ROWS
            || self.lost.len() >= MOST_ROWS
            || self.dictionary.steps() >= MOST_STEPS
            || self.contexts.len() >= MOST_CONTEXTS
            || [&self.names, &self.values, &self.variants].iter().any(|texts| texts.all.len() >= MOST_TEXTS)
    }

    /// Returns true if there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.lost.is_empty()
    }

    pub(super) fn sample(&mut self, sample: &live::Sample, shared: &Shared) {
        let thread = sample.thread.as_ref().map_or(NONE, |thread| self.thread(thread));
        let mut stack = self.dictionary.stack(sample.stack.as_ref(), shared.lines);
        if let Some(class) = sample.class() {
            stack = self.dictionary.with_class(stack, &class);
        }
        let row = Row {
            ts: sample.time.epoch_nanos.div_euclid(1000),
            samples: number(sample.weight.samples),
            value: number(sample.weight.value),
            duration: sample.duration_nanos.map_or(-1, number),
            stack,
            event: self.events.number(&sample.event),
            variant: self.variants.maybe(sample.variant.as_ref()),
            state: self.states.maybe(sample.state.as_ref()),
            thread,
            context: self.context(sample, shared),
            chunk: self.chunks.len().saturating_sub(1) as u32,
            unit: sample.weight.unit,
        };
        self.rows.push(row);
    }

    /// Sets the weight of the current chunk's samples to `period` (ns) where it is unknown.
    pub(super) fn settle(&mut self, period: impl Fn(&str) -> Option<u64>) {
        let of_chunk = self.settled.min(self.rows.len());
        let mut periods: HashMap<u32, Option<i64>, KeyHash> = HashMap::default();
        for row in self.rows[of_chunk..].iter_mut().filter(|row| row.unit == Unit::Samples) {
            let event = &self.events.all[row.event as usize];
            if let Some(period) = *periods.entry(row.event).or_insert_with(|| period(event).map(number)) {
                (row.value, row.unit) = (period.saturating_mul(row.samples), Unit::Nanoseconds);
            }
        }
        self.settled = self.rows.len();
    }

    pub(super) fn loss(&mut self, loss: &live::Loss) {
        self.lost.push(Lost {
            ts: loss.time.epoch_nanos.div_euclid(1000),
            told_by: loss.told_by.clone(),
            cause: loss.cause.clone(),
            event: loss.event_type.clone(),
            thread: loss.thread.as_ref().map(|thread| thread.name().into()),
            events: loss.events.map(number),
            bytes: loss.bytes.map(number),
            cpu: loss.cpu_nanos.map(number),
            chunk: self.chunks.len().saturating_sub(1) as u32,
        });
    }

    pub(super) fn thread(&mut self, thread: &Arc<Thread>) -> u32 {
        let at = Arc::as_ptr(thread).addr();
        if let Some(&(_, known)) = self.met_threads.get(&at) {
            return known;
        }
        let name = self.names.number(&thread.name().into());
        let tid = (thread.os_id != 0).then_some(thread.os_id);
        let threads = &mut self.threads;
        let number = *self.known_threads.entry((name, tid)).or_insert_with(|| {
            threads.push(SampledThread { name, tid });
            threads.len() as u32 - 1
        });
        self.met_threads.insert(at, (thread.clone(), number));
        number
    }

    /// Returns the index of a sample's context.
    fn context(&mut self, sample: &live::Sample, shared: &Shared) -> u32 {
        match (&sample.span, sample.span_id) {
            (Some(span), _) => self.span(span, shared),
            (None, Some(id)) => self.span_alone(id, shared),
            (None, None) => self.no_span(shared),
        }
    }

    pub(super) fn no_span(&mut self, shared: &Shared) -> u32 {
        match self.plain {
            Some(plain) => plain,
            None => {
                let plain = self.add(Context::default(), &BTreeMap::new(), shared);
                *self.plain.insert(plain)
            }
        }
    }

    pub(super) fn span(&mut self, span: &Arc<SpanContext>, shared: &Shared) -> u32 {
        let at = Arc::as_ptr(span).addr();
        if let Some(&(_, known)) = self.met_contexts.get(&at) {
            return known;
        }
        let known = self.known_contexts.get(span).copied();
        let number = known.unwrap_or_else(|| {
            let id = |key: flightline_consumer::spans::SpanKey| {
                Some(key.id()).filter(|&id| id != 0).map(|id| format!("{id:016x}"))
            };
            let context = Context {
                span: id(span.span),
                root: id(span.local_root),
                trace: span.trace.is_some().then(|| span.trace.to_string()),
                ..Context::default()
            };
            let number = self.add(context, &span.labels, shared);
            self.known_contexts.insert(span.clone(), number);
            number
        });
        // If samples name their spans themselves, each has its own context.
        if self.met_contexts.len() < MOST_CONTEXTS {
            self.met_contexts.insert(at, (span.clone(), number));
        }
        number
    }

    fn span_alone(&mut self, id: u64, shared: &Shared) -> u32 {
        self.add(Context { span: Some(format!("{id:016x}")), ..Context::default() }, &BTreeMap::new(), shared)
    }

    /// A sample's own labels take precedence over shared ones.
    fn add(&mut self, mut context: Context, own: &BTreeMap<Arc<str>, Arc<str>>, shared: &Shared) -> u32 {
        let of_all = shared.labels.iter().filter(|(key, _)| !own.contains_key(key.as_str()));
        let of_all = of_all.map(|(key, value)| (key.as_str(), value));
        for (key, value) in of_all.chain(own.iter().map(|(key, value)| (&**key, value))) {
            match self.labels.column(key) {
                Some(column) => context.labels.push((column, self.values.number(value))),
                None => {
                    context.others.insert(key.to_owned(), value.to_string());
                }
            }
        }
        self.contexts.push(context);
        self.contexts.len() as u32 - 1
    }
}

pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
