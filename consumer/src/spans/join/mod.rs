//! Joins samples with span records by thread and time, in any input order.
//!
//! A sample waits until no older record of its thread can follow (a watermark). It is then assigned to
//! its span:
//! 1. by the context in its own fields, or else
//! 2. by the context recorded for its thread and time, or else
//! 3. by the activation or interval of its thread that contains its time.
//!
//! A merged wait sample is split by time where the span changes.

mod limits;
mod sample;
mod thread;

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::SpanKey;
use super::infer::{Inference, Inferred, KnownSpans};
use super::span_events::{Labels, Scope, Span, SpanContext, UNNUMBERED};
use crate::model::Thread;
pub use limits::{Counts, Limits};
pub(super) use sample::nanos;
pub use sample::{Attributed, JoinedSample, Path};
use thread::OfThread;

/// See the module's documentation.
#[derive(Debug)]
pub struct Joiner<P> {
    limits: Limits,
    inference: Option<Inference>,
    numbers: Numbers,
    threads: HashMap<u32, OfThread<P>, KeyHash>,
    /// Flags and traces of spans by key, if activations, which do not contain them, need them.
    known: HashMap<SpanKey, Arc<SpanContext>, KeyHash>,
    /// Recorded parents of spans.
    parents: HashMap<SpanKey, Option<SpanKey>, KeyHash>,
    pending: usize,
    /// All records before this time are settled.
    settled: i64,
    latest: i64,
    /// The latest watermark.
    watermark: i64,
    has_intervals: bool,
    /// Number of the last interval without an id.
    last_interval: u64,
    counts: Counts,
}

/// Maximum number of known spans; beyond that, the table is cleared.
const MOST_KNOWN: usize = 1 << 20;

impl<P> Joiner<P> {
    /// Creates an empty joiner. With `inference`, spans are inferred from samples too.
    pub fn new(limits: Limits, inference: Option<Inference>) -> Self {
        Self {
            limits,
            inference,
            numbers: Numbers::default(),
            threads: HashMap::default(),
            known: HashMap::default(),
            parents: HashMap::default(),
            pending: 0,
            settled: i64::MIN,
            latest: i64::MIN,
            watermark: i64::MIN,
            has_intervals: false,
            last_interval: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the number of a thread. A thread that was dropped gets a new number.
    pub fn number(&mut self, thread: &Thread) -> u32 {
        if self.numbers.known.len() >= self.limits.threads.saturating_mul(4) {
            // Retains the threads with waiting records; at most `limits.threads` have some.
            let Self { numbers, threads, .. } = self;
            numbers.known.retain(|_, number| threads.contains_key(number));
        }
        self.numbers.number(thread)
    }

    /// Returns the statistics so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.threads.values().map(OfThread::records).sum(), self.threads.len())
    }

    /// Adds a sample of the thread with this number.
    pub fn sample(&mut self, thread: u32, sample: JoinedSample<P>) {
        // The sample is late if a watermark has excluded samples this old.
        self.latest = self.latest.max(sample.time);
        if let Some(context) = &sample.own {
            self.learn(context);
        }
        let late = sample.end() < self.settled;
        self.counts.late += u64::from(late);
        self.pending += 1;
        self.thread(thread, sample.time).pending.push(sample);
    }

    /// Adds the context of a thread's samples at one time.
    pub fn context(&mut self, thread: u32, time: i64, context: SpanContext) {
        let context = self.learn(&Arc::new(context));
        self.pending += 1;
        self.thread(thread, time)
            .contexts
            .entry(time)
            .and_modify(|told| told.0 = context.clone())
            .or_insert((context, false));
    }

    /// Adds an activation on a thread.
    pub fn scope(&mut self, thread: u32, scope: Scope) {
        self.pending += 1;
        let of = self.thread(thread, scope.end);
        // An activation that was reported while it was open is reported again.
        match of
            .scopes
            .iter_mut()
            .rev()
            .take(64)
            .find(|s| s.open && (s.span, s.start) == (scope.span, scope.start))
        {
            Some(known) => *known = Scope { end: known.end.max(scope.end), ..scope },
            None => of.scopes.push(scope),
        }
    }

    /// Adds a span that is identified only by thread and time. Numbers it if it has no id.
    pub fn interval(&mut self, thread: u32, mut span: Span) -> Span {
        self.has_intervals = true;
        self.last_interval += 1;
        if span.key == UNNUMBERED {
            span.key = SpanKey::Interval(self.last_interval);
        }
        if span.local_root == UNNUMBERED {
            span.local_root = span.key;
        }
        let context = Arc::new(SpanContext {
            span: span.key,
            local_root: span.local_root,
            trace: span.trace,
            flags: span.flags,
            labels: span.labels.clone(),
        });
        self.pending += 1;
        self.thread(thread, span.end).intervals.push((span.start, span.end, context));
        span
    }

    /// Adds a span with an id.
    pub fn span(&mut self, span: &Span) {
        let Span { key, local_root, trace, flags, parent, ref labels, .. } = *span;
        if self.inference.is_some() {
            if self.parents.len() >= MOST_KNOWN {
                self.parents.clear();
            }
            self.parents.insert(key, parent);
        }
        let labels: Labels = labels.clone();
        self.learn(&Arc::new(SpanContext { span: key, local_root, trace, flags, labels }));
    }

    /// No record with an earlier time follows.
    pub fn watermark(&mut self, time: i64) {
        self.watermark = self.watermark.max(time);
    }

    /// Returns true if so many records wait that [`advance`](Self::advance) should be called.
    pub fn is_full(&self) -> bool {
        self.pending > self.limits.pending
    }

    /// Settles the records that need not wait any longer.
    pub fn advance(&mut self, out: &mut impl FnMut(Attributed<'_, P>), inferred: &mut impl FnMut(Inferred)) {
        let Some(lateness) = self.limits.lateness else {
            if self.is_full() {
                self.make_room(out, inferred);
            }
            return;
        };
        let wait = if self.has_intervals { lateness.max(self.limits.interval) } else { lateness };
        let by_time = self.latest.saturating_sub(wait);
        let told = if self.has_intervals { i64::MIN } else { self.watermark };
        self.settle(by_time.max(told), out, inferred);
        if self.is_full() {
            self.make_room(out, inferred);
        }
    }

    /// Settles the records that ended before `to`. Everything that began before it has been added.
    pub(crate) fn settle_before(&mut self, to: i64, out: &mut impl FnMut(Attributed<'_, P>)) {
        self.settle(to, out, &mut |_| ());
    }

    /// Settles all records, at the end of the input.
    pub fn finish(&mut self, out: &mut impl FnMut(Attributed<'_, P>), inferred: &mut impl FnMut(Inferred)) {
        self.settle(i64::MAX, out, inferred);
    }

    /// Settles the older half of the waiting records.
    fn make_room(&mut self, out: &mut impl FnMut(Attributed<'_, P>), inferred: &mut impl FnMut(Inferred)) {
        let times = self.threads.values().flat_map(|of| {
            let contexts = of.contexts.keys().copied();
            let intervals = of.scopes.iter().map(|s| s.end).chain(of.intervals.iter().map(|i| i.1));
            of.pending.iter().map(|sample| sample.time).chain(contexts).chain(intervals)
        });
        let mut times: Vec<i64> = times.collect();
        let middle = times.len() / 2;
        if times.is_empty() {
            return;
        }
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        let before = self.pending;
        self.settle(median.saturating_add(1), out, inferred);
        self.counts.unwaited += (before - self.pending) as u64;
    }

    fn settle(
        &mut self,
        to: i64,
        out: &mut impl FnMut(Attributed<'_, P>),
        inferred: &mut impl FnMut(Inferred),
    ) {
        // Late records are settled at once.
        let to = to.max(self.settled);
        // Only late samples need older records.
        let keep = self.limits.lateness.unwrap_or(0).max(1);
        let forget = if to == i64::MAX { i64::MAX } else { to.saturating_sub(keep) };
        let mut order: Vec<u32> = self.threads.keys().copied().collect();
        // Makes the result deterministic.
        order.sort_unstable();
        let mut pending = 0;
        for number in order {
            let Some(of) = self.threads.get_mut(&number) else { continue };
            of.settle(to, self.settled, &self.known, &mut self.counts, self.inference.is_some(), out);
            if let Some(inference) = &self.inference {
                let known = KnownSpans { contexts: &self.known, parents: &self.parents };
                let activations = of.activations();
                of.trees.advance(number, to, &activations, (inference, known), &mut self.counts, inferred);
            }
            of.forget(forget, self.inference.is_some(), &mut self.counts);
            pending += of.records();
        }
        self.pending = pending;
        self.threads.retain(|_, of| of.records() > 0 || !of.trees.is_empty());
        self.settled = if to == i64::MAX { self.latest } else { to };
    }

    /// Stores properties of spans that activations do not contain.
    fn learn(&mut self, context: &Arc<SpanContext>) -> Arc<SpanContext> {
        if let Some(known) = self.known.get(&context.span)
            && known == context
        {
            return known.clone();
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        // A span's labels may change; an activation gets the latest ones.
        self.known.insert(context.span, context.clone());
        context.clone()
    }

    fn thread(&mut self, number: u32, time: i64) -> &mut OfThread<P> {
        if self.threads.len() >= self.limits.threads && !self.threads.contains_key(&number) {
            // The thread that has been inactive for longest.
            let silent =
                self.threads.iter().min_by_key(|(number, of)| (of.latest, **number)).map(|(n, _)| *n);
            if let Some(of) = silent.and_then(|number| self.threads.remove(&number)) {
                self.counts.threads_dropped += 1;
                self.counts.outside += of.pending.len() as u64;
                self.pending = self.pending.saturating_sub(of.records());
            }
        }
        let of = self.threads.entry(number).or_default();
        of.latest = of.latest.max(time);
        of
    }
}

/// Numbers threads. The name of a thread may change, but not its ids.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    known: HashMap<Identity, u32>,
    last: u32,
}

/// Operating system id, Java id, group, and the name if there is no id.
type Identity = (i64, i64, Option<Arc<str>>, Option<Arc<str>>);

impl Numbers {
    pub(super) fn number(&mut self, thread: &Thread) -> u32 {
        let name = if thread.os_id == 0 && thread.java_id == 0 { thread.os_name.clone() } else { None };
        let os_id = if thread.java_id == 0 { thread.os_id } else { 0 };
        let identity = (os_id, thread.java_id, thread.group.clone(), name);
        *self.known.entry(identity).or_insert_with(|| {
            self.last = self.last.wrapping_add(1);
            self.last
        })
    }
}
