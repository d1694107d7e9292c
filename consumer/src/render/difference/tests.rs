use super::*;
use crate::difference::Scale;
use crate::folded;

const BEFORE: &str = "gone;leaf 50\nroot;parent;a 100\nroot;parent;b 100\nroot;same 750\n";
const AFTER: &str = "root;parent;a 300\nroot;parent;b 300\nroot;same 750\nroot;fresh 40\n";

fn difference(scale: Scale) -> Difference {
    let tree = |text: &str| folded::read(text.as_bytes()).unwrap();
    Difference::new(&tree(BEFORE), &tree(AFTER), scale)
}

/// Title, left edge and width in percent, and colour of the boxes called `name`.
fn find(picture: &str, name: &str) -> (String, f64, f64, Vec<u8>) {
    let (_, rest) = picture.split_once(&format!("<title>{name} (")).unwrap_or_else(|| panic!("no {name}"));
    let (title, rest) = rest.split_once("</title>").unwrap();
    let value = |name: &str| rest.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
    let percent = |name: &str| value(name).trim_end_matches('%').parse::<f64>().unwrap();
    let fill = value("fill").trim_start_matches("rgb(").trim_end_matches(')');
    let fill = fill.split(',').map(|n| n.parse().unwrap()).collect();
    (title.to_owned(), percent("x"), percent("width"), fill)
}

fn grey(fill: &[u8]) -> bool {
    fill.iter().all(|part| *part == fill[0] && *part <= UNCHANGED)
}

fn drawn(scale: Scale, options: &DifferenceOptions) -> String {
    let mut out = Vec::new();
    svg(&difference(scale), options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn parent_color_reflects_children_and_vanished_paths_have_a_region() {
    let picture = drawn(Scale::By(1.0), &DifferenceOptions::default());
    let (title, .., fill) = find(&picture, "parent");
    assert_eq!(title, "200 → 600 samples, 20.00% → 60.00%, +40.00%)");
    assert_eq!(fill, [231, 38, 38], "next to that of root");
    let a = find(&picture, "a").3;
    assert!(a[0] > a[2] && a[2] > fill[2], "a smaller change is paler: {a:?}");
    assert!(grey(&find(&picture, "same").3));
    // 1390 after, and 50 that existed only before.
    let whole = 1390.0 + 50.0;
    let (_, left, width, fill) = find(&picture, "paths only in the first profile");
    assert!((left - 1390.0 / whole * 100.0).abs() < 1e-3 && (width - 50.0 / whole * 100.0).abs() < 1e-3);
    assert_eq!(fill, REGION);
    let (title, left, _, fill) = find(&picture, "leaf");
    assert!(title.starts_with("50 → 0 samples") && title.contains("-5.00%"), "{title}");
    assert!(left > 96.0 && fill[2] > fill[0], "{left} {fill:?}");
}

#[test]
fn region_colors_only_vanished_frames() {
    let tree = |text: &str| folded::read(text.as_bytes()).unwrap();
    let difference = Difference::new(&tree("f;gone 90\nf;x 10\n"), &tree("f;x 300\n"), Scale::By(1.0));
    let mut out = Vec::new();
    svg(&difference, &DifferenceOptions::default(), &mut out).unwrap();
    let picture = String::from_utf8(out).unwrap();
    let (_, region) = picture.split_once("paths only in").unwrap();
    assert!(grey(&find(region, "f").3) && !grey(&find(&picture, "f").3) && !grey(&find(region, "gone").3));
}

#[test]
fn display_options_change_colors_and_widths() {
    let blind = drawn(Scale::By(1.0), &DifferenceOptions { color_blind: true, ..Default::default() });
    assert_eq!(find(&blind, "root").3, [230, 97, 1]);
    let own = drawn(Scale::By(1.0), &DifferenceOptions { own: true, ..Default::default() });
    assert!(grey(&find(&own, "parent").3));
    assert_eq!(find(&own, "a").3, [230, 30, 30]);
    let first = drawn(Scale::By(1.0), &DifferenceOptions { before: true, ..Default::default() });
    assert!((find(&first, "parent").2 - 200.0 / 1040.0 * 100.0).abs() < 1e-3);
    assert!(find(&first, "fresh").1 > 96.0);
    let normalised = drawn(Scale::Normalized, &DifferenceOptions::default());
    let vanished = 50.0 * 1.39;
    let width = find(&normalised, "paths only in the first profile").2;
    assert!((width - vanished / (1390.0 + vanished) * 100.0).abs() < 1e-2, "{width}");
}

#[test]
fn folded_text_has_both_weights() {
    let mut out = Vec::new();
    folded(&difference(Scale::By(1.0)), &mut out).unwrap();
    let text =
        "gone;leaf 50 0\nroot;fresh 0 40\nroot;parent;a 100 300\nroot;parent;b 100 300\nroot;same 750 750\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);
    let mut out = Vec::new();
    folded(&difference(Scale::Normalized), &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().starts_with("gone;leaf 69.5 0\n"));
}
