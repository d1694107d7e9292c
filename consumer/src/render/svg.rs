//! SVG flame graphs. inferno does layout, colours and labels; this module adds what it lacks.
//!
//! inferno gets the lines in the tree's order. Boxes that are too narrow to draw become placeholders of
//! the same width, so that no other box moves. Colours and titles that inferno does not support are
//! added to its boxes afterwards; a box is identified by its row and left edge.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

mod options;

use inferno::flamegraph::color::PaletteMap;
pub use inferno::flamegraph::color::{BackgroundColor, Color, SearchColor, StrokeColor, parse_hex_color};
use inferno::flamegraph::{self, FuncFrameAttrsMap};
pub use options::{Colors, MinWidth, SvgOptions};

use super::chain;
use super::java::{Java, Origin, origin};
use super::kinds::{self, Group};
use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::{Label, Tree};

/// Maximum number of boxes; with more, browsers take seconds for each click.
pub const MOST_BOXES: usize = 15_000;
/// Assumed width of an SVG without a fixed width.
const WIDTH: usize = 1200;

/// A box. Boxes precede those above them.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub depth: u32,
    pub own: u64,
    pub total: u64,
    /// Index of the text.
    pub text: usize,
}

/// Replacements for a box's appearance, requested by position, and without a position for the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Paint {
    pub fill: Option<[u8; 3]>,
    /// Tooltip.
    pub title: Option<String>,
}

/// The appearance of an SVG that does not use one of inferno's palettes.
struct Look<'a> {
    paint: &'a dyn Fn(Option<usize>) -> Paint,
    /// Groups of code in the SVG; if empty, it has no legend.
    groups: BTreeSet<Group>,
}

impl<'a> Look<'a> {
    fn new(paint: &'a dyn Fn(Option<usize>) -> Paint) -> Self {
        Self { paint, groups: BTreeSet::new() }
    }
}

/// Draws `tree` as an SVG with zoom and search.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write(tree: &Tree, options: &SvgOptions, out: &mut impl Write) -> Result<(), Error> {
    if tree.total == 0 || tree.nodes.is_empty() {
        return Err(Error::NoSamples);
    }
    let java = tree.labels.iter().any(|label| label.kind.is_java());
    let texts: Vec<String> = tree.labels.iter().map(|label| annotated(label, java, &options.java)).collect();
    let bars: Vec<Bar> = tree
        .nodes
        .iter()
        .map(|node| Bar { depth: node.depth, own: node.own, total: node.total, text: node.label.index() })
        .collect();
    let picture = options.inferno(&tree.unit, options.picture.subtitle.clone(), java);
    match options.colors {
        Colors::Chain => {
            let colors = chain::colors(tree);
            let paint = |at: Option<usize>| Paint { fill: at.map(|at| colors[at]), title: None };
            draw(&bars, &texts, options, picture, Some(&Look::new(&paint)), out)
        }
        Colors::Origin => {
            let application = options.java.application(tree);
            let paint = |at: Option<usize>| {
                let fill = at.map(|at| origin_colour(tree.label(&tree.nodes[at]), &application));
                Paint { fill, title: None }
            };
            draw(&bars, &texts, options, picture, Some(&Look::new(&paint)), out)
        }
        Colors::Auto if options.by_kind() => {
            let kind = |label: &Label| options.java.kind(label);
            let paint = |at: Option<usize>| {
                let fill = at.map_or(kinds::GROUND, |at| {
                    let label = tree.label(&tree.nodes[at]);
                    kinds::color(&label.text, kind(label))
                });
                Paint { fill: Some(fill), title: None }
            };
            let shown = tree.nodes.iter().filter(|node| node.total > 0).map(|node| tree.label(node));
            let groups = shown.filter_map(|label| Group::in_legend(&label.text, kind(label))).collect();
            draw(&bars, &texts, options, picture, Some(&Look { paint: &paint, groups }), out)
        }
        _ => draw(&bars, &texts, options, picture, None, out),
    }
}

/// Returns the colour of a box by its origin.
fn origin_colour(label: &Label, application: &[String]) -> [u8; 3] {
    let tone =
        |least: u8, range: u16| (u16::from(least) + range * u16::from(chain::hue(&label.text)) / 255) as u8;
    match origin(label, application) {
        Some(Origin::Application) => [tone(225, 25), tone(140, 30), tone(60, 30)],
        Some(Origin::Library) => [tone(110, 30), tone(160, 30), tone(220, 25)],
        Some(Origin::Jdk) => [tone(130, 30), tone(195, 25), tone(110, 30)],
        None => [tone(185, 25); 3],
    }
}

/// Draws boxes in the given order.
pub(super) fn bars(
    bars: &[Bar],
    texts: &[String],
    unit: &str,
    options: &SvgOptions,
    paint: &dyn Fn(Option<usize>) -> Paint,
    out: &mut impl Write,
) -> Result<(), Error> {
    let picture = options.inferno(unit, options.picture.subtitle.clone(), false);
    draw(bars, texts, options, picture, Some(&Look::new(paint)), out)
}

/// A stack of a chart: indexes of its texts, root first, and its weight.
pub(super) struct Row {
    pub path: Vec<usize>,
    pub weight: u64,
}

/// The text of a chart's box and its kind of code.
pub(super) struct Text<'a> {
    pub text: String,
    /// The name that determines the colour.
    pub name: &'a str,
    pub kind: FrameKind,
}

/// Draws stacks in the given order.
pub(super) fn rows(
    rows: &[Row],
    texts: &[Text<'_>],
    unit: &str,
    java: bool,
    options: &SvgOptions,
    out: &mut impl Write,
) -> Result<(), Error> {
    // The boxes to draw: adjacent boxes with the same text are merged.
    let mut bars: Vec<Bar> = Vec::new();
    let mut places = HashMap::new();
    let (mut open, mut last, mut left): (Vec<usize>, &[usize], u64) = (Vec::new(), &[], 0);
    for row in rows {
        let is_same = |pair: &(&usize, &usize)| texts[*pair.0].text == texts[*pair.1].text;
        let same = last.iter().zip(&row.path).take_while(is_same).count();
        open.truncate(same);
        for (depth, &text) in row.path.iter().enumerate().skip(same) {
            places.insert((depth, left), bars.len());
            open.push(bars.len());
            bars.push(Bar { depth: depth as u32, own: 0, total: 0, text });
        }
        for &at in &open {
            bars[at].total = bars[at].total.saturating_add(row.weight);
        }
        if let Some(&at) = open.last() {
            bars[at].own = bars[at].own.saturating_add(row.weight);
        }
        last = &row.path;
        left = left.saturating_add(row.weight);
    }
    let mut picture = options.inferno(unit, options.picture.subtitle.clone(), java);
    let (narrowest, hides) = prepare(&bars, options, &mut picture)?;
    let mut text = String::new();
    for row in rows {
        let path: Vec<&str> = row.path.iter().map(|&at| texts[at].text.as_str()).collect();
        text.push_str(&path.join(";"));
        text.push_str(&format!(" {}\n", row.weight));
    }
    if options.colors != Colors::Auto || !options.by_kind() {
        return out
            .write_all(&inferno(picture, &text, options, hides, &BTreeSet::new())?)
            .map_err(Error::Write);
    }
    let group = |bar: &Bar| Group::in_legend(texts[bar.text].name, texts[bar.text].kind);
    let groups = bars.iter().filter(|bar| bar.total > 0).filter_map(group);
    let drawn = inferno(picture, &text, options, hides, &groups.collect())?;
    places.retain(|_, at| bars[*at].total >= narrowest);
    let paint = |at: Option<usize>| {
        let color = |at: usize| kinds::color(texts[bars[at].text].name, texts[bars[at].text].kind);
        Paint { fill: Some(at.map_or(kinds::GROUND, color)), title: None }
    };
    let drawn = String::from_utf8_lossy(&drawn);
    repaint(&drawn, &places, options.picture.inverted, &paint, out).map_err(Error::Write)
}

/// Sets the minimum width of boxes, and mentions what is left out. Returns true if something is left out.
fn prepare(
    bars: &[Bar],
    options: &SvgOptions,
    picture: &mut flamegraph::Options<'static>,
) -> Result<(u64, bool), Error> {
    let roots = bars.iter().filter(|bar| bar.depth == 0);
    let total = roots.fold(0u64, |sum, bar| sum.saturating_add(bar.total));
    if total == 0 {
        return Err(Error::NoSamples);
    }
    let narrowest = narrowest(bars, total, options);
    // A little less than the narrowest box, so that rounding does not remove it.
    picture.min_width = (narrowest as f64 - 0.5).max(0.0) / total as f64 * 100.0;
    let told = left_out_text(bars, narrowest, total);
    let hides = told.is_some();
    picture.subtitle = match (picture.subtitle.take(), told) {
        (Some(subtitle), Some(told)) => Some(format!("{subtitle} · {told}")),
        (subtitle, told) => subtitle.or(told),
    };
    Ok((narrowest, hides))
}

/// Draws stacks with inferno in the given order.
fn inferno(
    mut picture: flamegraph::Options<'static>,
    text: &str,
    options: &SvgOptions,
    hides: bool,
    groups: &BTreeSet<Group>,
) -> Result<Vec<u8>, Error> {
    let of_file = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| {
            Error::Read(std::io::Error::new(error.kind(), format!("{path}: {error}")))
        }
    };
    let mut palette = match &options.palette_file {
        Some(path) => Some(PaletteMap::load_from_file_or_empty(path).map_err(of_file(path))?),
        None => None,
    };
    if let Some(path) = &options.attributes_file {
        picture.func_frameattrs = FuncFrameAttrsMap::from_file(path).map_err(of_file(path))?;
    }
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut with_palette(picture, palette.as_mut()), text.lines().rev(), &mut drawn)
        .map_err(Error::Write)?;
    if let (Some(path), Some(palette)) = (&options.palette_file, &palette) {
        palette.save_to_file(path).map_err(Error::Write)?;
    }
    let drawn = opened(drawn, options.picture.inverted, hides, groups);
    Ok(String::from_utf8(drawn).map_or_else(|e| e.into_bytes(), |drawn| well_formed(drawn).into_bytes()))
}

/// Replaces characters that XML 1.0 forbids even in escaped form (section 2.2), because names, titles and
/// file names may contain any. Control characters become their symbols (U+2400), others U+FFFD.
fn well_formed(text: String) -> String {
    let is_forbidden =
        |c: char| c < ' ' && !['\t', '\n', '\r'].contains(&c) || ['\u{fffe}', '\u{ffff}'].contains(&c);
    if !text.contains(is_forbidden) {
        return text;
    }
    let picture = |c: char| if c < ' ' { char::from_u32(0x2400 + u32::from(c)) } else { None };
    let replace =
        |c: char| if is_forbidden(c) { picture(c).unwrap_or(char::REPLACEMENT_CHARACTER) } else { c };
    text.chars().map(replace).collect()
}

/// Adds the legend, and a script that shows the buttons, which have no function without scripts. An SVG
/// that is higher than the window is scrolled to its roots, near the line with details of the box under
/// the pointer. A search covers only the boxes that are drawn; if boxes are left out, its result is a
/// minimum.
fn opened(mut drawn: Vec<u8>, inverted: bool, hides: bool, groups: &BTreeSet<Group>) -> Vec<u8> {
    const SEARCH: &[u8] = b"<text id=\"search\"";
    const SHOW: &str = "const here=document.currentScript.parentNode;here.querySelector('#search').removeAttribute('display');";
    // inferno draws the button with an opacity of 0.1.
    const STYLE: &str = "<style>#search,#unzoom{opacity:1;text-decoration:underline}#subtitle{fill:#5c5c66}\
        #legend{text-anchor:end}#search.show~#legend,#frames:hover~#legend{display:none}</style>";
    // Not if the SVG is embedded in another page.
    const SCROLL: &str = "if(here===document.documentElement)\
        addEventListener('load',()=>setTimeout(()=>scrollTo(0,here.height.baseVal.value)));";
    const LEAST: &str = "const drawn=search;search=term=>{drawn(term);const said=here.querySelector('#matched').firstChild;\
        said.nodeValue=said.nodeValue.replace('Matched: ','Matched: at least ')};";
    let last = |drawn: &[u8], what: &[u8]| drawn.windows(what.len()).rposition(|bytes| bytes == what);
    // The last occurrences: notes, which may contain anything, come first, and texts are escaped.
    let (Some(search), Some(end)) = (last(&drawn, SEARCH), last(&drawn, b"</svg>")) else { return drawn };
    let (scroll, least) = (if inverted { "" } else { SCROLL }, if hides { LEAST } else { "" });
    let legend = legend(&String::from_utf8_lossy(&drawn[..search]), groups);
    let script = format!("{STYLE}{legend}<script>{{{SHOW}{least}{scroll}}}</script>");
    drawn.splice(end..end, script.into_bytes());
    let at = search + SEARCH.len();
    drawn.splice(at..at, *b" display=\"none\"");
    drawn
}

/// The colours of the groups, to the right of the details line. `head` is the SVG before its buttons.
fn legend(head: &str, groups: &BTreeSet<Group>) -> String {
    let details = head.rfind("<text id=\"details\"").and_then(|at| attribute(&head[at..], "y"));
    let Some(y) = details.filter(|_| !groups.is_empty()) else { return String::new() };
    let mut legend = format!("<text id=\"legend\" x=\"99%\" y=\"{y}\" text-anchor=\"end\">");
    for group in groups {
        let [r, g, b] = group.sample();
        // Writing to a string does not fail.
        let _ =
            write!(legend, "\u{a0}\u{a0}<tspan fill=\"rgb({r},{g},{b})\">■</tspan>\u{a0}{}", group.title());
    }
    legend + "</text>"
}

fn draw(
    bars: &[Bar],
    texts: &[String],
    options: &SvgOptions,
    mut picture: flamegraph::Options<'static>,
    look: Option<&Look<'_>>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let (narrowest, hides) = prepare(bars, options, &mut picture)?;
    let none = BTreeSet::new();
    let groups = look.map_or(&none, |look| &look.groups);
    let drawn = inferno(picture, &lines(bars, texts, narrowest), options, hides, groups)?;
    match look {
        Some(Look { paint, .. }) => {
            let drawn = String::from_utf8_lossy(&drawn);
            let places = places(bars, narrowest);
            repaint(&drawn, &places, options.picture.inverted, paint, out)
        }
        None => out.write_all(&drawn),
    }
    .map_err(Error::Write)
}

/// Limits the lifetime of the options to the borrow of the map.
fn with_palette<'a>(
    picture: flamegraph::Options<'a>,
    palette: Option<&'a mut PaletteMap>,
) -> flamegraph::Options<'a> {
    let mut picture = picture;
    picture.palette_map = palette;
    picture
}

/// Returns the weight of the narrowest box that is drawn.
fn narrowest(bars: &[Bar], total: u64, options: &SvgOptions) -> u64 {
    let share = match options.min_width {
        MinWidth::Percent(percent) => percent / 100.0,
        MinWidth::Pixels(pixels) => pixels / options.width.unwrap_or(WIDTH).max(1) as f64,
    };
    let asked = ((share * total as f64).ceil() as u64).max(1);
    let mut kept: Vec<u64> = bars.iter().map(|bar| bar.total).filter(|&total| total >= asked).collect();
    if kept.len() <= MOST_BOXES {
        return asked;
    }
    let (.., last, _) = kept.select_nth_unstable_by_key(MOST_BOXES, |&total| std::cmp::Reverse(total));
    // Removes the first box beyond the limit, and all boxes of the same width.
    last.saturating_add(1)
}

/// Describes what is left out.
fn left_out_text(bars: &[Bar], narrowest: u64, total: u64) -> Option<String> {
    let hidden = || bars.iter().filter(|bar| bar.total < narrowest && bar.total > 0);
    let boxes = hidden().count();
    let own = hidden().fold(0u64, |sum, bar| sum.saturating_add(bar.own));
    let share = own as f64 / total as f64 * 100.0;
    let boxes_shown = thousands(boxes as u64);
    (boxes > 0).then(|| match boxes {
        1 => format!("{share:.1}% ends in a hidden thin frame"),
        _ => format!("{share:.1}% ends in {boxes_shown} hidden thin frames"),
    })
}

/// `1,234,567`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Folded text of the boxes to draw. Adjacent boxes that are too narrow are merged as long as inferno
/// still leaves the result out, so that the other boxes keep their positions.
fn lines(bars: &[Bar], texts: &[String], narrowest: u64) -> String {
    let mut text = String::new();
    let mut path: Vec<usize> = Vec::new();
    let mut hidden_below = None;
    // For a row of hidden boxes: weight so far, depth, and a number that separates rows.
    let mut row: (u64, u32, u64) = (0, 0, 0);
    let put = |text: &mut String, path: &[usize], last: Option<String>, weight: u64| {
        let names = path.iter().map(|&at| texts[at].as_str()).chain(last.as_deref());
        for (at, name) in names.enumerate() {
            if at > 0 {
                text.push(';');
            }
            text.push_str(name);
        }
        text.push_str(&format!(" {weight}\n"));
    };
    for bar in bars {
        if hidden_below.is_some_and(|depth| bar.depth > depth) {
            continue;
        }
        let hidden = bar.total < narrowest;
        let goes_on = hidden && row.1 == bar.depth && row.0.saturating_add(bar.total) < narrowest;
        if row.0 > 0 && !goes_on {
            path.truncate(row.1 as usize);
            put(&mut text, &path, Some(format!("~{}", row.2)), row.0);
            row = (0, 0, row.2 + 1);
        }
        path.truncate(bar.depth as usize);
        hidden_below = hidden.then_some(bar.depth);
        if hidden {
            row = (row.0 + bar.total, bar.depth, row.2);
            continue;
        }
        path.push(bar.text);
        if bar.own > 0 {
            put(&mut text, &path, None, bar.own);
        }
    }
    if row.0 > 0 {
        path.truncate(row.1 as usize);
        put(&mut text, &path, Some(format!("~{}", row.2)), row.0);
    }
    text
}

/// Returns the box at each depth and left edge.
fn places(bars: &[Bar], narrowest: u64) -> HashMap<(usize, u64), usize> {
    let mut places = HashMap::new();
    // By depth: the left edge of the next box.
    let mut next = vec![0u64];
    for (at, bar) in bars.iter().enumerate() {
        let depth = bar.depth as usize;
        next.truncate(depth + 1);
        let left = next[depth];
        next[depth] = left.saturating_add(bar.total);
        next.push(left.saturating_add(bar.own));
        if bar.total >= narrowest {
            places.entry((depth, left)).or_insert(at);
        }
    }
    places
}

/// Replaces colours and titles in an SVG of inferno.
fn repaint(
    drawn: &str,
    places: &HashMap<(usize, u64), usize>,
    inverted: bool,
    paint: &dyn Fn(Option<usize>) -> Paint,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let number = |element: &str, name: &str| -> Option<u64> { attribute(element, name)?.parse().ok() };
    let rows: BTreeSet<u64> =
        boxes(drawn).filter_map(|(_, rect)| number(&drawn[rect.0..rect.1], "y")).collect();
    let rows: Vec<u64> = if inverted { rows.into_iter().collect() } else { rows.into_iter().rev().collect() };
    let depth_of: HashMap<u64, usize> = rows.into_iter().zip(0..).collect();
    let mut done = 0;
    for (title, rect) in boxes(drawn) {
        let element = &drawn[rect.0..rect.1];
        let (Some(y), Some(x)) = (number(element, "y"), number(element, "fg:x")) else { continue };
        let at = match depth_of.get(&y).map(|depth| depth.checked_sub(1)) {
            // The lowest box is the root.
            Some(None) => None,
            Some(Some(depth)) => match places.get(&(depth, x)) {
                Some(&at) => Some(at),
                None => continue,
            },
            None => continue,
        };
        let Paint { fill, title: told } = paint(at);
        if let Some(told) = told {
            out.write_all(&drawn.as_bytes()[done..title.0])?;
            out.write_all(escaped(&told).as_bytes())?;
            done = title.1;
        }
        if let (Some([r, g, b]), Some(old)) = (fill, attribute(element, "fill")) {
            let from = old.as_ptr().addr() - drawn.as_ptr().addr();
            out.write_all(&drawn.as_bytes()[done..from])?;
            write!(out, "rgb({r},{g},{b})")?;
            done = from + old.len();
        }
    }
    out.write_all(&drawn.as_bytes()[done..])
}

/// Returns the positions of titles and rectangles of boxes.
fn boxes(drawn: &str) -> impl Iterator<Item = ((usize, usize), (usize, usize))> {
    let mut at = drawn.find("id=\"frames\"").unwrap_or(drawn.len());
    std::iter::from_fn(move || {
        let title = at + drawn.get(at..)?.find("<title>")? + "<title>".len();
        let title_end = title + drawn[title..].find("</title>")?;
        let rect = title_end + drawn[title_end..].find("<rect ")?;
        let rect_end = rect + drawn[rect..].find("/>")?;
        at = rect_end;
        Some(((title, title_end), (rect, rect_end)))
    })
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let start = element.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = element.get(start..)?;
    value.get(..value.find('"')?)
}

pub(super) fn escaped(text: &str) -> String {
    well_formed(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Returns a name for inferno, without characters that have a meaning in folded text. If there is Java
/// code, the palette depends on the stackcollapse suffixes, which inferno does not show.
fn annotated(label: &Label, java: bool, code: &Java) -> String {
    let text = name(&label.text);
    let suffix = match code.kind(label) {
        _ if !java => "",
        FrameKind::Kernel => "_[k]",
        FrameKind::Inlined | FrameKind::NativeInlined => "_[i]",
        FrameKind::Interpreted | FrameKind::Compiled | FrameKind::Jit => "_[j]",
        FrameKind::Native
        | FrameKind::NativeMethod
        | FrameKind::Marker
        | FrameKind::Class
        | FrameKind::Unknown => "",
    };
    if text.ends_with(suffix) { text } else { text + suffix }
}

pub(super) fn name(text: &str) -> String {
    let mut name = crate::folded::clean(text);
    if name.trim().is_empty() {
        return "?".into();
    }
    // A number at the end would be parsed as a second weight, and `# ` begins a comment.
    if let Some((start, last)) = name.rsplit_once(' ')
        && last.parse::<f64>().is_ok()
    {
        name = format!("{start}\u{a0}{last}");
    }
    if let Some(rest) = name.strip_prefix("# ") {
        name = format!("#\u{a0}{rest}");
    }
    name
}

#[cfg(test)]
#[path = "svg/tests.rs"]
mod tests;
