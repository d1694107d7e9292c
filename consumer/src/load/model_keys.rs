//! Entries of the model by the keys of the current chunk. Each is resolved once per chunk.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::pool::KeyHash;
use jfr_format::read::Chunk;

use crate::decode::resolver::{NameResolver, RawFrame};
use crate::load::LoadOptions;
use crate::model::{CodePlace, Frame, Id, Model, Stack, Thread};
use crate::warnings::Warnings;

type Result<T> = std::result::Result<T, Error>;

/// A thread, and the title of its process.
type Titled = (Option<Id<Thread>>, Option<Id<Arc<str>>>);

/// Caches of the current chunk.
#[derive(Debug, Default)]
pub(super) struct ModelKeys {
    lines: bool,
    places: bool,
    threads: HashMap<u64, Titled, KeyHash>,
    /// By the keys of the stack and of the called method; 0 means none.
    stacks: HashMap<(u64, u64), Option<Id<Stack>>, KeyHash>,
    states: HashMap<u64, Option<Id<Arc<str>>>, KeyHash>,
    classes: HashMap<u64, Option<Id<Arc<str>>>, KeyHash>,
    frames: HashMap<RawFrame, Id<Frame>, KeyHash>,
    constants: NameResolver,
    /// Frames of the stack being read.
    raw: Vec<RawFrame>,
}

impl ModelKeys {
    pub(super) fn new(options: &LoadOptions) -> Self {
        Self { lines: options.lines, places: options.places, ..Self::default() }
    }

    /// Starts a chunk, whose keys have new meanings.
    pub(super) fn begin(&mut self, chunk: &Chunk) {
        *self = Self {
            lines: self.lines,
            places: self.places,
            constants: NameResolver::new(chunk),
            ..Self::default()
        };
    }

    pub(super) fn thread(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        key: u64,
        warnings: &mut Warnings,
    ) -> Titled {
        if let Some(&known) = self.threads.get(&key) {
            return known;
        }
        let thread = self.constants.thread(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        let title = self.constants.title(chunk, key).ok().flatten().filter(|_| thread.is_some());
        let titled = (thread.map(|t| model.threads.intern(t)), title.map(|title| model.titles.intern(title)));
        self.threads.insert(key, titled);
        titled
    }

    pub(super) fn state(&mut self, chunk: &Chunk, model: &mut Model, key: u64) -> Option<Id<Arc<str>>> {
        if let Some(&known) = self.states.get(&key) {
            return known;
        }
        let id = self.constants.state(chunk, key).map(|name| model.states.intern(name));
        self.states.insert(key, id);
        id
    }

    /// Returns the class of an object. Key 0 means none.
    pub(super) fn class(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        key: u64,
        warnings: &mut Warnings,
    ) -> Option<Id<Arc<str>>> {
        if key == 0 {
            return None;
        }
        if let Some(&known) = self.classes.get(&key) {
            return known;
        }
        let name = self.constants.class(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        let id = name.map(|name| model.classes.intern(name));
        self.classes.insert(key, id);
        id
    }

    /// Returns the name of an event's variant. A key that cannot be resolved adds a warning and has no
    /// name.
    pub(super) fn variant(&mut self, chunk: &Chunk, key: u64, warnings: &mut Warnings) -> Option<Arc<str>> {
        if key == u64::MAX {
            return None;
        }
        self.constants.variant(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        })
    }

    /// Returns the stack with this key, with the `called` method as leaf unless it is 0.
    pub(super) fn stack(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        keys: (u64, u64),
        warnings: &mut Warnings,
    ) -> Option<Id<Stack>> {
        if let Some(&known) = self.stacks.get(&keys) {
            return known;
        }
        let id = self.read_stack(chunk, model, keys).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        self.stacks.insert(keys, id);
        id
    }

    fn read_stack(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        (key, called): (u64, u64),
    ) -> Result<Option<Id<Stack>>> {
        let mut raw = std::mem::take(&mut self.raw);
        let read = self.constants.call_stack(chunk, key, called, &mut raw);
        let frames: Result<Box<[Id<Frame>]>> = raw.iter().map(|raw| self.frame(chunk, model, *raw)).collect();
        self.raw = raw;
        let Some(truncated) = read? else { return Ok(None) };
        Ok(Some(model.stacks.intern(Stack { frames: frames?, truncated })))
    }

    fn frame(&mut self, chunk: &Chunk, model: &mut Model, raw: RawFrame) -> Result<Id<Frame>> {
        let line = if self.lines { raw.line } else { 0 };
        let bytecode_index = if self.places { raw.bytecode_index } else { 0 };
        let raw = RawFrame { line, bytecode_index, ..raw };
        if let Some(&id) = self.frames.get(&raw) {
            return Ok(id);
        }
        let (class, function, kind) = self.constants.frame(chunk, &raw)?;
        let file = if self.places && kind.in_library() {
            self.constants.code_file(chunk, raw.method)?
        } else {
            None
        };
        // For Java, the index is a bytecode index.
        let place = file.map(|file| Arc::new(CodePlace { file, address: raw.bytecode_index as u32 }));
        let id = model.frames.intern(Frame { function, class, kind, line, place });
        self.frames.insert(raw, id);
        Ok(id)
    }
}
