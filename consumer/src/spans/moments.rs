//! Single events of one trace, for its timeline.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::{SpanKey, TraceId};
use super::join::{Attributed, Numbers};
use super::profile::{Entry, Profile, SampleHandles, Spent};
use super::span_events::Scope;
use crate::live::Kind;
use crate::model::{Id, Stack, Thread};

/// The activity of a thread in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Running: a CPU sample.
    Cpu,
    /// Running or runnable: a wall-clock sample.
    Running,
    /// Waiting: a wall-clock sample.
    Waiting,
    /// Allocating.
    Allocation,
    /// Waiting for a lock.
    Lock,
    /// Reading or writing.
    Io,
    /// Anything else.
    Other,
}

/// A sample of a trace, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time of the sample, or start of its event, in ns since 1970.
    pub time: i64,
    /// Duration, in ns.
    pub lasts: i64,
    /// Index in [`Moments::lanes`].
    pub lane: usize,
    /// The span.
    pub span: SpanKey,
    /// The activity.
    pub what: Activity,
    /// Number of samples that it represents.
    pub count: u64,
    /// Time in ns or memory in bytes, depending on `what`.
    pub value: u64,
    /// Its stack.
    pub stack: Option<Id<Stack>>,
}

/// Samples and activations of a trace in order of time, and its threads.
#[derive(Debug, Default)]
pub struct Moments {
    /// Threads of the trace, by first appearance.
    pub lanes: Vec<Arc<Thread>>,
    /// Samples.
    pub samples: Vec<Moment>,
    /// Activations of spans of the trace, by lane.
    pub scopes: Vec<(usize, Scope)>,
    /// Activations of other spans on these threads during the trace.
    pub others: Vec<(usize, Scope)>,
    /// Samples that were dropped because there were too many.
    pub samples_left_out: u64,
    /// Activations that were dropped because there were too many.
    pub scopes_left_out: u64,
}

/// Maximum number of samples, and of activations, of a trace that are stored while reading.
const MOST: usize = 1 << 20;
/// Maximum number of activations of other spans that are stored.
const MOST_OTHERS: usize = 1 << 16;

/// Stores candidates for a trace. The trace of a sample or an activation may be reported later.
#[derive(Debug)]
pub(super) struct Keeper {
    trace: TraceId,
    samples: Vec<(Id<Thread>, Moment)>,
    scopes: Vec<(Arc<Thread>, Scope)>,
    samples_left_out: u64,
    scopes_left_out: u64,
}

impl Keeper {
    pub(super) fn new(trace: TraceId) -> Self {
        Self { trace, samples: Vec::new(), scopes: Vec::new(), samples_left_out: 0, scopes_left_out: 0 }
    }

    /// Adds a sample that was assigned to a span.
    pub(super) fn sample(&mut self, of: &Entry, part: &Attributed<'_, SampleHandles>, spent: &Spent) {
        if of.trace.is_some() && of.trace != self.trace {
            return;
        }
        if self.samples.len() >= MOST {
            self.samples_left_out += 1;
            return;
        }
        let (what, value) = match part.sample.kind {
            Kind::Cpu => (Activity::Cpu, spent.cpu),
            Kind::Wall if spent.off_cpu > 0 => (Activity::Waiting, spent.wall),
            Kind::Wall => (Activity::Running, spent.wall),
            Kind::Allocation => (Activity::Allocation, spent.allocated),
            Kind::Lock => (Activity::Lock, spent.lock),
            Kind::Io => (Activity::Io, spent.io),
            _ => (Activity::Other, 0),
        };
        let moment = Moment {
            time: part.time,
            lasts: part.lasts,
            lane: 0,
            span: of.key,
            what,
            count: spent.samples,
            value,
            stack: part.sample.of.stack,
        };
        self.samples.push((part.sample.of.thread, moment));
    }

    /// Adds an activation of a span on a thread.
    pub(super) fn scope(&mut self, thread: &Arc<Thread>, scope: Scope) {
        if self.scopes.len() < MOST {
            self.scopes.push((thread.clone(), scope));
        } else {
            self.scopes_left_out += 1;
        }
    }

    /// Returns the samples and activations that belong to the trace.
    pub(super) fn finish(mut self, profile: &Profile) -> Moments {
        let ours = |span: SpanKey| profile.entry(span).is_some_and(|entry| entry.trace == self.trace);
        self.samples.retain(|(_, moment)| ours(moment.span));
        self.samples.sort_by_key(|(_, moment)| moment.time);
        let mut lanes = Lanes::default();
        let mut samples: Vec<Moment> = Vec::with_capacity(self.samples.len());
        let mut by_thread: HashMap<Id<Thread>, usize, KeyHash> = HashMap::default();
        // The time range of the trace, to select activations of other spans.
        let mut first = samples_begin(&self.samples);
        let mut last =
            self.samples.iter().map(|(_, m)| m.time.saturating_add(m.lasts)).max().unwrap_or(i64::MIN);
        for entry in profile.entries.values().filter(|entry| entry.trace == self.trace) {
            if let Some((start, end)) = entry.time {
                (first, last) = (first.min(start), last.max(end));
            }
        }
        self.scopes.sort_by_key(|(_, scope)| (scope.start, scope.span, scope.open));
        let (of_trace, of_others): (Vec<_>, Vec<_>) =
            self.scopes.into_iter().partition(|(_, scope)| ours(scope.span));
        let mut scopes: Vec<(usize, Scope)> = Vec::with_capacity(of_trace.len());
        for (thread, scope) in of_trace {
            (first, last) = (first.min(scope.start), last.max(scope.end));
            put(&mut scopes, lanes.lane(&thread), scope);
        }
        for (thread, moment) in self.samples {
            let lane = *by_thread.entry(thread).or_insert_with(|| lanes.model_lane(profile, thread));
            samples.push(Moment { lane, ..moment });
        }
        let mut others = Vec::new();
        for (thread, scope) in of_others {
            if scope.end < first || scope.start > last {
                continue;
            }
            match lanes.known(&thread) {
                Some(_) if others.len() >= MOST_OTHERS => self.scopes_left_out += 1,
                Some(lane) => put(&mut others, lane, scope),
                None => {}
            }
        }
        let Self { samples_left_out, scopes_left_out, .. } = self;
        Moments { lanes: lanes.threads, samples, scopes, others, samples_left_out, scopes_left_out }
    }
}

fn samples_begin(samples: &[(Id<Thread>, Moment)]) -> i64 {
    samples.first().map_or(i64::MAX, |(_, moment)| moment.time)
}

/// Adds an activation; one that was reported while it was open is reported again.
fn put(scopes: &mut Vec<(usize, Scope)>, lane: usize, scope: Scope) {
    // Limits the search: a hostile recording may have many with the same start.
    let told = scopes.iter_mut().rev().take(64).take_while(|(_, known)| known.start == scope.start);
    for (of, known) in told {
        if (*of, known.span) == (lane, scope.span) {
            let open = known.open && scope.open;
            *known = Scope { end: known.end.max(scope.end), open, ..scope };
            return;
        }
    }
    scopes.push((lane, scope));
}

/// Threads by their ids, which do not change.
#[derive(Debug, Default)]
struct Lanes {
    numbers: Numbers,
    lanes: HashMap<u32, usize, KeyHash>,
    threads: Vec<Arc<Thread>>,
}

impl Lanes {
    fn lane(&mut self, thread: &Arc<Thread>) -> usize {
        let Self { numbers, lanes, threads } = self;
        *lanes.entry(numbers.number(thread)).or_insert_with(|| {
            threads.push(thread.clone());
            threads.len() - 1
        })
    }

    fn model_lane(&mut self, profile: &Profile, thread: Id<Thread>) -> usize {
        let thread = Arc::new(profile.model.threads.get(thread).clone());
        self.lane(&thread)
    }

    fn known(&mut self, thread: &Thread) -> Option<usize> {
        self.lanes.get(&self.numbers.number(thread)).copied()
    }
}
