//! Input and output of the joiner.

use std::sync::Arc;

use super::super::span_events::SpanContext;
use crate::live::{Kind, Sample, Weight};
use crate::model::{Frame, Id, Thread, Unit};

/// States of threads that were running when they were sampled.
const RUNS: [&str; 3] = ["STATE_RUNNABLE", "STATE_DEFAULT", "STATE_WAITING_FOR_CPU"];

/// The properties of a sample that concern spans; `of` is the caller's data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinedSample<P> {
    /// Time of the sample, or start of its event, in ns since 1970.
    pub time: i64,
    /// Duration that it represents from then on, in ns; 0 for a point in time.
    pub lasts: i64,
    /// The activity that it represents.
    pub kind: Kind,
    /// Its weight.
    pub weight: Weight,
    /// The context in the sample itself.
    pub own: Option<Arc<SpanContext>>,
    /// True if the event covers its whole duration, so that it is split to the ns where the span changes.
    /// Otherwise the thread was sampled periodically.
    pub exact: bool,
    /// Input for inferred spans; only needed for those.
    pub path: Option<Path>,
    /// The caller's data.
    pub of: P,
}

/// Thread and stack.
#[derive(Clone, Debug)]
pub struct Path {
    /// The thread.
    pub thread: Id<Thread>,
    /// Its stack, root first.
    pub frames: Arc<[Id<Frame>]>,
}

impl<P> JoinedSample<P> {
    /// Converts a recorded sample.
    pub fn new(sample: &Sample, of: P) -> Self {
        let Weight { samples, value, unit } = sample.weight;
        let lasts = match sample.kind {
            // Several samples of a thread that did not run between them. A running or runnable thread is
            // seen at one time.
            Kind::Wall if samples > 1 && unit == Unit::Nanoseconds => {
                if sample.state.as_deref().is_some_and(|state| RUNS.contains(&state)) { 0 } else { value }
            }
            _ => sample.duration_nanos.unwrap_or(0),
        };
        Self {
            time: sample.time.epoch_nanos,
            lasts: i64::try_from(lasts).unwrap_or(0),
            kind: sample.kind,
            weight: sample.weight,
            own: sample.span.clone(),
            exact: false,
            path: None,
            of,
        }
    }

    /// End of the duration that it represents.
    pub(super) fn end(&self) -> i64 {
        self.time.saturating_add(self.lasts)
    }
}

/// A sample, or a part of one, and its span.
#[derive(Clone, Debug)]
pub struct Attributed<'a, P> {
    /// The whole sample with its whole weight.
    pub sample: &'a JoinedSample<P>,
    /// Weight of the part.
    pub weight: Weight,
    /// Its span; `None` if it was outside of spans.
    pub context: Option<&'a Arc<SpanContext>>,
    /// Start of the part, in ns since 1970.
    pub time: i64,
    /// Duration of the part, in ns.
    pub lasts: i64,
}

/// Returns the time that a weight represents in ns; 0 if its unit is not time.
pub(in crate::spans) fn nanos(weight: Weight, period: Option<u64>) -> u64 {
    match weight.unit {
        Unit::Nanoseconds => weight.value,
        Unit::Samples => weight.samples.saturating_mul(period.unwrap_or(0)),
        Unit::Bytes | Unit::Events => 0,
    }
}
