//! Chosen fields of one event type, looked up once per chunk instead of by name per event.

use super::batch::Frame;
use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::types::layout::{self, Step};
use crate::types::{Class, Kind};

/// A plan that takes chosen fields out of an event's bytes.
#[derive(Clone, Debug)]
pub struct Binding {
    actions: Vec<Action>,
    /// Over the fields behind the last bound one.
    rest: Vec<Step>,
    /// Bit *i*: slot *i* is bound.
    bound: u64,
    slots: usize,
}

#[derive(Clone, Debug)]
enum Action {
    SkipVarint,
    Skip(Vec<Step>),
    Varint(usize),
    Byte(usize),
    Float(usize),
    Double(usize),
}

impl Binding {
    /// Binds the named fields of `class`: slot *i* is `names[i]`. Integers, booleans, floats (as bits) and pool keys
    /// can be bound; a missing field or one of another shape leaves its slot unbound, as do names behind the 64th.
    pub fn new(chunk: &Chunk, class: &Class, names: &[&str]) -> Self {
        let classes = chunk.types.classes();
        let mut binding = Self { actions: Vec::new(), rest: Vec::new(), bound: 0, slots: names.len() };
        let mut skipped = 0;
        for (at, field) in class.fields.iter().enumerate() {
            let slot = names.iter().take(64).position(|&name| *name == *field.name);
            let Some(slot) = slot.filter(|slot| binding.bound >> slot & 1 == 0) else { continue };
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
            match layout::layout_steps(classes, &class.fields[skipped..at]) {
                steps if steps.is_empty() => {}
                steps => match steps[..] {
                    [Step::Varints(n @ 1..=3)] => {
                        binding.actions.extend((0..n).map(|_| Action::SkipVarint));
                    }
                    _ => binding.actions.push(Action::Skip(steps)),
                },
            }
            binding.actions.push(action);
            binding.bound |= 1 << slot;
            skipped = at + 1;
        }
        binding.rest = layout::layout_steps(classes, &class.fields[skipped..]);
        binding
    }

    /// Whether the type has a field for the slot that could be bound.
    #[inline]
    pub fn is_bound(&self, slot: usize) -> bool {
        slot < 64 && self.bound >> slot & 1 == 1
    }

    /// Takes the bound fields out of `payload`, an event of the bound class in the bound chunk; `None` in slots that
    /// are not bound.
    ///
    /// # Errors
    /// The payload is malformed.
    #[inline]
    pub fn read<const N: usize>(&self, chunk: &Chunk, payload: &[u8]) -> Result<[Option<u64>; N], Malformed> {
        let values = self.values::<N>(chunk, payload)?;
        Ok(std::array::from_fn(|slot| self.is_bound(slot).then_some(values[slot])))
    }

    /// As [`read`](Self::read), with 0 in slots that are not bound.
    ///
    /// # Errors
    /// The payload is malformed.
    pub fn values<const N: usize>(&self, chunk: &Chunk, payload: &[u8]) -> Result<[u64; N], Malformed> {
        self.run(chunk, &mut Cursor::new(payload))
    }

    /// As [`values`](Self::values), of an event in its frame: the quickest.
    ///
    /// # Errors
    /// The payload is malformed.
    #[inline(always)]
    pub fn values_in<const N: usize>(&self, chunk: &Chunk, frame: &Frame<'_>) -> Result<[u64; N], Malformed> {
        let mut cursor = Cursor::new(frame.tail);
        match self.run(chunk, &mut cursor) {
            Ok(values) if cursor.pos() <= frame.payload.len() => Ok(values),
            // The values reach into the next event: what is wrong shows without it.
            _ => self.values(chunk, frame.payload),
        }
    }

    /// As [`values`](Self::values), and goes on behind the last field.
    #[inline(always)]
    pub(crate) fn pass<const N: usize>(
        &self,
        chunk: &Chunk,
        cursor: &mut Cursor<'_>,
    ) -> Result<[u64; N], Malformed> {
        let values = self.run(chunk, cursor)?;
        layout::skip(chunk.types.classes(), &self.rest, cursor, 0)?;
        Ok(values)
    }

    #[inline(always)]
    fn run<const N: usize>(&self, chunk: &Chunk, cursor: &mut Cursor<'_>) -> Result<[u64; N], Malformed> {
        debug_assert_eq!(self.slots, N);
        let mut out = [0; N];
        for action in &self.actions {
            let (slot, value) = match *action {
                Action::SkipVarint => {
                    cursor.skip_varint_branchless()?;
                    continue;
                }
                Action::Skip(ref steps) => {
                    layout::skip(chunk.types.classes(), steps, cursor, 0)?;
                    continue;
                }
                Action::Varint(slot) => (slot, cursor.varint_branchless()?),
                Action::Byte(slot) => (slot, u64::from(cursor.byte()?)),
                Action::Float(slot) => (slot, u64::from(cursor.be_u32()?)),
                Action::Double(slot) => (slot, cursor.be_u64()?),
            };
            if let Some(out) = out.get_mut(slot) {
                *out = value;
            }
        }
        Ok(out)
    }
}
