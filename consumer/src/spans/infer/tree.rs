//! The call tree of one activation of a thread's outermost span: the functions that were sampled, for how
//! long, and the spans that began in them.
//!
//! A node is a function that was on the stack in consecutive samples. Later samples correct the tree by
//! the rules of OpenTelemetry's inferred spans, so that the trees are the same:
//! * If a span is deactivated after the last sample of the function in which it was activated, the
//!   function is extended.
//! * A function that is still seen after the end of a span that began before it is the span's caller: it
//!   began with the span.
//! * A span is first assigned to the function seen before it began. If that function turns out to have
//!   ended, the span is assigned to the common part of the stacks before and after.
//!
//! The tests T1 to T12 in `tests.rs` are OpenTelemetry's scenarios. A rule is changed only together
//! with them.

use crate::spans::ids::SpanKey;

/// Maximum number of frames per stack, from the root.
pub(super) const DEEPEST: usize = 512;
/// Maximum number of nodes per tree.
pub(super) const MOST_NODES: usize = 64 << 10;

/// A span and its parent.
type Child = (SpanKey, Option<SpanKey>);

/// A function that was on the stack in consecutive samples.
#[derive(Clone, Debug)]
pub(super) struct Node<F> {
    /// `None` for the root.
    pub(super) frame: Option<F>,
    pub(super) parent: usize,
    pub(super) children: Vec<usize>,
    pub(super) start: i64,
    pub(super) last: i64,
    /// Weight of its samples.
    pub(super) count: u64,
    /// Number of times at which it was seen.
    looks: u64,
    ended: bool,
    depth: usize,
    /// The span that was active when it was first seen, unless a node below has it.
    pub(super) active: Option<SpanKey>,
    activated: i64,
    deactivated: Option<i64>,
    /// Spans that began in it.
    pub(super) begun: Vec<Child>,
    /// Spans that began in it if it is seen again.
    pub(super) maybe_begun: Vec<Child>,
}

/// A tree; samples and activations are added in order of time.
#[derive(Debug)]
pub(super) struct Tree<F> {
    pub(super) nodes: Vec<Node<F>>,
    free: Vec<usize>,
    removed: Vec<usize>,
    /// The innermost span.
    active: SpanKey,
    activated: i64,
    /// A sample was added since then.
    seen: bool,
    top: Option<usize>,
    previous_top: Option<usize>,
    /// Active spans that were activated after the first sample.
    entered: Vec<SpanKey>,
    min_duration: i64,
    /// Nodes beyond the limit.
    pub(super) dropped: u64,
}

pub(super) const ROOT: usize = 0;

impl<F: Copy + PartialEq> Tree<F> {
    /// Starts with the activation of the root span.
    pub(super) fn new(root: SpanKey, time: i64, min_duration: i64) -> Self {
        Self {
            nodes: vec![Node::new(None, ROOT, 0, time)],
            free: Vec::new(),
            removed: Vec::new(),
            active: root,
            activated: time,
            seen: false,
            top: None,
            previous_top: None,
            entered: Vec::new(),
            min_duration,
            dropped: 0,
        }
    }

    /// Activates a span, which becomes the innermost one.
    pub(super) fn enter(&mut self, span: SpanKey, parent: Option<SpanKey>, time: i64) {
        self.set_active(span, time);
        let Some(top) = self.top else { return };
        self.entered.push(span);
        let node = &mut self.nodes[top];
        // A span inside one that began here belongs to that one.
        let mut here = node.begun.iter().chain(&node.maybe_begun);
        if !here.any(|(known, _)| self.entered.contains(known)) {
            node.maybe_begun.push((span, parent));
        }
    }

    /// Deactivates the innermost span; `active` becomes the innermost one again.
    pub(super) fn exit(&mut self, span: SpanKey, active: SpanKey, time: i64) {
        if self.seen {
            self.deactivate(self.active, self.activated, time);
        }
        self.set_active(active, time);
        if let Some(at) = self.entered.iter().rposition(|&entered| entered == span) {
            self.entered.remove(at);
        }
    }

    fn set_active(&mut self, span: SpanKey, time: i64) {
        (self.active, self.activated, self.seen) = (span, time, false);
    }

    fn deactivate(&mut self, span: SpanKey, activated: i64, time: i64) {
        let mut at = ROOT;
        loop {
            let node = &mut self.nodes[at];
            let found = node.active == Some(span);
            if found {
                node.deactivated = Some(time);
            }
            if (node.start..=node.last).contains(&activated) && node.last < time {
                node.last = time;
            }
            match node.children.last() {
                Some(&child) if !found => at = child,
                _ => return,
            }
        }
    }

    /// Adds a stack, `path` from its root, which represents `count` samples.
    pub(super) fn sample(&mut self, path: &[F], time: i64, count: u64) {
        let first = !std::mem::replace(&mut self.seen, true);
        self.previous_top = self.top;
        let top = self.add(&path[..path.len().min(DEEPEST)], time, count);
        self.top = Some(top);
        if let Some(previous) = self.previous_top
            && first
            && previous != top
            && !(self.nodes[previous].begun.is_empty() && self.nodes[previous].maybe_begun.is_empty())
            && !self.is_above(top, previous)
        {
            let heir = self.common(previous, top).unwrap_or(top);
            let maybe = std::mem::take(&mut self.nodes[previous].maybe_begun);
            if self.nodes[heir].count > 1 {
                self.nodes[heir].maybe_begun.extend(maybe);
            }
        }
        self.free.append(&mut self.removed);
    }

    fn add(&mut self, path: &[F], time: i64, count: u64) -> usize {
        let mut active = Some(self.active);
        let mut over: Vec<(usize, Option<usize>)> = Vec::with_capacity(path.len() + 1);
        let mut at = ROOT;
        let mut frames = path.iter();
        loop {
            let node = &mut self.nodes[at];
            node.count = node.count.saturating_add(count);
            node.looks += 1;
            node.last = time;
            // Its children do not belong to the span, but to a node below or to itself.
            if node.active.is_some() && node.active == active {
                active = None;
            }
            let last = node.children.last().copied().filter(|&child| !self.nodes[child].ended);
            let Some(&frame) = frames.next() else {
                over.push((at, last));
                break;
            };
            if let Some(child) = last.filter(|&child| self.nodes[child].frame == Some(frame)) {
                over.push((at, None));
                at = child;
                continue;
            }
            over.push((at, last));
            let Some(child) = self.child(at, frame, time) else { break };
            if let Some(span) = active.take() {
                (self.nodes[child].active, self.nodes[child].activated) = (Some(span), self.activated);
            }
            at = child;
        }
        for (node, ended) in over.into_iter().rev() {
            if let Some(child) = ended {
                self.end(child);
            }
            self.confirm(node);
        }
        at
    }

    fn child(&mut self, parent: usize, frame: F, time: i64) -> Option<usize> {
        if self.free.is_empty() && self.nodes.len() >= MOST_NODES {
            self.dropped += 1;
            return None;
        }
        let node = Node::new(Some(frame), parent, self.nodes[parent].depth + 1, time);
        let at = match self.free.pop() {
            Some(free) => {
                self.nodes[free] = node;
                free
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.nodes[parent].children.push(at);
        Some(at)
    }

    /// The node was seen again, so spans that may have begun in it did.
    pub(super) fn confirm(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.begun.append(&mut node.maybe_begun);
    }

    /// Ends all nodes.
    pub(super) fn finish(&mut self) {
        self.end(ROOT);
    }

    fn end(&mut self, at: usize) {
        self.nodes[at].ended = true;
        let Node { active, activated, deactivated, last, parent, .. } = self.nodes[at];
        if let (Some(span), Some(ended)) = (active, deactivated)
            && last > ended
        {
            // The span ended before this node did, so this node called it and began before it.
            self.nodes[at].start = self.nodes[at].start.min(activated);
            if at != ROOT
                && let Some(begun) = self.nodes[parent].begun.pop()
            {
                self.nodes[at].begun.push(begun);
            }
            for child in self.nodes[at].children.clone() {
                let node = &mut self.nodes[child];
                (node.active, node.activated, node.deactivated) = (Some(span), activated, Some(ended));
                self.end(child);
            }
            let node = &mut self.nodes[at];
            (node.active, node.activated, node.deactivated) = (None, i64::MIN, None);
        }
        let node = &self.nodes[at];
        if at != ROOT && (node.looks == 1 || node.last.saturating_sub(node.start) < self.min_duration) {
            self.previous_top = Some(parent);
            self.remove(at);
        } else if let Some(&child) = node.children.last()
            && !self.nodes[child].ended
        {
            self.end(child);
        }
    }

    /// Removes a node and its descendants. Their spans are assigned to its parent.
    fn remove(&mut self, at: usize) {
        let parent = self.nodes[at].parent;
        self.nodes[parent].children.retain(|&child| child != at);
        // Children first, because their spans began earlier.
        let mut order = vec![at];
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            order.extend(self.nodes[node].children.iter().rev().copied());
            next += 1;
        }
        for &node in order.iter().rev() {
            let begun = std::mem::take(&mut self.nodes[node].begun);
            let maybe = std::mem::take(&mut self.nodes[node].maybe_begun);
            self.nodes[parent].begun.extend(begun);
            self.nodes[parent].maybe_begun.extend(maybe);
            self.nodes[node].children.clear();
        }
        self.removed.extend(order);
    }

    fn ancestor(&self, mut at: usize, depth: usize) -> usize {
        while self.nodes[at].depth > depth {
            at = self.nodes[at].parent;
        }
        at
    }

    fn is_above(&self, node: usize, of: usize) -> bool {
        let depth = self.nodes[of].depth;
        self.nodes[node].depth > depth && self.ancestor(node, depth) == of
    }

    /// Returns the innermost common ancestor, unless it is the root.
    fn common(&self, one: usize, other: usize) -> Option<usize> {
        let depth = self.nodes[one].depth.min(self.nodes[other].depth);
        let (mut one, mut other) = (self.ancestor(one, depth), self.ancestor(other, depth));
        while one != other {
            (one, other) = (self.nodes[one].parent, self.nodes[other].parent);
        }
        (one != ROOT).then_some(one)
    }

    /// Returns true if the node only called one function.
    pub(super) fn is_pillar(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        matches!(node.children[..], [only] if self.nodes[only].count == node.count)
    }
}

impl<F> Node<F> {
    fn new(frame: Option<F>, parent: usize, depth: usize, time: i64) -> Self {
        Self {
            frame,
            parent,
            children: Vec::new(),
            start: time,
            last: time,
            count: 0,
            looks: 0,
            ended: false,
            depth,
            active: None,
            activated: i64::MIN,
            deactivated: None,
            begun: Vec::new(),
            maybe_begun: Vec::new(),
        }
    }
}
