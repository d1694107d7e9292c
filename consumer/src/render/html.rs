//! A self-contained HTML page with the whole tree, without network access.
//!
//! Boxes are encoded in tree order as [`columns`]. [`Times`] adds the time of each sample. Columns and
//! names are compressed with deflate and encoded in base64. The page computes the totals, so nothing is
//! left out and search percentages are exact. Siblings are in order of names, so the same stacks give the
//! same bytes for any input order.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use jfr_format::varint;
use serde_json::{Value, json};

use super::PictureOptions;
use super::columns;
use super::difference::DifferenceOptions;
use super::difference::ratio::FULLEST;
use super::java::Java;
use super::page::{self, FLAME, PARTS, base64};
use super::times::Times;
use crate::difference::Difference;
use crate::error::Error;
use crate::latency::Summary;
use crate::model::FrameKind;
use crate::tree::{Label, Tree, aligned};

const PAGE: &str = include_str!("profile/profile.html");
const STYLE: &str = concat!(include_str!("page.css"), include_str!("profile/profile.css"));
const SCRIPT: &[&str] = &[
    PARTS,
    FLAME,
    include_str!("profile/columns.js"),
    include_str!("profile/data.js"),
    include_str!("flame/ordered.js"),
    include_str!("profile/merge.js"),
    include_str!("profile/change.js"),
    include_str!("profile/state.js"),
    include_str!("profile/filters.js"),
    include_str!("profile/latency.js"),
    include_str!("profile/transform.js"),
    include_str!("profile/lasting.js"),
    include_str!("profile/times.js"),
    include_str!("profile/heat.js"),
    include_str!("profile/cpu.js"),
    include_str!("profile/chart.js"),
    include_str!("profile/linked.js"),
    include_str!("profile/ratio.js"),
    include_str!("profile/rows.js"),
    include_str!("profile/table.js"),
    include_str!("profile/outline.js"),
    include_str!("profile/keys.js"),
    include_str!("profile/map.js"),
    include_str!("profile/menu.js"),
    include_str!("profile/derived.js"),
    include_str!("profile/warm.js"),
    include_str!("profile/framed.js"),
    include_str!("profile/page.js"),
];

/// The largest integer that a page represents exactly.
pub(super) const EXACT: u64 = 1 << 53;

/// An event of a page.
#[derive(Clone, Debug)]
pub struct Event {
    /// The name in the page's list of events.
    pub name: String,
    /// The line below the headline while the event is shown; `None`: that of the page.
    pub subtitle: Option<String>,
    /// Its stacks, by each measure. The first measure is the initial one.
    pub measures: Vec<Tree>,
    /// The durations of its samples, if they have durations; the page shows percentiles and a histogram.
    pub latency: Option<Summary>,
}

/// The events of a page, over the same boxes: the union of all boxes. A box without weight is not drawn.
#[derive(Clone, Debug)]
pub struct Events {
    events: Vec<Event>,
    java: Java,
}

impl Events {
    /// Merges the boxes of all events. `java` describes their Java code.
    pub fn new(mut events: Vec<Event>, java: Java) -> Self {
        let all: Vec<&Tree> = events.iter().flat_map(|event| &event.measures).collect();
        let first = all.first().copied();
        if first.is_some_and(|first| !all.iter().all(|tree| same_boxes(first, tree))) {
            let mut merged = aligned(&all).into_iter();
            for tree in events.iter_mut().flat_map(|event| &mut event.measures) {
                if let Some(merged) = merged.next() {
                    *tree = merged;
                }
            }
        }
        Self { events, java }
    }

    /// Returns the name of the event at a position.
    pub fn name(&self, at: usize) -> &str {
        self.events.get(at).map_or("", |event| &event.name)
    }

    /// Returns the trees of each event; all have the same boxes.
    pub fn trees(&self) -> Vec<Vec<&Tree>> {
        self.events.iter().map(|event| event.measures.iter().collect()).collect()
    }
}

/// Draws `tree` as a page.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write(tree: &Tree, options: &PictureOptions, out: &mut impl Write) -> Result<(), Error> {
    write_measures(&[tree], &Java::default(), None, options, out)
}

/// Draws one event by several measures, between which the page can switch. All trees must have the same
/// stacks, as trees do that are folded from one model with options that differ in the measure; other
/// trees are left out. `java` describes their Java code; `times` has one event.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write_measures(
    measures: &[&Tree],
    java: &Java,
    times: Option<&Times>,
    options: &PictureOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    let Some(&first) = measures.first().filter(|tree| tree.total > 0) else {
        return Err(Error::NoSamples);
    };
    let measures: Vec<&Tree> = measures.iter().copied().filter(|tree| same_boxes(first, tree)).collect();
    let shown = [Shown { name: "", subtitle: None, measures, latency: None }];
    put(&shown, java, options, None, &Value::Null, times, out)
}

/// Draws `tree` as a page with a given initial palette (`io`, `wakeup`, `chain`, `doing`, …) instead of
/// colours by kind of code. The page shows `latency`, the durations whose sums are the weights.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write_colored(
    tree: &Tree,
    palette: &str,
    latency: Option<&Summary>,
    options: &PictureOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    if tree.total == 0 {
        return Err(Error::NoSamples);
    }
    let shown = [Shown { name: "", subtitle: None, measures: vec![tree], latency }];
    put(&shown, &Java::default(), options, Some(palette), &Value::Null, None, out)
}

/// Draws events, between which the page can switch. `times` has the same events in the same order.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write_events(
    events: &Events,
    times: Option<&Times>,
    options: &PictureOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    let shown: Vec<Shown> = events
        .events
        .iter()
        .map(|event| Shown {
            name: &event.name,
            subtitle: event.subtitle.as_deref(),
            measures: event.measures.iter().collect(),
            latency: event.latency.as_ref(),
        })
        .collect();
    if shown.iter().flat_map(|event| &event.measures).all(|tree| tree.total == 0) {
        return Err(Error::NoSamples);
    }
    put(&shown, &events.java, options, None, &Value::Null, times, out)
}

/// An [`Event`] whose trees have the union of all boxes.
struct Shown<'t> {
    name: &'t str,
    subtitle: Option<&'t str>,
    measures: Vec<&'t Tree>,
    latency: Option<&'t Summary>,
}

/// Draws two profiles as one page that shows their difference.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub(super) fn write_difference(
    difference: &Difference,
    how: &DifferenceOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    let Difference { before, after, scale, per_sample, sigmas, .. } = difference;
    if before.total == 0 && after.total == 0 {
        return Err(Error::NoSamples);
    }
    let told = json!({
        "scale": scale,
        "perSample": per_sample,
        "sigmas": sigmas,
        "widths": if how.before { "before" } else { "after" },
        "by": if how.own { "self" } else { "inclusive" },
        "colors": if how.color_blind { "change-safe" } else { "change" },
        "ratio": how.ratio.as_ref().map(|ratio| json!({"of": ratio.of, "over": ratio.over, "name": ratio.name(), "fullest": FULLEST})),
    });
    let shown = [Shown { name: "", subtitle: None, measures: vec![after, before], latency: None }];
    put(&shown, &how.svg.java, &how.svg.picture, None, &told, None, out)
}

/// Writes the page, in colours by kind of code unless a palette is given. `difference` describes two
/// profiles that are compared.
fn put(
    events: &[Shown<'_>],
    java: &Java,
    options: &PictureOptions,
    palette: Option<&str>,
    difference: &Value,
    times: Option<&Times>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let measures: Vec<&Tree> = events.iter().flat_map(|event| event.measures.iter().copied()).collect();
    let Some(&first) = measures.first().filter(|tree| !tree.nodes.is_empty()) else {
        return Err(Error::NoSamples);
    };
    let (order, numbers) = by_name(first);
    let measure = |event: usize, tree: &Tree| json!({"event": event, "name": measure_name(tree), "unit": tree.unit, "total": tree.total.min(EXACT)});
    let profile = json!({
        "title": options.title,
        "subtitle": options.subtitle,
        "inverted": options.inverted,
        "palette": palette,
        "application": java.application(first),
        "count": first.nodes.len(),
        "names": order.len(),
        "events": events
            .iter()
            .map(|event| json!({"name": event.name, "subtitle": event.subtitle, "latency": event.latency.map(Summary::to_json)}))
            .collect::<Vec<_>>(),
        "measures": events
            .iter()
            .enumerate()
            .flat_map(|(at, event)| event.measures.iter().map(move |tree| measure(at, tree)))
            .collect::<Vec<_>>(),
        "difference": difference,
        "times": times.map(|times| &times.told),
    });
    let (names, modules, kinds) = frames(order.iter().map(|&label| &first.labels[label]), java);
    let frames = json!({"names": names, "modules": modules, "kinds": kinds}).to_string();
    let columns = columns::encode(&measures, order.len(), |label| numbers[label]);
    // The best compression of boxes and times would take a third more time for 2 % less size.
    let data = [
        ("profile", profile.to_string()),
        ("frames", base64(&deflated(frames.as_bytes(), Compression::best())?)),
        ("boxes", base64(&deflated(&columns, Compression::default())?)),
        (
            "times",
            base64(&times.map_or(Ok(Vec::new()), |times| deflated(&times.columns, Compression::default()))?),
        ),
    ];
    page::write(PAGE, &options.title, STYLE, SCRIPT, &data, out)
}

/// Names a measure by its unit.
fn measure_name(tree: &Tree) -> &str {
    if tree.unit == "ns" { "time" } else { &tree.unit }
}

/// Returns true if both trees have the same boxes, so that weights can be transferred.
fn same_boxes(one: &Tree, other: &Tree) -> bool {
    let boxes = |tree: &Tree| tree.nodes.len();
    boxes(one) == boxes(other)
        && one
            .nodes
            .iter()
            .zip(&other.nodes)
            .all(|(a, b)| a.depth == b.depth && one.label(a) == other.label(b))
}

/// Returns the labels on boxes in order of name, and the rank of each label.
fn by_name(tree: &Tree) -> (Vec<usize>, Vec<usize>) {
    let mut used = vec![false; tree.labels.len()];
    tree.nodes.iter().for_each(|node| used[node.label.index()] = true);
    let mut order: Vec<usize> = (0..used.len()).filter(|&label| used[label]).collect();
    order.sort_unstable_by(|&a, &b| tree.labels[a].in_order(&tree.labels[b]));
    let mut numbers = vec![0; used.len()];
    order.iter().zip(0..).for_each(|(&label, number)| numbers[label] = number);
    (order, numbers)
}

fn deflated(bytes: &[u8], level: Compression) -> Result<Vec<u8>, Error> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), level);
    encoder.write_all(bytes).map_err(Error::Write)?;
    encoder.finish().map_err(Error::Write)
}

/// Returns names, modules and kinds of labels.
pub(super) fn frames<'l>(
    labels: impl Iterator<Item = &'l Label> + Clone,
    java: &Java,
) -> (Vec<&'l str>, Vec<&'l str>, String) {
    let names = labels.clone().map(|label| &*label.text).collect();
    let modules = labels.clone().map(|label| label.module.as_deref().unwrap_or("")).collect();
    (names, modules, labels.map(|label| letter(java.kind(label))).collect())
}

fn letter(kind: FrameKind) -> char {
    match kind {
        FrameKind::Native => 'n',
        FrameKind::Kernel => 'k',
        FrameKind::NativeMethod => 'N',
        FrameKind::Interpreted => 't',
        FrameKind::Compiled => 'j',
        FrameKind::Inlined => 'i',
        FrameKind::Jit => 'J',
        FrameKind::NativeInlined => 'o',
        FrameKind::Class => 'c',
        FrameKind::Marker => 'm',
        FrameKind::Unknown => 'u',
    }
}

/// Encodes a small tree as varints: for each box the levels gone down since the box before, the number of
/// the label, and the own weight.
pub(super) fn boxes(tree: &Tree, number: impl Fn(usize) -> u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tree.nodes.len() * 4);
    let mut expected = 0;
    for node in &tree.nodes {
        varint::put(&mut bytes, u64::from(expected - node.depth));
        expected = node.depth + 1;
    }
    tree.nodes.iter().for_each(|node| varint::put(&mut bytes, number(node.label.index())));
    tree.nodes.iter().for_each(|node| varint::put(&mut bytes, node.own.min(EXACT)));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(folded: &str) -> String {
        let tree = crate::folded::read(folded.as_bytes()).unwrap();
        let options = PictureOptions { title: "<b>&\"".into(), ..PictureOptions::default() };
        let mut page = Vec::new();
        write(&tree, &options, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn markup_in_names_cannot_end_script_element() {
        let page = page("</script><script>alert(1)</script>;{{boxes}} 1");
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("&lt;b&gt;&amp;&quot;"));
        for placeholder in ["title", "policy", "style", "script", "profile", "frames", "boxes", "times"] {
            assert!(!page.contains(&format!("{{{{{placeholder}}}}}")), "{placeholder} is filled");
        }
        let title = "</script>{{frames}}<!--";
        let tree = crate::folded::read("a 1".as_bytes()).unwrap();
        let options = PictureOptions { title: title.into(), ..PictureOptions::default() };
        let mut named = Vec::new();
        write(&tree, &options, &mut named).unwrap();
        let named = String::from_utf8(named).unwrap();
        assert!(
            named.contains("\"title\":\"\\u003c/script>{{frames}}\\u003c!--\""),
            "text of the data is no placeholder"
        );
    }

    #[test]
    fn stack_order_does_not_change_page() {
        let lines = ["main;b;c 3", "main;a 2", "init 1", "main;b;a;c 4", "main;a 5"];
        let pages: Vec<String> = (0..lines.len())
            .map(|first| {
                let turned: Vec<&str> = lines.iter().cycle().skip(first).take(lines.len()).copied().collect();
                page(&turned.join("\n"))
            })
            .collect();
        assert!(pages.iter().all(|other| *other == pages[0]));
    }
}
