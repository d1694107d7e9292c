//! A trie of distinct stacks by common frames from the root.

use std::collections::HashMap;

use jfr_format::pool::KeyHash;
use regex::Regex;

use crate::tree::{Builder, LabelId};

/// Handle of a node; a parent's handle is smaller.
pub(super) type NodeId = u32;
/// The parent of the first frames.
pub(super) const ROOT: NodeId = u32::MAX;

/// Paths of labels, from the root.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// See [`Node::latest`].
    latest_root: NodeId,
    children: HashMap<(NodeId, u32), NodeId, KeyHash>,
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    label: LabelId,
    /// The child that was looked up last. It is often needed again next.
    latest: NodeId,
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: Vec::new(), latest_root: ROOT, children: HashMap::default() }
    }
}

impl Trie {
    /// Returns the end of `path`; adds missing nodes.
    pub(super) fn add(&mut self, path: &[LabelId]) -> NodeId {
        path.iter().fold(ROOT, |parent, &label| {
            let latest = self.nodes.get(parent as usize).map_or(self.latest_root, |node| node.latest);
            match self.nodes.get(latest as usize) {
                Some(child) if child.label == label => latest,
                _ => self.child(parent, label),
            }
        })
    }

    fn child(&mut self, parent: NodeId, label: LabelId) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let child = *self.children.entry((parent, label.index() as u32)).or_insert_with(|| {
            self.nodes.push(Node { parent, label, latest: ROOT });
            next
        });
        match self.nodes.get_mut(parent as usize) {
            Some(node) => node.latest = child,
            None => self.latest_root = child,
        }
        child
    }

    /// Frees the memory that only [`Trie::add`] needs.
    pub(super) fn seal(&mut self) {
        self.children = HashMap::default();
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns parent and label of a node.
    pub(super) fn node(&self, place: NodeId) -> (NodeId, LabelId) {
        let Node { parent, label, .. } = self.nodes[place as usize];
        (parent, label)
    }

    /// Returns for each node whether a label on its path matches.
    pub(super) fn matches(&self, regex: &Regex, names: &Builder) -> Vec<bool> {
        let labels: Vec<bool> = names.texts().map(|text| regex.is_match(text)).collect();
        let mut found: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for &Node { parent, label, .. } in &self.nodes {
            let above = found.get(parent as usize).is_some_and(|&found| found);
            found.push(above || labels[label.index()]);
        }
        found
    }
}
