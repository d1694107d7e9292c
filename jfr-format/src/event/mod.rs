//! Events and the values in them, borrowed from the chunk and decoded on demand.

mod decode;
mod list;
mod value;
mod visit;
mod visitor;

use decode::ValueDecoder;

use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::{Error, Malformed};
use crate::types::layout;
use crate::types::{Class, ClassIndex, Field};

pub use crate::strings::TextRef;
pub use decode::constant;
pub use list::{ArrayRef, Elements};
pub use value::{Reference, Value};
pub use visit::FieldRef;
pub use visitor::Visitor;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    pub(crate) chunk: &'a Chunk,
    pub(crate) class: &'a Class,
    pub(crate) index: ClassIndex,
    pub(crate) payload: &'a [u8],
    /// The payload and the bytes after it, as far as they are available.
    pub(crate) tail: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

impl Chunk {
    /// Returns the event of type `type_id` whose fields are `payload`, bytes that the caller has stored;
    /// errors report `offset`. `None` if the type is not declared.
    pub fn event<'a>(&'a self, type_id: u64, payload: &'a [u8], offset: u64) -> Option<EventRef<'a>> {
        let size = u32::try_from(payload.len()).ok()?;
        let (chunk, index) = (self, self.types.class_index(type_id)?);
        let class = self.types.class(index)?;
        Some(EventRef { chunk, class, index, payload, tail: payload, offset, size })
    }
}

impl<'a> EventRef<'a> {
    /// Returns its chunk.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// Returns its type.
    pub fn class(&self) -> &'a Class {
        self.class
    }

    /// Returns the index of its type among the chunk's types.
    pub fn class_index(&self) -> ClassIndex {
        self.index
    }

    /// Returns the offset of its first byte in the input.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns its size in the input, head included, in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the bytes of its fields.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns its fields as a struct.
    pub fn fields(&self) -> StructRef<'a> {
        let head = u64::from(self.size).saturating_sub(self.payload.len() as u64);
        StructRef {
            chunk: self.chunk,
            class: self.class,
            index: self.index,
            bytes: self.payload,
            offset: self.offset + head,
            depth: 0,
        }
    }

    /// Returns the value of the field `name`; `None` if the type has no such field.
    ///
    /// # Errors
    /// A value before or in the field is malformed.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        self.fields().field(name)
    }

    /// Returns the first field, if its name is `startTime`, in ticks of the chunk.
    pub fn start_ticks(&self) -> Option<i64> {
        let first = self.class.fields.first()?;
        if &*first.name != "startTime" || first.pooled || first.array {
            return None;
        }
        Cursor::new(self.payload).varint().ok().map(|ticks| ticks as i64)
    }

    /// Returns the start in nanoseconds since 1970, by the chunk's own header.
    pub fn start_nanos(&self) -> Option<i64> {
        self.start_ticks().map(|ticks| self.chunk.epoch_nanos(ticks))
    }
}

/// The values of one struct, from its first byte on.
#[derive(Clone, Copy, Debug)]
pub struct StructRef<'a> {
    chunk: &'a Chunk,
    class: &'a Class,
    index: ClassIndex,
    bytes: &'a [u8],
    offset: u64,
    depth: u8,
}

impl<'a> StructRef<'a> {
    /// Returns its type.
    pub fn class(&self) -> &'a Class {
        self.class
    }

    /// Returns the index of its type among the chunk's types.
    pub fn class_index(&self) -> ClassIndex {
        self.index
    }

    /// Returns its chunk.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// Iterates over the fields in order, each with its value. Ends after an error.
    pub fn iter(&self) -> Fields<'a> {
        Fields { of: *self, cursor: Cursor::new(self.bytes), next: 0 }
    }

    /// Returns the value of the field `name`; `None` if the type has no such field.
    ///
    /// # Errors
    /// A value before or in the field is malformed.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        let Some(at) = self.class.field_index(name) else { return Ok(None) };
        self.nth(at)
    }

    pub(super) fn first(&self) -> Result<Value<'a>, Error> {
        match self.class.fields.first() {
            Some(field) => self.value(field, &mut Cursor::new(self.bytes)),
            None => Ok(Value::Null),
        }
    }

    fn nth(&self, at: usize) -> Result<Option<Value<'a>>, Error> {
        let Some(field) = self.class.fields.get(at) else { return Ok(None) };
        let mut cursor = Cursor::new(self.bytes);
        for before in &self.class.fields[..at] {
            layout::skip_field(self.chunk.types.classes(), before, &mut cursor, usize::from(self.depth))
                .map_err(|fault| self.fault(fault, &cursor, before))?;
        }
        self.value(field, &mut cursor).map(Some)
    }

    pub(crate) fn value(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Error> {
        self.decoder().field(field, cursor).map_err(|fault| self.fault(fault, cursor, field))
    }

    fn decoder(&self) -> ValueDecoder<'a> {
        ValueDecoder { chunk: self.chunk, offset: self.offset, bytes: self.bytes, depth: self.depth }
    }

    pub(crate) fn fault(&self, fault: Malformed, cursor: &Cursor<'_>, field: &Field) -> Error {
        let at = self.offset + cursor.pos() as u64;
        self.chunk.malformed(fault, at, format!("field {} of {}", field.name, self.class.name))
    }
}

/// Iterates over the fields of a struct.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    of: StructRef<'a>,
    cursor: Cursor<'a>,
    next: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(&'a Field, Value<'a>), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.of.class.fields.get(self.next)?;
        self.next += 1;
        let value = self.of.value(field, &mut self.cursor);
        if value.is_err() {
            self.next = usize::MAX;
        }
        Some(value.map(|value| (field, value)))
    }
}
