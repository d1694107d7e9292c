//! What recordings tell of spans → joiner and profile, whatever the samples are that are joined with it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::ids::{SpanKey, TraceId};
use super::infer::Inference;
use super::join::{Joiner, Limits};
use super::listen::Listener;
use super::moments::Keeper;
use super::profile::Profile;
use super::told::{Scope, Span, Told};
use crate::live::Item;
use crate::model::Thread;

/// Thread, start, end, span.
pub(super) type Interval = (u32, i64, Reverse<i64>, SpanKey);

/// Intervals kept to be put within each other.
const MOST_INTERVALS: usize = 1 << 19;

/// See the module.
#[derive(Debug)]
pub(crate) struct Board<P> {
    pub(crate) joiner: Joiner<P>,
    pub(crate) profile: Profile,
    listener: Listener,
    /// Intervals of threads, to see which lie within which.
    intervals: Vec<Interval>,
    /// Earliest and latest moment of which spans are kept, in ns since 1970.
    wanted: [i64; 2],
    /// When the first span begins and the last one ends.
    pub(super) told: (i64, i64),
    /// How often it was told when a span was active on a thread.
    pub(crate) activations: u64,
}

impl<P> Board<P> {
    /// An empty one. With `trace`, what happens in it is taken down one by one.
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

    /// Takes what an item tells of spans; of samples, that is what they tell beside being one.
    pub(crate) fn take(&mut self, item: &Item) {
        if let Some(told) = self.listener.take(item) {
            self.told(told);
        }
    }

    /// Takes what it is clear by now of that nothing else tells it: before samples are settled.
    pub(crate) fn undoubted(&mut self) {
        self.listener.undoubted().into_iter().for_each(|told| self.told(told));
    }

    /// Puts intervals within each other; all has been told.
    pub(crate) fn nest(&mut self) {
        self.profile.nest(std::mem::take(&mut self.intervals));
    }

    fn told(&mut self, told: Told) {
        let mut lies = |start: i64, end: i64| {
            self.told = (self.told.0.min(start), self.told.1.max(end));
        };
        match told {
            Told::Context(thread, time, context) => {
                let number = self.joiner.number(&thread);
                self.joiner.context(number, time, context);
            }
            Told::Scope(thread, scope) => {
                lies(scope.start, scope.end);
                self.activations += 1;
                if let Some(keeper) = &mut self.profile.keeper {
                    keeper.scope(&thread, scope);
                }
                let number = self.joiner.number(&thread);
                self.joiner.scope(number, scope);
            }
            Told::Span(thread, span) => {
                lies(span.start, span.end);
                if self.wants(&span) {
                    self.joiner.span(&span);
                    self.profile.told(span, thread);
                }
            }
            Told::Interval(thread, span) => {
                lies(span.start, span.end);
                self.activations += 1;
                let number = self.joiner.number(&thread);
                self.interval(number, span, thread);
            }
            Told::Endpoint(root, name) => self.profile.told_endpoint(root, name),
            Told::Watermark(time) => self.joiner.watermark(time),
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
            self.profile.told(span, Some(thread));
        }
    }

    fn wants(&self, span: &Span) -> bool {
        let [from, to] = self.wanted;
        from <= span.end && span.start <= to
    }
}
