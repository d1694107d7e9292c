//! Encodes spans, threads and activations as the page's columns.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;
use serde_json::{Map, Value, json};

use super::{TraceView, exact};
use crate::spans::SpanKey;
use crate::spans::moments::Moments;
use crate::spans::trace::Line;

/// The span was inferred; its end is not recorded; it continues in an open activation.
const INFERRED: u32 = 1;
const UNTIMED: u32 = 2;
const OPEN: u32 = 4;

/// Columns of the page.
pub(super) struct Columns {
    /// Start and end of the trace, in ns since 1970.
    pub(super) from: i64,
    pub(super) to: i64,
    /// Position of each recorded span.
    pub(super) line_of: HashMap<SpanKey, usize, KeyHash>,
    pub(super) names: Vec<Arc<str>>,
    pub(super) spans: Value,
    pub(super) lanes: Value,
    pub(super) scopes: Value,
}

/// Distinct names.
#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, usize>,
    all: Vec<Arc<str>>,
}

impl Names {
    fn number(&mut self, name: &Arc<str>) -> usize {
        *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.all.push(name.clone());
            self.all.len() - 1
        })
    }
}

impl Columns {
    pub(super) fn new(view: &TraceView<'_>) -> Self {
        let TraceView { profile, lines, moments, .. } = *view;
        let line_of: HashMap<SpanKey, usize, KeyHash> =
            lines.iter().enumerate().filter_map(|(at, line)| Some((line.key?, at))).collect();
        let times = times(lines, moments, &line_of);
        let known = || times.iter().flatten();
        let from = known().map(|(start, ..)| *start).min().unwrap_or(0);
        let to = known().map(|(_, end, _)| *end).max().unwrap_or(from).max(from.saturating_add(1));
        let mut names = Names::default();
        let mut lane_of: HashMap<Arc<str>, usize> = HashMap::new();
        for (at, thread) in moments.lanes.iter().enumerate() {
            lane_of.entry(thread.name().into()).or_insert(at);
        }
        let ns = |time: i64| exact(u64::try_from(time.saturating_sub(from)).unwrap_or(0));
        let mut columns: [Vec<Value>; 14] = Default::default();
        let (mut labels, mut callers) = (Map::new(), Map::new());
        for (at, line) in lines.iter().enumerate() {
            let (start, end, open) = times[at].unwrap_or((from, from, false));
            let flags = u32::from(line.key.is_none()) * INFERRED
                + u32::from(!line.timed) * UNTIMED
                + u32::from(open) * OPEN;
            let spent = &line.spent;
            // An inferred span is on one thread; a recorded one is on the threads of its activations.
            let lane = line.thread.as_ref().and_then(|name| lane_of.get(name)).filter(|_| line.key.is_none());
            let id = match (line.key, line.inferred) {
                (Some(key), _) => key.to_string(),
                (None, id) => format!("{:016x}", id.unwrap_or(0)),
            };
            let values = [
                json!(names.number(&line.name)),
                json!(line.depth),
                ns(start),
                ns(end),
                json!(flags),
                json!(id),
                lane.map_or(json!(-1), |lane| json!(lane)),
                exact(spent.samples),
                exact(spent.cpu),
                exact(spent.wall),
                exact(spent.off_cpu),
                exact(spent.allocated),
                exact(spent.lock),
                exact(spent.io),
            ];
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
            let of_key = line.key.and_then(|key| profile.entry(key));
            if let Some(entry) = of_key.filter(|entry| !entry.labels.is_empty()) {
                let all = entry.labels.iter().map(|(key, value)| (key.to_string(), json!(**value)));
                labels.insert(at.to_string(), Value::Object(all.collect()));
            }
            if !line.callers.is_empty() {
                callers.insert(at.to_string(), line.callers.iter().map(|name| json!(**name)).collect());
            }
        }
        let keys = [
            "name", "depth", "start", "end", "flags", "id", "lane", "samples", "cpu", "wall", "off", "alloc",
            "lock", "io",
        ];
        let mut spans: Map<String, Value> = keys
            .into_iter()
            .zip(columns)
            .map(|(key, column)| (key.to_owned(), Value::Array(column)))
            .collect();
        spans.insert("labels".into(), Value::Object(labels));
        spans.insert("callers".into(), Value::Object(callers));
        let mut scopes: [Vec<Value>; 5] = Default::default();
        for (lane, scope) in moments.scopes.iter().chain(&moments.others) {
            // A span of the trace by its position; a span of another trace by its name, as -1 and below.
            let of = match line_of.get(&scope.span) {
                Some(&line) => json!(line),
                None => {
                    let name = profile.entry(scope.span).map_or("[another span]", |entry| entry.name());
                    json!(-1 - names.number(&name.into()) as i64)
                }
            };
            let values =
                [json!(lane), of, ns(scope.start), ns(scope.end.min(to)), json!(u8::from(scope.open))];
            if scope.end >= from && scope.start <= to {
                scopes.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
            }
        }
        let keys = ["lane", "span", "start", "end", "open"];
        let scopes = keys
            .into_iter()
            .zip(scopes)
            .map(|(key, column)| (key.to_owned(), Value::Array(column)))
            .collect();
        let lanes = moments
            .lanes
            .iter()
            .map(|thread| json!({"name": thread.name(), "id": thread.os_id, "process": thread.group.as_deref()}))
            .collect();
        Self { from, to, line_of, names: names.all, spans: Value::Object(spans), lanes, scopes }
    }
}

/// Returns start and end of each span, as recorded or derived from its activity, and whether it
/// continues.
fn times(
    lines: &[Line],
    moments: &Moments,
    line_of: &HashMap<SpanKey, usize, KeyHash>,
) -> Vec<Option<(i64, i64, bool)>> {
    let mut times: Vec<Option<(i64, i64, bool)>> = lines
        .iter()
        .map(|line| (line.timed || line.time.0 > 0).then_some((line.time.0, line.time.1, false)))
        .collect();
    for (_, scope) in &moments.scopes {
        let Some(&at) = line_of.get(&scope.span) else { continue };
        if !lines[at].timed {
            let (start, end, open) = times[at].unwrap_or((scope.start, scope.end, false));
            times[at] = Some((start.min(scope.start), end.max(scope.end), open || scope.open));
        }
    }
    times
}
