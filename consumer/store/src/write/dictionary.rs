//! Stacks. Ids are hashes of content, so writers need not coordinate.

use std::collections::HashMap;
use std::sync::Arc;

use flightline_consumer::fold::{NO_STACK, TRUNCATED};
use flightline_consumer::live;
use flightline_consumer::model::FrameKind;
use jfr_format::pool::KeyHash;
use twox_hash::XxHash3_64;

/// Parent of root frames.
pub(crate) const ROOT: i64 = 0;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) function: Arc<str>,
    /// Java class or library.
    pub(crate) class: Arc<str>,
    pub(crate) kind: FrameKind,
    /// 0 if unknown.
    pub(crate) line: i32,
}

impl Frame {
    fn marker(text: &str) -> Self {
        Self { function: text.into(), class: "".into(), kind: FrameKind::Marker, line: 0 }
    }

    /// The class of an allocated, locked or thrown object, as the innermost frame of its stack.
    fn object(class: &Arc<str>) -> Self {
        Self { function: class.clone(), class: "".into(), kind: FrameKind::Class, line: 0 }
    }

    /// Id: hash of type, class and function, each followed by a zero byte, and of the line.
    fn id(&self, bytes: &mut Vec<u8>) -> i64 {
        bytes.clear();
        for text in [self.kind.name(), &self.class, &self.function] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        bytes.extend_from_slice(&self.line.to_le_bytes());
        hash_id(bytes)
    }
}

/// A frame below its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) parent: i64,
    pub(crate) frame: i64,
    pub(crate) depth: i32,
}

/// A stack.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Id of its leaf node.
    pub(crate) id: i64,
    pub(crate) truncated: bool,
    /// Nodes from the root on.
    pub(crate) path: Box<[i64]>,
}

/// Stacks by index, and their nodes and frames.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    pub(crate) frames: HashMap<i64, Frame, KeyHash>,
    pub(crate) nodes: HashMap<i64, Node, KeyHash>,
    pub(crate) stacks: Vec<Stack>,
    by_id: HashMap<i64, u32, KeyHash>,
    /// Indices by address of the current chunk's stacks; each is held so that its address is not reused.
    met: HashMap<usize, (Arc<live::Stack>, u32), KeyHash>,
    none: Option<u32>,
    /// Number of nodes in all paths.
    steps: usize,
    bytes: Vec<u8>,
}

impl Dictionary {
    /// Returns the index of a sample's stack. Omits lines unless `lines` is set.
    pub(crate) fn stack(&mut self, stack: Option<&Arc<live::Stack>>, lines: bool) -> u32 {
        let Some(stack) = stack else { return self.no_stack() };
        let at = Arc::as_ptr(stack).addr();
        if let Some(&(_, known)) = self.met.get(&at) {
            return known;
        }
        let frames: Vec<i64> = stack.frames.iter().rev().map(|frame| self.frame(frame, lines)).collect();
        let number = self.path(frames, stack.truncated);
        self.met.insert(at, (stack.clone(), number));
        number
    }

    /// Returns the index that represents no stack.
    pub(crate) fn no_stack(&mut self) -> u32 {
        match self.none {
            Some(none) => none,
            None => {
                let marker = self.frame_id(Frame::marker(NO_STACK));
                let none = self.add([marker].into_iter(), false);
                *self.none.insert(none)
            }
        }
    }

    /// Returns the id of a frame.
    pub(crate) fn frame(&mut self, frame: &live::Frame, lines: bool) -> i64 {
        self.frame_id(Frame {
            function: frame.function.clone(),
            class: if frame.kind.in_library() { frame.module.clone() } else { frame.class.clone() },
            kind: frame.kind,
            line: if lines { frame.line } else { 0 },
        })
    }

    /// Returns the index of the stack with these frames, outermost first.
    pub(crate) fn path(&mut self, frames: impl IntoIterator<Item = i64>, truncated: bool) -> u32 {
        let mut frames = frames.into_iter().peekable();
        if frames.peek().is_none() {
            return self.no_stack();
        }
        let cut = truncated.then(|| self.frame_id(Frame::marker(TRUNCATED)));
        self.add(cut.into_iter().chain(frames), truncated)
    }

    /// Returns the index of stack `stack` extended by the class of an object.
    pub(crate) fn with_class(&mut self, stack: u32, class: &Arc<str>) -> u32 {
        let frame = self.frame_id(Frame::object(class));
        let Stack { id: parent, truncated, ref path } = self.stacks[stack as usize];
        let id = node_id(parent, frame);
        if let Some(&known) = self.by_id.get(&id) {
            return known;
        }
        let path: Box<[i64]> = path.iter().copied().chain([id]).collect();
        self.nodes.entry(id).or_insert(Node { parent, frame, depth: path.len() as i32 });
        self.push(Stack { id, truncated, path })
    }

    fn frame_id(&mut self, frame: Frame) -> i64 {
        let id = frame.id(&mut self.bytes);
        self.frames.entry(id).or_insert(frame);
        id
    }

    /// Forgets the addresses of the chunk's stacks.
    pub(crate) fn chunk_ends(&mut self) {
        self.met.clear();
    }

    /// Number of nodes in all paths, a measure of memory use.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    fn add(&mut self, frames: impl Iterator<Item = i64>, truncated: bool) -> u32 {
        let mut path = Vec::with_capacity(frames.size_hint().0);
        let mut parent = ROOT;
        for frame in frames {
            let node = node_id(parent, frame);
            let depth = path.len() as i32 + 1;
            self.nodes.entry(node).or_insert(Node { parent, frame, depth });
            path.push(node);
            parent = node;
        }
        if let Some(&known) = self.by_id.get(&parent) {
            return known;
        }
        self.push(Stack { id: parent, truncated, path: path.into() })
    }

    fn push(&mut self, stack: Stack) -> u32 {
        let number = self.stacks.len() as u32;
        self.steps += stack.path.len();
        self.by_id.insert(stack.id, number);
        self.stacks.push(stack);
        number
    }
}

/// Id of a node: hash of the parent's and the frame's id, little-endian.
pub(crate) fn node_id(parent: i64, frame: i64) -> i64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.to_le_bytes());
    bytes[8..].copy_from_slice(&frame.to_le_bytes());
    hash_id(&bytes)
}

/// 64-bit XXH3; 0 is reserved.
fn hash_id(bytes: &[u8]) -> i64 {
    match XxHash3_64::oneshot(bytes).cast_signed() {
        ROOT => 1,
        id => id,
    }
}
