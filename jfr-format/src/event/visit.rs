//! Passes all fields of an event to a closure: the fast level.

use super::{EventRef, Reference, StructRef, Value};
use crate::chunk::Chunk;
use crate::constants::STRING_POOLED;
use crate::cursor::Cursor;
use crate::error::{Error, Malformed};
use crate::strings::Short;
use crate::types::Field;
use crate::types::Plan;
use crate::types::layout;

impl<'a> EventRef<'a> {
    /// Calls `see` with each field in order. Several times as fast as iterating over
    /// [`fields`](Self::fields).
    ///
    /// ```no_run
    /// # use jfr_format::{error::Error, event::Value, read::{Input, Item}};
    /// # fn main() -> Result<(), Error> {
    /// let mut input = Input::open("run.jfr".as_ref())?;
    /// while let Some(item) = input.next()? {
    ///     let Item::Events(batch) = item else { continue };
    ///     for event in batch.events() {
    ///         println!("{}", event.class().name);
    ///         event.visit(|field| match field.resolved() {
    ///             Value::Text(text) => println!("  {} = {}", field.name(), text.to_str()),
    ///             other => println!("  {} = {:?}", field.name(), other.as_i64()),
    ///         })?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn visit(&self, see: impl FnMut(FieldRef<'a>)) -> Result<(), Error> {
        let Self { chunk, class, index, payload: bytes, tail, .. } = *self;
        let head = u64::from(self.size).saturating_sub(bytes.len() as u64);
        walk(StructRef { chunk, class, index, bytes, offset: self.offset + head, depth: 0 }, tail, see)
    }
}

/// A field of an event or struct that is being visited, and the position of its value.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a> {
    of: StructRef<'a>,
    field: &'a Field,
    plan: Plan,
    /// The value if it is a number: an integer, a key, or the bits of a float. For a short string its head.
    bits: u64,
    start: usize,
}

impl<'a> FieldRef<'a> {
    /// Returns the field's declaration in the metadata.
    #[inline]
    pub fn field(&self) -> &'a Field {
        self.field
    }

    /// Returns its name.
    #[inline]
    pub fn name(&self) -> &'a str {
        &self.field.name
    }

    /// Returns its value, references not followed.
    #[inline(always)]
    pub fn value(&self) -> Value<'a> {
        let bits = self.bits;
        // Narrow types are stored as the low bits of a varint; the casts select these bits.
        match self.plan {
            Plan::Long => Value::Long(bits as i64),
            Plan::Int => Value::Int(bits as i32),
            Plan::Short => Value::Short(bits as i16),
            Plan::Char => Value::Char(bits as u16),
            Plan::Boolean => Value::Boolean(bits != 0),
            Plan::Byte => Value::Byte(bits as i8),
            Plan::Float => Value::Float(f32::from_bits(bits as u32)),
            Plan::Double => Value::Double(f64::from_bits(bits)),
            Plan::StructKey | Plan::TextKey | Plan::OtherKey => Value::Reference(self.reference()),
            Plan::Text => match Short::text(bits, self.of.bytes, self.start) {
                Some(text) => Value::Text(text),
                None => self.pooled_text(),
            },
            Plan::Struct | Plan::Array | Plan::Undeclared => self.wide(),
        }
    }

    /// Returns its value with references followed, like [`Value::resolved_or_null`].
    #[inline(always)]
    pub fn resolved(&self) -> Value<'a> {
        match self.plan {
            Plan::StructKey => self.reference().record().map_or(Value::Null, Value::Struct),
            Plan::TextKey => self.reference().text(),
            Plan::OtherKey | Plan::Struct => self.value().resolved_or_null(),
            _ => self.value(),
        }
    }

    #[inline]
    fn reference(&self) -> Reference<'a> {
        let StructRef { chunk, depth, .. } = self.of;
        Reference { chunk, class: self.field.class, key: self.bits, depth: depth + 1, plan: self.plan }
    }

    #[inline]
    fn pooled_text(&self) -> Value<'a> {
        let mut cursor = Cursor::at(self.of.bytes, self.start);
        if let (Ok(STRING_POOLED), Ok(key), Some(index)) = (cursor.byte(), cursor.varint(), self.field.class)
            && let Some(text) = self.of.chunk.pools.known_text(index, key)
        {
            return Value::Text(text);
        }
        self.wide()
    }

    #[inline(never)]
    fn wide(&self) -> Value<'a> {
        // The value has been skipped before, so it is not malformed.
        let mut cursor = Cursor::at(self.of.bytes, self.start);
        self.of.decoder().field(self.field, &mut cursor).unwrap_or(Value::Null)
    }
}

impl<'a> StructRef<'a> {
    /// Calls `see` with each field in order.
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn visit(&self, see: impl FnMut(FieldRef<'a>)) -> Result<(), Error> {
        let Self { chunk, class, index, bytes, offset, depth } = *self;
        walk(StructRef { chunk, class, index, bytes, offset, depth }, bytes, see)
    }

    /// Returns the error of the field at `start`.
    #[cold]
    #[inline(never)]
    pub(super) fn fault_at(&self, field: &'a Field, start: usize) -> Error {
        let mut cursor = Cursor::at(self.bytes, start);
        match self.value(field, &mut cursor) {
            Err(error) => error,
            Ok(_) => self.fault(Malformed::End, &cursor, field),
        }
    }
}

/// `tail` starts with the struct's bytes, and may extend beyond them.
#[inline(always)]
fn walk<'a>(of: StructRef<'a>, tail: &'a [u8], mut see: impl FnMut(FieldRef<'a>)) -> Result<(), Error> {
    // In registers: a struct in memory that is written part by part is slow to copy.
    let StructRef { chunk, class, index, bytes, offset, depth } = of;
    let mut start = 0;
    for (field, &plan) in class.fields.iter().zip(&class.plans) {
        let mut cursor = Cursor::at(tail, start);
        let read = match plan {
            Plan::Long
            | Plan::Int
            | Plan::Short
            | Plan::Char
            | Plan::StructKey
            | Plan::TextKey
            | Plan::OtherKey => cursor.varint().map(|bits| (bits, cursor.pos())),
            Plan::Boolean | Plan::Byte => cursor.byte().map(|byte| (u64::from(byte), cursor.pos())),
            Plan::Text => match Short::parse(tail.get(start..).unwrap_or_default()) {
                Some((short, size)) => Ok((short.bits(), start + size)),
                None => pass_wide(chunk, bytes, depth, plan, field, start),
            },
            _ => pass_wide(chunk, bytes, depth, plan, field, start),
        };
        match read {
            Ok((bits, end)) if end <= bytes.len() => {
                let of = StructRef { chunk, class, index, bytes, offset, depth };
                see(FieldRef { of, field, plan, bits, start });
                start = end;
            }
            _ => return Err(StructRef { chunk, class, index, bytes, offset, depth }.fault_at(field, start)),
        }
    }
    Ok(())
}

/// Skips a value that is not a single varint or byte. Returns its bits, if it is a number, and its end.
#[inline(never)]
fn pass_wide(
    chunk: &Chunk,
    bytes: &[u8],
    depth: u8,
    plan: Plan,
    field: &Field,
    start: usize,
) -> Result<(u64, usize), Malformed> {
    let mut cursor = Cursor::at(bytes, start);
    let bits = match plan {
        Plan::Float => u64::from(cursor.be_u32()?),
        Plan::Double => cursor.be_u64()?,
        Plan::Text => cursor.skip_string().map(|()| 0)?,
        _ => {
            if plan == Plan::Array {
                // Elements of zero bytes are skipped for any count, but not listed.
                Cursor::at(bytes, start).count()?;
            }
            let classes = chunk.types.classes();
            layout::skip_field(classes, field, &mut cursor, usize::from(depth)).map(|()| 0)?
        }
    };
    Ok((bits, cursor.pos()))
}
