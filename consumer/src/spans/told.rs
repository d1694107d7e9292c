//! What a recording tells of spans, brought into one form: our own events and those of others.
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

/// Labels of a span, sorted by their names.
pub type Labels = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// Labels read of one span; what is beyond is left out.
const MOST_LABELS: usize = 64;

/// The span a sample was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The innermost active span.
    pub span: SpanKey,
    /// The outermost span of this process in the same trace; the span itself if it is that.
    pub local_root: SpanKey,
    /// Its trace, if the recording tells.
    pub trace: TraceId,
    /// Flags of W3C trace context: bit 0 says that the trace is sampled.
    pub flags: u32,
    /// Labels that were set when the sample was taken.
    pub labels: Labels,
}

impl SpanContext {
    /// Whether the trace goes to a tracing backend.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// A span as it was told when it ended, or what was told of it ended. Times are in ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which.
    pub key: SpanKey,
    /// Its name.
    pub name: Arc<str>,
    /// Its trace, if the recording tells.
    pub trace: TraceId,
    /// The span it was begun in, of this process or another.
    pub parent: Option<SpanKey>,
    /// The outermost span of this process in the same trace.
    pub local_root: SpanKey,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// Flags of W3C trace context.
    pub flags: u32,
    /// What the program said of it.
    pub labels: Labels,
    /// It was still open when this was told: it began no later, and ended no earlier.
    pub open: bool,
    /// Samples that were taken in it, if the recorder counted.
    pub samples: Option<u32>,
}

/// Time for which a span was the innermost one on a thread, together with those that were active within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The span.
    pub span: SpanKey,
    /// The span that was active before and is again after.
    pub previous: Option<SpanKey>,
    /// When it was activated, in ns since 1970.
    pub start: i64,
    /// When it was deactivated, or until when that is known.
    pub end: i64,
    /// It was still active when this was told; the same is told again later.
    pub open: bool,
}

/// One thing that a recording tells of spans. Times are in ns since 1970.
#[derive(Clone, Debug)]
pub enum Told {
    /// The samples of this thread that were taken, or of which what they tell of began, at that moment were in this span.
    Context(Arc<Thread>, i64, SpanContext),
    /// A span ended, on this thread.
    Span(Option<Arc<Thread>>, Span),
    /// A span was active on this thread.
    Scope(Arc<Thread>, Scope),
    /// A span that is known by its thread and time alone; its key is a placeholder if it has no id.
    Interval(Arc<Thread>, Span),
    /// What a local root is about.
    Endpoint(SpanKey, Arc<str>),
    /// No record with an earlier time follows.
    Watermark(i64),
}

/// Reads events that are no samples. `nanos` makes nanoseconds of the chunk's ticks.
pub(super) fn of_event(event: &Event, nanos: impl Fn(i64) -> i64) -> Option<Told> {
    let fields = Fields(&event.fields);
    let start = event.time.epoch_nanos;
    let end = || start.saturating_add(nanos(fields.number("duration").unwrap_or(0)).max(0));
    let thread = || fields.thread();
    match &*event.event {
        "flightline.SampleContext" => {
            let context = match event.field("context") {
                Some(Value::Struct(context)) => context_of(&Fields(context))?,
                // Its fields stand in the event itself.
                _ => context_of(&fields)?,
            };
            Some(Told::Context(thread()?, start, context))
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
                labels: labels_of(&fields.text("labels").unwrap_or_default()),
                open: name == "flightline.OpenSpan",
                samples: fields.number("samples").and_then(|samples| u32::try_from(samples).ok()),
            };
            Some(Told::Span(thread(), span))
        }
        "flightline.SpanScope" => {
            let scope = Scope {
                span: fields.span("spanId")?,
                previous: fields.span("previousSpanId"),
                start,
                end: end(),
                open: matches!(event.field("open"), Some(Value::Boolean(true))),
            };
            Some(Told::Scope(thread()?, scope))
        }
        "flightline.Watermark" => Some(Told::Watermark(start)),
        "datadog.Endpoint" => {
            let name = fields.text("endpoint").filter(|name| !name.is_empty());
            let name = name.or_else(|| fields.text("operation"))?;
            Some(Told::Endpoint(fields.span("localRootSpanId")?, name))
        }
        name => interval(name, &fields, &event.contextual, thread()?, start, end()),
    }
}

/// Reads what an event with a stack trace tells of spans beside the sample that it is.
pub(super) fn of_sample(sample: &Sample) -> Option<Told> {
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
) -> Option<Told> {
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
    let key = id("spanId").and_then(SpanKey::of).unwrap_or(UNNUMBERED);
    let trace = labels.get("traceId").and_then(|id| id.parse().ok()).unwrap_or_default();
    let parent = id("parentSpanId").and_then(SpanKey::of);
    let labels = labels.into();
    let (open, samples) = (false, None);
    let span =
        Span { key, name, trace, parent, local_root: key, start, end, flags: 1, labels, open, samples };
    Some(Told::Interval(thread, span))
}

/// The key of an interval that has not been given a number yet.
pub(super) const UNNUMBERED: SpanKey = SpanKey::Interval(0);

/// What Datadog's samples call the operation that their span is of.
const DATADOG_NAME: &str = "_dd.trace.operation";

/// The context that a sample of others carries in its own fields.
pub(crate) fn own_context(span: u64, fields: &[(Arc<str>, Value)]) -> Option<SpanContext> {
    let span = SpanKey::of(span)?;
    let fields = Fields(fields);
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    for name in ["contextId", "spanName", DATADOG_NAME] {
        let text = match fields.get(name) {
            // A key of Grafana's, whose texts are sent beside the recording; 0 is none.
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

/// What a constant `flightline.types.SpanContext` says.
pub(crate) fn context(fields: &[(Arc<str>, Value)]) -> Option<SpanContext> {
    context_of(&Fields(fields))
}

fn context_of(fields: &Fields<'_>) -> Option<SpanContext> {
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
        labels: labels_of(&text),
    })
}

/// Labels out of the text of a JSON object, as `flightline.Span` and contexts have them; none if it is not one.
pub fn labels_of(text: &str) -> Labels {
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
        // A method, as of jdk.MethodTrace.
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
        SpanKey::of(self.number(name)?.cast_unsigned())
    }

    fn trace(&self) -> TraceId {
        let half = |name| self.number(name).unwrap_or(0);
        TraceId::of_halves(half("traceIdHi"), half("traceIdLo"))
    }

    /// Where nothing is said of flags, what was recorded was sampled.
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
