//! Spans to export as traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use flightline_consumer::model::Thread;
use flightline_consumer::spans;

/// Labels by name.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// A span to be exported as part of a trace. Times are ns since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Id of the trace.
    pub trace_id: u128,
    /// Id of the span.
    pub span_id: u64,
    /// Id of the parent span; 0 for a root.
    pub parent_span_id: u64,
    /// Trace flags of W3C Trace Context.
    pub flags: u32,
    /// Name.
    pub name: Arc<str>,
    /// Start time.
    pub start: i64,
    /// End time.
    pub end: i64,
    /// Process of the span, in the form of [`Thread::group`]. It selects the resource.
    pub process: Option<Arc<str>>,
    /// Labels.
    pub labels: Labels,
    /// Number of samples in the span; `None` if they were not counted.
    pub samples: Option<u64>,
    /// True if the span was inferred from samples rather than recorded.
    pub inferred: bool,
    /// Further frames that the span covers, besides the one it is named after, innermost first.
    pub stack: Vec<Arc<str>>,
    /// Related spans.
    pub links: Vec<Link>,
}

/// A link to another span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Id of the linked span's trace.
    pub trace_id: u128,
    /// Id of the linked span.
    pub span_id: u64,
    /// The linked span belongs under the inferred span, but was already exported under another parent.
    pub is_child: bool,
}

impl Span {
    /// Converts a span of a recording that ended on this thread.
    pub(crate) fn new(span: &spans::Span, thread: Option<&Thread>) -> Self {
        Self {
            trace_id: span.trace.0,
            span_id: span.key.id(),
            parent_span_id: span.parent.map_or(0, spans::SpanKey::id),
            flags: span.flags,
            name: span.name.clone(),
            start: span.start,
            end: span.end,
            process: thread.and_then(|thread| thread.group.clone()),
            // Receivers reject attributes without a name.
            labels: span.labels.iter().filter(|(name, _)| !name.is_empty()).map(cloned).collect(),
            samples: span.samples.map(u64::from).filter(|&samples| samples > 0),
            ..Self::default()
        }
    }
}

fn cloned((name, value): (&Arc<str>, &Arc<str>)) -> (Arc<str>, Arc<str>) {
    (name.clone(), value.clone())
}
