//! Samples and what was told of spans, brought together: by thread and time, in whatever order they come.
//!
//! A sample waits until nothing older of its thread is to come (a watermark), then it is given to its span:
//! 1. by the context in its own fields,
//! 2. by the context that was told of its thread at its time,
//! 3. by the activation or interval of its thread that its time lies in.
//!
//! A batch of waiting that goes over a change of spans is divided by time.

mod limits;
mod sample;
mod thread;

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::SpanKey;
use super::infer::{Inference, Inferred, Known};
use super::told::{Labels, Scope, Span, SpanContext, UNNUMBERED};
use crate::model::Thread;
pub use limits::{Counts, Limits};
pub(super) use sample::nanos;
pub use sample::{Attributed, Path, Taken};
use thread::OfThread;

/// See the module.
#[derive(Debug)]
pub struct Joiner<P> {
    limits: Limits,
    inference: Option<Inference>,
    numbers: Numbers,
    threads: HashMap<u32, OfThread<P>, KeyHash>,
    /// Flags and traces of spans by key, as far as they are needed for activations, which do not tell them.
    known: HashMap<SpanKey, Arc<SpanContext>, KeyHash>,
    /// What spans say of the span they were begun in.
    parents: HashMap<SpanKey, Option<SpanKey>, KeyHash>,
    pending: usize,
    /// Everything before is settled.
    settled: i64,
    latest: i64,
    /// Told by watermarks.
    watermark: i64,
    has_intervals: bool,
    /// Of intervals without an id.
    last_interval: u64,
    counts: Counts,
}

/// Spans known by key; with more, all are forgotten and learnt anew.
const MOST_KNOWN: usize = 1 << 20;

impl<P> Joiner<P> {
    /// An empty one; with `inference`, spans are inferred from samples too.
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

    /// The number of a thread; one that has been forgotten gets another.
    pub fn number(&mut self, thread: &Thread) -> u32 {
        if self.numbers.known.len() >= self.limits.threads.saturating_mul(4) {
            // Those of whom nothing waits; where all do, `limits.threads` are left.
            let Self { numbers, threads, .. } = self;
            numbers.known.retain(|_, number| threads.contains_key(number));
        }
        self.numbers.of(thread)
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.threads.values().map(OfThread::records).sum(), self.threads.len())
    }

    /// Takes a sample of the thread with this number.
    pub fn sample(&mut self, thread: u32, sample: Taken<P>) {
        // Late if the watermark had promised that nothing as old would come.
        self.latest = self.latest.max(sample.time);
        if let Some(context) = &sample.own {
            self.learn(context);
        }
        let late = sample.end() < self.settled;
        self.counts.late += u64::from(late);
        self.pending += 1;
        self.thread(thread, sample.time).pending.push(sample);
    }

    /// The context of the samples of a thread at a moment.
    pub fn context(&mut self, thread: u32, time: i64, context: SpanContext) {
        let context = self.learn(&Arc::new(context));
        self.pending += 1;
        self.thread(thread, time)
            .contexts
            .entry(time)
            .and_modify(|told| told.0 = context.clone())
            .or_insert((context, false));
    }

    /// An activation on a thread.
    pub fn scope(&mut self, thread: u32, scope: Scope) {
        self.pending += 1;
        let of = self.thread(thread, scope.end);
        // One that was told while it was open is told again.
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

    /// A span that is known by thread and time alone; gives it a number if it has no id.
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

    /// A span that was told with its id.
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

    /// Nothing with an earlier time follows.
    pub fn watermark(&mut self, time: i64) {
        self.watermark = self.watermark.max(time);
    }

    /// Whether so much waits that it is time to [`advance`](Self::advance).
    pub fn is_full(&self) -> bool {
        self.pending > self.limits.pending
    }

    /// Settles what need not wait any longer.
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

    /// Settles what ended before `to`, as all that began before it has been given and told.
    pub(crate) fn settle_before(&mut self, to: i64, out: &mut impl FnMut(Attributed<'_, P>)) {
        self.settle(to, out, &mut |_| ());
    }

    /// Settles everything, as if nothing followed.
    pub fn finish(&mut self, out: &mut impl FnMut(Attributed<'_, P>), inferred: &mut impl FnMut(Inferred)) {
        self.settle(i64::MAX, out, inferred);
    }

    /// Settles the older half of what waits.
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
        // What is late is settled at once.
        let to = to.max(self.settled);
        // What lies so far back is not asked for any more, but by late samples.
        let keep = self.limits.lateness.unwrap_or(0).max(1);
        let forget = if to == i64::MAX { i64::MAX } else { to.saturating_sub(keep) };
        let mut order: Vec<u32> = self.threads.keys().copied().collect();
        // Results do not depend on chance.
        order.sort_unstable();
        let mut pending = 0;
        for number in order {
            let Some(of) = self.threads.get_mut(&number) else { continue };
            of.settle(to, self.settled, &self.known, &mut self.counts, self.inference.is_some(), out);
            if let Some(inference) = &self.inference {
                let known = Known { contexts: &self.known, parents: &self.parents };
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

    /// Remembers what activations do not tell of their spans.
    fn learn(&mut self, context: &Arc<SpanContext>) -> Arc<SpanContext> {
        if let Some(known) = self.known.get(&context.span)
            && known == context
        {
            return known.clone();
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        // A span's labels may change; an activation of it gets those told last.
        self.known.insert(context.span, context.clone());
        context.clone()
    }

    fn thread(&mut self, number: u32, time: i64) -> &mut OfThread<P> {
        if self.threads.len() >= self.limits.threads && !self.threads.contains_key(&number) {
            // The one that has been silent for longest.
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

/// Numbers of threads: what an event calls a thread may change, its ids do not.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    known: HashMap<Identity, u32>,
    last: u32,
}

/// Id of the system, id in Java, group, name if there is no id.
type Identity = (i64, i64, Option<Arc<str>>, Option<Arc<str>>);

impl Numbers {
    pub(super) fn of(&mut self, thread: &Thread) -> u32 {
        let name = if thread.os_id == 0 && thread.java_id == 0 { thread.os_name.clone() } else { None };
        let os_id = if thread.java_id == 0 { thread.os_id } else { 0 };
        let identity = (os_id, thread.java_id, thread.group.clone(), name);
        *self.known.entry(identity).or_insert_with(|| {
            self.last = self.last.wrapping_add(1);
            self.last
        })
    }
}
