//! Infers spans from samples: functions that ran long within a span, as if the program had started a span
//! for them.

mod tree;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::{SpanKey, TraceId};
use super::join::{Counts, JoinedSample, Path};
use super::span_events::{Scope, SpanContext};
use crate::model::{Frame, Id, Thread};
use tree::{ROOT, Tree};

/// Options for inferring spans.
#[derive(Clone, Debug, Default)]
pub struct Inference {
    /// Functions that were seen for less than this, in ns, do not become spans.
    pub min_duration: i64,
}

/// A span inferred from samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// Its own id, which is the same whenever the same recording is read.
    pub id: u64,
    /// The function.
    pub frame: Id<Frame>,
    /// Id of its trace.
    pub trace: TraceId,
    /// Its parent: a recorded or an inferred span.
    pub parent: Parent,
    /// Its thread.
    pub thread: Id<Thread>,
    /// The innermost recorded span around it.
    pub within: SpanKey,
    /// Time of its first sample, in ns since 1970.
    pub start: i64,
    /// Time of its last sample, or later if it is known to have continued.
    pub end: i64,
    /// Number of its samples.
    pub samples: u64,
    /// Its callers up to its parent; the nearest first.
    pub callers: Vec<Id<Frame>>,
    /// Recorded spans of which it is the parent, which overrides their recorded parent.
    pub children: Vec<SpanKey>,
}

/// The parent of an inferred span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// A recorded span.
    Span(SpanKey),
    /// An inferred span, by its id.
    Inferred(u64),
}

/// Samples of a thread that wait for the end of their activation; further samples are dropped.
const MOST_POINTS: usize = 64 << 10;
/// Samples that remain without an activation for this time, in ns, are dropped.
const ORPHANED: i64 = 60_000_000_000;

/// An activation that lasts longer than this, in ns, is processed in parts.
const LONGEST: i64 = 60_000_000_000;

/// A stack at a time, and the number of samples that it represents.
#[derive(Clone, Debug)]
struct Point {
    time: i64,
    thread: Id<Thread>,
    path: Arc<[Id<Frame>]>,
    count: u64,
}

/// Input for the trees of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadTrees {
    points: Vec<Point>,
    done: Option<i64>,
}

/// Properties of spans that activations do not contain.
#[derive(Clone, Copy)]
pub(super) struct KnownSpans<'a> {
    pub(super) contexts: &'a HashMap<SpanKey, Arc<SpanContext>, KeyHash>,
    pub(super) parents: &'a HashMap<SpanKey, Option<SpanKey>, KeyHash>,
}

impl KnownSpans<'_> {
    fn is_sampled(&self, span: SpanKey) -> bool {
        self.contexts.get(&span).is_none_or(|context| context.is_sampled())
    }

    fn trace(&self, span: SpanKey) -> TraceId {
        self.contexts.get(&span).map(|context| context.trace).unwrap_or_default()
    }
}

impl ThreadTrees {
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the time of the oldest waiting sample.
    pub(super) fn oldest(&self) -> i64 {
        self.points.iter().map(|point| point.time).min().unwrap_or(i64::MAX)
    }

    /// Adds a sample that is in a span.
    pub(super) fn sample<P>(&mut self, sample: &JoinedSample<P>) {
        let Some(Path { thread, frames }) = &sample.path else { return };
        let mut put =
            |time, count| self.points.push(Point { time, thread: *thread, path: frames.clone(), count });
        put(sample.time, sample.weight.samples.max(1));
        // A merged wait sample has the same stack from its start to its end.
        if sample.lasts > 0 && sample.weight.samples > 1 {
            put(sample.time.saturating_add(sample.lasts), 0);
        }
    }

    /// Builds the trees of the activations that ended before `to`.
    pub(super) fn advance(
        &mut self,
        number: u32,
        to: i64,
        scopes: &[Scope],
        how: (&Inference, KnownSpans<'_>),
        counts: &mut Counts,
        out: &mut impl FnMut(Inferred),
    ) {
        let (inference, known) = how;
        if self.points.is_empty() {
            return;
        }
        let mut scopes: Vec<&Scope> = scopes.iter().filter(|scope| scope.start <= scope.end).collect();
        // Outer scopes precede inner ones.
        scopes.sort_by_key(|scope| (scope.start, std::cmp::Reverse(scope.end)));
        self.points.sort_by_key(|point| point.time);
        // A sample with a weight above one is recorded as several of one time, but it was seen once.
        self.points.dedup_by(|next, point| {
            let same = next.time == point.time && next.path == point.path;
            if same {
                point.count = point.count.saturating_add(next.count);
            }
            same
        });
        for (at, root) in scopes.iter().enumerate() {
            if root.previous.is_some() {
                continue;
            }
            let begin = self.done.map_or(root.start, |done| root.start.max(done.saturating_add(1)));
            let until = if root.open {
                // If its end was lost, it ends before the next activation begins.
                let next = scopes[at + 1..].iter().find(|scope| scope.previous.is_none());
                next.map_or(to, |next| next.start).min(to).saturating_sub(1)
            } else {
                root.end
            };
            let from = self.points.partition_point(|point| point.time < begin);
            let oldest = self.points.get(from).map_or(i64::MAX, |point| point.time);
            // Long activations are processed in parts.
            let due = if root.open { oldest <= to.saturating_sub(LONGEST) } else { root.end < to };
            if !(due || to == i64::MAX) || begin > until {
                continue;
            }
            let behind = self.points.partition_point(|point| point.time <= until);
            let points: Vec<Point> = self.points.drain(from..behind.max(from)).collect();
            self.done = Some(until);
            let Some(first) = points.first().filter(|_| known.is_sampled(root.span)) else { continue };
            let within = scopes[at + 1..].iter().take_while(|scope| scope.start <= until);
            let within = within
                .filter(|scope| {
                    scope.previous.is_some() && scope.end >= begin && (root.open || scope.end <= root.end)
                })
                .map(|scope| {
                    part(scope, begin, if scope.open && root.open { i64::MAX } else { scope.end }.min(until))
                });
            let within: Vec<Scope> = within.collect();
            let mut tree = grown(&part(root, begin, until), within.iter(), &points, known, inference);
            tree.finish();
            counts.nodes_dropped += tree.dropped;
            Spans { tree: &tree, known, number, thread: first.thread, out }.infer_children(
                ROOT,
                None,
                root.span,
                &mut Vec::new(),
            );
        }
        // No activation will be reported for samples this old, unless one is still open.
        let old = if to == i64::MAX { i64::MAX } else { to.saturating_sub(ORPHANED) };
        let lasting = |time: i64| {
            to != i64::MAX && scopes.iter().any(|s| s.open && s.previous.is_none() && s.start <= time)
        };
        let before = self.points.len();
        self.points.retain(|point| point.time >= old || lasting(point.time));
        let excess = self.points.len().saturating_sub(MOST_POINTS);
        self.points.drain(..excess);
        counts.orphans += (before - self.points.len()) as u64;
    }
}

/// Returns the part of an activation between two times.
fn part(scope: &Scope, begin: i64, end: i64) -> Scope {
    Scope { start: scope.start.max(begin), end, ..*scope }
}

type Points<'a> = std::iter::Peekable<std::slice::Iter<'a, Point>>;

/// Builds the tree for an activation of a root span.
fn grown<'s>(
    root: &Scope,
    within: impl Iterator<Item = &'s Scope>,
    points: &[Point],
    known: KnownSpans<'_>,
    inference: &Inference,
) -> Tree<Id<Frame>> {
    let mut tree = Tree::new(root.span, root.start, inference.min_duration);
    let mut points = points.iter().peekable();
    let mut stack: Vec<&Scope> = vec![root];
    let sample_before = |tree: &mut Tree<_>, points: &mut Points<'_>, time: i64| {
        while let Some(point) = points.next_if(|point| point.time < time) {
            tree.sample(&point.path, point.time, point.count);
        }
    };
    let leave = |tree: &mut Tree<_>, points: &mut Points<'_>, stack: &mut Vec<&Scope>, to: i64| {
        while let [.., below, top] = stack[..]
            && top.end <= to
        {
            sample_before(tree, points, top.end);
            tree.exit(top.span, below.span, top.end);
            stack.pop();
        }
    };
    for scope in within {
        leave(&mut tree, &mut points, &mut stack, scope.start);
        sample_before(&mut tree, &mut points, scope.start);
        let parent = known.parents.get(&scope.span).copied().unwrap_or(scope.previous);
        tree.enter(scope.span, parent, scope.start);
        stack.push(scope);
    }
    // The last sample is the last observation, so later deactivations correct nothing.
    let last = points.clone().next_back().map_or(root.end, |point| point.time);
    leave(&mut tree, &mut points, &mut stack, last);
    sample_before(&mut tree, &mut points, i64::MAX);
    tree
}

/// Converts the nodes of a tree to spans.
struct Spans<'a, O> {
    tree: &'a Tree<Id<Frame>>,
    known: KnownSpans<'a>,
    number: u32,
    thread: Id<Thread>,
    out: &'a mut O,
}

impl<O: FnMut(Inferred)> Spans<'_, O> {
    /// `parent` is the inferred span around the nodes; `pillars` are the frames between, outermost first.
    fn infer_children(
        &mut self,
        at: usize,
        parent: Option<u64>,
        within: SpanKey,
        pillars: &mut Vec<Id<Frame>>,
    ) {
        for &child in &self.tree.nodes[at].children {
            let node = &self.tree.nodes[child];
            let Some(frame) = node.frame else { continue };
            let (parent, within) = match node.active {
                Some(span) => (None, span),
                None => (parent, within),
            };
            if self.tree.is_pillar(child) {
                pillars.push(frame);
                self.infer_children(child, parent, within, pillars);
                pillars.pop();
                continue;
            }
            let trace = self.known.trace(within);
            let id = mixed([
                trace.0 as u64,
                (trace.0 >> 64) as u64,
                within.id(),
                node.start as u64,
                self.number.into(),
                child as u64,
            ]);
            if self.known.is_sampled(within) {
                // Ignores a span with another parent, which would cause cycles.
                let children =
                    node.begun.iter().chain(&node.maybe_begun).filter(|(_, parent)| *parent == Some(within));
                (self.out)(Inferred {
                    id,
                    frame,
                    trace,
                    parent: parent.map_or(Parent::Span(within), Parent::Inferred),
                    thread: self.thread,
                    within,
                    start: node.start,
                    end: node.last,
                    samples: node.count,
                    callers: pillars.iter().rev().copied().collect(),
                    children: children.map(|(span, _)| *span).collect(),
                });
            }
            self.infer_children(child, Some(id), within, &mut Vec::new());
        }
    }
}

/// Returns a hash of all values that is never 0 (finalizer of SplitMix64).
fn mixed(values: [u64; 6]) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15u64;
    for value in values {
        sum = (sum ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum ^= sum >> 31;
    }
    sum.max(1)
}
