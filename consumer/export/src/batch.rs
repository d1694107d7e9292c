//! What was observed, with names said once.

use std::collections::HashMap;
use std::sync::Arc;

use flightline_consumer::live::{Kind, Sample, Stack};
use flightline_consumer::model::{Id, Interner, Thread, Unit};
use flightline_consumer::spans::{self, Attributed, SpanContext, SpanKey};

use crate::context::Span;
use crate::resource::{Attributes, Resources};

/// Names of spans that are remembered; then all are forgotten.
const MOST_NAMES: usize = 1 << 16;

/// What samples are of: one profile of a resource each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Measure {
    pub(crate) event: Arc<str>,
    pub(crate) variant: Option<Arc<str>>,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
}

/// What makes samples one and the same but for time and span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) measure: Id<Measure>,
    pub(crate) thread: Option<Id<Thread>>,
    /// Position in [`Batch::stacks`].
    pub(crate) stack: Option<u32>,
    pub(crate) state: Option<Id<Arc<str>>>,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub(crate) shape: Id<Shape>,
    /// The span it was taken in.
    pub(crate) context: Option<Id<SpanContext>>,
    /// ns since 1970.
    pub(crate) time: i64,
    pub(crate) value: u64,
    pub(crate) samples: u64,
}

/// What is to be known of a sample once its span is.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    measure: Measure,
    thread: Option<Arc<Thread>>,
    stack: Option<Arc<Stack>>,
    state: Option<Arc<str>>,
}

impl Observed {
    /// `stack` is that of the sample, or one that is equal.
    pub(crate) fn new(sample: &Sample, stack: Option<Arc<Stack>>) -> Self {
        Self {
            measure: Measure {
                event: sample.event.clone(),
                variant: sample.variant.clone(),
                kind: sample.kind,
                unit: sample.weight.unit,
            },
            thread: sample.thread.clone(),
            stack,
            state: sample.state.clone(),
        }
    }
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples, as events.
    pub samples: u64,
    /// Of them, with a span.
    pub in_spans: u64,
    /// Spans, recorded and inferred.
    pub spans: u64,
    /// Spans left out of the traces, as their trace is not known.
    pub spans_without_trace: u64,
}

/// Samples and spans that go out together: about 40 bytes a sample, and each stack once. A [`Collector`](crate::Collector) makes
/// it.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) measures: Interner<Measure>,
    pub(crate) threads: Interner<Thread>,
    pub(crate) states: Interner<Arc<str>>,
    pub(crate) contexts: Interner<SpanContext>,
    pub(crate) shapes: Interner<Shape>,
    pub(crate) stacks: Vec<Arc<Stack>>,
    /// By address: the stacks are kept, so it stays theirs.
    stack_numbers: HashMap<usize, u32>,
    pub(crate) observations: Vec<Observation>,
    /// What a sample of an event stands for in ns, and what is measured then. It may be told behind the first samples.
    timed: HashMap<Arc<str>, (Id<Measure>, u64)>,
    pub(crate) spans: Vec<Span>,
    without_trace: u64,
    /// Names of spans that have ended, for samples under them.
    names: HashMap<SpanKey, Arc<str>>,
    /// What local roots are about, where that is told beside their names.
    endpoints: HashMap<SpanKey, Arc<str>>,
    pub(crate) resources: Resources,
}

impl Batch {
    pub(crate) fn new(given: Attributes) -> Self {
        Self { resources: Resources::new(given), ..Self::default() }
    }

    /// An empty one that knows what this one knows of processes and names.
    pub(crate) fn next(&self) -> Self {
        Self {
            resources: self.resources.clone(),
            names: self.names.clone(),
            endpoints: self.endpoints.clone(),
            ..Self::default()
        }
    }

    /// Takes a span that was told.
    pub(crate) fn told(&mut self, span: &spans::Span, thread: Option<&Thread>) {
        remember(&mut self.names, span.key, span.name.clone());
        self.span(Span::told(span, thread));
    }

    /// Takes what a local root is about.
    pub(crate) fn endpoint_of(&mut self, root: SpanKey, name: Arc<str>) {
        remember(&mut self.endpoints, root, name);
    }

    pub(crate) fn span(&mut self, span: Span) {
        if span.trace_id == 0 || span.span_id == 0 {
            self.without_trace += 1;
        } else {
            self.spans.push(span);
        }
    }

    /// Takes a sample, or a part of one, that was given to its span.
    pub(crate) fn observe(&mut self, part: &Attributed<'_, Observed>) {
        let Attributed { sample, weight, context, .. } = *part;
        let Observed { measure, thread, stack, state } = &sample.of;
        let event = measure.event.clone();
        let measure = self.measures.intern(measure.clone());
        if weight.unit == Unit::Nanoseconds
            && !self.timed.contains_key(&event)
            && let Some(one) = sample.weight.value.checked_div(sample.weight.samples)
        {
            self.timed.insert(event, (measure, one));
        }
        let shape = Shape {
            measure,
            thread: thread.as_ref().map(|thread| self.threads.intern((**thread).clone())),
            stack: stack.as_ref().map(|stack| self.stack(stack)),
            state: state.as_ref().map(|state| self.states.intern(state.clone())),
        };
        self.observations.push(Observation {
            shape: self.shapes.intern(shape),
            context: context.map(|context| self.contexts.intern((**context).clone())),
            time: sample.time,
            value: weight.value,
            samples: weight.samples,
        });
    }

    /// What is measured by a sample, and its value. Where time is measured by counting samples, it is time.
    pub(crate) fn measured(&self, shape: &Shape, observation: &Observation) -> (Id<Measure>, u64) {
        let measure = self.measures.get(shape.measure);
        match self.timed.get(&measure.event) {
            Some(&(timed, one)) if measure.unit == Unit::Samples => {
                (timed, one.saturating_mul(observation.samples))
            }
            _ => (shape.measure, observation.value),
        }
    }

    fn stack(&mut self, stack: &Arc<Stack>) -> u32 {
        let next = self.stacks.len() as u32;
        let number = *self.stack_numbers.entry(Arc::as_ptr(stack).addr()).or_insert(next);
        if number == next {
            self.stacks.push(stack.clone());
        }
        number
    }

    /// Samples held.
    pub fn len(&self) -> usize {
        self.observations.len()
    }

    /// Whether there is nothing to export.
    pub fn is_empty(&self) -> bool {
        self.observations.is_empty() && self.spans.is_empty()
    }

    /// What the batch is made of.
    pub fn counts(&self) -> Counts {
        let in_spans = self.observations.iter().filter(|observation| observation.context.is_some());
        Counts {
            samples: self.observations.len() as u64,
            in_spans: in_spans.count() as u64,
            spans: self.spans.len() as u64,
            spans_without_trace: self.without_trace,
        }
    }

    /// What a request was about: as its labels say, else as was told of its local root, else that one's name.
    pub(crate) fn endpoint(&self, context: &SpanContext) -> Option<Arc<str>> {
        let label = ["endpoint", "http.route", "url.path"].iter().find_map(|name| context.labels.get(*name));
        let root = || self.endpoints.get(&context.local_root).or_else(|| self.names.get(&context.local_root));
        label.or_else(root).cloned()
    }

    /// The name of a span, if it has been told.
    pub(crate) fn name(&self, span: SpanKey) -> Option<&Arc<str>> {
        self.names.get(&span)
    }
}

fn remember(names: &mut HashMap<SpanKey, Arc<str>>, span: SpanKey, name: Arc<str>) {
    if names.len() >= MOST_NAMES && !names.contains_key(&span) {
        names.clear();
    }
    names.insert(span, name);
}

impl Measure {
    /// What OpenTelemetry and pprof call it, and its unit.
    pub(crate) fn name(&self) -> (&str, &'static str) {
        let unit = match self.unit {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Samples | Unit::Events => "count",
        };
        let name = match (self.kind, self.unit) {
            (Kind::Cpu, Unit::Samples) => "samples",
            (Kind::Allocation, Unit::Bytes) => "alloc_space",
            (Kind::Live, Unit::Bytes) => "inuse_space",
            (Kind::PerfEvent, _) => self.variant.as_deref().unwrap_or("perf"),
            (Kind::Other, _) => &self.event,
            (kind, _) => kind.name(),
        };
        (name, unit)
    }
}
