//! Weighted call trees, the data of flame graphs and folded text.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use crate::format;
use crate::model::FrameKind;

/// Marks a truncated stack: its root is missing.
pub const TRUNCATED: &str = "[truncated]";

/// The label of a box.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Name.
    pub text: Arc<str>,
    /// Library or Java class, if it is not part of the name.
    pub module: Option<Arc<str>>,
    /// Kind of code.
    pub kind: FrameKind,
}

impl Label {
    /// Compares siblings: by name, then by module and kind.
    pub fn in_order(&self, other: &Self) -> Ordering {
        (&self.text, &self.module, self.kind).cmp(&(&other.text, &other.module, other.kind))
    }
}

/// Handle of a [`Label`] in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LabelId(u32);

impl LabelId {
    /// Position in [`Tree::labels`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One box: a distinct path from the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Label.
    pub label: LabelId,
    /// Number of boxes below it.
    pub depth: u32,
    /// Weight of the stacks that end here.
    pub own: u64,
    /// Weight of all stacks through here.
    pub total: u64,
    /// Index after the last node above it.
    pub end: u32,
}

/// A finished tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Labels by [`LabelId`].
    pub labels: Vec<Label>,
    /// All boxes; parents precede children, and siblings are ordered by name.
    pub nodes: Vec<Node>,
    /// Weight of all stacks.
    pub total: u64,
    /// Unit of the weights, e.g. `samples`.
    pub unit: String,
}

/// Builds a tree from stacks.
#[derive(Debug, Default)]
pub struct Builder {
    labels: Vec<Label>,
    label_ids: HashMap<Label, LabelId>,
    nodes: Vec<Growing>,
    children: HashMap<(u32, u32), u32, KeyHash>,
    own_of_root: u64,
}

#[derive(Debug)]
struct Growing {
    label: LabelId,
    parent: u32,
    own: u64,
}

/// Means "no parent" and "no child": nodes added to it become roots.
pub const NONE: u32 = u32::MAX;

impl Tree {
    /// Scales the weights to at least this many decimals; see [`crate::format::decimals`].
    pub fn scale_to(&mut self, decimals: u32) {
        let (base, own) = format::decimals(&self.unit);
        let Some(more) = decimals.checked_sub(own).filter(|&more| more > 0) else { return };
        let unit = format::with_decimals(base, decimals);
        let factor = 10u64.saturating_pow(more);
        for node in &mut self.nodes {
            (node.own, node.total) = (node.own.saturating_mul(factor), node.total.saturating_mul(factor));
        }
        self.total = self.total.saturating_mul(factor);
        self.unit = unit;
    }
}

impl Builder {
    /// Creates a builder with capacity for this many nodes.
    pub fn with_room(nodes: usize) -> Self {
        let children = HashMap::with_capacity_and_hasher(nodes, KeyHash::default());
        Self { nodes: Vec::with_capacity(nodes), children, ..Self::default() }
    }

    /// Returns the handle of `label`; adds it if it is new.
    pub fn label(&mut self, label: Label) -> LabelId {
        if let Some(&id) = self.label_ids.get(&label) {
            return id;
        }
        let id = LabelId(self.labels.len() as u32);
        self.labels.push(label.clone());
        self.label_ids.insert(label, id);
        id
    }

    /// Returns the names of all labels, by handle.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| &*label.text)
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a stack, root first.
    pub fn add(&mut self, path: impl IntoIterator<Item = LabelId>, weight: u64) {
        let node = path.into_iter().fold(NONE, |node, label| self.child(node, label));
        self.weigh(node, weight);
    }

    /// Returns the child of `parent` with this label; adds it if it is new. The children of [`NONE`] are
    /// roots.
    pub fn child(&mut self, parent: u32, label: LabelId) -> u32 {
        let next = self.nodes.len() as u32;
        *self.children.entry((parent, label.0)).or_insert_with(|| {
            self.nodes.push(Growing { label, parent, own: 0 });
            next
        })
    }

    /// Adds a child to `parent`, which must not have a child with this label. [`Builder::child`] does not
    /// find it.
    pub fn append(&mut self, parent: u32, label: LabelId) -> u32 {
        self.nodes.push(Growing { label, parent, own: 0 });
        self.nodes.len() as u32 - 1
    }

    /// Returns only the labels.
    pub(crate) fn into_labels(self) -> Vec<Label> {
        self.labels
    }

    /// Adds to the weight of the stacks that end at `node`; for [`NONE`], of stacks without frames.
    pub fn weigh(&mut self, node: u32, weight: u64) {
        let own = match self.nodes.get_mut(node as usize) {
            Some(node) => &mut node.own,
            None => &mut self.own_of_root,
        };
        *own = own.saturating_add(weight);
    }

    /// Multiplies all weights.
    pub(crate) fn multiply(&mut self, factor: u64) {
        let owns = self.nodes.iter_mut().map(|node| &mut node.own).chain([&mut self.own_of_root]);
        owns.for_each(|own| *own = own.saturating_mul(factor));
    }

    /// Sorts the nodes and computes totals. Stacks without frames are only part of the total.
    pub fn finish(self, unit: impl Into<String>) -> Tree {
        self.finish_placed(unit).0
    }

    /// Like [`Self::finish`], and returns the new position of each node.
    pub(crate) fn finish_placed(self, unit: impl Into<String>) -> (Tree, Vec<u32>) {
        let Self { labels, nodes, own_of_root, label_ids, children } = self;
        // Frees memory first: there may be millions of nodes, and the next steps need as much again.
        drop((label_ids, children));
        let totals = totals(&nodes);
        let rank = ranks(&labels);
        // Siblings become adjacent, ordered by name.
        let rank_of = |i: u32| rank[nodes[i as usize].label.index()] as usize;
        let (by_name, _) = sorted_by(0..nodes.len() as u32, labels.len(), rank_of);
        let parent = |i: u32| nodes[i as usize].parent.wrapping_add(1) as usize;
        let (by_parent, first) = sorted_by(by_name.into_iter(), nodes.len() + 1, parent);
        let children = |of: u32| {
            let slot = of.wrapping_add(1) as usize;
            &by_parent[first[slot] as usize..first[slot + 1] as usize]
        };
        let mut sorted: Vec<Node> = Vec::with_capacity(nodes.len());
        let mut positions = vec![0; nodes.len()];
        // A stack of nodes to visit; `true` means that all nodes above have been placed.
        let mut todo: Vec<(u32, u32, bool)> = children(NONE).iter().rev().map(|&i| (i, 0, false)).collect();
        while let Some((index, depth, placed)) = todo.pop() {
            if placed {
                let end = sorted.len() as u32;
                sorted[depth as usize].end = end;
                continue;
            }
            let node = &nodes[index as usize];
            let position = sorted.len() as u32;
            let total = totals[index as usize];
            positions[index as usize] = position;
            sorted.push(Node { label: node.label, depth, own: node.own, total, end: 0 });
            todo.push((index, position, true));
            todo.extend(children(index).iter().rev().map(|&child| (child, depth + 1, false)));
        }
        let roots = sorted.iter().filter(|n| n.depth == 0).map(|n| n.total);
        let total = roots.fold(own_of_root, u64::saturating_add);
        (Tree { labels, nodes: sorted, total, unit: unit.into() }, positions)
    }
}

/// Converts trees to the union of their labels and boxes. Boxes that a tree did not have get weight 0.
pub fn aligned(trees: &[&Tree]) -> Vec<Tree> {
    let mut builder = Builder::default();
    let mut place = |tree: &Tree| -> Vec<u32> {
        let labels: Vec<LabelId> = tree.labels.iter().map(|label| builder.label(label.clone())).collect();
        let mut path: Vec<u32> = Vec::new();
        let at = |node: &Node| {
            path.truncate(node.depth as usize);
            let parent = path.last().copied().unwrap_or(NONE);
            let child = builder.child(parent, labels[node.label.index()]);
            path.push(child);
            child
        };
        tree.nodes.iter().map(at).collect()
    };
    let places: Vec<Vec<u32>> = trees.iter().map(|tree| place(tree)).collect();
    let (mut shape, positions) = builder.finish_placed("");
    shape.nodes.iter_mut().for_each(|node| (node.own, node.total) = (0, 0));
    let fill = |(tree, places): (&&Tree, &Vec<u32>)| {
        let mut filled = shape.clone();
        for (node, &place) in tree.nodes.iter().zip(places) {
            let to = &mut filled.nodes[positions[place as usize] as usize];
            to.own = to.own.saturating_add(node.own);
            to.total = to.total.saturating_add(node.total);
        }
        filled.total = tree.total;
        filled.unit.clone_from(&tree.unit);
        filled
    };
    trees.iter().zip(&places).map(fill).collect()
}

/// Stable counting sort. Keys are less than `keys`. Returns the sorted items, and the start of each key's
/// items, with the end as the last element.
fn sorted_by(
    items: impl ExactSizeIterator<Item = u32> + Clone,
    keys: usize,
    key: impl Fn(u32) -> usize,
) -> (Vec<u32>, Vec<u32>) {
    let mut sorted = vec![0; items.len()];
    // Shifted by one more than the result, because placing the items advances the starts.
    let mut first = vec![0u32; keys + 2];
    for item in items.clone() {
        first[key(item) + 2] += 1;
    }
    for i in 1..first.len() {
        first[i] += first[i - 1];
    }
    for item in items {
        let at = &mut first[key(item) + 1];
        sorted[*at as usize] = item;
        *at += 1;
    }
    first.pop();
    (sorted, first)
}

/// Parents precede their children, so one backward pass adds everything up.
fn totals(nodes: &[Growing]) -> Vec<u64> {
    let mut totals: Vec<u64> = nodes.iter().map(|n| n.own).collect();
    for i in (0..nodes.len()).rev() {
        let total = totals[i];
        if let Some(parent) = totals.get_mut(nodes[i].parent as usize) {
            *parent = parent.saturating_add(total);
        }
    }
    totals
}

/// Returns the rank of each label in the order of names.
fn ranks(labels: &[Label]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..labels.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| labels[a as usize].in_order(&labels[b as usize]));
    let mut ranks = vec![0; labels.len()];
    for (rank, &label) in order.iter().enumerate() {
        ranks[label as usize] = rank as u32;
    }
    ranks
}

impl Tree {
    /// Returns the label of a node.
    pub fn label(&self, node: &Node) -> &Label {
        &self.labels[node.label.index()]
    }

    /// Iterates over stacks with their own weight, root first, in order of names.
    pub fn stacks(&self) -> Stacks<'_> {
        Stacks { tree: self, next: 0, path: Vec::new() }
    }

    /// Returns for each label the weight of the stacks that end in it, and of those that contain it, each
    /// stack counted once. A function that was both inlined and called has two labels. Its weight is
    /// assigned to the first one; the other has none.
    pub fn by_label(&self) -> Vec<(LabelId, u64, u64)> {
        let mut first = HashMap::new();
        let function: Vec<usize> = self
            .labels
            .iter()
            .enumerate()
            .map(|(at, label)| {
                *first.entry((&label.text, &label.module, label.kind.function_kind())).or_insert(at)
            })
            .collect();
        let mut sums = vec![(0u64, 0u64); self.labels.len()];
        let mut on_path = vec![0u32; self.labels.len()];
        let mut path: Vec<usize> = Vec::new();
        for node in &self.nodes {
            while path.len() > node.depth as usize {
                if let Some(left) = path.pop() {
                    on_path[left] -= 1;
                }
            }
            let at = function[node.label.index()];
            let (own, total) = &mut sums[at];
            *own += node.own;
            if on_path[at] == 0 {
                *total += node.total;
            }
            on_path[at] += 1;
            path.push(at);
        }
        let ids = (0..).map(LabelId);
        ids.zip(sums).map(|(id, (own, total))| (id, own, total)).collect()
    }

    /// Rounds the own weights of boxes from ns to µs, and adds up the totals from them.
    pub fn in_micros(mut self) -> Self {
        let mut sums: Vec<u64> = vec![0; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[at];
            node.own = (node.own + 500) / 1000;
            let (end, own) = (node.end as usize, node.own);
            let mut child = at + 1;
            let mut total = own;
            while child < end {
                total += sums[child];
                child = self.nodes[child].end as usize;
            }
            sums[at] = total;
            self.nodes[at].total = total;
        }
        let roots = self.nodes.iter().filter(|node| node.depth == 0);
        self.total = roots.map(|node| node.total).sum();
        "us".clone_into(&mut self.unit);
        self
    }
}

/// Iterates over the stacks of a tree; see [`Tree::stacks`].
#[derive(Debug)]
pub struct Stacks<'t> {
    tree: &'t Tree,
    next: usize,
    path: Vec<LabelId>,
}

impl<'t> Stacks<'t> {
    /// Returns the next stack.
    #[allow(clippy::should_implement_trait)] // the path is lent
    pub fn next(&mut self) -> Option<(&[LabelId], u64)> {
        loop {
            let node = self.tree.nodes.get(self.next)?;
            self.next += 1;
            self.path.truncate(node.depth as usize);
            self.path.push(node.label);
            if node.own > 0 {
                return Some((&self.path, node.own));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        let mut builder = Builder::default();
        for (stack, weight) in stacks {
            let frames = stack.split(';').filter(|f| !f.is_empty());
            let path: Vec<LabelId> = frames
                .map(|f| builder.label(Label { text: f.into(), module: None, kind: FrameKind::Unknown }))
                .collect();
            builder.add(path, *weight);
        }
        builder.finish("samples")
    }

    fn shape(tree: &Tree) -> Vec<(String, u32, u64, u64, u32)> {
        tree.nodes.iter().map(|n| (tree.label(n).text.to_string(), n.depth, n.own, n.total, n.end)).collect()
    }

    #[test]
    fn siblings_merge_and_are_sorted() {
        let tree = tree(&[("b;y", 2), ("a", 1), ("b;x;z", 3), ("b;y", 5), ("b", 7), ("", 100)]);
        let want =
            [("a", 0, 1, 1, 1), ("b", 0, 7, 17, 5), ("x", 1, 0, 3, 4), ("z", 2, 3, 3, 4), ("y", 1, 7, 7, 5)];
        let want: Vec<_> = want.iter().map(|&(n, d, o, t, e)| (n.to_string(), d, o, t, e)).collect();
        assert_eq!(shape(&tree), want);
        assert_eq!(tree.total, 118);
    }

    #[test]
    fn input_order_does_not_matter() {
        let stacks = [("a;b", 1), ("a;c", 2), ("b;a;b", 3), ("c", 4)];
        let mut turned = stacks;
        turned.reverse();
        assert_eq!(shape(&tree(&stacks)), shape(&tree(&turned)));
    }

    #[test]
    fn recursion_counts_once() {
        let tree = tree(&[("f;f;f", 2), ("f;g;f", 3), ("g", 4)]);
        let find = |name: &str| {
            let sums = tree.by_label();
            sums.into_iter().find(|(id, ..)| &*tree.labels[id.index()].text == name).map(|(_, o, t)| (o, t))
        };
        assert_eq!(find("f"), Some((5, 5)));
        assert_eq!(find("g"), Some((4, 7)));
    }

    #[test]
    fn inlined_and_called_function_share_one_weight() {
        let mut builder = Builder::default();
        let mut label =
            |kind, text: &str| builder.label(Label { text: text.into(), module: Some("libc".into()), kind });
        let [inlined, called] =
            [FrameKind::NativeInlined, FrameKind::Native].map(|kind| label(kind, "memcpy"));
        let kernel = label(FrameKind::Kernel, "memcpy");
        builder.add([called, inlined], 2);
        builder.add([called], 3);
        builder.add([kernel], 4);
        let tree = builder.finish("samples");
        let sums: Vec<_> =
            tree.by_label().into_iter().map(|(id, own, total)| (id.index(), own, total)).collect();
        let [inlined, called, kernel] = [inlined, called, kernel].map(LabelId::index);
        assert_eq!(sums.iter().find(|sum| sum.0 == inlined), Some(&(inlined, 5, 5)));
        assert_eq!(sums.iter().find(|sum| sum.0 == called), Some(&(called, 0, 0)));
        assert_eq!(sums.iter().find(|sum| sum.0 == kernel), Some(&(kernel, 4, 4)));
    }
}
