//! Resolved constants of the current chunk, shared by all its items.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{Value, constant};
use jfr_format::pool::KeyHash;
use jfr_format::read::Chunk;

use super::item::{Frame, Stack};
use crate::decode::names::Names;
use crate::decode::resolver::{NameResolver, RawFrame};
use crate::model::Thread;
use crate::spans::SpanContext;

/// Maximum number of frames in cached stacks, and of names. Beyond that, the caches are cleared, so that
/// an endless chunk uses bounded memory.
const MOST_FRAMES: usize = 1 << 20;
const MOST_NAMES: usize = 1 << 18;

/// Caches of one chunk. Missing constants are not cached, because they may follow.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) constants: NameResolver,
    threads: HashMap<u64, Arc<Thread>, KeyHash>,
    /// Titles of the processes of `threads`.
    titles: HashMap<u64, Arc<str>, KeyHash>,
    stacks: HashMap<u64, Arc<Stack>, KeyHash>,
    /// By the keys of the caller's stack and of the called method.
    calls: HashMap<(u64, u64), Arc<Stack>, KeyHash>,
    states: HashMap<u64, Arc<str>, KeyHash>,
    variants: HashMap<u64, Arc<str>, KeyHash>,
    types: HashMap<u64, Arc<str>, KeyHash>,
    pub(super) contexts: HashMap<u64, Arc<SpanContext>, KeyHash>,
    frames: HashMap<RawFrame, Frame, KeyHash>,
    held: usize,
    /// Frames of the stack being read.
    raw: Vec<RawFrame>,
    empty: Arc<str>,
    /// Stacks and frames looked up in all chunks.
    pub(super) stack_lookups: u64,
    pub(super) frame_lookups: u64,
    /// Keys other than 0 without a constant.
    pub(super) unresolved: u64,
}

impl Cache {
    /// Starts a chunk, whose keys have new meanings.
    pub(super) fn begin(&mut self, chunk: &Chunk) {
        let Self { stack_lookups, frame_lookups, unresolved, .. } = *self;
        *self = Self {
            constants: NameResolver::new(chunk),
            stack_lookups,
            frame_lookups,
            unresolved,
            ..Self::default()
        };
    }

    /// Further constants were read. Clears caches that exceed their limits.
    pub(super) fn more(&mut self) {
        if self.held > MOST_FRAMES || self.constants.names.len() > MOST_NAMES {
            (self.held, self.constants.names) = (0, Names::default());
            self.stacks.clear();
            self.calls.clear();
            self.frames.clear();
            self.threads.clear();
            self.titles.clear();
        }
        if self.contexts.len() > MOST_NAMES {
            self.contexts.clear();
        }
        self.constants.more();
    }

    pub(super) fn thread(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<Thread>>, Error> {
        if let Some(known) = self.threads.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(thread) = self.constants.thread(chunk, key)? else { return Ok(self.missing(key)) };
        let thread = Arc::new(thread);
        if let Some(title) = self.constants.title(chunk, key)? {
            self.titles.insert(key, title);
        }
        self.threads.insert(key, thread.clone());
        Ok(Some(thread))
    }

    /// Returns the title of the process of the thread with this key, which [`Self::thread`] has looked
    /// up.
    pub(super) fn title(&self, key: u64) -> Option<Arc<str>> {
        self.titles.get(&key).cloned()
    }

    pub(super) fn state(&mut self, chunk: &Chunk, key: u64) -> Option<Arc<str>> {
        if let Some(known) = self.states.get(&key) {
            return Some(known.clone());
        }
        let Some(state) = self.constants.state(chunk, key) else { return self.missing(key) };
        self.states.insert(key, state.clone());
        Some(state)
    }

    pub(super) fn variant(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<str>>, Error> {
        if let Some(known) = self.variants.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(variant) = self.constants.variant(chunk, key)? else { return Ok(self.missing(key)) };
        self.variants.insert(key, variant.clone());
        Ok(Some(variant))
    }

    pub(super) fn stack(&mut self, chunk: &Chunk, key: u64) -> Result<Option<Arc<Stack>>, Error> {
        if let Some(known) = self.stacks.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(stack) = self.read_stack(chunk, key, 0)? else { return Ok(self.missing(key)) };
        self.stacks.insert(key, stack.clone());
        Ok(Some(stack))
    }

    /// Returns the stack of a `called` method, by the key of its callers' stack. A `called` of 0 means
    /// none.
    pub(super) fn call_stack(
        &mut self,
        chunk: &Chunk,
        key: u64,
        called: u64,
    ) -> Result<Option<Arc<Stack>>, Error> {
        if called == 0 {
            return self.stack(chunk, key);
        }
        if let Some(known) = self.calls.get(&(key, called)) {
            return Ok(Some(known.clone()));
        }
        let Some(stack) = self.read_stack(chunk, key, called)? else { return Ok(self.missing(key)) };
        self.calls.insert((key, called), stack.clone());
        Ok(Some(stack))
    }

    fn read_stack(&mut self, chunk: &Chunk, key: u64, called: u64) -> Result<Option<Arc<Stack>>, Error> {
        self.stack_lookups += 1;
        let mut raw = std::mem::take(&mut self.raw);
        let read = self.constants.call_stack(chunk, key, called, &mut raw);
        let frames: Result<Arc<[Frame]>, Error> = raw.iter().map(|raw| self.frame(chunk, raw)).collect();
        self.raw = raw;
        let Some(truncated) = read? else { return Ok(None) };
        let stack = Arc::new(Stack { frames: frames?, truncated });
        self.held += stack.frames.len() + 1;
        Ok(Some(stack))
    }

    pub(super) fn frame(&mut self, chunk: &Chunk, raw: &RawFrame) -> Result<Frame, Error> {
        if let Some(known) = self.frames.get(raw) {
            return Ok(known.clone());
        }
        self.frame_lookups += 1;
        let (from, function, kind) = self.constants.frame(chunk, raw)?;
        let empty = || self.empty.clone();
        let (class, module) = if kind.in_library() { (empty(), from) } else { (from, empty()) };
        let frame = Frame {
            function,
            class,
            module,
            line: raw.line.max(0),
            bytecode_index: raw.bytecode_index,
            kind,
            type_name: self.frame_type(chunk, raw.kind)?,
        };
        self.held += 1;
        self.frames.insert(*raw, frame.clone());
        Ok(frame)
    }

    fn frame_type(&mut self, chunk: &Chunk, key: u64) -> Result<Arc<str>, Error> {
        if let Some(known) = self.types.get(&key) {
            return Ok(known.clone());
        }
        let value: Option<Value<'_>> = match chunk.types.by_name("jdk.types.FrameType") {
            Some((index, _)) => constant(chunk, index, key, 0)?,
            None => None,
        };
        let name = value.map_or(Ok(None), |value| self.constants.names.text(value))?;
        let name = name.unwrap_or_else(|| self.empty.clone());
        self.types.insert(key, name.clone());
        Ok(name)
    }

    /// Key 0 means none.
    pub(super) fn missing<T>(&mut self, key: u64) -> Option<T> {
        self.unresolved += u64::from(key != 0);
        None
    }
}
