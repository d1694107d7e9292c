//! Spans: what samples were taken in, and what goes out as traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use flightline_consumer::live::{Event, Sample, Value};
use flightline_consumer::spans::labels_of;

/// Labels by name.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The span in which a sample was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// Its trace; 0 if not known.
    pub trace_id: u128,
    /// The innermost active span.
    pub span_id: u64,
    /// The outermost span of the process in that trace; 0 if not known.
    pub local_root_span_id: u64,
    /// Labels that were set.
    pub labels: Labels,
}

/// A span to be exported as part of a trace. Times are ns since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace_id: u128,
    /// Its id.
    pub span_id: u64,
    /// The span that it is in; 0 if it is a root.
    pub parent_span_id: u64,
    /// Flags of W3C trace context.
    pub flags: u32,
    /// Name.
    pub name: Arc<str>,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// Process it was in, as [`Thread::group`](flightline_consumer::model::Thread::group) says; decides about the resource.
    pub process: Option<Arc<str>>,
    /// What else is known of it.
    pub labels: Labels,
    /// Samples that tell of it; `None` if nobody counted.
    pub samples: Option<u64>,
    /// Nobody reported it: it was inferred from samples.
    pub inferred: bool,
    /// Frames that it stands for beside the one it is named after, innermost first.
    pub stack: Vec<Arc<str>>,
    /// Spans that it has to do with.
    pub links: Vec<Link>,
}

/// A span that another one is linked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its trace.
    pub trace_id: u128,
    /// Its id.
    pub span_id: u64,
    /// It would be a child of the inferred span, but was reported under another parent before.
    pub is_child: bool,
}

impl Context {
    /// What `flightline.SampleContext` tells.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        match event.field("context") {
            Some(Value::Struct(fields)) => Self::of_fields(fields),
            _ => None,
        }
    }

    /// What a sample's own fields tell, as Datadog and Grafana have them.
    pub(crate) fn of_sample(sample: &Sample) -> Option<Self> {
        let span_id = sample.span_id?;
        let own = Self::of_fields(&sample.fields).unwrap_or_default();
        Some(Self { span_id, ..own })
    }

    fn of_fields(fields: &[(Arc<str>, Value)]) -> Option<Self> {
        let number = |name| number(fields, name).cast_unsigned();
        let context = Self {
            trace_id: u128::from(number("traceIdHi")) << 64 | u128::from(number("traceIdLo")),
            span_id: number("spanId"),
            local_root_span_id: number("localRootSpanId"),
            labels: labels(text(fields, "labels").unwrap_or_default()),
        };
        (context.span_id != 0 || context.local_root_span_id != 0).then_some(context)
    }

    /// What the request was about: a label that says so.
    pub(crate) fn endpoint(&self) -> Option<&Arc<str>> {
        ["endpoint", "http.route", "url.path"].iter().find_map(|name| self.labels.get(*name))
    }
}

impl Span {
    /// What `flightline.Span` tells; `nanos` makes ns of ticks.
    pub(crate) fn of_event(event: &Event, nanos: impl Fn(i64) -> i64) -> Option<Self> {
        let fields = &event.fields;
        let context = Context::of_fields(fields)?;
        let start = event.time.epoch_nanos;
        let process = match event.field("eventThread") {
            Some(Value::Thread(thread)) => thread.group.clone(),
            _ => None,
        };
        Some(Self {
            trace_id: context.trace_id,
            span_id: context.span_id,
            parent_span_id: number(fields, "parentSpanId").cast_unsigned(),
            flags: number(fields, "flags") as u32 & 0xff,
            name: text(fields, "name").unwrap_or("").into(),
            start,
            end: start.saturating_add(nanos(number(fields, "duration")).max(0)),
            process,
            labels: context.labels,
            samples: u64::try_from(number(fields, "samples")).ok().filter(|&samples| samples > 0),
            ..Self::default()
        })
    }
}

fn find<'a>(fields: &'a [(Arc<str>, Value)], name: &str) -> Option<&'a Value> {
    fields.iter().find(|(known, _)| **known == *name).map(|(_, value)| value)
}

fn number(fields: &[(Arc<str>, Value)], name: &str) -> i64 {
    find(fields, name).and_then(Value::integer).unwrap_or(0)
}

fn text<'a>(fields: &'a [(Arc<str>, Value)], name: &str) -> Option<&'a str> {
    find(fields, name).and_then(Value::text)
}

/// The labels in a JSON object; none if it is no such thing. Receivers take no attribute without a name.
fn labels(json: &str) -> Labels {
    let told = labels_of(json);
    told.iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
