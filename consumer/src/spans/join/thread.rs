//! State of one thread: its waiting samples, and its span records.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::super::ids::SpanKey;
use super::super::infer::ThreadTrees;
use super::super::span_events::{Labels, Scope, SpanContext};
use super::super::timeline::Timeline;
use super::{Attributed, Counts, JoinedSample};
use crate::live::{Kind, Weight};

/// Maximum number of old unfinished activations that are stored per thread.
const MOST_OPEN: usize = 16;

/// State of one thread.
#[derive(Debug)]
pub(super) struct OfThread<P> {
    pub(super) pending: Vec<JoinedSample<P>>,
    /// Contexts by time; the flag is true if a sample was found.
    pub(super) contexts: BTreeMap<i64, (Arc<SpanContext>, bool)>,
    pub(super) scopes: Vec<Scope>,
    pub(super) intervals: Vec<(i64, i64, Arc<SpanContext>)>,
    pub(super) trees: ThreadTrees,
    /// Time of the latest record, to find inactive threads.
    pub(super) latest: i64,
}

impl<P> Default for OfThread<P> {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            contexts: BTreeMap::new(),
            scopes: Vec::new(),
            intervals: Vec::new(),
            trees: ThreadTrees::default(),
            latest: 0,
        }
    }
}

impl<P> OfThread<P> {
    pub(super) fn records(&self) -> usize {
        self.pending.len() + self.contexts.len() + self.scopes.len() + self.intervals.len()
    }

    /// Assigns the samples before `to` to their spans. Samples before `settled` are late.
    pub(super) fn settle(
        &mut self,
        to: i64,
        settled: i64,
        known: &HashMap<SpanKey, Arc<SpanContext>, KeyHash>,
        counts: &mut Counts,
        trees: bool,
        out: &mut impl FnMut(Attributed<'_, P>),
    ) {
        let all = std::mem::take(&mut self.pending);
        let (mut due, wait): (Vec<JoinedSample<P>>, Vec<JoinedSample<P>>) =
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
            let at_its_time = self.contexts.get_mut(&sample.time).map(|(context, used)| {
                *used = true;
                context.clone()
            });
            let told = sample.own.clone().or(at_its_time);
            let within = || {
                let scope = scopes.at(sample.time).map(by_scope);
                scope.or_else(|| intervals.at(sample.time).map(by_interval))
            };
            let context = told.or_else(within);
            let mut give = |weight: Weight, context: Option<&Arc<SpanContext>>, (time, lasts): (i64, i64)| {
                match context {
                    Some(_) => counts.in_spans += weight.samples,
                    None => counts.outside += weight.samples,
                }
                out(Attributed { sample, weight, context, time, lasts });
            };
            let parts = if sample.lasts > 0 && (sample.kind == Kind::Wall || sample.exact) {
                let line = if self.scopes.is_empty() { &intervals } else { &scopes };
                let by = |at: usize| if self.scopes.is_empty() { by_interval(at) } else { by_scope(at) };
                let parts = line.parts(sample.time, sample.time.saturating_add(sample.lasts));
                let parts = parts.into_iter().map(|(from, to, of)| (to - from, of.map(by)));
                merged(parts)
            } else {
                Vec::new()
            };
            // The duration is a multiple of the interval, so a difference of one interval does not mean
            // that the span changed.
            let of = |context: Option<&Arc<SpanContext>>| context.map(|context| context.span);
            let elsewhere = parts.iter().filter(|(_, part)| of(part.as_ref()) != of(context.as_ref()));
            let elsewhere: i64 = elsewhere.map(|(lasts, _)| *lasts).sum();
            let rounding = sample.lasts / i64::try_from(sample.weight.samples).unwrap_or(i64::MAX).max(1);
            // An exact sample is assigned by the activations alone, without its context.
            if sample.exact && !parts.is_empty() || parts.len() > 1 && elsewhere > rounding {
                counts.divided += u64::from(parts.len() > 1);
                let mut at = sample.time;
                for (weight, (lasts, context)) in divided(sample.weight, &parts).into_iter().zip(&parts) {
                    give(weight, context.as_ref(), (at, *lasts));
                    at = at.saturating_add(*lasts);
                }
            } else {
                give(sample.weight, context.as_ref(), (sample.time, sample.lasts));
            }
            if trees && !late && context.is_some() && matches!(sample.kind, Kind::Cpu | Kind::Wall) {
                self.trees.sample(sample);
            }
        }
    }

    /// Returns the activations, including intervals, which are nested by time.
    pub(super) fn activations(&self) -> Vec<Scope> {
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

    /// Drops records before `to`. Activations that may be part of a tree are retained for another minute.
    pub(super) fn forget(&mut self, to: i64, trees: bool, counts: &mut Counts) {
        let oldest = self.pending.iter().map(|sample| sample.time).min().unwrap_or(i64::MAX).min(to);
        let kept = self.contexts.split_off(&oldest);
        let gone = std::mem::replace(&mut self.contexts, kept);
        counts.contexts_unused += gone.values().filter(|(_, used)| !used).count() as u64;
        self.intervals.retain(|&(_, end, _)| end >= oldest);
        let oldest = if trees { oldest.min(self.trees.oldest()) } else { oldest };
        // An open activation ends when its end is reported, or when another root span begins.
        let root = self.scopes.iter().filter(|scope| scope.previous.is_none()).map(|scope| scope.start).max();
        let mut open = 0;
        self.scopes.retain(|scope| {
            let lasts =
                trees && scope.open && root.is_none_or(|root| scope.start >= root) && open < MOST_OPEN;
            open += usize::from(lasts);
            lasts || scope.end >= oldest
        });
    }
}

/// Merges adjacent parts of the same span.
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

/// Divides the weight by the lengths of the parts. Samples are distributed by largest remainder, so that
/// none is lost.
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

/// Returns the context of a span of which only the activation is known.
fn unknown(span: SpanKey) -> SpanContext {
    SpanContext { span, local_root: span, trace: Default::default(), flags: 1, labels: Labels::default() }
}
