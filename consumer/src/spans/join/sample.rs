//! What is joined, and what comes out.

use std::sync::Arc;

use super::super::told::SpanContext;
use crate::live::{Kind, Sample, Weight};
use crate::model::{Frame, Id, Thread, Unit};

/// States of threads that run, or ran when the sample was taken.
const RUNS: [&str; 3] = ["STATE_RUNNABLE", "STATE_DEFAULT", "STATE_WAITING_FOR_CPU"];

/// A sample as far as spans are concerned; `of` is whatever else is to come out with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Taken<P> {
    /// When it was taken or what it tells of began, in ns since 1970.
    pub time: i64,
    /// For how long it stands from then on, in ns; 0 of a moment.
    pub lasts: i64,
    /// What of.
    pub kind: Kind,
    /// What it stands for.
    pub weight: Weight,
    /// The context that came with it.
    pub own: Option<Arc<SpanContext>>,
    /// It tells of every moment of its time, so it is divided to the ns wherever the span changes; else it was looked at now and then.
    pub exact: bool,
    /// What inferred spans are made of; only needed for those.
    pub path: Option<Path>,
    /// Whatever else is known of it.
    pub of: P,
}

/// Where a thread was.
#[derive(Clone, Debug)]
pub struct Path {
    /// The thread.
    pub thread: Id<Thread>,
    /// Its stack, outermost frame first.
    pub frames: Arc<[Id<Frame>]>,
}

impl<P> Taken<P> {
    /// Of what a recording tells.
    pub fn new(sample: &Sample, of: P) -> Self {
        let Weight { samples, value, unit } = sample.weight;
        let lasts = match sample.kind {
            // Several looks at a thread that did not run between them. One that runs, or has just been let run, is seen at a moment.
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

    /// The end of what it stands for.
    pub(super) fn end(&self) -> i64 {
        self.time.saturating_add(self.lasts)
    }
}

/// A sample, or a part of one, and its span.
#[derive(Clone, Debug)]
pub struct Attributed<'a, P> {
    /// The sample; its weight is that of all of it.
    pub sample: &'a Taken<P>,
    /// What the part stands for.
    pub weight: Weight,
    /// Where it belongs; `None` if it was taken in no span.
    pub context: Option<&'a Arc<SpanContext>>,
    /// When the part began, in ns since 1970.
    pub time: i64,
    /// How long it lasts, in ns.
    pub lasts: i64,
}

/// The nanoseconds that a weight is of, if it is time.
pub(in crate::spans) fn nanos(weight: Weight, period: Option<u64>) -> u64 {
    match weight.unit {
        Unit::Nanoseconds => weight.value,
        Unit::Samples => weight.samples.saturating_mul(period.unwrap_or(0)),
        Unit::Bytes | Unit::Events => 0,
    }
}
