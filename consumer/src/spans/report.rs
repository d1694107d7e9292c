//! Tables of resources spent by span name, endpoint, trace or label.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::ids::{SpanKey, TraceId};
use super::infer::Inferred;
use super::profile::{Entry, Profile, Spent};
use crate::model::{Frame, Id};
use crate::view::quantiles::Quantiles;

/// The property that rows are grouped by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// Span name.
    #[default]
    Name,
    /// Endpoint of the local root.
    Endpoint,
    /// Trace.
    Trace,
    /// Value of the label with this name.
    Label(Arc<str>),
}

/// Selects spans.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Names of spans to select, with the spans in them.
    pub names: Vec<String>,
    /// Labels of spans or of their samples to select, with the spans in them.
    pub labels: Vec<(String, String)>,
    /// Trace to select.
    pub trace: Option<TraceId>,
}

/// Maximum depth of nesting; deeper nesting is a cycle or hostile.
const DEEPEST: usize = 256;

impl Filter {
    /// Returns true if all spans pass.
    pub fn is_all(&self) -> bool {
        self.names.is_empty() && self.labels.is_empty() && self.trace.is_none()
    }

    /// Returns true if a span passes.
    pub fn passes(&self, profile: &Profile, entry: &Entry) -> bool {
        if self.trace.is_some_and(|trace| entry.trace != trace) {
            return false;
        }
        let is_named = |entry: &Entry| self.names.iter().any(|name| **name == *entry.name());
        let is_within = self.names.is_empty() || ancestors(profile, entry).any(is_named);
        // A span inherits the labels of spans around it, except those that it sets itself.
        let has = |key: &str| ancestors(profile, entry).find_map(|entry| entry.labels.get(key));
        let is = |(key, value): &(String, String)| has(key).is_some_and(|label| **label == **value);
        is_within && self.labels.iter().all(is)
    }
}

/// Returns a span and its ancestors, innermost first.
pub(super) fn ancestors<'p>(profile: &'p Profile, entry: &'p Entry) -> impl Iterator<Item = &'p Entry> {
    std::iter::successors(Some(entry), |entry| profile.entry(entry.parent?)).take(DEEPEST)
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Value of the grouping property.
    pub name: Arc<str>,
    /// Number of spans.
    pub count: u64,
    /// Number of spans with a known duration.
    pub timed: u64,
    /// Number of spans that were unfinished when last recorded.
    pub open: u64,
    /// Sum of their durations, in ns.
    pub total: u64,
    /// Median duration, in ns.
    pub p50: Option<i64>,
    /// 99th percentile of durations, in ns.
    pub p99: Option<i64>,
    /// Resources spent in them without their children.
    pub spent: Spent,
    /// Function with most samples, and its share.
    pub top: Option<(Arc<str>, f64)>,
}

/// The rows, largest CPU time first, and the totals for shares.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The rows.
    pub rows: Vec<Row>,
    /// Resources spent outside of spans.
    pub outside: Spent,
    /// Resources spent in total.
    pub all: Spent,
}

#[derive(Debug, Default)]
struct Group {
    count: u64,
    total: u64,
    durations: Quantiles,
    timed: u64,
    open: u64,
    spent: Spent,
    /// Samples by function, of CPU time and of wall-clock time.
    functions: [HashMap<Id<Frame>, u64, KeyHash>; 2],
}

/// Placeholder for a label that a span does not have.
pub const NONE: &str = "[none]";

/// Placeholder for the span of samples outside of spans.
pub const NO_SPAN: &str = "[no span]";

/// Returns the group of a span.
pub fn span_group(profile: &Profile, entry: &Entry, by: &GroupBy) -> Arc<str> {
    match by {
        GroupBy::Name => entry.name().into(),
        GroupBy::Endpoint => profile.endpoint(entry).unwrap_or_else(|| "[no endpoint]".into()),
        GroupBy::Trace if entry.trace.is_some() => entry.trace.to_string().into(),
        GroupBy::Trace => NONE.into(),
        // A span inherits the labels of spans around it.
        GroupBy::Label(key) => {
            let label = ancestors(profile, entry).find_map(|entry| entry.labels.get(key).cloned());
            label.unwrap_or_else(|| NONE.into())
        }
    }
}

/// Returns the local roots without a name that contain a named span. A local root that came with a
/// message is a span of another process.
fn in_nameless(profile: &Profile) -> HashSet<SpanKey> {
    let nameless = |entry: &&Entry| {
        entry.name.is_some() && profile.entry(entry.local_root).is_none_or(|root| root.name.is_none())
    };
    profile.entries.values().filter(nameless).map(|entry| entry.local_root).collect()
}

/// Returns true if a span has a name and none of its ancestors has one.
fn is_outermost(profile: &Profile, entry: &Entry) -> bool {
    entry.name.is_some() && !ancestors(profile, entry).skip(1).any(|around| around.name.is_some())
}

/// Returns the table of the spans that pass the filter.
pub fn table(profile: &Profile, by: &GroupBy, filter: &Filter) -> Table {
    let mut groups: HashMap<Arc<str>, Group> = HashMap::new();
    let mut of: HashMap<SpanKey, Arc<str>, KeyHash> = HashMap::default();
    let mut all = profile.outside;
    let within = in_nameless(profile);
    for entry in profile.entries.values() {
        all.add(&entry.spent);
        if !filter.passes(profile, entry) {
            continue;
        }
        let name = span_group(profile, entry, by);
        let group = groups.entry(name.clone()).or_default();
        of.insert(entry.key, name);
        group.spent.add(&entry.spent);
        // By endpoint or trace, counts only spans that are not inside another span of the process.
        let counted = match by {
            GroupBy::Endpoint | GroupBy::Trace if within.contains(&entry.local_root) => {
                is_outermost(profile, entry)
            }
            GroupBy::Endpoint | GroupBy::Trace => {
                entry.local_root == entry.key || profile.entry(entry.local_root).is_none()
            }
            GroupBy::Name | GroupBy::Label(_) => true,
        };
        if counted {
            group.count += 1;
            group.open += u64::from(entry.open);
            if let Some(duration) = entry.duration() {
                group.timed += 1;
                group.durations.add(duration);
                group.total = group.total.saturating_add(u64::try_from(duration).unwrap_or(0));
            }
        }
    }
    all.add(&profile.left_out);
    for ((span, key), weight) in &profile.stacks {
        let group = span.and_then(|span| of.get(&span)).and_then(|name| groups.get_mut(name));
        if let (Some(group), Some(cpu), Some(frame)) = (group, profile.is_cpu(key), profile.leaf(key)) {
            *group.functions[usize::from(!cpu)].entry(frame).or_default() += weight.count;
        }
    }
    let mut rows: Vec<Row> = groups
        .into_iter()
        .map(|(name, mut group)| Row {
            name,
            count: group.count,
            timed: group.timed,
            open: group.open,
            total: group.total,
            p50: group.durations.quantile(0.5).map(|value| value as i64),
            p99: group.durations.quantile(0.99).map(|value| value as i64),
            spent: group.spent,
            top: top(profile, &group.functions),
        })
        .collect();
    rows.sort_by(|a, b| {
        let by = |row: &Row| Reverse((row.spent.cpu, row.spent.wall, row.spent.samples, row.total));
        by(a).cmp(&by(b)).then_with(|| a.name.cmp(&b.name))
    });
    Table { rows, outside: profile.outside, all }
}

fn top(profile: &Profile, functions: &[HashMap<Id<Frame>, u64, KeyHash>; 2]) -> Option<(Arc<str>, f64)> {
    let of = functions.iter().find(|of| !of.is_empty())?;
    let all: u64 = of.values().sum();
    let mut sums: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for (frame, samples) in of {
        *sums.entry(function(profile, *frame)).or_default() += samples;
    }
    let (name, samples) = sums.into_iter().max_by_key(|(name, samples)| (*samples, Reverse(name.clone())))?;
    Some((name, samples as f64 / all.max(1) as f64))
}

/// Returns a function's name, with its class if it is Java.
pub fn function(profile: &Profile, frame: Id<Frame>) -> Arc<str> {
    let Frame { function, class, kind, .. } = profile.model.frames.get(frame);
    match class.is_empty() || kind.in_library() {
        true => function.clone(),
        false => format!("{class}.{function}").into(),
    }
}

/// Inferred spans of one function.
#[derive(Clone, Debug)]
pub struct InferredRow {
    /// The function.
    pub name: Arc<str>,
    /// Name of the recorded span around them.
    pub within: Arc<str>,
    /// Number of inferred spans.
    pub count: u64,
    /// Sum of their durations, in ns.
    pub total: u64,
    /// Median duration, in ns.
    pub p50: i64,
    /// 99th percentile of durations, in ns.
    pub p99: i64,
}

/// Returns inferred spans by function and surrounding span, longest first.
pub fn inferred(profile: &Profile, inferred: &[Inferred], filter: &Filter) -> Vec<InferredRow> {
    type Names = (Arc<str>, Arc<str>);
    let mut groups: HashMap<Names, (u64, u64, Quantiles)> = HashMap::new();
    for span in inferred {
        let entry = profile.entry(span.within);
        if !filter.is_all() && !entry.is_some_and(|entry| filter.passes(profile, entry)) {
            continue;
        }
        let within: Arc<str> = entry.map_or(super::profile::NAMELESS, Entry::name).into();
        let (count, total, durations) = groups.entry((function(profile, span.frame), within)).or_default();
        let duration = span.end.saturating_sub(span.start);
        *count += 1;
        *total = total.saturating_add(u64::try_from(duration).unwrap_or(0));
        durations.add(duration);
    }
    let mut rows: Vec<InferredRow> = groups
        .into_iter()
        .map(|((name, within), (count, total, mut durations))| {
            let mut quantile = |q| durations.quantile(q).unwrap_or(0.0) as i64;
            InferredRow { name, within, count, total, p50: quantile(0.5), p99: quantile(0.99) }
        })
        .collect();
    rows.sort_by(|a, b| (Reverse(a.total), &a.name, &a.within).cmp(&(Reverse(b.total), &b.name, &b.within)));
    rows
}

/// The slowest and the median spans of a name.
#[derive(Clone, Debug)]
pub struct Extremes {
    /// Their name.
    pub name: Arc<str>,
    /// The slowest 5 %, slowest first.
    pub slowest: Vec<SpanKey>,
    /// The spans from the 40th to the 60th percentile.
    pub median: Vec<SpanKey>,
}

/// Returns the slowest and the median spans of a name. Without a name in the filter, selects the name
/// with the largest total time that has at least three spans. `None` if there are too few.
pub fn extremes(profile: &Profile, filter: &Filter) -> Option<Extremes> {
    let mut names: BTreeMap<&str, Vec<(i64, SpanKey)>> = BTreeMap::new();
    for entry in profile.entries.values() {
        let named = filter.names.is_empty() || filter.names.iter().any(|name| **name == *entry.name());
        if let Some(duration) = entry.duration().filter(|_| named && filter.passes(profile, entry)) {
            names.entry(entry.name()).or_default().push((duration, entry.key));
        }
    }
    names.retain(|_, spans| spans.len() >= 3);
    let total = |spans: &[(i64, SpanKey)]| spans.iter().map(|(d, _)| i128::from(*d)).sum::<i128>();
    let (name, mut spans) = names.into_iter().max_by_key(|(name, spans)| (total(spans), Reverse(*name)))?;
    spans.sort_unstable();
    let count = spans.len();
    let keys = |range: std::ops::Range<usize>| spans[range].iter().map(|(_, key)| *key);
    let slowest = keys(count - (count / 20).max(1)..count).rev().collect();
    let median = keys(count * 2 / 5..(count * 3 / 5).max(count * 2 / 5 + 1)).collect();
    Some(Extremes { name: name.into(), slowest, median })
}

/// Returns these spans and their descendants.
pub fn with_descendants(profile: &Profile, of: &[SpanKey]) -> HashSet<SpanKey> {
    let of: HashSet<SpanKey> = of.iter().copied().collect();
    let within = |entry: &&Entry| ancestors(profile, entry).any(|around| of.contains(&around.key));
    profile.entries.values().filter(within).map(|entry| entry.key).collect()
}
