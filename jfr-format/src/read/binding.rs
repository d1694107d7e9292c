//! Chosen fields of one event type, looked up once per chunk instead of by name per event.

use super::chunk::Chunk;
use super::cursor::Cursor;
use super::layout::{self, Step};
use super::types::{Class, Kind};
use crate::error::Malformed;

/// A plan that takes chosen fields out of an event's bytes.
#[derive(Clone, Debug)]
pub struct Binding {
    actions: Vec<Action>,
    slots: usize,
}

#[derive(Clone, Debug)]
enum Action {
    Skip(Vec<Step>),
    Varint(usize),
    Byte(usize),
    Float(usize),
    Double(usize),
}

impl Binding {
    /// Binds the named fields of `class`: slot *i* is `names[i]`. Integers, booleans, floats (as bits) and pool keys
    /// can be bound; a missing field or one of another shape leaves its slot `None`.
    pub fn new(chunk: &Chunk, class: &Class, names: &[&str]) -> Self {
        let classes = chunk.types.classes();
        let mut actions = Vec::new();
        let mut skipped = 0;
        for (at, field) in class.fields.iter().enumerate() {
            let Some(slot) = names.iter().position(|&name| *name == *field.name) else { continue };
            let kind = field.class.and_then(|c| chunk.types.class(c)).map(|c| c.kind);
            let action = match kind {
                _ if field.array => continue,
                _ if field.pooled => Action::Varint(slot),
                Some(Kind::Char | Kind::Short | Kind::Int | Kind::Long) => Action::Varint(slot),
                Some(Kind::Boolean | Kind::Byte) => Action::Byte(slot),
                Some(Kind::Float) => Action::Float(slot),
                Some(Kind::Double) => Action::Double(slot),
                Some(Kind::Text | Kind::Struct) | None => continue,
            };
            if at > skipped {
                actions.push(Action::Skip(layout::steps_of(classes, &class.fields[skipped..at])));
            }
            actions.push(action);
            skipped = at + 1;
        }
        Self { actions, slots: names.len() }
    }

    /// Takes the bound fields out of `payload`, an event of the bound class in the bound chunk.
    ///
    /// # Errors
    /// The payload is malformed.
    #[inline]
    pub fn read<const N: usize>(&self, chunk: &Chunk, payload: &[u8]) -> Result<[Option<u64>; N], Malformed> {
        debug_assert_eq!(self.slots, N);
        let mut out = [None; N];
        let mut cursor = Cursor::new(payload);
        for action in &self.actions {
            let (slot, value) = match *action {
                Action::Skip(ref steps) => {
                    layout::skip(chunk.types.classes(), steps, &mut cursor, 0)?;
                    continue;
                }
                Action::Varint(slot) => (slot, cursor.varint()?),
                Action::Byte(slot) => (slot, u64::from(cursor.byte()?)),
                Action::Float(slot) => (slot, u64::from(cursor.be_u32()?)),
                Action::Double(slot) => (slot, cursor.be_u64()?),
            };
            if let Some(out) = out.get_mut(slot) {
                *out = Some(value);
            }
        }
        Ok(out)
    }
}
