//! A trace as a self-contained HTML page: its spans as bars, the activity of its threads, and the flame
//! graph of any span.
//!
//! Spans are encoded as JSON columns, calls as in the page of a flame graph, and samples as varints in
//! base64. For each thread these are the number of samples, then for each sample: time since the sample
//! before, duration, span and box (both from 1, 0 means none), kind, number of samples that it
//! represents, and value. Times are in ns after the start of the trace.

mod columns;

use std::collections::HashMap;
use std::io::Write;

use jfr_format::pool::KeyHash;
use jfr_format::varint;
use serde_json::{Value, json};

use super::html;
use super::java::Java;
use super::page::{self, FLAME, PARTS, base64};
use crate::error::Error;
use crate::fold;
use crate::model::{Id, Stack};
use crate::print::clock;
use crate::spans::moments::{Activity, Moment, Moments};
use crate::spans::trace::Line;
use crate::spans::{Profile, SpanKey, TraceId};
use columns::Columns;

const PAGE: &str = include_str!("trace.html");
const STYLE: &str = concat!(include_str!("../page.css"), include_str!("trace.css"));
const SCRIPT: &[&str] = &[
    PARTS,
    FLAME,
    include_str!("model.js"),
    include_str!("bars.js"),
    include_str!("lanes.js"),
    include_str!("details.js"),
    include_str!("trace.js"),
];

/// Maximum number of spans on a page. Only visible spans are drawn.
pub const MOST_SPANS: usize = 1 << 17;

/// The data of a page.
#[derive(Clone, Copy, Debug)]
pub struct TraceView<'a> {
    /// Resolves handles.
    pub profile: &'a Profile,
    /// The trace.
    pub trace: TraceId,
    /// Its spans; parents precede their children.
    pub lines: &'a [Line],
    /// Number of spans that were left out.
    pub left_out: u64,
    /// Activations and samples.
    pub moments: &'a Moments,
}

/// Draws a trace.
///
/// # Errors
/// There are no spans, or `out` cannot be written.
pub fn write(view: &TraceView<'_>, out: &mut impl Write) -> Result<(), Error> {
    if view.lines.is_empty() {
        return Err(Error::NoSamples);
    }
    let Moments { samples, .. } = view.moments;
    let mut numbers: HashMap<Option<Id<Stack>>, u32, KeyHash> = HashMap::default();
    let mut stacks = Vec::new();
    for moment in samples {
        numbers.entry(moment.stack).or_insert_with(|| {
            stacks.push(moment.stack);
            stacks.len() as u32 - 1
        });
    }
    let (calls, ends) = fold::calls(&view.profile.model, stacks.into_iter());
    let columns = Columns::new(view);
    let box_of = |moment: &Moment| ends.get(*numbers.get(&moment.stack)? as usize).copied();
    let root = view.lines.first().map_or("", |line| &*line.name);
    let title = format!("{root} · trace {}", view.trace);
    let (names, modules, kinds) = html::frames(calls.labels.iter(), &Java::default());
    let about = json!({
        "trace": view.trace.to_string(),
        "began": clock::iso(columns.from),
        "lasts": columns.to.saturating_sub(columns.from),
        "spans": columns.spans,
        "spanNames": columns.names.iter().map(|name| &**name).collect::<Vec<&str>>(),
        "lanes": columns.lanes,
        "scopes": columns.scopes,
        "frames": {"names": names, "modules": modules, "kinds": kinds, "count": calls.nodes.len()},
        "samples": samples.len(),
        "leftOut": {
            "spans": view.left_out, "samples": view.moments.samples_left_out, "scopes": view.moments.scopes_left_out,
        },
    });
    let moments = pack(view.moments, columns.from, &columns.line_of, box_of);
    let data = [
        ("about", about.to_string()),
        ("calls", base64(&html::boxes(&calls, |label| label as u64))),
        ("moments", base64(&moments)),
    ];
    page::write(PAGE, &title, STYLE, SCRIPT, &data, out)
}

/// Returns the code of a sample's kind on the page: the order of `WHAT` in model.js.
fn code(what: Activity) -> u64 {
    match what {
        Activity::Cpu => 0,
        Activity::Running => 1,
        Activity::Waiting => 2,
        Activity::Allocation => 3,
        Activity::Lock => 4,
        Activity::Io => 5,
        Activity::Other => 6,
    }
}

fn pack(
    moments: &Moments,
    from: i64,
    line_of: &HashMap<SpanKey, usize, KeyHash>,
    box_of: impl Fn(&Moment) -> Option<u32>,
) -> Vec<u8> {
    let mut by_lane: Vec<Vec<&Moment>> = vec![Vec::new(); moments.lanes.len()];
    for moment in &moments.samples {
        by_lane[moment.lane].push(moment);
    }
    let mut bytes = Vec::with_capacity(moments.samples.len() * 10);
    for lane in by_lane {
        varint::put(&mut bytes, lane.len() as u64);
        let mut before = from;
        for moment in lane {
            // Ordered, and not before the start.
            let time = moment.time.max(before);
            let number = |n: i64| u64::try_from(n).unwrap_or(0);
            let (span, node) = (line_of.get(&moment.span).map_or(0, |&line| line as u64 + 1), box_of(moment));
            let all = [
                number(time.saturating_sub(before)),
                number(moment.lasts),
                span,
                node.map_or(0, |node| u64::from(node) + 1),
                code(moment.what),
                moment.count,
                moment.value,
            ];
            all.into_iter().for_each(|n| varint::put(&mut bytes, n));
            before = time;
        }
    }
    bytes
}

/// Limits a value to the integers that a page represents exactly.
fn exact(value: u64) -> Value {
    json!(value.min(1 << 53))
}
