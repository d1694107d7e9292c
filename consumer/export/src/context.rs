//! Spans that go out as traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use flightline_consumer::model::Thread;
use flightline_consumer::spans;

/// Labels by name.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

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
    /// Process it was in, as [`Thread::group`] says; decides about the resource.
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

impl Span {
    /// What a recording tells of a span that ended on this thread.
    pub(crate) fn told(span: &spans::Span, thread: Option<&Thread>) -> Self {
        Self {
            trace_id: span.trace.0,
            span_id: span.key.id(),
            parent_span_id: span.parent.map_or(0, spans::SpanKey::id),
            flags: span.flags,
            name: span.name.clone(),
            start: span.start,
            end: span.end,
            process: thread.and_then(|thread| thread.group.clone()),
            // Receivers take no attribute without a name.
            labels: span.labels.iter().filter(|(name, _)| !name.is_empty()).map(cloned).collect(),
            samples: span.samples.map(u64::from).filter(|&samples| samples > 0),
            ..Self::default()
        }
    }
}

fn cloned((name, value): (&Arc<str>, &Arc<str>)) -> (Arc<str>, Arc<str>) {
    (name.clone(), value.clone())
}
