//! Whether everything an event refers to has been defined.

use std::collections::HashSet;

use super::batch::{Region, Walk};
use crate::chunk::Chunk;
use crate::constants::{CHECKPOINT_EVENT, STRING_POOLED};
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::types::layout::{self, MAX_DEPTH};
use crate::types::{Class, ClassIndex, Field, Kind};

/// Fields that may be looked at per byte of the chunk, and for nothing: an event whose constants come one by one is looked
/// at again each time, and structs without content cost no byte. What is not found out in time waits for the chunk's end.
const STEPS_PER_BYTE: u64 = 4;
const FREE_STEPS: u64 = 1 << 20;

/// Constants known to be complete: they and all they refer to are defined.
#[derive(Debug, Default)]
pub(crate) struct CompleteConstants {
    steps: u64,
    most_steps: u64,
    complete: HashSet<(ClassIndex, u64)>,
    /// Constants found during the current event: taken back if it turns out incomplete.
    trail: Vec<(ClassIndex, u64)>,
    /// How far into `trail` the constants have been looked into.
    todo: usize,
}

impl CompleteConstants {
    /// Bytes at the start of `region` whose events refer to nothing undefined. `read` is how much of the chunk is there.
    pub(crate) fn prefix(&mut self, chunk: &Chunk, region: &Region, read: u64) -> usize {
        self.most_steps = read.saturating_mul(STEPS_PER_BYTE).saturating_add(FREE_STEPS);
        let mut walk = Walk::new(region);
        loop {
            let before = walk.pos;
            let Some(event) = walk.next() else { return walk.pos };
            if event.type_id <= u64::from(CHECKPOINT_EVENT.0) {
                continue;
            }
            let Some(class) = chunk.types.by_id(event.type_id) else { continue };
            if !self.event(chunk, class, event.payload) {
                return before;
            }
        }
    }

    fn event(&mut self, chunk: &Chunk, class: &Class, payload: &[u8]) -> bool {
        self.trail.clear();
        self.todo = 0;
        let mut good = self.content(chunk, class, payload);
        while let (true, Some(&(class, key))) = (good, self.trail.get(self.todo)) {
            self.todo += 1;
            good = self.constant(chunk, class, key);
        }
        if !good {
            for entry in self.trail.drain(..) {
                self.complete.remove(&entry);
            }
        }
        good
    }

    fn constant(&mut self, chunk: &Chunk, index: ClassIndex, key: u64) -> bool {
        let Some(class) = chunk.types.class(index) else { return true };
        match chunk.pools.get(index, key) {
            Some(raw) => match class.kind {
                Kind::Struct => self.content(chunk, class, raw.bytes),
                _ => true,
            },
            None => key == 0,
        }
    }

    /// Looks through an event or a constant; a malformed one counts as complete, waiting would not mend it.
    fn content(&mut self, chunk: &Chunk, class: &Class, bytes: &[u8]) -> bool {
        self.fields(chunk, class, &mut Cursor::new(bytes), 0).unwrap_or(true)
    }

    /// Ends with the first fault, however deep: to go on from where a nested value failed would cost twice per level.
    fn fields(
        &mut self,
        chunk: &Chunk,
        class: &Class,
        cursor: &mut Cursor<'_>,
        depth: usize,
    ) -> Result<bool, Malformed> {
        for field in class.fields.iter() {
            if !self.field(chunk, field, cursor, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn field(
        &mut self,
        chunk: &Chunk,
        field: &Field,
        cursor: &mut Cursor<'_>,
        depth: usize,
    ) -> Result<bool, Malformed> {
        if !self.step() {
            return Ok(false);
        }
        let classes = chunk.types.classes();
        let Some(index) = field.class else { return Ok(true) };
        let Some(class) = chunk.types.class(index) else { return Ok(true) };
        let plain = !matches!(class.kind, Kind::Struct | Kind::Text);
        if depth >= MAX_DEPTH || class.nothing || (plain && !field.pooled) {
            layout::skip_field(classes, field, cursor, depth)?;
            return Ok(true);
        }
        let count = if field.array { cursor.count()? } else { 1 };
        for _ in 0..count {
            let good = if !self.step() {
                false
            } else if field.pooled {
                let key = cursor.varint()?;
                self.reference(chunk, index, key)
            } else if class.kind == Kind::Text {
                self.text(chunk, index, cursor)?
            } else {
                self.fields(chunk, class, cursor, depth + 1)?
            };
            if !good {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether another step may be taken.
    fn step(&mut self) -> bool {
        self.steps += u64::from(self.steps < self.most_steps);
        self.steps < self.most_steps
    }

    fn text(&mut self, chunk: &Chunk, index: ClassIndex, cursor: &mut Cursor<'_>) -> Result<bool, Malformed> {
        let mut ahead = *cursor;
        cursor.skip_string()?;
        if ahead.byte()? != STRING_POOLED {
            return Ok(true);
        }
        let key = ahead.varint()?;
        Ok(self.reference(chunk, index, key))
    }

    fn reference(&mut self, chunk: &Chunk, index: ClassIndex, key: u64) -> bool {
        if self.complete.contains(&(index, key)) {
            return true;
        }
        if chunk.pools.get(index, key).is_none() {
            return key == 0;
        }
        self.complete.insert((index, key));
        self.trail.push((index, key));
        true
    }
}
