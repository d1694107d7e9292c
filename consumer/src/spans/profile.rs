//! Resources spent by span.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::board::Interval;
use super::ids::{SpanKey, TraceId};
use super::join::{Attributed, JoinedSample, nanos};
use super::moments::Keeper;
use super::report::ancestors;
use super::span_events::{Labels, Span, SpanContext};
use crate::live::{self, Kind};
use crate::model::{EventKind, Id, Model, SampleKey, Stack, Thread, Unit, Weight};

/// Weights of samples, by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Samples of all kinds.
    pub samples: u64,
    /// CPU time in ns.
    pub cpu: u64,
    /// Wall-clock time in ns.
    pub wall: u64,
    /// The part of it in which the thread was not running, in ns.
    pub off_cpu: u64,
    /// Memory allocated, in bytes.
    pub allocated: u64,
    /// Time waited for locks, in ns.
    pub lock: u64,
    /// Time of I/O, in ns.
    pub io: u64,
}

impl Spent {
    /// Adds `other`. Sums saturate.
    pub fn add(&mut self, other: &Self) {
        let Self { samples, cpu, wall, off_cpu, allocated, lock, io } = other;
        let pairs = [
            (&mut self.samples, samples),
            (&mut self.cpu, cpu),
            (&mut self.wall, wall),
            (&mut self.off_cpu, off_cpu),
            (&mut self.allocated, allocated),
            (&mut self.lock, lock),
            (&mut self.io, io),
        ];
        pairs.into_iter().for_each(|(sum, value)| *sum = sum.saturating_add(*value));
    }

    /// Returns one of `by` equal parts.
    #[must_use]
    pub fn divided(&self, by: u64) -> Self {
        let Self { samples, cpu, wall, off_cpu, allocated, lock, io } = *self;
        let by = by.max(1);
        let part = |value: u64| value / by;
        Self {
            samples: part(samples),
            cpu: part(cpu),
            wall: part(wall),
            off_cpu: part(off_cpu),
            allocated: part(allocated),
            lock: part(lock),
            io: part(io),
        }
    }

    fn new(
        sample: &JoinedSample<SampleHandles>,
        weight: live::Weight,
        period: Option<u64>,
        running: bool,
    ) -> Self {
        let mut spent = Self { samples: weight.samples, ..Self::default() };
        let time = nanos(weight, period);
        match sample.kind {
            Kind::Cpu => spent.cpu = time,
            Kind::Wall => {
                spent.wall = time;
                spent.off_cpu = if running { 0 } else { time };
            }
            Kind::Allocation if weight.unit == Unit::Bytes => spent.allocated = weight.value,
            Kind::Lock => spent.lock = time,
            Kind::Io => spent.io = time,
            _ => {}
        }
        spent
    }
}

/// A span, and the resources spent in it without its children.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Key.
    pub key: SpanKey,
    /// Name, if it is recorded.
    pub name: Option<Arc<str>>,
    /// Id of its trace, if it is recorded.
    pub trace: TraceId,
    /// Its parent.
    pub parent: Option<SpanKey>,
    /// The outermost span of the trace in this process.
    pub local_root: SpanKey,
    /// Start and end in ns since 1970; `None` if the end is not recorded.
    pub time: Option<(i64, i64)>,
    /// It was recorded only as unfinished.
    pub open: bool,
    /// Times of its first and last sample; the first is larger if there is none.
    pub sampled: (i64, i64),
    /// Trace flags of W3C Trace Context.
    pub flags: u32,
    /// Its labels.
    pub labels: Labels,
    /// The thread it ended on.
    pub thread: Option<Arc<Thread>>,
    /// Resources spent.
    pub spent: Spent,
}

impl Entry {
    fn new(context: &SpanContext) -> Self {
        Self {
            key: context.span,
            name: context.labels.get("spanName").cloned(),
            trace: context.trace,
            parent: None,
            local_root: context.local_root,
            time: None,
            open: false,
            sampled: (i64::MAX, i64::MIN),
            flags: context.flags,
            labels: context.labels.clone(),
            thread: None,
            spent: Spent::default(),
        }
    }

    fn took(&mut self, part: &Attributed<'_, SampleHandles>, context: &SpanContext, spent: &Spent) {
        let time = part.sample.time;
        self.spent.add(spent);
        self.sampled.0 = self.sampled.0.min(time);
        self.sampled.1 = self.sampled.1.max(time);
        if self.labels.is_empty() && !context.labels.is_empty() {
            self.labels = context.labels.clone();
        }
        if self.name.is_none() {
            self.name = context.labels.get("spanName").cloned();
        }
    }

    /// Returns its name, or a placeholder.
    pub fn name(&self) -> &str {
        let unnamed = if matches!(self.key, SpanKey::Labels(_)) { SPANLESS } else { NAMELESS };
        self.name.as_deref().unwrap_or(unnamed)
    }

    /// Returns the latest recorded time.
    fn last(&self) -> i64 {
        self.time.map_or(i64::MIN, |(_, end)| end).max(self.sampled.1)
    }

    /// Returns its duration in ns, if it is recorded.
    pub fn duration(&self) -> Option<i64> {
        self.time.filter(|_| !self.open).map(|(start, end)| end.saturating_sub(start))
    }
}

/// The model's handles of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleHandles {
    pub(super) event: Id<EventKind>,
    pub(super) thread: Id<Thread>,
    pub(super) stack: Option<Id<Stack>>,
    pub(super) state: Option<Id<Arc<str>>>,
    pub(super) class: Option<Id<Arc<str>>>,
}

/// Placeholder for the name of a span whose end is not recorded.
pub const NAMELESS: &str = "[span without a name]";
/// Placeholder for the name of a span if a thread had labels but no span.
const SPANLESS: &str = "[labels, no span]";

/// Maximum number of stored spans; beyond that, the oldest ones are dropped.
pub(super) const MOST_SPANS: usize = if cfg!(test) { 1 << 12 } else { 1 << 19 };
/// Maximum number of distinct stacks of all spans. Samples beyond that are counted but not shown in flame
/// graphs.
const MOST_STACKS: usize = 1 << 21;

/// Resources spent by span.
#[derive(Debug, Default)]
pub struct Profile {
    /// Resolves handles. It holds no samples.
    pub model: Model,
    pub(super) entries: HashMap<SpanKey, Entry, KeyHash>,
    /// Names of local roots.
    pub(super) endpoints: HashMap<SpanKey, Arc<str>, KeyHash>,
    /// Samples by span; `None`: outside of spans.
    pub(super) stacks: HashMap<(Option<SpanKey>, SampleKey), Weight, KeyHash>,
    /// Resources spent outside of spans.
    pub outside: Spent,
    /// Samples whose stacks were dropped because there were too many.
    pub stacks_left_out: u64,
    /// Spans that were dropped because there were too many.
    pub spans_left_out: u64,
    /// Resources spent in those.
    pub left_out: Spent,
    /// Time in ns that a sample of a type without a value represents, as recorded so far.
    pub(super) periods: BTreeMap<Arc<str>, u64>,
    /// Stores single events of a trace.
    pub(super) keeper: Option<Keeper>,
}

impl Profile {
    /// Returns all spans, by start.
    pub fn entries(&self) -> Vec<&Entry> {
        let mut all: Vec<&Entry> = self.entries.values().collect();
        all.sort_by_key(|entry| (entry.time.map_or(entry.sampled.0, |(start, _)| start), entry.key));
        all
    }

    /// Returns a span.
    pub fn entry(&self, key: SpanKey) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// Returns the endpoint of a span's local root as recorded, or else the name of the outermost span
    /// around it that has one. A local root that came with a message belongs to another process, which
    /// records its name.
    pub fn endpoint(&self, entry: &Entry) -> Option<Arc<str>> {
        let told = self.endpoints.get(&entry.local_root);
        let root = || self.entries.get(&entry.local_root)?.name.clone();
        let outermost = || ancestors(self, entry).filter_map(|entry| entry.name.clone()).last();
        told.cloned().or_else(root).or_else(outermost)
    }

    pub(super) fn add_endpoint(&mut self, root: SpanKey, name: Arc<str>) {
        if self.endpoints.len() < MOST_SPANS {
            self.endpoints.insert(root, name);
        }
    }

    pub(super) fn add_span(&mut self, span: Span, thread: Option<Arc<Thread>>) {
        let Span { key, name, trace, parent, local_root, start, end, flags, labels, open, .. } = span;
        let context = SpanContext { span: key, local_root, trace, flags, labels };
        let Some(entry) = self.context_entry(&context) else { return };
        entry.name = Some(name);
        entry.parent = parent;
        // A span can be reported in parts, for example by a contextual event for each thread.
        entry.open = open && (entry.open || entry.time.is_none());
        entry.time = Some(entry.time.map_or((start, end), |(s, e)| (s.min(start), e.max(end))));
        entry.thread = thread;
        if !context.labels.is_empty() {
            entry.labels = context.labels;
        }
    }

    /// Drops the quarter of the spans with the oldest latest times.
    fn make_room(&mut self) {
        let mut last: Vec<i64> = self.entries.values().map(Entry::last).collect();
        let quarter = last.len() / 4;
        if last.is_empty() {
            return;
        }
        let (_, &mut oldest, _) = last.select_nth_unstable(quarter);
        let Self { entries, endpoints, stacks, .. } = self;
        for (_, entry) in entries.extract_if(|_, entry| entry.last() <= oldest) {
            self.spans_left_out += 1;
            self.left_out.add(&entry.spent);
        }
        stacks.retain(|(span, _), weight| {
            let kept = span.is_none_or(|span| entries.contains_key(&span));
            self.stacks_left_out += if kept { 0 } else { weight.count };
            kept
        });
        endpoints.retain(|root, _| entries.contains_key(root));
    }

    /// Adds an entry for a span that may not be reported otherwise. Dropped spans are not added again.
    pub(crate) fn met(&mut self, context: &SpanContext) {
        if self.spans_left_out == 0 || self.entries.contains_key(&context.span) {
            self.context_entry(context);
        }
    }

    fn context_entry(&mut self, context: &SpanContext) -> Option<&mut Entry> {
        if self.entries.len() >= MOST_SPANS && !self.entries.contains_key(&context.span) {
            self.make_room();
        }
        let entry = self.entries.entry(context.span).or_insert_with(|| Entry::new(context));
        if !entry.trace.is_some() {
            entry.trace = context.trace;
        }
        // An activation alone does not contain it.
        if entry.local_root == entry.key {
            entry.local_root = context.local_root;
        }
        Some(entry)
    }

    /// Nests the intervals of each thread by time.
    pub(super) fn nest(&mut self, mut intervals: Vec<Interval>) {
        intervals.sort_unstable();
        let mut around: Vec<Interval> = Vec::new();
        for interval in intervals {
            let (thread, start, _, key) = interval;
            while around.pop_if(|(of, _, end, _)| *of != thread || end.0 <= start).is_some() {}
            let outer = around.last().and_then(|(.., outer)| self.entries.get(outer));
            let outer = outer.map(|outer| (outer.key, outer.local_root, outer.trace));
            around.push(interval);
            let (Some((outer, root, trace)), Some(entry)) = (outer, self.entries.get_mut(&key)) else {
                continue;
            };
            if entry.parent.is_none() && outer != key {
                (entry.parent, entry.local_root) = (Some(outer), root);
                if !entry.trace.is_some() {
                    entry.trace = trace;
                }
            }
        }
    }

    /// Adds a sample that was assigned to its span.
    pub(super) fn take(&mut self, part: &Attributed<'_, SampleHandles>) {
        let Attributed { sample, weight, context, .. } = *part;
        let event = &self.model.kinds.get(sample.of.event).name;
        let period = self.periods.get(event).copied();
        // Neither runnable nor running.
        let waits = |name: &str| !["STATE_RUNNABLE", "STATE_DEFAULT", "RUNNABLE", ""].contains(&name);
        let running = sample.of.state.is_none_or(|state| !waits(self.model.states.get(state)));
        let spent = Spent::new(sample, weight, period, running);
        match context {
            None => self.outside.add(&spent),
            Some(context) => {
                let mut keeper = self.keeper.take();
                match self.context_entry(context) {
                    Some(entry) => {
                        entry.took(part, context, &spent);
                        if let Some(keeper) = &mut keeper {
                            keeper.sample(entry, part, &spent);
                        }
                    }
                    None => self.left_out.add(&spent),
                }
                self.keeper = keeper;
            }
        }
        let SampleHandles { event, thread, stack, state, class } = sample.of;
        let key = (
            context.map(|context| context.span),
            SampleKey { kind: event, thread: Some(thread), stack, state, class, title: None },
        );
        if self.stacks.len() >= MOST_STACKS && !self.stacks.contains_key(&key) {
            self.stacks_left_out += weight.samples;
            return;
        }
        let weight = Weight { count: weight.samples, value: weight.value };
        self.stacks.entry(key).or_default().add(weight);
    }

    /// Converts the profile to a model with the samples of the spans that `wanted` selects, for folding.
    pub fn into_model(mut self, wanted: impl Fn(&Self, Option<&Entry>) -> bool) -> Model {
        let stacks = std::mem::take(&mut self.stacks);
        let mut samples: HashMap<SampleKey, Weight, KeyHash> = HashMap::default();
        let mut known: HashMap<Option<SpanKey>, bool, KeyHash> = HashMap::default();
        for ((span, key), weight) in stacks {
            let is_wanted = *known
                .entry(span)
                .or_insert_with(|| wanted(&self, span.and_then(|span| self.entries.get(&span))));
            if is_wanted {
                samples.entry(key).or_default().add(weight);
            }
        }
        Model { samples, periods: self.periods, ..self.model }
    }

    /// Converts the profile to a model for each of some sets of spans.
    pub fn into_models<const N: usize>(mut self, sets: &[HashSet<SpanKey>; N]) -> [Model; N] {
        let stacks = std::mem::take(&mut self.stacks);
        // Copies the tables so that handles are valid in all models.
        let copy = |model: &Model| -> Model {
            let mut copy = Model::default();
            model.threads.iter().for_each(|(_, value)| _ = copy.threads.intern(value.clone()));
            model.frames.iter().for_each(|(_, value)| _ = copy.frames.intern(value.clone()));
            model.stacks.iter().for_each(|(_, value)| _ = copy.stacks.intern(value.clone()));
            model.states.iter().for_each(|(_, value)| _ = copy.states.intern(value.clone()));
            model.classes.iter().for_each(|(_, value)| _ = copy.classes.intern(value.clone()));
            model.kinds.iter().for_each(|(_, value)| _ = copy.kinds.intern(value.clone()));
            copy
        };
        std::array::from_fn(|at| {
            let mut model = Model { periods: self.periods.clone(), ..copy(&self.model) };
            for ((span, key), weight) in &stacks {
                if span.is_some_and(|span| sets[at].contains(&span)) {
                    model.samples.entry(*key).or_default().add(*weight);
                }
            }
            model
        })
    }

    /// Returns true for a CPU sample, false for a wall-clock sample; `None` for others.
    pub(super) fn is_cpu(&self, key: &SampleKey) -> Option<bool> {
        match Kind::from_event(&self.model.kinds.get(key.kind).name) {
            Kind::Cpu => Some(true),
            Kind::Wall => Some(false),
            _ => None,
        }
    }

    /// Returns the innermost frame of a stack.
    pub(super) fn leaf(&self, key: &SampleKey) -> Option<Id<crate::model::Frame>> {
        self.model.stacks.get(key.stack?).frames.first().copied()
    }
}
