//! Omits frames below a share of the selected samples, and reports how much was omitted.

use flightline_consumer::model::FrameKind;
use flightline_consumer::tree::{Builder, Label, LabelId, NONE, Tree};

/// Replaces omitted frames above a frame, so that no weight is lost or added to another function's self time.
pub const PRUNED: &str = "[narrower]";

/// Omitted frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruned {
    /// Number of frames.
    pub boxes: usize,
    /// Weight of the stacks that end in them.
    pub weight: u64,
    /// Percentage of the total.
    pub percent: f64,
}

/// Returns the frames of `tree` with at least `percent` of its total.
pub fn prune(tree: &Tree, percent: f64) -> (Tree, Pruned) {
    let limit = tree.total as f64 * percent / 100.0;
    let mut builder = Builder::default();
    let labels: Vec<LabelId> = tree.labels.iter().map(|label| builder.label(label.clone())).collect();
    let marker = builder.label(Label { text: PRUNED.into(), module: None, kind: FrameKind::Marker });
    let mut pruned = Pruned { boxes: 0, weight: 0, percent: 0.0 };
    // Weight of stacks without frames.
    let roots = tree.nodes.iter().filter(|node| node.depth == 0).map(|node| node.total);
    builder.weigh(NONE, tree.total.saturating_sub(roots.sum()));
    let mut path: Vec<u32> = Vec::new();
    let mut at = 0;
    while let Some(node) = tree.nodes.get(at) {
        path.truncate(node.depth as usize);
        let below = path.last().copied().unwrap_or(NONE);
        if node.total as f64 >= limit {
            let placed = builder.child(below, labels[node.label.index()]);
            builder.weigh(placed, node.own);
            path.push(placed);
            at += 1;
            continue;
        }
        let left_out = builder.child(below, marker);
        builder.weigh(left_out, node.total);
        pruned.weight = pruned.weight.saturating_add(node.total);
        let end = (node.end as usize).max(at + 1);
        pruned.boxes += end - at;
        at = end;
    }
    if tree.total > 0 {
        pruned.percent = pruned.weight as f64 * 100.0 / tree.total as f64;
    }
    (builder.finish(tree.unit.clone()), pruned)
}

#[cfg(test)]
mod tests {
    use flightline_consumer::folded;

    use super::*;

    fn text(tree: &Tree) -> String {
        let mut out = Vec::new();
        folded::write(tree, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn leaves_below_share_are_merged_and_counted() {
        // 200 leaves of 0.5 % each.
        let many: String = (0..200).map(|leaf| format!("root;parent;leaf{leaf} 5\n")).collect();
        let tree = folded::read(many.as_bytes()).unwrap();
        let (left, pruned) = prune(&tree, 1.0);
        assert_eq!(text(&left), "root;parent;[narrower] 1000\n");
        assert_eq!(pruned, Pruned { boxes: 200, weight: 1000, percent: 100.0 });
        let (all, none) = prune(&tree, 0.5);
        assert_eq!(text(&all), text(&tree));
        assert_eq!(none.boxes, 0);
    }

    #[test]
    fn share_refers_to_selected_total_and_weights_are_preserved() {
        let tree = folded::read(&b"a;b 37\na;c;d 20\na;c;e 1\na 40\nf;g 1\nf 1\n"[..]).unwrap();
        let (left, pruned) = prune(&tree, 10.0);
        assert_eq!(text(&left), "[narrower] 2\na 40\na;b 37\na;c;[narrower] 1\na;c;d 20\n");
        assert_eq!(left.total, tree.total);
        assert_eq!((pruned.boxes, pruned.weight, pruned.percent), (3, 3, 3.0));
    }
}
