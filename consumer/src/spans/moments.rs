//! What happened in one trace, one by one and not summed up: for a picture of it.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::{SpanKey, TraceId};
use super::join::{Attributed, Numbers};
use super::profile::{Entry, Profile, Seen, Spent};
use super::told::Scope;
use crate::live::Kind;
use crate::model::{Id, Stack, Thread};

/// What a sample says of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It ran: a sample of CPU time.
    Cpu,
    /// It ran or was ready to: a wall-clock sample.
    Running,
    /// It waited: a wall-clock sample.
    Waiting,
    /// It allocated.
    Allocation,
    /// It waited for a lock.
    Lock,
    /// It read or wrote.
    Io,
    /// Anything else.
    Other,
}

/// A sample of a trace, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When it was taken or what it tells of began, in ns since 1970.
    pub time: i64,
    /// How long that lasted, in ns.
    pub lasts: i64,
    /// Where: position in [`Moments::lanes`].
    pub lane: usize,
    /// The span.
    pub span: SpanKey,
    /// What of.
    pub what: What,
    /// Samples it stands for.
    pub count: u64,
    /// Time in ns or memory in bytes, by `what`.
    pub value: u64,
    /// Its stack.
    pub stack: Option<Id<Stack>>,
}

/// All moments of a trace, in order of time, and the threads it was on.
#[derive(Debug, Default)]
pub struct Moments {
    /// Threads that the trace was on, by when it came to them.
    pub lanes: Vec<Arc<Thread>>,
    /// Samples.
    pub samples: Vec<Moment>,
    /// Times for which spans of the trace were active, by lane.
    pub scopes: Vec<(usize, Scope)>,
    /// Those of other spans on these threads meanwhile.
    pub others: Vec<(usize, Scope)>,
    /// Samples left out, as there are too many.
    pub samples_left_out: u64,
    /// Times left out, as there are too many.
    pub scopes_left_out: u64,
}

/// Samples and times kept while reading, each; of a trace.
const MOST: usize = 1 << 20;
/// Times of other spans that are kept of all.
const MOST_OTHERS: usize = 1 << 16;

/// Keeps what may be of a trace: of which one a sample or an activation is may be told later.
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

    /// A sample was given to a span.
    pub(super) fn sample(&mut self, of: &Entry, part: &Attributed<'_, Seen>, spent: &Spent) {
        if of.trace.is_some() && of.trace != self.trace {
            return;
        }
        if self.samples.len() >= MOST {
            self.samples_left_out += 1;
            return;
        }
        let (what, value) = match part.sample.kind {
            Kind::Cpu => (What::Cpu, spent.cpu),
            Kind::Wall if spent.off_cpu > 0 => (What::Waiting, spent.wall),
            Kind::Wall => (What::Running, spent.wall),
            Kind::Allocation => (What::Allocation, spent.allocated),
            Kind::Lock => (What::Lock, spent.lock),
            Kind::Io => (What::Io, spent.io),
            _ => (What::Other, 0),
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

    /// A span was active on a thread.
    pub(super) fn scope(&mut self, thread: &Arc<Thread>, scope: Scope) {
        if self.scopes.len() < MOST {
            self.scopes.push((thread.clone(), scope));
        } else {
            self.scopes_left_out += 1;
        }
    }

    /// All that turned out to be of the trace.
    pub(super) fn finish(mut self, profile: &Profile) -> Moments {
        let ours = |span: SpanKey| profile.entry(span).is_some_and(|entry| entry.trace == self.trace);
        self.samples.retain(|(_, moment)| ours(moment.span));
        self.samples.sort_by_key(|(_, moment)| moment.time);
        let mut lanes = Lanes::default();
        let mut samples: Vec<Moment> = Vec::with_capacity(self.samples.len());
        let mut by_thread: HashMap<Id<Thread>, usize, KeyHash> = HashMap::default();
        // Times of the trace, for those of others to be looked for in.
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
            put(&mut scopes, lanes.of(&thread), scope);
        }
        for (thread, moment) in self.samples {
            let lane = *by_thread.entry(thread).or_insert_with(|| lanes.of_model(profile, thread));
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

/// Adds a time; one that was told while it was open is told again.
fn put(scopes: &mut Vec<(usize, Scope)>, lane: usize, scope: Scope) {
    // Not all that begin together: they may be made to be many.
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

/// Threads by what does not change of them.
#[derive(Debug, Default)]
struct Lanes {
    numbers: Numbers,
    lanes: HashMap<u32, usize, KeyHash>,
    threads: Vec<Arc<Thread>>,
}

impl Lanes {
    fn of(&mut self, thread: &Arc<Thread>) -> usize {
        let Self { numbers, lanes, threads } = self;
        *lanes.entry(numbers.of(thread)).or_insert_with(|| {
            threads.push(thread.clone());
            threads.len() - 1
        })
    }

    fn of_model(&mut self, profile: &Profile, thread: Id<Thread>) -> usize {
        let thread = Arc::new(profile.model.threads.get(thread).clone());
        self.of(&thread)
    }

    fn known(&mut self, thread: &Thread) -> Option<usize> {
        self.lanes.get(&self.numbers.of(thread)).copied()
    }
}
