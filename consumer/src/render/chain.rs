//! Colours of chain graphs: off-CPU stacks, and above a delimiter the stacks of their wakers.

use super::name_hash::fnv1a;
use crate::tree::Tree;

/// Separates a stack from its waker.
const WOKEN: &str = "--";
/// Separates a waker from its own waker.
const BETWEEN: &str = "-";

/// Returns the colour of each box: blue for waiting stacks, aqua for wakers, light and dark grey for
/// delimiters.
pub(super) fn colors(tree: &Tree) -> Vec<[u8; 3]> {
    // By depth: whether the box there, or one below it, is a waker.
    let mut waker: Vec<bool> = Vec::new();
    let color = |node: &crate::tree::Node| {
        let text = &*tree.label(node).text;
        // The tool that made the chains added the suffix; its delimiters are recognized too.
        let (name, marked) = text.strip_suffix("_[w]").map_or((text, false), |name| (name, true));
        waker.truncate(node.depth as usize);
        let above = waker.last().copied().unwrap_or(false);
        waker.push(above || name == WOKEN);
        let hue = f64::from(hue(name)) / 255.0;
        let tone = |least: f64, range: f64| (least + range * hue) as u8;
        match name {
            WOKEN => [160; 3],
            BETWEEN => [200; 3],
            _ if above || marked => [tone(50.0, 60.0), tone(165.0, 55.0), tone(165.0, 55.0)],
            _ => [tone(80.0, 60.0), tone(80.0, 60.0), tone(205.0, 50.0)],
        }
    };
    tree.nodes.iter().map(color).collect()
}

/// Returns a hash of the name.
pub(super) fn hue(name: &str) -> u8 {
    (fnv1a(name.bytes().map(u32::from)) >> 24) as u8
}
