//! Colours of chain graphs: off-CPU stacks, and above a delimiter those of what woke them.

use crate::tree::Tree;

/// Between a stack and its waker.
const WOKEN: &str = "--";
/// Between a waker and its own waker.
const BETWEEN: &str = "-";

/// The colour of each box: blue for what waited, aqua for its wakers, greys for the delimiters, dark and light.
pub(super) fn colors(tree: &Tree) -> Vec<[u8; 3]> {
    // By depth: whether a waker is there or below it.
    let mut waker: Vec<bool> = Vec::new();
    let color = |node: &crate::tree::Node| {
        let text = &*tree.label(node).text;
        // Annotated by the tool that made the chains; its delimiters are delimiters all the same.
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

/// Any number, the same for the same name (FNV-1a).
pub(super) fn hue(name: &str) -> u8 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 24) as u8
}
