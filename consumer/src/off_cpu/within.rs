//! In which spans of tracing threads spent their time.
//!
//! Times without a processor are cut where the innermost span of their thread changes, to the ns, so that those of all spans and of none
//! add up to what there was. Samples of CPU time are in the span that they carry, else in that of their moment, as everywhere.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::chain::Path;
use super::interval::Interval;
use super::{Entry, Graph, Seen};
use crate::live::{self, Item, Sample};
use crate::model::{Id, Stack, Thread, Unit, Weight};
use crate::spans::board::Board;
use crate::spans::report::{By, Filter, NO_SPAN, group_of};
use crate::spans::{Attributed, Counts, Limits, Profile, SpanKey, Taken};

/// How spans are looked at.
#[derive(Clone, Debug, Default)]
pub struct OfSpans {
    /// What stacks are put on top of; `None`: on nothing.
    pub by: Option<By>,
    /// Only what was in these spans and in those within them.
    pub only: Filter,
}

/// What the recording told of spans.
#[derive(Debug)]
pub struct Told {
    /// The spans. It holds no samples.
    pub profile: Profile,
    /// What happened on the way.
    pub counts: Counts,
    /// How often it was told when a span was active on a thread: without that, only samples are known to be in one.
    pub activations: u64,
}

/// Stands for spans that were left out, as there are too many.
const LEFT_OUT: &str = "[spans left out]";
/// Sums by span and stack; what is beyond is of [`LEFT_OUT`].
const MOST_SUMS: usize = if cfg!(test) { 1 << 13 } else { 4 << 20 };
/// Records that wait; beyond that the older half is given to the spans that are known by then.
const MOST_PENDING: usize = if cfg!(test) { 1 << 12 } else { Limits::FILE.pending };
/// The same where all intervals wait for their chains.
const MOST_PENDING_OF_CHAINS: usize = 4 << 20;

/// What waits to be given to its span.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Off(Interval, Path),
    Ran(Id<Thread>, Option<Id<Stack>>),
}

/// Where some of a thread's time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Within {
    /// Nobody wants to know.
    Unasked,
    /// In no span.
    Nothing,
    Span(SpanKey),
    /// One of those that there are too many of.
    LeftOut,
}

/// What is to be settled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// As much as there is no room for.
    Excess,
    /// What ended before; all that began before has been taken.
    Before(i64),
    All,
}

/// Spans, and what is to be given to them.
#[derive(Debug)]
pub(super) struct Spanned(Board<Piece>);

impl Spanned {
    pub(super) fn new(graph: Graph) -> Self {
        // All of a recording is read: a thread that is forgotten would be missing in the sums.
        let pending = if graph == Graph::Chain { MOST_PENDING_OF_CHAINS } else { MOST_PENDING };
        let limits = Limits { threads: usize::MAX, pending, ..Limits::FILE };
        Self(Board::new(limits, None, None, [i64::MIN, i64::MAX]))
    }

    pub(super) fn told(&mut self, item: &Item) {
        self.0.take(item);
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.joiner.is_full()
    }

    pub(super) fn off(&mut self, thread: &Thread, interval: Interval, path: Path) {
        let number = self.0.joiner.number(thread);
        let taken = Taken {
            time: interval.start,
            lasts: interval.end().saturating_sub(interval.start),
            kind: live::Kind::Other,
            weight: live::Weight { samples: 1, value: interval.nanos, unit: Unit::Nanoseconds },
            own: None,
            exact: true,
            path: None,
            of: Piece::Off(interval, path),
        };
        self.0.joiner.sample(number, taken);
    }

    pub(super) fn ran(&mut self, sample: &Sample, thread: &Thread, of: (Id<Thread>, Option<Id<Stack>>)) {
        let number = self.0.joiner.number(thread);
        self.0.joiner.sample(number, Taken::new(sample, Piece::Ran(of.0, of.1)));
    }

    pub(super) fn settle(&mut self, due: Due, mut out: impl FnMut(&Attributed<'_, Piece>, Within)) {
        self.0.undoubted();
        let Board { joiner, profile, .. } = &mut self.0;
        let mut give = |part: Attributed<'_, Piece>| match part.context {
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

    pub(super) fn finish(mut self) -> Told {
        self.0.nest();
        let Board { joiner, profile, activations, .. } = self.0;
        Told { counts: joiner.counts(), profile, activations }
    }
}

/// Sums by what was done and what that is put together by.
type Grouped = Vec<(Entry, Group, Weight)>;

/// Sums by what was done and where.
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

    /// The same by what spans are put together by, which is named in the second list.
    pub(super) fn grouped(
        self,
        told: Option<&Told>,
        of: Option<&OfSpans>,
        seen: &mut Seen,
    ) -> (Grouped, Vec<Arc<str>>) {
        let (Some(told), Some(of)) = (told, of) else {
            let all = self.0.into_iter().map(|((entry, _), weight)| (entry, Group::NONE, weight));
            return (all.collect(), Vec::new());
        };
        let mut groups = Groups { profile: &told.profile, of, names: Vec::new(), by_name: HashMap::new() };
        let mut known: HashMap<Within, Option<Group>, KeyHash> = HashMap::default();
        let mut sums: HashMap<(Entry, Group), Weight, KeyHash> = HashMap::default();
        for ((entry, within), weight) in self.0 {
            let group = *known.entry(within).or_insert_with(|| groups.of(within));
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

/// What stacks are put on top of; 0 is nothing.
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
    /// `None`: not wanted.
    fn of(&mut self, within: Within) -> Option<Group> {
        let OfSpans { by, only } = self.of;
        let name: Arc<str> = match within {
            Within::Span(key) => match self.profile.entry(key) {
                Some(entry) if !only.passes(self.profile, entry) => return None,
                Some(entry) => match by {
                    Some(by) => group_of(self.profile, entry, by),
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

    /// In no span, or none that is known.
    fn is_other(&self, within: Within) -> bool {
        !matches!(within, Within::Span(key) if self.profile.entry(key).is_some())
    }

    fn is_left_out(&self, within: Within) -> bool {
        within != Within::Nothing && self.is_other(within)
    }
}
