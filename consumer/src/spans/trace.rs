//! A trace as text: its nested spans and their times.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ids::{SpanKey, TraceId};
use super::infer::{Inferred, Parent};
use super::profile::{Entry, Profile, Spent};
use super::report::function;

/// A recorded or inferred span of a trace.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number of shown spans around it.
    pub depth: usize,
    /// Its name.
    pub name: Arc<str>,
    /// Its key; `None` if it was inferred.
    pub key: Option<SpanKey>,
    /// Its id if it was inferred.
    pub inferred: Option<u64>,
    /// Start and end in ns since 1970; times of the first and last sample if the end is not recorded.
    pub time: (i64, i64),
    /// True if its time is recorded.
    pub timed: bool,
    /// Name of the thread, if known.
    pub thread: Option<Arc<str>>,
    /// Resources spent in it without its children.
    pub spent: Spent,
    /// Callers merged into an inferred span, nearest first.
    pub callers: Vec<Arc<str>>,
}

/// Maximum number of lines of a trace as text.
pub const MOST_LINES: usize = 10_000;

/// Returns at most `most` spans of a trace, parents before children, and the number of spans left out.
pub fn lines(profile: &Profile, inferred: &[Inferred], trace: TraceId, most: usize) -> (Vec<Line>, u64) {
    let mut spans: Vec<&Entry> = profile.entries.values().filter(|entry| entry.trace == trace).collect();
    spans.sort_by_key(|entry| (entry_time(entry), entry.key));
    let inferred: Vec<&Inferred> = inferred.iter().filter(|span| span.trace == trace).collect();
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Node {
        Nothing,
        Span(SpanKey),
        Inferred(u64),
    }
    let known: HashSet<SpanKey> = spans.iter().map(|entry| entry.key).collect();
    // Links of spans to inferred parents.
    let links: HashMap<SpanKey, u64> =
        inferred.iter().flat_map(|span| span.children.iter().map(|child| (*child, span.id))).collect();
    let mut below: HashMap<Node, Vec<(i64, Node)>> = HashMap::new();
    for entry in &spans {
        let parent = match (links.get(&entry.key), entry.parent.filter(|parent| known.contains(parent))) {
            (Some(&id), _) => Node::Inferred(id),
            (None, Some(parent)) => Node::Span(parent),
            (None, None) => Node::Nothing,
        };
        below.entry(parent).or_default().push((entry_time(entry).0, Node::Span(entry.key)));
    }
    for span in &inferred {
        let parent = match span.parent {
            Parent::Span(key) if known.contains(&key) => Node::Span(key),
            Parent::Span(_) => Node::Nothing,
            Parent::Inferred(id) => Node::Inferred(id),
        };
        below.entry(parent).or_default().push((span.start, Node::Inferred(span.id)));
    }
    let by_id: HashMap<u64, &Inferred> = inferred.iter().map(|span| (span.id, *span)).collect();
    let mut lines = Vec::new();
    let mut todo = vec![(0, Node::Nothing)];
    let mut seen = HashSet::new();
    while let Some((depth, at)) = todo.pop() {
        // A span that contains itself is shown once.
        if !seen.insert(at) || lines.len() >= most {
            continue;
        }
        match at {
            Node::Nothing => {}
            Node::Span(key) => lines.extend(profile.entry(key).map(|entry| entry_line(entry, depth))),
            Node::Inferred(id) => {
                lines.extend(by_id.get(&id).map(|span| inferred_line(profile, span, depth)))
            }
        }
        let Some(mut within) = below.remove(&at) else { continue };
        within.sort_by_key(|(start, _)| *start);
        let depth = if at == Node::Nothing { 0 } else { depth + 1 };
        todo.extend(within.into_iter().rev().map(|(_, of)| (depth, of)));
    }
    let left_out = (spans.len() + inferred.len()).saturating_sub(lines.len()) as u64;
    (lines, left_out)
}

fn entry_time(entry: &Entry) -> (i64, i64) {
    entry.time.unwrap_or(if entry.sampled.0 <= entry.sampled.1 { entry.sampled } else { (0, 0) })
}

fn entry_line(entry: &Entry, depth: usize) -> Line {
    Line {
        depth,
        name: entry.name().into(),
        key: Some(entry.key),
        inferred: None,
        time: entry_time(entry),
        timed: entry.time.is_some() && !entry.open,
        thread: entry.thread.as_ref().map(|thread| thread.name().into()),
        spent: entry.spent,
        callers: Vec::new(),
    }
}

fn inferred_line(profile: &Profile, span: &Inferred, depth: usize) -> Line {
    Line {
        depth,
        name: function(profile, span.frame),
        key: None,
        inferred: Some(span.id),
        time: (span.start, span.end),
        timed: true,
        thread: Some(profile.model.threads.get(span.thread).name().into()),
        spent: Spent { samples: span.samples, ..Spent::default() },
        callers: span.callers.iter().map(|&frame| function(profile, frame)).collect(),
    }
}

/// Draws the time of a span within `from` to `to` as text with `width` columns.
pub fn bar(time: (i64, i64), from: i64, to: i64, width: usize, inferred: bool) -> String {
    let whole = i128::from(to).saturating_sub(i128::from(from)).max(1);
    let column = |time: i64| {
        let part = (i128::from(time) - i128::from(from)).clamp(0, whole);
        usize::try_from(part * width as i128 / whole).unwrap_or(width).min(width)
    };
    let begin = column(time.0).min(width.saturating_sub(1));
    let end = column(time.1).max(begin + 1).min(width);
    let mut text = String::with_capacity(width * 3);
    let fill = if inferred { '░' } else { '█' };
    (0..width).for_each(|at| text.push(if (begin..end).contains(&at) { fill } else { '·' }));
    text
}
