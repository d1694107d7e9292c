//! Assigns the time of threads to tracing spans.
//!
//! Off-CPU intervals are split to the ns where the innermost span of their thread changes, so the times
//! in all spans and outside of spans add up to the total. CPU samples belong to the span that they name,
//! or else to the span at their time, as in other reports.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::chain::Path;
use super::interval::Interval;
use super::{Entry, Graph, InputTotals};
use crate::live::{self, Item, Sample};
use crate::model::{Id, Stack, Thread, Unit, Weight};
use crate::spans::board::Board;
use crate::spans::report::{Filter, GroupBy, NO_SPAN, span_group};
use crate::spans::{Attributed, Counts, JoinedSample, Limits, Profile, SpanKey};

/// How to use spans.
#[derive(Clone, Debug, Default)]
pub struct OfSpans {
    /// Property to group stacks by; `None`: no groups.
    pub by: Option<GroupBy>,
    /// Includes only these spans and the spans in them.
    pub only: Filter,
}

/// The recorded spans.
#[derive(Debug)]
pub struct SpanCounts {
    /// The spans, without samples.
    pub profile: Profile,
    /// Counts of joined and lost records.
    pub counts: Counts,
    /// Number of recorded activations of spans on threads. If it is 0, only samples can be assigned to
    /// spans.
    pub activations: u64,
}

/// Represents spans that were dropped because there were too many.
const LEFT_OUT: &str = "[spans left out]";
/// Maximum number of sums by span and stack; further ones are added to [`LEFT_OUT`].
const MOST_SUMS: usize = if cfg!(test) { 1 << 13 } else { 4 << 20 };
/// Maximum number of waiting records. Beyond that, the older half is assigned to the spans known by then.
const MOST_PENDING: usize = if cfg!(test) { 1 << 12 } else { Limits::FILE.pending };
/// The same for chain graphs, in which all intervals wait for their chains.
const MOST_PENDING_OF_CHAINS: usize = 4 << 20;

/// A record that waits for its span.
#[derive(Clone, Copy, Debug)]
pub(super) enum PendingRecord {
    Off(Interval, Path),
    Ran(Id<Thread>, Option<Id<Stack>>),
}

/// The span in which a part of a thread's time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Within {
    /// Spans are not requested.
    Unasked,
    /// Outside of spans.
    Nothing,
    Span(SpanKey),
    /// A span beyond the limit.
    LeftOut,
}

/// Selects the records to assign.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// Records beyond the limit.
    Excess,
    /// Records that ended before this time; everything that began before it has been read.
    Before(i64),
    All,
}

/// Spans, and the records that wait for them.
#[derive(Debug)]
pub(super) struct Spanned(Board<PendingRecord>);

impl Spanned {
    pub(super) fn new(graph: Graph) -> Self {
        // The whole recording is read; a thread that was forgotten would be missing in the sums.
        let pending = if graph == Graph::Chain { MOST_PENDING_OF_CHAINS } else { MOST_PENDING };
        let limits = Limits { threads: usize::MAX, pending, ..Limits::FILE };
        Self(Board::new(limits, None, None, [i64::MIN, i64::MAX]))
    }

    pub(super) fn take_item(&mut self, item: &Item) {
        self.0.take(item);
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.joiner.is_full()
    }

    pub(super) fn off(&mut self, thread: &Thread, interval: Interval, path: Path) {
        let number = self.0.joiner.number(thread);
        let taken = JoinedSample {
            time: interval.start,
            lasts: interval.end().saturating_sub(interval.start),
            kind: live::Kind::Other,
            weight: live::Weight { samples: 1, value: interval.nanos, unit: Unit::Nanoseconds },
            own: None,
            exact: true,
            path: None,
            of: PendingRecord::Off(interval, path),
        };
        self.0.joiner.sample(number, taken);
    }

    pub(super) fn ran(&mut self, sample: &Sample, thread: &Thread, of: (Id<Thread>, Option<Id<Stack>>)) {
        let number = self.0.joiner.number(thread);
        self.0.joiner.sample(number, JoinedSample::new(sample, PendingRecord::Ran(of.0, of.1)));
    }

    pub(super) fn settle(&mut self, due: Due, mut out: impl FnMut(&Attributed<'_, PendingRecord>, Within)) {
        self.0.undoubted();
        let Board { joiner, profile, .. } = &mut self.0;
        let mut give = |part: Attributed<'_, PendingRecord>| match part.context {
            None => out(&part, Within::Nothing),
            Some(context) => {
                profile.met(context);
                out(&part, Within::Span(context.span));
            }
        };
        match due {
            Due::Excess => joiner.advance(&mut give, &mut |_| ()),
            Due::Before(time) => joiner.settle_before(time, &mut give),
            Due::All => joiner.finish(&mut give, &mut |_| ()),
        }
    }

    pub(super) fn finish(mut self) -> SpanCounts {
        self.0.nest();
        let Board { joiner, profile, activations, .. } = self.0;
        SpanCounts { counts: joiner.counts(), profile, activations }
    }
}

/// Sums by activity and group.
type Grouped = Vec<(Entry, Group, Weight)>;

/// Sums by activity and span.
#[derive(Debug, Default)]
pub(super) struct Sums(HashMap<(Entry, Within), Weight, KeyHash>);

impl Sums {
    pub(super) fn add(&mut self, entry: Entry, within: Within, weight: Weight) {
        let full = self.0.len() >= MOST_SUMS
            && matches!(within, Within::Span(_))
            && !self.0.contains_key(&(entry, within));
        let within = if full { Within::LeftOut } else { within };
        self.0.entry((entry, within)).or_default().add(weight);
    }

    /// Adds up the sums by group. The second list has the names of the groups.
    pub(super) fn grouped(
        self,
        told: Option<&SpanCounts>,
        of: Option<&OfSpans>,
        seen: &mut InputTotals,
    ) -> (Grouped, Vec<Arc<str>>) {
        let (Some(told), Some(of)) = (told, of) else {
            let all = self.0.into_iter().map(|((entry, _), weight)| (entry, Group::NONE, weight));
            return (all.collect(), Vec::new());
        };
        let mut groups = Groups { profile: &told.profile, of, names: Vec::new(), by_name: HashMap::new() };
        let mut known: HashMap<Within, Option<Group>, KeyHash> = HashMap::default();
        let mut sums: HashMap<(Entry, Group), Weight, KeyHash> = HashMap::default();
        for ((entry, within), weight) in self.0 {
            let group = *known.entry(within).or_insert_with(|| groups.group(within));
            let Some(group) = group else {
                seen.drawn = seen.drawn.saturating_sub(weight.value);
                seen.elsewhere.add(weight);
                continue;
            };
            let of = match within {
                Within::Nothing => &mut seen.in_no_span,
                _ if groups.is_left_out(within) => &mut seen.in_spans_left_out,
                _ => &mut seen.in_spans,
            };
            *of = of.saturating_add(weight.value);
            sums.entry((entry, group)).or_default().add(weight);
        }
        let sums = sums.into_iter().map(|((entry, group), weight)| (entry, group, weight)).collect();
        (sums, groups.names)
    }
}

/// A group of stacks; 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group(u32);

impl Group {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn name(self, names: &[Arc<str>]) -> Option<&Arc<str>> {
        (self.0 as usize).checked_sub(1).and_then(|at| names.get(at))
    }
}

struct Groups<'a> {
    profile: &'a Profile,
    of: &'a OfSpans,
    names: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, Group>,
}

impl Groups<'_> {
    /// Returns the group; `None` if it is excluded.
    fn group(&mut self, within: Within) -> Option<Group> {
        let OfSpans { by, only } = self.of;
        let name: Arc<str> = match within {
            Within::Span(key) => match self.profile.entry(key) {
                Some(entry) if !only.passes(self.profile, entry) => return None,
                Some(entry) => match by {
                    Some(by) => span_group(self.profile, entry, by),
                    None => return Some(Group::NONE),
                },
                None => LEFT_OUT.into(),
            },
            Within::LeftOut => LEFT_OUT.into(),
            Within::Nothing | Within::Unasked => NO_SPAN.into(),
        };
        if !only.is_all() && self.is_other(within) {
            return None;
        }
        if by.is_none() {
            return Some(Group::NONE);
        }
        let Self { names, by_name, .. } = self;
        Some(*by_name.entry(name.clone()).or_insert_with(|| {
            names.push(name);
            Group(names.len() as u32)
        }))
    }

    /// Returns true if the time is outside of spans, or in an unknown span.
    fn is_other(&self, within: Within) -> bool {
        !matches!(within, Within::Span(key) if self.profile.entry(key).is_some())
    }

    fn is_left_out(&self, within: Within) -> bool {
        within != Within::Nothing && self.is_other(within)
    }
}
