//! Arranges stacks under their processes and threads. Each distinct stack is walked once, and below a
//! thread only down to the first frame that already has a box. Time and memory are therefore proportional
//! to the boxes of the result.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;
use regex::Regex;

use super::trie::{NodeId, ROOT, Trie};
use super::{FoldOptions, NO_STACK, NO_THREAD, TOO_MANY_FRAMES, TRUNCATED, UNKNOWN_PROCESS};
use crate::model::{Frame, FrameKind, Id, Model, SampleKey, Stack, Thread};
use crate::tree::{Builder, Label, LabelId, Tree};

/// Boxes that any profile may have. Beyond that, the limit grows with the number of stacks and samples,
/// and stacks retain only their last frames: a small file can put one deep stack into thousands of
/// threads.
const BOXES: usize = 3 << 20;
/// Frames retained of a stack beyond the limit.
const LAST_FRAMES: usize = 8;
/// Bytes of names without a length limit; after that, names are cut to [`SHORT`].
const NAMES: usize = 64 << 20;
const SHORT: usize = 256;

pub(super) struct Folder<'m> {
    model: &'m Model,
    options: &'m FoldOptions,
    builder: Builder,
    trie: Trie,
    /// Labels by frame; `None` if the frame was not seen yet.
    labels: Vec<Option<LabelId>>,
    /// Ends in the trie by stack; `None` if the stack was not seen yet.
    ends: Vec<Option<NodeId>>,
    /// Ends in the trie of stacks with a class appended.
    class_ends: HashMap<End, NodeId, KeyHash>,
    /// Remaining bytes of [`NAMES`].
    names: usize,
}

/// A stack, and the class of the object if it is shown.
type End = (Option<Id<Stack>>, Option<Id<Arc<str>>>);

/// The properties that samples of one weight share.
type Group = (Titled, End);

/// A thread, and the title of its process if it is shown.
type Titled = (Option<Id<Thread>>, Option<Id<Arc<str>>>);

/// The boxes below the stacks of a thread.
struct Prefix {
    /// Node in the tree.
    node: u32,
    /// For each `include` filter, whether it matches one of these boxes.
    included: Vec<bool>,
}

/// Prefixes by thread; `None` if the thread is filtered out.
type Prefixes = HashMap<Titled, Option<Prefix>, KeyHash>;

impl<'m> Folder<'m> {
    pub(super) fn new(model: &'m Model, options: &'m FoldOptions) -> Self {
        Self {
            model,
            options,
            builder: Builder::default(),
            trie: Trie::default(),
            labels: vec![None; model.frames.len()],
            ends: vec![None; model.stacks.len()],
            class_ends: HashMap::default(),
            names: NAMES,
        }
    }

    pub(super) fn fold(mut self, samples: impl Iterator<Item = (&'m SampleKey, u64)>) -> Builder {
        let groups = self.groups(samples);
        let mut threads = Prefixes::default();
        let mut stacks: Vec<(u32, NodeId, u64, Titled)> = Vec::with_capacity(groups.len());
        for ((thread, end), weight) in groups {
            let prefix = threads.entry(thread).or_insert_with(|| self.prefix(thread));
            let Some(node) = prefix.as_ref().map(|prefix| prefix.node) else { continue };
            stacks.push((node, self.end(end), weight, thread));
        }
        let passes = self.frame_filter(&threads);
        stacks.retain(|&(_, end, _, thread)| passes(end, thread));
        // Groups the stacks by thread.
        stacks.sort_unstable_by_key(|&(node, end, ..)| (node, end));
        self.place(&stacks);
        self.builder
    }

    /// Returns the weights of the samples that pass the filter, by stack.
    pub(super) fn weights(
        mut self,
        samples: impl Iterator<Item = (&'m SampleKey, u64)>,
    ) -> HashMap<Option<Id<Stack>>, u64, KeyHash> {
        let groups = self.groups(samples);
        let mut threads = Prefixes::default();
        let mut ends = Vec::new();
        for ((thread, end), weight) in groups {
            if threads.entry(thread).or_insert_with(|| self.prefix(thread)).is_some() {
                ends.push((self.end(end), thread, end.0, weight));
            }
        }
        let passes = self.frame_filter(&threads);
        let mut weights: HashMap<Option<Id<Stack>>, u64, KeyHash> = HashMap::default();
        for (end, thread, stack, weight) in ends {
            if passes(end, thread) {
                let sum = weights.entry(stack).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        weights
    }

    /// Returns a predicate: true if a stack, given by its end in the trie, and its thread pass the filter
    /// by frames.
    fn frame_filter<'t>(&mut self, threads: &'t Prefixes) -> impl Fn(NodeId, Titled) -> bool + use<'t> {
        self.trie.seal();
        let filter = &self.options.filter;
        let hits = |regexes: &[Regex]| -> Vec<Vec<bool>> {
            regexes.iter().map(|regex| self.trie.matches(regex, &self.builder)).collect()
        };
        let (include, exclude) = (hits(&filter.include), hits(&filter.exclude));
        move |end, thread| {
            let Some(Some(prefix)) = threads.get(&thread) else { return false };
            let mut included = include.iter().zip(&prefix.included);
            included.all(|(hits, &already)| already || hits[end as usize])
                && !exclude.iter().any(|hits| hits[end as usize])
        }
    }

    /// Returns the boxes of these stacks, and for each stack the box that it ends at.
    pub(super) fn calls(mut self, stacks: impl Iterator<Item = Option<Id<Stack>>>) -> (Tree, Vec<u32>) {
        let mut ends: Vec<u32> = Vec::new();
        for stack in stacks {
            let mut path = self.path(stack.map(|id| self.model.stacks.get(id)));
            if self.builder.len() + path.len() > BOXES && path.len() > LAST_FRAMES {
                path.drain(..path.len() - LAST_FRAMES);
                let marker = self.marker(TOO_MANY_FRAMES);
                path.insert(0, marker);
            }
            ends.push(path.into_iter().fold(ROOT, |node, label| self.builder.child(node, label)));
        }
        let (tree, placed) = self.builder.finish_placed("samples");
        let place = |end: u32| placed.get(end as usize).copied().unwrap_or(0);
        (tree, ends.into_iter().map(place).collect())
    }

    /// Returns the labels so far, by handle.
    pub(super) fn into_labels(self) -> Vec<Label> {
        self.builder.into_labels()
    }

    /// Adds up samples that do not differ in any property used here.
    fn groups(&self, samples: impl Iterator<Item = (&'m SampleKey, u64)>) -> HashMap<Group, u64, KeyHash> {
        let FoldOptions { by_process, by_title, by_thread, classes, filter, .. } = self.options;
        let threads_matter = *by_process
            || *by_title
            || *by_thread
            || [&filter.thread, &filter.process].iter().any(|regex| regex.is_some());
        let states: Vec<bool> =
            self.model.states.iter().map(|(_, name)| filter.matches_state(name)).collect();
        let unknown = filter.matches_state("");
        let mut groups: HashMap<Group, u64, KeyHash> = HashMap::default();
        for (key, weight) in samples {
            if key.state.map_or(unknown, |state| states[state.index()]) {
                let end = (key.stack, key.class.filter(|_| *classes));
                let titled = (key.thread.filter(|_| threads_matter), key.title.filter(|_| *by_title));
                let sum = groups.entry((titled, end)).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
        groups
    }

    /// Returns the process, title and thread frames; `None` if they are filtered out.
    fn prefix(&mut self, (thread, title): Titled) -> Option<Prefix> {
        let FoldOptions { by_process, by_title, by_thread, filter, .. } = self.options;
        let of = thread.map(|id| self.model.threads.get(id));
        let name = of.map_or_else(|| NO_THREAD.to_owned(), |thread| thread.label());
        let process = of.and_then(|thread| thread.group.as_deref()).unwrap_or(UNKNOWN_PROCESS);
        if !filter.matches_thread(&name, process) {
            return None;
        }
        let all_virtual = of.filter(|_| !self.options.each_virtual_thread).and_then(Thread::all_virtual);
        let name = all_virtual.map_or(name, |thread| thread.label());
        let title = title.map_or(process, |title| &**self.model.titles.get(title));
        let frames = [by_process.then_some(process), by_title.then_some(title), by_thread.then_some(&*name)];
        let mut node = ROOT;
        let mut included = vec![false; filter.include.len()];
        for text in frames.into_iter().flatten() {
            if filter.exclude.iter().any(|regex| regex.is_match(text)) {
                return None;
            }
            let matched = filter.include.iter().map(|regex| regex.is_match(text));
            included.iter_mut().zip(matched).for_each(|(any, matched)| *any |= matched);
            let label = self.marker(text);
            node = self.builder.child(node, label);
        }
        Some(Prefix { node, included })
    }

    /// Returns the node of the trie at which the stack ends.
    fn end(&mut self, (stack, class): End) -> NodeId {
        if let Some(class) = class {
            return self.class_end(stack, class);
        }
        let known = stack.and_then(|id| self.ends[id.index()]);
        known.unwrap_or_else(|| {
            let path = self.path(stack.map(|id| self.model.stacks.get(id)));
            let end = self.trie.add(&path);
            if let Some(id) = stack {
                self.ends[id.index()] = Some(end);
            }
            end
        })
    }

    /// Returns the node of the trie at which a stack with a class appended ends.
    fn class_end(&mut self, stack: Option<Id<Stack>>, class: Id<Arc<str>>) -> NodeId {
        if let Some(&known) = self.class_ends.get(&(stack, Some(class))) {
            return known;
        }
        let mut path = self.path(stack.map(|id| self.model.stacks.get(id)));
        path.push(self.builder.label(class_label(self.model.classes.get(class))));
        let end = self.trie.add(&path);
        self.class_ends.insert((stack, Some(class)), end);
        end
    }

    fn path(&mut self, stack: Option<&Stack>) -> Vec<LabelId> {
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else {
            return vec![self.marker(NO_STACK)];
        };
        let mut path = Vec::with_capacity(stack.frames.len() + 1);
        if stack.truncated {
            path.push(self.marker(TRUNCATED));
        }
        for &frame in stack.frames.iter().rev() {
            path.push(self.frame(frame));
        }
        path
    }

    /// Builds the tree. `stacks` are ordered by the node below them.
    fn place(&mut self, stacks: &[(u32, NodeId, u64, Titled)]) {
        let room = BOXES.saturating_add(self.trie.len() * 2).saturating_add(stacks.len() * LAST_FRAMES);
        // For each node of the trie: the last base node for which it was copied, and the resulting node.
        let mut placed: Vec<(u32, u32)> = vec![(0, 0); self.trie.len()];
        let (mut turn, mut last) = (0, None);
        let mut missing = Vec::new();
        for &(base, end, weight, _) in stacks {
            if last != Some(base) {
                last = Some(base);
                turn += 1;
            }
            missing.clear();
            let mut at = end;
            while at != ROOT && placed[at as usize].0 != turn {
                missing.push(at);
                at = self.trie.node(at).0;
            }
            if self.builder.len() + missing.len() > room && missing.len() > LAST_FRAMES {
                let node = self.shortened(base, &missing[..LAST_FRAMES]);
                self.builder.weigh(node, weight);
                continue;
            }
            let mut node = if at == ROOT { base } else { placed[at as usize].1 };
            for &place in missing.iter().rev() {
                node = self.builder.append(node, self.trie.node(place).1);
                placed[place as usize] = (turn, node);
            }
            self.builder.weigh(node, weight);
        }
    }

    fn shortened(&mut self, base: u32, last: &[NodeId]) -> u32 {
        let marker = self.marker(TOO_MANY_FRAMES);
        let node = self.builder.child(base, marker);
        last.iter().rev().fold(node, |node, &place| self.builder.child(node, self.trie.node(place).1))
    }

    fn marker(&mut self, text: &str) -> LabelId {
        self.builder.label(Label { text: Arc::from(text), module: None, kind: FrameKind::Marker })
    }

    /// Returns the label of a frame's boxes.
    pub(super) fn frame(&mut self, id: Id<Frame>) -> LabelId {
        if let Some(label) = self.labels[id.index()] {
            return label;
        }
        let mut label = label(self.model.frames.get(id), self.options);
        if label.text.len() > SHORT {
            match self.names.checked_sub(label.text.len()) {
                Some(left) => self.names = left,
                None => label.text = Arc::from(&label.text[..label.text.floor_char_boundary(SHORT)]),
            }
        }
        let label = self.builder.label(label);
        self.labels[id.index()] = Some(label);
        label
    }
}

/// Returns the label for the box of a class.
pub(crate) fn class_label(class: &Arc<str>) -> Label {
    Label { text: class.clone(), module: None, kind: FrameKind::Class }
}

/// Returns the label of a frame's boxes.
pub fn label(frame: &Frame, options: &FoldOptions) -> Label {
    let Frame { function, class, kind, line, .. } = frame;
    let library = kind.in_library();
    let mut text = match (class.is_empty(), library) {
        (true, _) => function.to_string(),
        (false, false) => format!("{class}.{function}"),
        (false, true) if options.modules => format!("{class}`{function}"),
        (false, true) => function.to_string(),
    };
    if options.lines && *line > 0 {
        text = format!("{text}:{line}");
    }
    let module = (library && options.split_modules && !class.is_empty()).then(|| class.clone());
    let kind = if kind.is_java() || options.merge_inlined { kind.function_kind() } else { *kind };
    Label { text: text.into(), module, kind }
}
