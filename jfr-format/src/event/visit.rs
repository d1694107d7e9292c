//! All fields of an event in one go: the quick level.

use super::{EventRef, Reference, StructRef, ValueRef};
use crate::chunk::Chunk;
use crate::constants::STRING_POOLED;
use crate::cursor::Cursor;
use crate::error::{Error, Malformed};
use crate::strings::Short;
use crate::types::Field;
use crate::types::Plan;
use crate::types::layout;

impl<'a> EventRef<'a> {
    /// Calls `see` with each field in order: what [`fields`](Self::fields) iterates over, several times as quick.
    ///
    /// ```no_run
    /// # use jfr_format::{error::Error, event::ValueRef, read::{Input, Item}};
    /// # fn main() -> Result<(), Error> {
    /// let mut input = Input::open("run.jfr".as_ref())?;
    /// while let Some(item) = input.next()? {
    ///     let Item::Events(batch) = item else { continue };
    ///     for event in batch.events() {
    ///         println!("{}", event.class().name);
    ///         event.visit(|field| match field.resolved() {
    ///             ValueRef::Text(text) => println!("  {} = {}", field.name(), text.to_str()),
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

/// A field of an event or struct, met while it is visited: which it is, and where its value lies.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a> {
    of: StructRef<'a>,
    field: &'a Field,
    plan: Plan,
    /// The value, if it is a number: an integer, a key, or the bits of a float. Of a short string its head.
    bits: u64,
    start: usize,
}

impl<'a> FieldRef<'a> {
    /// What the metadata says of it.
    #[inline]
    pub fn field(&self) -> &'a Field {
        self.field
    }

    /// Its name.
    #[inline]
    pub fn name(&self) -> &'a str {
        &self.field.name
    }

    /// Its value as it lies there.
    #[inline(always)]
    pub fn value(&self) -> ValueRef<'a> {
        let bits = self.bits;
        // Narrow types are stored as the low bits of a varint; the casts take just those.
        match self.plan {
            Plan::Long => ValueRef::Long(bits as i64),
            Plan::Int => ValueRef::Int(bits as i32),
            Plan::Short => ValueRef::Short(bits as i16),
            Plan::Char => ValueRef::Char(bits as u16),
            Plan::Boolean => ValueRef::Boolean(bits != 0),
            Plan::Byte => ValueRef::Byte(bits as i8),
            Plan::Float => ValueRef::Float(f32::from_bits(bits as u32)),
            Plan::Double => ValueRef::Double(f64::from_bits(bits)),
            Plan::StructKey | Plan::TextKey | Plan::OtherKey => ValueRef::Reference(self.reference()),
            Plan::Text => match Short::text(bits, self.of.bytes, self.start) {
                Some(text) => ValueRef::Text(text),
                None => self.pooled_text(),
            },
            Plan::Struct | Plan::Array | Plan::Undeclared => self.wide(),
        }
    }

    /// Its value, references followed; structs declared `simpleType` become their one field. The text of a constant is
    /// decoded once per chunk, whoever asks for it. `Null` if a key has no constant.
    #[inline(always)]
    pub fn resolved(&self) -> ValueRef<'a> {
        match self.plan {
            Plan::StructKey => self.reference().record().map_or(ValueRef::Null, ValueRef::Struct),
            Plan::TextKey => self.reference().text(),
            Plan::OtherKey | Plan::Struct => self.value().resolved(),
            _ => self.value(),
        }
    }

    #[inline]
    fn reference(&self) -> Reference<'a> {
        let StructRef { chunk, depth, .. } = self.of;
        Reference { chunk, class: self.field.class, key: self.bits, depth: depth + 1, plan: self.plan }
    }

    #[inline]
    fn pooled_text(&self) -> ValueRef<'a> {
        let mut cursor = Cursor::at(self.of.bytes, self.start);
        if let (Ok(STRING_POOLED), Ok(key), Some(index)) = (cursor.byte(), cursor.varint(), self.field.class)
            && let Some(text) = self.of.chunk.pools.known_text(index, key)
        {
            return ValueRef::Text(text);
        }
        self.wide()
    }

    #[inline(never)]
    fn wide(&self) -> ValueRef<'a> {
        // It has been stepped over, so it is not malformed.
        let mut cursor = Cursor::at(self.of.bytes, self.start);
        self.of.decoder().field(self.field, &mut cursor).unwrap_or(ValueRef::Null)
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

    /// What is wrong with the field at `start`.
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

/// `tail` starts with the struct's bytes, and may go on behind them.
#[inline(always)]
fn walk<'a>(of: StructRef<'a>, tail: &'a [u8], mut see: impl FnMut(FieldRef<'a>)) -> Result<(), Error> {
    // Kept in registers: a struct in memory that is written piece by piece is slow to copy.
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

/// Steps over a value that is not one varint or byte: its bits, if it is a number, and where it ends.
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
                // Elements that take no byte are stepped over whatever their number, but not listed.
                Cursor::at(bytes, start).count()?;
            }
            let classes = chunk.types.classes();
            layout::skip_field(classes, field, &mut cursor, usize::from(depth)).map(|()| 0)?
        }
    };
    Ok((bits, cursor.pos()))
}
