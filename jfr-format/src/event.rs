//! Events and the values in them, borrowed from the chunk and decoded when asked for.

use std::borrow::Cow;

use crate::error::{Error, Malformed};
use crate::read::cursor::Cursor;
use crate::read::layout::{self, MAX_DEPTH};
use crate::read::types::Plan;
use crate::read::{Chunk, Class, ClassIndex, Field, Kind};
use crate::strings::StringRef;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    pub(crate) chunk: &'a Chunk,
    pub(crate) class: &'a Class,
    pub(crate) index: ClassIndex,
    pub(crate) payload: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

impl<'a> EventRef<'a> {
    /// The chunk it belongs to.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// Its type.
    pub fn class(&self) -> &'a Class {
        self.class
    }

    /// Position of its type among the chunk's types.
    pub fn class_index(&self) -> ClassIndex {
        self.index
    }

    /// Offset of its first byte in the input.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its size in the input, head included, in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The bytes of its fields.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Its fields as one struct.
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

    /// The value of the field `name`; `None` if the type has no such field.
    ///
    /// # Errors
    /// A value before or in the field is malformed.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        self.fields().field(name)
    }

    /// The first field, if it is called `startTime`: ticks of the chunk.
    pub fn start_ticks(&self) -> Option<i64> {
        let first = self.class.fields.first()?;
        if &*first.name != "startTime" || first.pooled || first.array {
            return None;
        }
        Cursor::new(self.payload).varint().ok().map(|ticks| ticks as i64)
    }

    /// Start in nanoseconds since 1970, by the chunk's own header.
    pub fn start_nanos(&self) -> Option<i64> {
        self.start_ticks().map(|ticks| self.chunk.epoch_nanos(ticks))
    }
}

/// A decoded value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No string, or a reference with key 0 that has no constant.
    Null,
    /// `boolean`
    Boolean(bool),
    /// `byte`
    Byte(i8),
    /// `char`: a UTF-16 code unit
    Char(u16),
    /// `short`
    Short(i16),
    /// `int`
    Int(i32),
    /// `long`
    Long(i64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `java.lang.String`
    Text(Cow<'a, str>),
    /// An inline struct.
    Struct(StructRef<'a>),
    /// A list.
    Array(ArrayRef<'a>),
    /// A key into a constant pool.
    Reference(Reference<'a>),
}

impl<'a> Value<'a> {
    /// Any integral value or boolean, widened.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Boolean(v) => Some(i64::from(v)),
            Self::Byte(v) => Some(i64::from(v)),
            Self::Char(v) => Some(i64::from(v)),
            Self::Short(v) => Some(i64::from(v)),
            Self::Int(v) => Some(i64::from(v)),
            Self::Long(v) => Some(v),
            _ => None,
        }
    }

    /// The value, references followed; structs declared `simpleType` become their one field.
    ///
    /// # Errors
    /// The constant is malformed.
    #[inline]
    pub fn resolved(self) -> Result<Self, Error> {
        match self {
            Self::Reference(_) | Self::Struct(_) => self.followed(),
            plain => Ok(plain),
        }
    }

    fn followed(self) -> Result<Self, Error> {
        let mut value = self;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Reference(reference) => reference.resolve()?.unwrap_or(Self::Null),
                Self::Struct(fields) if fields.class.simple && fields.class.fields.len() == 1 => {
                    fields.first()?.unwrap_or(Self::Null)
                }
                done => return Ok(done),
            };
        }
        Ok(Self::Null)
    }

    /// Text; references and structs of a single field followed, declared simple or not.
    ///
    /// # Errors
    /// The constant is malformed.
    pub fn text(self) -> Result<Option<Cow<'a, str>>, Error> {
        let mut value = self.resolved()?;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Text(text) => return Ok(Some(text)),
                Self::Struct(fields) if fields.class.fields.len() == 1 => {
                    fields.first()?.unwrap_or(Self::Null).resolved()?
                }
                _ => return Ok(None),
            };
        }
        Ok(None)
    }

    /// A struct, references followed.
    ///
    /// # Errors
    /// The constant is malformed.
    pub fn record(self) -> Result<Option<StructRef<'a>>, Error> {
        let mut value = self;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Reference(reference) => reference.resolve()?.unwrap_or(Self::Null),
                Self::Struct(fields) => return Ok(Some(fields)),
                _ => return Ok(None),
            };
        }
        Ok(None)
    }
}

/// A key into the pool of a type.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    chunk: &'a Chunk,
    class: Option<ClassIndex>,
    key: u64,
    depth: usize,
}

impl<'a> Reference<'a> {
    /// The key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The type whose pool it points into.
    pub fn class(&self) -> Option<&'a Class> {
        self.chunk.types.class(self.class?)
    }

    /// The constant; `None` if the key has none, as key 0 usually has.
    ///
    /// # Errors
    /// The constant is malformed.
    pub fn resolve(&self) -> Result<Option<Value<'a>>, Error> {
        let Some(class) = self.class else { return Ok(None) };
        constant(self.chunk, class, self.key, self.depth)
    }
}

/// The constant `key` of the pool of `class`.
///
/// # Errors
/// The constant is malformed.
pub fn constant<'a>(
    chunk: &'a Chunk,
    index: ClassIndex,
    key: u64,
    depth: usize,
) -> Result<Option<Value<'a>>, Error> {
    let Some(class) = chunk.types.class(index) else { return Ok(None) };
    let Some(raw) = chunk.pools.get(index, key) else { return Ok(None) };
    if class.kind == Kind::Struct && depth <= MAX_DEPTH {
        // Where it ends nobody has to know: it was walked over when its checkpoint was read.
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

/// Some values of one struct, from its first byte on.
#[derive(Clone, Copy, Debug)]
pub struct StructRef<'a> {
    chunk: &'a Chunk,
    class: &'a Class,
    index: ClassIndex,
    bytes: &'a [u8],
    offset: u64,
    depth: usize,
}

impl<'a> StructRef<'a> {
    /// The type.
    pub fn class(&self) -> &'a Class {
        self.class
    }

    /// Position of the type among the chunk's types.
    pub fn class_index(&self) -> ClassIndex {
        self.index
    }

    /// The chunk it belongs to.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// The fields in order, each with its value. Ends after an error.
    pub fn iter(&self) -> Fields<'a> {
        Fields { of: *self, cursor: Cursor::new(self.bytes), next: 0 }
    }

    /// The value of the field `name`; `None` if the type has no such field.
    ///
    /// # Errors
    /// A value before or in the field is malformed.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        let Some(at) = self.class.field_index(name) else { return Ok(None) };
        self.nth(at)
    }

    fn first(&self) -> Result<Option<Value<'a>>, Error> {
        self.nth(0)
    }

    fn nth(&self, at: usize) -> Result<Option<Value<'a>>, Error> {
        let Some(field) = self.class.fields.get(at) else { return Ok(None) };
        let mut cursor = Cursor::new(self.bytes);
        for before in &self.class.fields[..at] {
            layout::skip_field(self.chunk.types.classes(), before, &mut cursor, self.depth)
                .map_err(|fault| self.fault(fault, &cursor, before))?;
        }
        self.value(field, &mut cursor).map(Some)
    }

    /// The value of a field of the usual kinds.
    #[inline(always)]
    fn plain(&self, field: &Field, cursor: &mut Cursor<'a>) -> Option<Result<Value<'a>, Malformed>> {
        Some(match field.plan {
            Plan::Reference => cursor.varint().map(|key| {
                let depth = self.depth + 1;
                Value::Reference(Reference { chunk: self.chunk, class: field.class, key, depth })
            }),
            Plan::Long => cursor.varint().map(|v| Value::Long(v as i64)),
            Plan::Int => cursor.varint().map(|v| Value::Int(v as i32)),
            Plan::Boolean => cursor.byte().map(|v| Value::Boolean(v != 0)),
            Plan::Other => return None,
        })
    }

    pub(crate) fn value(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Error> {
        let decoder =
            ValueDecoder { chunk: self.chunk, offset: self.offset, bytes: self.bytes, depth: self.depth };
        decoder.field(field, cursor).map_err(|fault| self.fault(fault, cursor, field))
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
        let before = self.cursor;
        if let Some(Ok(value)) = self.of.plain(field, &mut self.cursor) {
            return Some(Ok((field, value)));
        }
        self.cursor = before;
        let value = self.of.value(field, &mut self.cursor);
        if value.is_err() {
            self.next = usize::MAX;
        }
        Some(value.map(|value| (field, value)))
    }
}

/// A counted list of values of one type.
#[derive(Clone, Copy, Debug)]
pub struct ArrayRef<'a> {
    chunk: &'a Chunk,
    field: &'a Field,
    count: usize,
    bytes: &'a [u8],
    offset: u64,
    depth: usize,
}

impl<'a> ArrayRef<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements. Ends after an error.
    pub fn iter(&self) -> Elements<'a> {
        Elements { of: *self, cursor: Cursor::new(self.bytes), left: self.count }
    }
}

/// Iterates over the elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    of: ArrayRef<'a>,
    cursor: Cursor<'a>,
    left: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Value<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let ArrayRef { chunk, field, bytes, offset, depth, .. } = self.of;
        let decoder = ValueDecoder { chunk, offset, bytes, depth };
        let value = decoder.element(field, &mut self.cursor).map_err(|fault| {
            self.left = 0;
            let at = offset + self.cursor.pos() as u64;
            chunk.malformed(fault, at, format!("an element of field {}", field.name))
        });
        Some(value)
    }
}

/// Decodes values out of `bytes`, which start at `offset` in the input.
#[derive(Clone, Copy)]
struct ValueDecoder<'a> {
    chunk: &'a Chunk,
    offset: u64,
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> ValueDecoder<'a> {
    fn field(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        if !field.array {
            return self.element(field, cursor);
        }
        let start_of_count = *cursor;
        let count = cursor.count()?;
        let start = cursor.pos();
        *cursor = start_of_count;
        layout::skip_field(self.chunk.types.classes(), field, cursor, self.depth)?;
        Ok(Value::Array(ArrayRef {
            chunk: self.chunk,
            field,
            count,
            bytes: self.bytes.get(start..cursor.pos()).unwrap_or_default(),
            offset: self.offset + start as u64,
            depth: self.depth + 1,
        }))
    }

    fn element(&self, field: &'a Field, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        if field.pooled {
            let key = cursor.varint()?;
            let depth = self.depth + 1;
            return Ok(Value::Reference(Reference { chunk: self.chunk, class: field.class, key, depth }));
        }
        let index = field.class.ok_or(Malformed::UnknownType)?;
        let class = self.chunk.types.class(index).ok_or(Malformed::UnknownType)?;
        self.one(class, index, cursor)
    }

    fn one(
        &self,
        class: &'a Class,
        index: ClassIndex,
        cursor: &mut Cursor<'a>,
    ) -> Result<Value<'a>, Malformed> {
        if self.depth > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        // Narrow types are stored as the low bits of a varint; the casts take just those.
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
        match cursor.string()? {
            StringRef::Null => Ok(Value::Null),
            StringRef::Text(text) => Ok(Value::Text(text)),
            StringRef::Pooled(key) => {
                let Some(raw) = self.chunk.pools.get(index, key) else { return Ok(Value::Null) };
                // A pooled string that is itself pooled makes no sense: one step, so no cycle.
                match Cursor::new(raw.bytes).string()? {
                    StringRef::Text(text) => Ok(Value::Text(text)),
                    StringRef::Null | StringRef::Pooled(_) => Ok(Value::Null),
                }
            }
        }
    }
}
