//! Dispatches span records to the joiner and the profile. Independent of the type of samples that are
//! joined.

use std::cmp::Reverse;
use std::sync::Arc;

use super::ids::{SpanKey, TraceId};
use super::infer::Inference;
use super::join::{Joiner, Limits};
use super::listen::Listener;
use super::moments::Keeper;
use super::profile::Profile;
use super::span_events::{Scope, Span, SpanRecord};
use crate::live::Item;
use crate::model::Thread;

/// Thread, start, end, span.
pub(super) type Interval = (u32, i64, Reverse<i64>, SpanKey);

/// Maximum number of intervals stored for nesting.
const MOST_INTERVALS: usize = 1 << 19;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Board<P> {
    pub(crate) joiner: Joiner<P>,
    pub(crate) profile: Profile,
    listener: Listener,
    /// Intervals of threads, for nesting.
    intervals: Vec<Interval>,
    /// Earliest and latest time of spans to store, in ns since 1970.
    wanted: [i64; 2],
    /// Start of the first span and end of the last one.
    pub(super) told: (i64, i64),
    /// Number of recorded activations of spans on threads.
    pub(crate) activations: u64,
}

impl<P> Board<P> {
    /// Creates an empty board. With `trace`, single events of that trace are stored.
    pub(crate) fn new(
        limits: Limits,
        inference: Option<Inference>,
        trace: Option<TraceId>,
        wanted: [i64; 2],
    ) -> Self {
        Self {
            joiner: Joiner::new(limits, inference),
            profile: Profile { keeper: trace.map(Keeper::new), ..Profile::default() },
            listener: Listener::new(),
            intervals: Vec::new(),
            wanted,
            told: (i64::MAX, i64::MIN),
            activations: 0,
        }
    }

    /// Processes the span records of an item; of a sample, only the span information in it.
    pub(crate) fn take(&mut self, item: &Item) {
        if let Some(told) = self.listener.take(item) {
            self.add_record(told);
        }
    }

    /// Processes intervals that are known not to be duplicates. Must precede settling samples.
    pub(crate) fn undoubted(&mut self) {
        self.listener.undoubted().into_iter().for_each(|told| self.add_record(told));
    }

    /// Nests the intervals, at the end of the input.
    pub(crate) fn nest(&mut self) {
        self.profile.nest(std::mem::take(&mut self.intervals));
    }

    fn add_record(&mut self, told: SpanRecord) {
        let mut lies = |start: i64, end: i64| {
            self.told = (self.told.0.min(start), self.told.1.max(end));
        };
        match told {
            SpanRecord::Context(thread, time, context) => {
                let number = self.joiner.number(&thread);
                self.joiner.context(number, time, context);
            }
            SpanRecord::Scope(thread, scope) => {
                lies(scope.start, scope.end);
                self.activations += 1;
                if let Some(keeper) = &mut self.profile.keeper {
                    keeper.scope(&thread, scope);
                }
                let number = self.joiner.number(&thread);
                self.joiner.scope(number, scope);
            }
            SpanRecord::Span(thread, span) => {
                lies(span.start, span.end);
                if self.wants(&span) {
                    self.joiner.span(&span);
                    self.profile.add_span(span, thread);
                }
            }
            SpanRecord::Interval(thread, span) => {
                lies(span.start, span.end);
                self.activations += 1;
                let number = self.joiner.number(&thread);
                self.interval(number, span, thread);
            }
            SpanRecord::Endpoint(root, name) => self.profile.add_endpoint(root, name),
            SpanRecord::Watermark(time) => self.joiner.watermark(time),
        }
    }

    fn interval(&mut self, number: u32, span: Span, thread: Arc<Thread>) {
        let span = self.joiner.interval(number, span);
        if let Some(keeper) = &mut self.profile.keeper {
            let Span { key, start, end, .. } = span;
            keeper.scope(&thread, Scope { span: key, previous: None, start, end, open: false });
        }
        if self.wants(&span) {
            if self.intervals.len() < MOST_INTERVALS {
                self.intervals.push((number, span.start, Reverse(span.end), span.key));
            }
            self.profile.add_span(span, Some(thread));
        }
    }

    fn wants(&self, span: &Span) -> bool {
        let [from, to] = self.wanted;
        from <= span.end && span.start <= to
    }
}
