//! What was observed since the last batch, with names said once and samples joined with their spans when it is over.

use std::collections::HashMap;
use std::sync::Arc;

use flightline_consumer::live::{Item, Kind, Sample, Stack, Value};
use flightline_consumer::model::{Id, Interner, Thread, Unit};

use crate::context::{Context, Span};
use crate::resource::{Attributes, Resources};

/// Names of local roots that are remembered; then all are forgotten.
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
    /// The context in the sample's own fields.
    pub(crate) own: Option<Id<Context>>,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub(crate) shape: Id<Shape>,
    /// ns since 1970.
    pub(crate) time: i64,
    pub(crate) value: u64,
    pub(crate) samples: u64,
}

/// Whose a moment is: the ids of the operating system and of Java; names change.
type Moment = (i64, i64, i64);

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples, as events.
    pub samples: u64,
    /// Of them, with a span.
    pub in_spans: u64,
    /// Moments of which a span was told but no sample came. One thread's samples of several kinds may share a moment.
    pub contexts_unused: u64,
    /// Spans, recorded and inferred.
    pub spans: u64,
    /// Spans left out of the traces, as their trace is not known.
    pub spans_without_trace: u64,
}

/// Collects items until they are made a profile of.
///
/// Samples and `flightline.SampleContext` come in any order: they are joined by thread and start time when the batch is
/// taken. About 32 bytes a sample, 48 a context, and each stack once.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) measures: Interner<Measure>,
    pub(crate) threads: Interner<Thread>,
    pub(crate) states: Interner<Arc<str>>,
    pub(crate) contexts: Interner<Context>,
    pub(crate) shapes: Interner<Shape>,
    pub(crate) stacks: Vec<Arc<Stack>>,
    /// By address: the stacks are kept, so it stays theirs.
    stack_numbers: HashMap<usize, u32>,
    pub(crate) observations: Vec<Observation>,
    /// What a sample of an event stands for in ns, and what is measured then. It may be told behind the first samples.
    timed: HashMap<Arc<str>, (Id<Measure>, u64)>,
    at: HashMap<Moment, Id<Context>>,
    pub(crate) spans: Vec<Span>,
    without_trace: u64,
    /// Names of spans that have ended, for samples under them.
    names: HashMap<u64, Arc<str>>,
    pub(crate) resources: Resources,
    ticks_per_second: i64,
}

impl Batch {
    /// An empty one. `given` are attributes of all resources, which count more than what recordings say.
    pub fn new(given: Attributes) -> Self {
        Self { resources: Resources::new(given), ..Self::default() }
    }

    /// An empty one that knows what this one knows of processes and clocks.
    pub fn next(&self) -> Self {
        Self {
            resources: self.resources.clone(),
            names: self.names.clone(),
            ticks_per_second: self.ticks_per_second,
            ..Self::default()
        }
    }

    /// Takes what is of use of an item.
    pub fn take(&mut self, item: &Item) {
        match item {
            Item::ChunkStart(chunk) => self.ticks_per_second = chunk.ticks_per_second,
            Item::Sample(sample) => self.sample(sample),
            Item::Other(event) => match &*event.event {
                "flightline.Label" => self.resources.take(event),
                "flightline.SampleContext" => {
                    if let (Some(context), Some(Value::Thread(thread))) =
                        (Context::of_event(event), event.field("eventThread"))
                    {
                        let id = self.contexts.intern(context);
                        self.at.insert(moment(thread, event.time.epoch_nanos), id);
                    }
                }
                "flightline.Span" => {
                    let per_second = i128::from(self.ticks_per_second.max(1));
                    let nanos = |ticks: i64| {
                        let nanos = i128::from(ticks) * 1_000_000_000 / per_second;
                        i64::try_from(nanos).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
                    };
                    if let Some(span) = Span::of_event(event, nanos) {
                        self.span(span);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Adds a span to the traces.
    pub fn span(&mut self, span: Span) {
        if !span.inferred {
            if self.names.len() >= MOST_NAMES {
                self.names.clear();
            }
            self.names.insert(span.span_id, span.name.clone());
        }
        if span.trace_id == 0 || span.span_id == 0 {
            self.without_trace += 1;
        } else {
            self.spans.push(span);
        }
    }

    fn sample(&mut self, sample: &Sample) {
        // Starts and ends of threads have no stack and stand for nothing.
        if sample.stack.is_none() && sample.kind == Kind::Other {
            return;
        }
        let own = Context::of_sample(sample);
        let weight = sample.weight;
        let measure = self.measures.intern(Measure {
            event: sample.event.clone(),
            variant: sample.variant.clone(),
            kind: sample.kind,
            unit: weight.unit,
        });
        if weight.unit == Unit::Nanoseconds
            && !self.timed.contains_key(&sample.event)
            && let Some(one) = weight.value.checked_div(weight.samples)
        {
            self.timed.insert(sample.event.clone(), (measure, one));
        }
        let shape = Shape {
            measure,
            thread: sample.thread.as_ref().map(|thread| self.threads.intern((**thread).clone())),
            stack: sample.stack.as_ref().map(|stack| self.stack(stack)),
            state: sample.state.as_ref().map(|state| self.states.intern(state.clone())),
            own: own.map(|own| self.contexts.intern(own)),
        };
        self.observations.push(Observation {
            shape: self.shapes.intern(shape),
            time: sample.time.epoch_nanos,
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
        let mut used = std::collections::HashSet::new();
        let mut in_spans = 0;
        for observation in &self.observations {
            let shape = self.shapes.get(observation.shape);
            in_spans += u64::from(self.context(shape, observation.time).is_some());
            if let Some(moment) = self.moment_of(shape, observation.time)
                && self.at.contains_key(&moment)
            {
                used.insert(moment);
            }
        }
        Counts {
            samples: self.observations.len() as u64,
            in_spans,
            contexts_unused: (self.at.len() - used.len()) as u64,
            spans: self.spans.len() as u64,
            spans_without_trace: self.without_trace,
        }
    }

    fn moment_of(&self, shape: &Shape, time: i64) -> Option<Moment> {
        shape.thread.map(|thread| moment(self.threads.get(thread), time))
    }

    /// The span of samples of this shape that were taken then.
    pub(crate) fn context(&self, shape: &Shape, time: i64) -> Option<Id<Context>> {
        shape.own.or_else(|| self.at.get(&self.moment_of(shape, time)?).copied())
    }

    /// What a request was about: as its labels say, else the name of its local root.
    pub(crate) fn endpoint(&self, context: &Context) -> Option<Arc<str>> {
        let root = || self.names.get(&context.local_root_span_id).filter(|_| context.local_root_span_id != 0);
        context.endpoint().or_else(root).cloned()
    }

    /// The name of a span, if it has been told.
    pub(crate) fn name(&self, span_id: u64) -> Option<&Arc<str>> {
        self.names.get(&span_id).filter(|_| span_id != 0)
    }
}

fn moment(thread: &Thread, time: i64) -> Moment {
    (thread.os_id, thread.java_id, time)
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
