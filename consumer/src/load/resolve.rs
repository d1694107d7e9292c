//! Keys of a chunk's pools → entries of the model, each looked up once per chunk.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::pool::KeyHash;
use jfr_format::read::Chunk;

use super::constants::{Constants, RawFrame};
use crate::model::{Frame, Id, Model, Stack, Thread};
use crate::warnings::Warnings;

type Result<T> = std::result::Result<T, Error>;

/// Caches of the current chunk.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    lines: bool,
    threads: HashMap<u64, Option<Id<Thread>>, KeyHash>,
    /// By the keys of the stack and of the method that was called from there, 0: none.
    stacks: HashMap<(u64, u64), Option<Id<Stack>>, KeyHash>,
    states: HashMap<u64, Option<Id<Arc<str>>>, KeyHash>,
    classes: HashMap<u64, Option<Id<Arc<str>>>, KeyHash>,
    frames: HashMap<RawFrame, Id<Frame>, KeyHash>,
    constants: Constants,
    /// Of the stack being read.
    raw: Vec<RawFrame>,
}

impl Resolver {
    pub(super) fn new(lines: bool) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Keys mean what they do in `chunk` from here on.
    pub(super) fn begin(&mut self, chunk: &Chunk) {
        *self = Self { lines: self.lines, constants: Constants::of(chunk), ..Self::default() };
    }

    pub(super) fn thread(
        &mut self,
        chunk: &Chunk,
        model: &mut Model,
        key: u64,
        warnings: &mut Warnings,
    ) -> Option<Id<Thread>> {
        if let Some(&known) = self.threads.get(&key) {
            return known;
        }
        let thread = self.constants.thread(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        });
        let id = thread.map(|t| model.threads.intern(t));
        self.threads.insert(key, id);
        id
    }

    pub(super) fn state(&mut self, chunk: &Chunk, model: &mut Model, key: u64) -> Option<Id<Arc<str>>> {
        if let Some(&known) = self.states.get(&key) {
            return known;
        }
        let id = self.constants.state(chunk, key).map(|name| model.states.intern(name));
        self.states.insert(key, id);
        id
    }

    /// The class of an object. 0: none.
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

    /// Which of several things an event tells of. What cannot be resolved is told, and has no name.
    pub(super) fn variant(&mut self, chunk: &Chunk, key: u64, warnings: &mut Warnings) -> Option<Arc<str>> {
        if key == u64::MAX {
            return None;
        }
        self.constants.variant(chunk, key).unwrap_or_else(|error| {
            warnings.push(error);
            None
        })
    }

    /// The stack with this key, or that of a method `called` from there; 0: none.
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
        let read = self.constants.stack_of_call(chunk, key, called, &mut raw);
        let frames: Result<Box<[Id<Frame>]>> = raw.iter().map(|raw| self.frame(chunk, model, *raw)).collect();
        self.raw = raw;
        let Some(truncated) = read? else { return Ok(None) };
        Ok(Some(model.stacks.intern(Stack { frames: frames?, truncated })))
    }

    fn frame(&mut self, chunk: &Chunk, model: &mut Model, raw: RawFrame) -> Result<Id<Frame>> {
        let line = if self.lines { raw.line } else { 0 };
        let raw = RawFrame { line, bytecode_index: 0, ..raw };
        if let Some(&id) = self.frames.get(&raw) {
            return Ok(id);
        }
        let (class, function, kind) = self.constants.frame(chunk, &raw)?;
        let id = model.frames.intern(Frame { function, class, kind, line });
        self.frames.insert(raw, id);
        Ok(id)
    }
}
