//! Samples and spans to export, with shared names and stacks.

use std::collections::HashMap;
use std::sync::Arc;

use flightline_consumer::live::{Kind, Sample, Stack};
use flightline_consumer::model::{Id, Interner, Thread, Unit};
use flightline_consumer::spans::{self, Attributed, SpanContext, SpanKey};

use crate::context::Span;
use crate::resource::{Attributes, Resources};

/// Span names that are cached. When the table is full, it is cleared.
const MOST_NAMES: usize = 1 << 16;

/// The event type and unit that samples measure. Each resource has one profile for each measure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Measure {
    pub(crate) event: Arc<str>,
    pub(crate) variant: Option<Arc<str>>,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
}

/// The properties that equal samples share: all but their time and span.
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
    /// The span that was active when the sample was taken.
    pub(crate) context: Option<Id<SpanContext>>,
    /// ns since 1970.
    pub(crate) time: i64,
    pub(crate) value: u64,
    pub(crate) samples: u64,
}

/// The part of a sample that the batch needs once the sample's span is known.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    measure: Measure,
    thread: Option<Arc<Thread>>,
    stack: Option<Arc<Stack>>,
    state: Option<Arc<str>>,
}

impl Observed {
    /// Takes the stack from `stack`: the sample's own, or an equal one that is already cached.
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

/// Numbers of samples and spans in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples, as events.
    pub samples: u64,
    /// Samples that belong to a span.
    pub in_spans: u64,
    /// Spans, recorded and inferred.
    pub spans: u64,
    /// Spans without a known trace. They are left out of the traces.
    pub spans_without_trace: u64,
}

/// Samples and spans that are exported together: about 40 bytes for each sample, and each stack once.
/// Made by a [`Collector`](crate::Collector).
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) measures: Interner<Measure>,
    pub(crate) threads: Interner<Thread>,
    pub(crate) states: Interner<Arc<str>>,
    pub(crate) contexts: Interner<SpanContext>,
    pub(crate) shapes: Interner<Shape>,
    pub(crate) stacks: Vec<Arc<Stack>>,
    /// By the stack's address. `stacks` holds a reference, so an address is not reused.
    stack_numbers: HashMap<usize, u32>,
    pub(crate) observations: Vec<Observation>,
    /// The time in ns that one sample of an event represents, and the measure to use for it. The
    /// recording may state it after the first samples.
    timed: HashMap<Arc<str>, (Id<Measure>, u64)>,
    pub(crate) spans: Vec<Span>,
    without_trace: u64,
    /// Names of spans that have ended, for the samples in them.
    names: HashMap<SpanKey, Arc<str>>,
    /// Endpoints of local root spans, if the recording states them separately from the spans' names.
    endpoints: HashMap<SpanKey, Arc<str>>,
    pub(crate) resources: Resources,
}

impl Batch {
    pub(crate) fn new(given: Attributes) -> Self {
        Self { resources: Resources::new(given), ..Self::default() }
    }

    /// Returns an empty batch that keeps what is known of processes and names.
    pub(crate) fn next(&self) -> Self {
        Self {
            resources: self.resources.clone(),
            names: self.names.clone(),
            endpoints: self.endpoints.clone(),
            ..Self::default()
        }
    }

    /// Adds a span that the recording reports.
    pub(crate) fn add_span(&mut self, span: &spans::Span, thread: Option<&Thread>) {
        remember(&mut self.names, span.key, span.name.clone());
        self.span(Span::new(span, thread));
    }

    /// Sets the endpoint of a local root span.
    pub(crate) fn set_endpoint(&mut self, root: SpanKey, name: Arc<str>) {
        remember(&mut self.endpoints, root, name);
    }

    pub(crate) fn span(&mut self, span: Span) {
        if span.trace_id == 0 || span.span_id == 0 {
            self.without_trace += 1;
        } else {
            self.spans.push(span);
        }
    }

    /// Adds a sample, or a part of one, that was assigned to its span.
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

    /// Returns the measure of a sample and its value. If the event measures time by counting samples,
    /// this is the time.
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

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.observations.len()
    }

    /// Returns true if there is nothing to export.
    pub fn is_empty(&self) -> bool {
        self.observations.is_empty() && self.spans.is_empty()
    }

    /// Returns the numbers of samples and spans in the batch.
    pub fn counts(&self) -> Counts {
        let in_spans = self.observations.iter().filter(|observation| observation.context.is_some());
        Counts {
            samples: self.observations.len() as u64,
            in_spans: in_spans.count() as u64,
            spans: self.spans.len() as u64,
            spans_without_trace: self.without_trace,
        }
    }

    /// Returns the endpoint of a request: from its labels, else from the endpoint of its local root span,
    /// else that span's name.
    pub(crate) fn endpoint(&self, context: &SpanContext) -> Option<Arc<str>> {
        let label = ["endpoint", "http.route", "url.path"].iter().find_map(|name| context.labels.get(*name));
        let root = || self.endpoints.get(&context.local_root).or_else(|| self.names.get(&context.local_root));
        label.or_else(root).cloned()
    }

    /// Returns the name of a span if the recording has reported it.
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
    /// The name of the measure in OpenTelemetry and pprof, and its unit.
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
