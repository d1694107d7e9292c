//! Decodes values of any type.

use super::{ArrayRef, Reference, StructRef, Value};
use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::{Error, Malformed};
use crate::strings::Undecoded;
use crate::types::Plan;
use crate::types::layout::{self, MAX_DEPTH};
use crate::types::{Class, ClassIndex, Field, Kind};

/// Returns the constant `key` of the pool of `class`.
///
/// # Errors
/// The constant is malformed.
pub fn constant<'a>(
    chunk: &'a Chunk,
    index: ClassIndex,
    key: u64,
    depth: usize,
) -> Result<Option<Value<'a>>, Error> {
    decode_constant(chunk, index, key, u8::try_from(depth).unwrap_or(u8::MAX))
}

/// Implements [`constant`] for a stored depth.
pub(super) fn decode_constant<'a>(
    chunk: &'a Chunk,
    index: ClassIndex,
    key: u64,
    depth: u8,
) -> Result<Option<Value<'a>>, Error> {
    let Some(class) = chunk.types.class(index) else { return Ok(None) };
    let Some(raw) = chunk.pools.get(index, key) else { return Ok(None) };
    if class.kind == Kind::Struct && usize::from(depth) <= MAX_DEPTH {
        // The end is not needed: the constant was checked when its checkpoint was read.
        let (bytes, offset, depth) = (raw.bytes, raw.offset, depth + 1);
        return Ok(Some(Value::Struct(StructRef { chunk, class, index, bytes, offset, depth })));
    }
    let mut cursor = Cursor::new(raw.bytes);
    let decoder = ValueDecoder { chunk, offset: raw.offset, bytes: raw.bytes, depth };
    decoder
        .one(class, index, &mut cursor)
        .map(Some)
        .map_err(|fault| chunk.malformed(fault, raw.offset, format!("constant {key} of {}", class.name)))
}

/// Decodes values in `bytes`, which start at `offset` in the input.
#[derive(Clone, Copy)]
pub(super) struct ValueDecoder<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
    pub(super) depth: u8,
}

impl<'a> ValueDecoder<'a> {
    pub(super) fn field(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        if !field.array {
            return self.element(field, cursor);
        }
        let start_of_count = *cursor;
        let count = cursor.count()?;
        let start = cursor.pos();
        *cursor = start_of_count;
        layout::skip_field(self.chunk.types.classes(), field, cursor, usize::from(self.depth))?;
        Ok(Value::Array(ArrayRef {
            chunk: self.chunk,
            field,
            count,
            bytes: self.bytes.get(start..cursor.pos()).unwrap_or_default(),
            offset: self.offset + start as u64,
            depth: self.depth + 1,
        }))
    }

    pub(super) fn element(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        if field.pooled {
            let key = cursor.varint()?;
            let depth = self.depth + 1;
            let (chunk, class, plan) = (self.chunk, field.class, Plan::OtherKey);
            return Ok(Value::Reference(Reference { chunk, class, key, depth, plan }));
        }
        let index = field.class.ok_or(Malformed::UnknownType)?;
        let class = self.chunk.types.class(index).ok_or(Malformed::UnknownType)?;
        self.one(class, index, cursor)
    }

    pub(super) fn one(
        &self,
        class: &'a Class,
        index: ClassIndex,
        cursor: &mut Cursor<'a>,
    ) -> Result<Value<'a>, Malformed> {
        if usize::from(self.depth) > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        // Narrow types are stored as the low bits of a varint; the casts select these bits.
        Ok(match class.kind {
            Kind::Boolean => Value::Boolean(cursor.byte()? != 0),
            Kind::Byte => Value::Byte(cursor.byte()? as i8),
            Kind::Char => Value::Char(cursor.varint()? as u16),
            Kind::Short => Value::Short(cursor.varint()? as i16),
            Kind::Int => Value::Int(cursor.varint()? as i32),
            Kind::Long => Value::Long(cursor.varint()? as i64),
            Kind::Float => Value::Float(f32::from_bits(cursor.be_u32()?)),
            Kind::Double => Value::Double(f64::from_bits(cursor.be_u64()?)),
            Kind::Text => self.text(index, cursor)?,
            Kind::Struct => {
                let start = cursor.pos();
                layout::skip_value(self.chunk.types.classes(), index, cursor)?;
                Value::Struct(StructRef {
                    chunk: self.chunk,
                    class,
                    index,
                    bytes: self.bytes.get(start..cursor.pos()).unwrap_or_default(),
                    offset: self.offset + start as u64,
                    depth: self.depth + 1,
                })
            }
        })
    }

    fn text(&self, index: ClassIndex, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        Ok(match cursor.undecoded()? {
            Undecoded::Null => Value::Null,
            Undecoded::Text(text) => Value::Text(text),
            Undecoded::Pooled(key) => pooled_text(self.chunk, index, key)?,
        })
    }
}

/// Returns the string under `key` in the pool of `index`, the class of strings.
fn pooled_text(chunk: &Chunk, index: ClassIndex, key: u64) -> Result<Value<'_>, Malformed> {
    if let Some(text) = chunk.pools.known_text(index, key) {
        return Ok(Value::Text(text));
    }
    let Some(raw) = chunk.pools.get(index, key) else { return Ok(Value::Null) };
    // A pooled string that refers to another pooled string is invalid: one step only, so no cycle.
    match Cursor::new(raw.bytes).undecoded()? {
        Undecoded::Text(text) => {
            let kept = chunk.pools.keep_text(index, key, text.to_str());
            Ok(Value::Text(kept.unwrap_or(text)))
        }
        Undecoded::Null | Undecoded::Pooled(_) => Ok(Value::Null),
    }
}
