//! Samples and what was told of spans, brought together: by thread and time, in whatever order they come.
//!
//! A sample waits until nothing older of its thread is to come (a watermark), then it is given to its span:
//! 1. by the context in its own fields,
//! 2. by the context that was told of its thread at its time,
//! 3. by the activation or interval of its thread that its time lies in.
//!
//! A batch of waiting that goes over a change of spans is divided by time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::SpanKey;
use super::infer::{Inference, Inferred, Known, ThreadTrees};
use super::timeline::Timeline;
use super::told::{Labels, Scope, Span, SpanContext, UNNUMBERED};
use crate::live::{Kind, Weight};
use crate::model::{EventKind, Frame, Id, Interner, Stack, Thread, Unit};

/// A sample as far as spans are concerned.
#[derive(Clone, Debug)]
pub struct Taken {
    /// When it was taken or what it tells of began, in ns since 1970.
    pub time: i64,
    /// For how long it stands from then on, in ns; 0 of a moment.
    pub lasts: i64,
    /// What of.
    pub kind: Kind,
    /// Event type.
    pub event: Id<EventKind>,
    /// Thread.
    pub thread: Id<Thread>,
    /// Stack.
    pub stack: Option<Id<Stack>>,
    /// What of the stack inferred spans are made of, outermost frame first; only needed for those.
    pub path: Option<Arc<[Id<Frame>]>>,
    /// State of the thread.
    pub state: Option<Id<Arc<str>>>,
    /// What it stands for.
    pub weight: Weight,
    /// The context in its own fields.
    pub own: Option<Arc<SpanContext>>,
}

impl Taken {
    /// The end of what it stands for.
    fn end(&self) -> i64 {
        self.time.saturating_add(self.lasts)
    }
}

/// A sample, or a part of one, and its span.
#[derive(Clone, Debug)]
pub struct Attributed<'a> {
    /// The sample; its weight is that of all of it.
    pub sample: &'a Taken,
    /// What the part stands for.
    pub weight: Weight,
    /// Where it belongs; `None` if it was taken in no span.
    pub context: Option<&'a SpanContext>,
}

/// How much may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records of a stream are in order of time but for so much, in ns, where it does not say better; `None`: as a file, of
    /// which all is read before anything is settled.
    pub lateness: Option<i64>,
    /// How long samples wait for an interval that is told when it ends, in ns.
    pub interval: i64,
    /// Records that wait, all threads together; beyond that the older half is settled with what is known.
    pub pending: usize,
    /// Threads remembered at a time.
    pub threads: usize,
}

impl Limits {
    /// For what is read to its end.
    pub const FILE: Self =
        Self { lateness: None, interval: 60_000_000_000, pending: 1 << 20, threads: 10_000 };
    /// For a stream that does not end.
    pub const STREAM: Self = Self { lateness: Some(3_000_000_000), pending: 1 << 18, ..Self::FILE };
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Samples given to a span.
    pub in_spans: u64,
    /// Samples in no span.
    pub outside: u64,
    /// Samples that came later than the stream may be out of order: counted, given to their span, but in no inferred tree.
    pub late: u64,
    /// Samples divided by time between spans.
    pub divided: u64,
    /// Records settled before all of their time had come, as too many were waiting.
    pub unwaited: u64,
    /// Threads forgotten, as there were too many.
    pub threads_dropped: u64,
    /// Samples that no activation was told for: they are in no inferred tree.
    pub orphans: u64,
    /// Nodes of trees left out, as a thread had too many.
    pub nodes_dropped: u64,
}

/// What is known of one thread.
#[derive(Debug, Default)]
struct OfThread {
    pending: Vec<Taken>,
    /// Told by time.
    contexts: BTreeMap<i64, Arc<SpanContext>>,
    scopes: Vec<Scope>,
    intervals: Vec<(i64, i64, Arc<SpanContext>)>,
    trees: ThreadTrees,
    /// The last time anything came, to find who is silent.
    latest: i64,
}

/// See the module.
#[derive(Debug)]
pub struct Joiner {
    limits: Limits,
    inference: Option<Inference>,
    threads: HashMap<u32, OfThread, KeyHash>,
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
    numbers: u64,
    counts: Counts,
}

/// Spans known by key; with more, all are forgotten and learnt anew.
const MOST_KNOWN: usize = 1 << 20;

impl Joiner {
    /// An empty one; with `inference`, spans are inferred from samples too.
    pub fn new(limits: Limits, inference: Option<Inference>) -> Self {
        Self {
            limits,
            inference,
            threads: HashMap::default(),
            known: HashMap::default(),
            parents: HashMap::default(),
            pending: 0,
            settled: i64::MIN,
            latest: i64::MIN,
            watermark: i64::MIN,
            has_intervals: false,
            numbers: 0,
            counts: Counts::default(),
        }
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
    pub fn sample(&mut self, thread: u32, sample: Taken) {
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
        self.thread(thread, time).contexts.insert(time, context);
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
        self.numbers += 1;
        if span.key == UNNUMBERED {
            span.key = SpanKey::Interval(self.numbers);
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

    /// Settles what need not wait any longer.
    pub fn advance(&mut self, out: &mut impl FnMut(Attributed<'_>), inferred: &mut impl FnMut(Inferred)) {
        let Some(lateness) = self.limits.lateness else {
            if self.pending > self.limits.pending {
                self.make_room(out, inferred);
            }
            return;
        };
        let wait = if self.has_intervals { lateness.max(self.limits.interval) } else { lateness };
        let by_time = self.latest.saturating_sub(wait);
        let told = if self.has_intervals { i64::MIN } else { self.watermark };
        self.settle(by_time.max(told), out, inferred);
        if self.pending > self.limits.pending {
            self.make_room(out, inferred);
        }
    }

    /// Settles everything: nothing follows.
    pub fn finish(&mut self, out: &mut impl FnMut(Attributed<'_>), inferred: &mut impl FnMut(Inferred)) {
        self.settle(i64::MAX, out, inferred);
    }

    /// Settles the older half of what waits.
    fn make_room(&mut self, out: &mut impl FnMut(Attributed<'_>), inferred: &mut impl FnMut(Inferred)) {
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

    fn settle(&mut self, to: i64, out: &mut impl FnMut(Attributed<'_>), inferred: &mut impl FnMut(Inferred)) {
        if to <= self.settled && to != i64::MAX {
            return;
        }
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
            of.forget(forget, self.inference.is_some());
            pending += of.records();
        }
        self.pending = pending;
        self.threads.retain(|_, of| of.records() > 0 || !of.trees.is_empty());
        self.settled = to;
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

    fn thread(&mut self, number: u32, time: i64) -> &mut OfThread {
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

impl OfThread {
    fn records(&self) -> usize {
        self.pending.len() + self.contexts.len() + self.scopes.len() + self.intervals.len()
    }

    /// Gives the samples before `to` to their spans. What was settled before is late.
    fn settle(
        &mut self,
        to: i64,
        settled: i64,
        known: &HashMap<SpanKey, Arc<SpanContext>, KeyHash>,
        counts: &mut Counts,
        trees: bool,
        out: &mut impl FnMut(Attributed<'_>),
    ) {
        let all = std::mem::take(&mut self.pending);
        let (mut due, wait): (Vec<Taken>, Vec<Taken>) =
            all.into_iter().partition(|sample| sample.end() < to || to == i64::MAX);
        self.pending = wait;
        if due.is_empty() {
            return;
        }
        due.sort_by_key(|sample| sample.time);
        let scopes: Vec<(i64, i64)> = self.scopes.iter().map(|scope| (scope.start, scope.end)).collect();
        let scopes = Timeline::new(&scopes);
        let intervals: Vec<(i64, i64)> = self.intervals.iter().map(|&(start, end, _)| (start, end)).collect();
        let intervals = Timeline::new(&intervals);
        for sample in &due {
            let late = sample.end() < settled;
            let by_scope = |at: usize| {
                let span = self.scopes[at].span;
                known.get(&span).cloned().unwrap_or_else(|| Arc::new(unknown(span)))
            };
            let by_interval = |at: usize| self.intervals[at].2.clone();
            let told = sample.own.clone().or_else(|| self.contexts.get(&sample.time).cloned());
            let within = || {
                let scope = scopes.at(sample.time).map(by_scope);
                scope.or_else(|| intervals.at(sample.time).map(by_interval))
            };
            let context = told.or_else(within);
            let mut give = |weight: Weight, context: Option<&Arc<SpanContext>>| {
                match context {
                    Some(_) => counts.in_spans += weight.samples,
                    None => counts.outside += weight.samples,
                }
                out(Attributed { sample, weight, context: context.map(|context| &**context) });
            };
            let parts = if sample.lasts > 0 && sample.kind == Kind::Wall {
                let line = if self.scopes.is_empty() { &intervals } else { &scopes };
                let by = |at: usize| if self.scopes.is_empty() { by_interval(at) } else { by_scope(at) };
                let parts = line.parts(sample.time, sample.time.saturating_add(sample.lasts));
                let parts = parts.into_iter().map(|(from, to, of)| (to - from, of.map(by)));
                merged(parts)
            } else {
                Vec::new()
            };
            if parts.len() > 1 {
                counts.divided += 1;
                for (weight, (_, context)) in divided(sample.weight, &parts).into_iter().zip(&parts) {
                    give(weight, context.as_ref());
                }
            } else {
                give(sample.weight, context.as_ref());
            }
            if trees && !late && context.is_some() && matches!(sample.kind, Kind::Cpu | Kind::Wall) {
                self.trees.sample(sample);
            }
        }
    }

    /// What was active when, intervals too: these are within each other as their times are.
    fn activations(&self) -> Vec<Scope> {
        let mut all = self.scopes.clone();
        let mut order: Vec<&(i64, i64, Arc<SpanContext>)> = self.intervals.iter().collect();
        order.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let mut around: Vec<(i64, SpanKey)> = Vec::new();
        for &&(start, end, ref context) in &order {
            while around.pop_if(|(until, _)| *until <= start).is_some() {}
            let previous = around.last().map(|(_, span)| *span);
            all.push(Scope { span: context.span, previous, start, end, open: false });
            around.push((end, context.span));
        }
        all
    }

    /// Drops what lies before `to`; activations that may be part of a tree stay a minute longer.
    fn forget(&mut self, to: i64, trees: bool) {
        let oldest = self.pending.iter().map(|sample| sample.time).min().unwrap_or(i64::MAX).min(to);
        self.contexts = self.contexts.split_off(&oldest);
        self.intervals.retain(|&(_, end, _)| end >= oldest);
        let oldest = if trees { oldest.min(self.trees.oldest()) } else { oldest };
        self.scopes.retain(|scope| scope.end >= oldest);
    }
}

/// Neighbours of one span together.
fn merged(
    parts: impl Iterator<Item = (i64, Option<Arc<SpanContext>>)>,
) -> Vec<(i64, Option<Arc<SpanContext>>)> {
    let mut all: Vec<(i64, Option<Arc<SpanContext>>)> = Vec::new();
    for (length, context) in parts {
        match all.last_mut() {
            Some((sum, last)) if last.as_ref().map(|c| c.span) == context.as_ref().map(|c| c.span) => {
                *sum = sum.saturating_add(length);
            }
            _ => all.push((length, context)),
        }
    }
    all
}

/// The weight in parts by their lengths, whole samples to the largest remainder, so that nothing is lost.
fn divided<T>(weight: Weight, parts: &[(i64, T)]) -> Vec<Weight> {
    let total: i128 = parts.iter().map(|(length, _)| i128::from(*length)).sum::<i128>().max(1);
    let share = |value: u64, before: i128| (i128::from(value) * before / total) as u64;
    let mut before = 0;
    parts
        .iter()
        .map(|(length, _)| {
            let (from, to) = (before, before + i128::from(*length));
            before = to;
            let of = |value: u64| share(value, to) - share(value, from);
            Weight { samples: of(weight.samples), value: of(weight.value), unit: weight.unit }
        })
        .collect()
}

/// The context of a span of which nothing but its activation has been told.
fn unknown(span: SpanKey) -> SpanContext {
    SpanContext { span, local_root: span, trace: Default::default(), flags: 1, labels: Labels::default() }
}

/// Numbers of threads: what an event calls a thread may change, its ids do not.
#[derive(Debug, Default)]
pub(super) struct Threads(Interner<Identity>);

/// Id of the system, id in Java, group, name if there is no id.
type Identity = (i64, i64, Option<Arc<str>>, Option<Arc<str>>);

impl Threads {
    pub(super) fn number(&mut self, thread: &Thread) -> u32 {
        let name = if thread.os_id == 0 && thread.java_id == 0 { thread.os_name.clone() } else { None };
        let os_id = if thread.java_id == 0 { thread.os_id } else { 0 };
        self.0.intern((os_id, thread.java_id, thread.group.clone(), name)).index() as u32
    }
}

/// The nanoseconds that a weight is of, if it is time.
pub(super) fn nanos(weight: Weight, period: Option<u64>) -> u64 {
    match weight.unit {
        Unit::Nanoseconds => weight.value,
        Unit::Samples => weight.samples.saturating_mul(period.unwrap_or(0)),
        Unit::Bytes | Unit::Events => 0,
    }
}
