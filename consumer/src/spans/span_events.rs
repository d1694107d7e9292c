//! Converts span records of Flightline and of other producers to one form.
//!
//! | event | of | what it becomes |
//! |---|---|---|
//! | `flightline.SampleContext` | Flightline | context of the samples of that thread and moment |
//! | `flightline.Span`, `flightline.OpenSpan` | Flightline | span |
//! | `flightline.SpanScope` | Flightline | time for which a span was active on one thread |
//! | `flightline.Watermark` | Flightline | nothing older follows |
//! | `profiler.Span` | async-profiler, Flightline | interval of a thread, its name the tag |
//! | events with `@Contextual` fields | JDK 25 and later | interval of a thread, the fields its labels |
//! | samples with `spanId` (and `localRootSpanId`, `spanName`, `contextId`) | Datadog, Grafana | context of that sample |
//! | `datadog.Endpoint` | Datadog | name of a local root |

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::ids::{SpanKey, TraceId};
use crate::live::{Event, Sample, Value};
use crate::model::Thread;

/// Labels of a span, ordered by name.
pub type Labels = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// Maximum number of labels of a span; further ones are ignored.
const MOST_LABELS: usize = 64;

/// The span that was active in a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The innermost active span.
    pub span: SpanKey,
    /// The outermost span of the trace in this process; may be the span itself.
    pub local_root: SpanKey,
    /// Id of its trace, if it is recorded.
    pub trace: TraceId,
    /// Trace flags of W3C Trace Context; bit 0 means that the trace is sampled.
    pub flags: u32,
    /// Labels at the time of the sample.
    pub labels: Labels,
}

impl SpanContext {
    /// Returns true if the trace is sent to a tracing backend.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// A span as recorded at its end, or while it is unfinished. Times are in ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Key.
    pub key: SpanKey,
    /// Name.
    pub name: Arc<str>,
    /// Id of its trace, if it is recorded.
    pub trace: TraceId,
    /// Its parent, in this process or another one.
    pub parent: Option<SpanKey>,
    /// The outermost span of the trace in this process.
    pub local_root: SpanKey,
    /// Start time.
    pub start: i64,
    /// End time.
    pub end: i64,
    /// Trace flags of W3C Trace Context.
    pub flags: u32,
    /// Labels set by the program.
    pub labels: Labels,
    /// It was unfinished when this was recorded: it began no later, and ended no earlier.
    pub open: bool,
    /// Number of samples in it, if the recorder counted them.
    pub samples: Option<u32>,
}

/// An activation: the time in which a span was the innermost one on a thread, or contained the innermost
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The span.
    pub span: SpanKey,
    /// The span that was active before, and is active again afterwards.
    pub previous: Option<SpanKey>,
    /// Start, in ns since 1970.
    pub start: i64,
    /// End, or the time up to which it is known.
    pub end: i64,
    /// It was still active when this was recorded; it will be recorded again.
    pub open: bool,
}

/// A span record. Times are in ns since 1970.
#[derive(Clone, Debug)]
pub enum SpanRecord {
    /// The span of this thread's samples at this time (for events with a duration: at their start).
    Context(Arc<Thread>, i64, SpanContext),
    /// A span that ended on this thread.
    Span(Option<Arc<Thread>>, Span),
    /// An activation of a span on this thread.
    Scope(Arc<Thread>, Scope),
    /// A span that is identified only by its thread and time; its key is a placeholder if it has no id.
    Interval(Arc<Thread>, Span),
    /// The endpoint of a local root span.
    Endpoint(SpanKey, Arc<str>),
    /// No record with an earlier time follows.
    Watermark(i64),
}

/// Converts an event that is not a sample. `nanos` converts ticks of the chunk to nanoseconds.
pub(super) fn from_event(event: &Event, nanos: impl Fn(i64) -> i64) -> Option<SpanRecord> {
    let fields = Fields(&event.fields);
    let start = event.time.epoch_nanos;
    let end = || start.saturating_add(nanos(fields.number("duration").unwrap_or(0)).max(0));
    let thread = || fields.thread();
    match &*event.event {
        "flightline.SampleContext" => {
            let context = match event.field("context") {
                Some(Value::Struct(context)) => parse_context(&Fields(context))?,
                // The fields are in the event itself.
                _ => parse_context(&fields)?,
            };
            Some(SpanRecord::Context(thread()?, start, context))
        }
        name @ ("flightline.Span" | "flightline.OpenSpan") => {
            let key = fields.span("spanId")?;
            let span = Span {
                key,
                name: fields.text("name").unwrap_or_default(),
                trace: fields.trace(),
                parent: fields.span("parentSpanId"),
                local_root: fields.span("localRootSpanId").unwrap_or(key),
                start,
                end: end(),
                flags: fields.flags(),
                labels: parse_labels(&fields.text("labels").unwrap_or_default()),
                open: name == "flightline.OpenSpan",
                samples: fields.number("samples").and_then(|samples| u32::try_from(samples).ok()),
            };
            Some(SpanRecord::Span(thread(), span))
        }
        "flightline.SpanScope" => {
            let scope = Scope {
                span: fields.span("spanId")?,
                previous: fields.span("previousSpanId"),
                start,
                end: end(),
                open: matches!(event.field("open"), Some(Value::Boolean(true))),
            };
            Some(SpanRecord::Scope(thread()?, scope))
        }
        "flightline.Watermark" => Some(SpanRecord::Watermark(start)),
        "datadog.Endpoint" => {
            let name = fields.text("endpoint").filter(|name| !name.is_empty());
            let name = name.or_else(|| fields.text("operation"))?;
            Some(SpanRecord::Endpoint(fields.span("localRootSpanId")?, name))
        }
        name => interval(name, &fields, &event.contextual, thread()?, start, end()),
    }
}

/// Converts the span information in a sample.
pub(super) fn from_sample(sample: &Sample) -> Option<SpanRecord> {
    let duration = sample.duration_nanos.filter(|_| !sample.contextual.is_empty())?;
    let start = sample.time.epoch_nanos;
    let end = start.saturating_add(i64::try_from(duration).unwrap_or(i64::MAX));
    interval(&sample.event, &Fields(&sample.fields), &sample.contextual, sample.thread.clone()?, start, end)
}

fn interval(
    event: &str,
    fields: &Fields<'_>,
    contextual: &[Arc<str>],
    thread: Arc<Thread>,
    start: i64,
    end: i64,
) -> Option<SpanRecord> {
    if event != "profiler.Span" && contextual.is_empty() {
        return None;
    }
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    for name in contextual.iter().take(MOST_LABELS).filter(|name| ***name != *"tag") {
        if let Some(text) = fields.get(name).and_then(as_text) {
            labels.insert(name.clone(), text);
        }
    }
    let told = ["name", "spanName", "operation", "method"].iter().find_map(|name| labels.get(*name).cloned());
    // com.example.Request → Request
    let name = fields.text("tag").or(told);
    let name = name.unwrap_or_else(|| event.rsplit(['.', '$']).next().unwrap_or(event).into());
    let id = |name: &str| labels.get(name).and_then(|id| u64::from_str_radix(id, 16).ok());
    let key = id("spanId").and_then(SpanKey::from_id).unwrap_or(UNNUMBERED);
    let trace = labels.get("traceId").and_then(|id| id.parse().ok()).unwrap_or_default();
    let parent = id("parentSpanId").and_then(SpanKey::from_id);
    let labels = labels.into();
    let (open, samples) = (false, None);
    let span =
        Span { key, name, trace, parent, local_root: key, start, end, flags: 1, labels, open, samples };
    Some(SpanRecord::Interval(thread, span))
}

/// The key of an interval without a number.
pub(super) const UNNUMBERED: SpanKey = SpanKey::Interval(0);

/// The field with the span's operation in Datadog's samples.
const DATADOG_NAME: &str = "_dd.trace.operation";

/// Returns the context in the fields of another producer's sample.
pub(crate) fn own_context(span: u64, fields: &[(Arc<str>, Value)]) -> Option<SpanContext> {
    let span = SpanKey::from_id(span)?;
    let fields = Fields(fields);
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    for name in ["contextId", "spanName", DATADOG_NAME] {
        let text = match fields.get(name) {
            // A key of Grafana's, whose texts are sent separately from the recording; 0 means none.
            Some(Value::Integer(0)) => None,
            Some(Value::Integer(key)) if name == "spanName" => Some(format!("[name {key}]").into()),
            value => value.and_then(as_text),
        };
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            labels.insert(if name == DATADOG_NAME { "spanName" } else { name }.into(), text);
        }
    }
    Some(SpanContext {
        span,
        local_root: fields.span("localRootSpanId").unwrap_or(span),
        trace: fields.trace(),
        flags: fields.flags(),
        labels: labels.into(),
    })
}

/// Converts a constant `flightline.types.SpanContext`.
pub(crate) fn context(fields: &[(Arc<str>, Value)]) -> Option<SpanContext> {
    parse_context(&Fields(fields))
}

fn parse_context(fields: &Fields<'_>) -> Option<SpanContext> {
    let text = fields.text("labels").unwrap_or_default();
    let of_labels = || {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        (!text.is_empty()).then(|| SpanKey::Labels(hasher.finish()))
    };
    let span = fields.span("spanId").or_else(of_labels)?;
    Some(SpanContext {
        span,
        local_root: fields.span("localRootSpanId").unwrap_or(span),
        trace: fields.trace(),
        flags: fields.flags(),
        labels: parse_labels(&text),
    })
}

/// Parses labels from a JSON object, the format of `flightline.Span` and contexts; empty for other text.
pub fn parse_labels(text: &str) -> Labels {
    if text.is_empty() {
        return Labels::default();
    }
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text) else { return Labels::default() };
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text.into(),
        other => other.to_string().into(),
    };
    let labels = object.into_iter().take(MOST_LABELS).map(|(name, value)| (Arc::from(name), text(value)));
    Arc::new(labels.collect())
}

fn as_text(value: &Value) -> Option<Arc<str>> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string().into()),
        Value::Boolean(value) => Some(value.to_string().into()),
        Value::Real(number) => Some(number.to_string().into()),
        // A method, as in jdk.MethodTrace.
        Value::Struct(fields) => {
            let fields = Fields(fields);
            let name = fields.text("name")?;
            Some(fields.text("type").map_or(name.clone(), |class| format!("{class}.{name}").into()))
        }
        _ => None,
    }
}

struct Fields<'a>(&'a [(Arc<str>, Value)]);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.integer()
    }

    fn text(&self, name: &str) -> Option<Arc<str>> {
        match self.get(name)? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn span(&self, name: &str) -> Option<SpanKey> {
        SpanKey::from_id(self.number(name)?.cast_unsigned())
    }

    fn trace(&self) -> TraceId {
        let half = |name| self.number(name).unwrap_or(0);
        TraceId::from_halves(half("traceIdHi"), half("traceIdLo"))
    }

    /// Without flags, recorded spans are treated as sampled.
    fn flags(&self) -> u32 {
        self.number("flags").map_or(1, |flags| flags as u32 & 0xff)
    }

    fn thread(&self) -> Option<Arc<Thread>> {
        match self.get("eventThread")? {
            Value::Thread(thread) => Some(thread.clone()),
            _ => None,
        }
    }
}
