//! Differential flame graph. Boxes have their widths in one of the two profiles and are coloured by their
//! change. Stacks that exist only in the other profile are in a separate region to the right, so nothing
//! is missing.

use std::io::Write;

pub(super) mod ratio;

use super::chain;
use super::svg::{self, BackgroundColor, Bar, Color, Paint, SvgOptions, thousands};
use crate::amount;
use crate::difference::{Change, Difference};
use crate::error::Error;
use crate::tree::Tree;
pub use ratio::Ratio;

/// Options for drawing a difference.
#[derive(Clone, Debug, Default)]
pub struct DifferenceOptions {
    /// Options of the SVG.
    pub svg: SvgOptions,
    /// Use the widths of the first profile, with stacks that exist only in the second in the region.
    pub before: bool,
    /// Colour by the stacks that end in a box, without callees.
    pub own: bool,
    /// Use orange and purple instead of red and blue, for colour-blind people.
    pub color_blind: bool,
    /// Compare two counters of one profile, the second divided by the first. They are normalized, and
    /// widths are those of the second.
    pub ratio: Option<Ratio>,
}

/// Integers per unit of a weight that is not an integer.
const PARTS: f64 = 1000.0;
/// Integers up to this are exact as floats.
const EXACT: f64 = 9e15;
/// Grey for unchanged boxes. It varies by name, so that adjacent boxes can be distinguished.
const UNCHANGED: u8 = 225;
const REGION: [u8; 3] = [180; 3];

/// Writes `frame;frame before after`, the first scaled, with at most two decimals, or as many as the unit
/// has.
///
/// # Errors
/// `out` cannot be written.
pub fn folded(difference: &Difference, out: &mut impl Write) -> Result<(), Error> {
    let Difference { before, after, .. } = difference;
    let names: Vec<String> = after.labels.iter().map(|label| crate::folded::clean(&label.text)).collect();
    let (_, of_unit) = amount::decimals(&after.unit);
    let part = 10f64.powi(of_unit as i32);
    let mut path: Vec<&str> = Vec::new();
    for (at, (b, a)) in before.nodes.iter().zip(&after.nodes).enumerate() {
        path.truncate(a.depth as usize);
        path.push(&names[a.label.index()]);
        if b.own > 0 || a.own > 0 {
            let Change { before, .. } = difference.own_box_change(at);
            let before = decimals(before / part, of_unit.max(2));
            write!(out, "{} {before} ", path.join(";")).map_err(Error::Write)?;
            amount::write_decimal(a.own, of_unit, out).map_err(Error::Write)?;
            out.write_all(b"\n").map_err(Error::Write)?;
        }
    }
    Ok(())
}

/// Formats a value with at most `most` decimals.
fn decimals(value: f64, most: u32) -> String {
    let text = format!("{value:.*}", most as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws the second of two profiles, or the first, with growth in red and decline in blue.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn svg(difference: &Difference, options: &DifferenceOptions, out: &mut impl Write) -> Result<(), Error> {
    let layout = Layout::new(difference, options.before);
    let mut svg = options.svg.clone();
    svg.factor /= layout.parts;
    let most = if options.ratio.is_some() { 1.0 } else { layout.most(difference, options.own) };
    if svg.background.is_none() {
        svg.background = Some(BackgroundColor::Flat(Color::new(255, 255, 255)));
    }
    let paint = |at: Option<usize>| {
        let Some(at) = at else { return Paint { fill: Some(REGION), title: None } };
        let Some(of) = layout.source[at] else {
            let title = layout.region_title(difference, options.ratio.as_ref());
            return Paint { fill: Some(REGION), title: Some(title) };
        };
        let (change, alone) = (difference.box_change(of), difference.own_box_change(of));
        let name = &difference.after.label(&difference.after.nodes[of]).text;
        // In the region, boxes of both profiles are shown only as parents of the others.
        let shared = layout.region.is_some_and(|region| at > region) && {
            let (before, after) = (&difference.before.nodes[of], &difference.after.nodes[of]);
            before.total > 0 && after.total > 0
        };
        let fill = if options.own { alone } else { change };
        let amount = match &options.ratio {
            Some(_) => Ratio::tint(fill),
            None => Some(fill.delta()).filter(|_| !fill.noise),
        };
        let fill = amount.filter(|_| !shared).and_then(|amount| color(amount, most, options.color_blind));
        let title = match &options.ratio {
            Some(ratio) => ratio.title(name, if options.own { alone } else { change }, difference),
            None => title(name, change, alone, difference),
        };
        Paint { fill: Some(fill.unwrap_or([UNCHANGED - chain::hue(name) % 20; 3])), title: Some(title) }
    };
    let unit = difference.after.unit.as_str();
    svg::bars(&layout.bars, &layout.texts, unit, &svg, &paint, out)
}

/// Writes one self-contained page with all views of a flame graph for the difference.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn page(difference: &Difference, options: &DifferenceOptions, out: &mut impl Write) -> Result<(), Error> {
    super::html::write_difference(difference, options, out)
}

/// Boxes in drawing order.
struct Layout {
    bars: Vec<Bar>,
    /// By box: its position in the trees; `None` for the root of the region.
    source: Vec<Option<usize>>,
    texts: Vec<String>,
    /// Position of the region, if there is one; it is the last.
    region: Option<usize>,
    /// Factor of the weights.
    parts: f64,
    before: bool,
}

impl Layout {
    fn new(difference: &Difference, before: bool) -> Self {
        let (drawn, other) = match before {
            false => (&difference.after, &difference.before),
            true => (&difference.before, &difference.after),
        };
        let [of_drawn, of_other] = if before { [difference.scale, 1.0] } else { [1.0, difference.scale] };
        let sum = drawn.total as f64 * of_drawn + other.total as f64 * of_other;
        let whole = [of_drawn, of_other].iter().all(|scale| scale.fract() == 0.0);
        let parts = if whole || sum * PARTS > EXACT { 1.0 } else { PARTS };
        let mut texts: Vec<String> = drawn.labels.iter().map(|label| svg::name(&label.text)).collect();
        let mut layout =
            Self { bars: Vec::new(), source: Vec::new(), texts: Vec::new(), region: None, parts, before };
        layout.put(drawn, &totals(drawn, |_| true), of_drawn, 0);
        let only = totals(other, |at| drawn.nodes[at].total == 0);
        let roots = other.nodes.iter().zip(&only).filter(|(node, _)| node.depth == 0);
        let missing: u64 = roots.map(|(_, (_, total))| *total).sum();
        if missing > 0 {
            let total = layout.scaled(missing, of_other);
            layout.region = Some(layout.bars.len());
            layout.bars.push(Bar { depth: 0, own: 0, total, text: texts.len() });
            layout.source.push(None);
            texts.push(if before { "[only after]" } else { "[only before]" }.to_owned());
            layout.put(other, &only, of_other, 1);
        }
        layout.texts = texts;
        layout.sum_up();
        layout
    }

    /// Rounds a weight; only 0 becomes 0.
    fn scaled(&self, weight: u64, scale: f64) -> u64 {
        let scaled = weight as f64 * scale * self.parts;
        if weight > 0 { (scaled.round() as u64).max(1) } else { 0 }
    }

    fn put(&mut self, tree: &Tree, weights: &[(u64, u64)], scale: f64, lifted: u32) {
        for (at, (node, &(own, total))) in tree.nodes.iter().zip(weights).enumerate() {
            if total > 0 {
                let own = self.scaled(own, scale);
                self.bars.push(Bar { depth: node.depth + lifted, own, total: 0, text: node.label.index() });
                self.source.push(Some(at));
            }
        }
    }

    /// Adds up the rounded weights, so that widths are consistent.
    fn sum_up(&mut self) {
        let mut sums: Vec<u64> = Vec::new();
        for bar in self.bars.iter_mut().rev() {
            let depth = bar.depth as usize;
            sums.resize(sums.len().max(depth + 2), 0);
            bar.total = bar.own.saturating_add(std::mem::take(&mut sums[depth + 1]));
            sums[depth] = sums[depth].saturating_add(bar.total);
        }
    }

    /// Returns the largest significant change of a box.
    fn most(&self, difference: &Difference, own: bool) -> f64 {
        let change =
            |&of: &usize| if own { difference.own_box_change(of) } else { difference.box_change(of) };
        let changes = self.source.iter().flatten().map(change).filter(|change| !change.noise);
        changes.map(|change| change.delta().abs()).fold(0.0, f64::max)
    }

    fn region_title(&self, difference: &Difference, ratio: Option<&Ratio>) -> String {
        if let Some(Ratio { of, over }) = ratio {
            let part = difference.vanished() / difference.whole() * 100.0;
            return format!("paths that have {over}, but no {of} ({part:.2}% of the {over})");
        }
        let (weight, which) = match self.before {
            false => (difference.vanished(), "first"),
            true => (difference.appeared(), "second"),
        };
        format!(
            "paths that only the {which} profile has ({} {}, {:.2}%)",
            thousands(weight.round() as u64),
            difference.after.unit,
            weight / difference.whole() * 100.0
        )
    }
}

/// By box: its own weight if it is selected, and the sum including the boxes above it.
fn totals(tree: &Tree, chosen: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
    let mut weights: Vec<(u64, u64)> = Vec::with_capacity(tree.nodes.len());
    let mut sums: Vec<u64> = Vec::new();
    for (at, node) in tree.nodes.iter().enumerate().rev() {
        let depth = node.depth as usize;
        sums.resize(sums.len().max(depth + 2), 0);
        let own = if chosen(at) { node.own } else { 0 };
        let total = own.saturating_add(std::mem::take(&mut sums[depth + 1]));
        sums[depth] = sums[depth].saturating_add(total);
        weights.push((own, total));
    }
    weights.reverse();
    weights
}

/// Red or orange for growth, blue or purple for decline, paler for smaller changes; `None` for no change.
fn color(delta: f64, most: f64, color_blind: bool) -> Option<[u8; 3]> {
    if delta == 0.0 || most <= 0.0 {
        return None;
    }
    let full: [f64; 3] = match (delta > 0.0, color_blind) {
        (true, false) => [230.0, 30.0, 30.0],
        (false, false) => [40.0, 70.0, 230.0],
        (true, true) => [230.0, 97.0, 1.0],
        (false, true) => [94.0, 60.0, 153.0],
    };
    // The square root makes small changes visible; the smallest one is distinct from white.
    let strength = 0.2 + 0.8 * (delta.abs() / most).min(1.0).sqrt();
    Some(full.map(|full| (255.0 + (full - 255.0) * strength).round() as u8))
}

/// Formats a change in percent with its sign; without a sign if it rounds to zero.
pub fn signed_percent(percent: f64) -> String {
    let text = format!("{percent:+.2}%");
    if text.trim_start_matches(['+', '-']) == "0.00%" { "0.00%".to_owned() } else { text }
}

/// Tooltip of a box.
fn title(name: &str, total: Change, own: Change, difference: &Difference) -> String {
    let whole = difference.whole();
    let part = |change: Change| {
        let noise = if change.noise && change.delta() != 0.0 { ", within noise" } else { "" };
        format!(
            "{} → {} {}, {:.2}% → {:.2}%, {}{noise}",
            thousands(change.before.round() as u64),
            thousands(change.after.round() as u64),
            difference.after.unit,
            change.before / whole * 100.0,
            change.after / whole * 100.0,
            signed_percent(change.delta() / whole * 100.0),
        )
    };
    if own.before == 0.0 && own.after == 0.0 {
        return format!("{name} ({})", part(total));
    }
    format!("{name} ({}; itself {})", part(total), part(own))
}

#[cfg(test)]
#[path = "difference/tests.rs"]
mod tests;
