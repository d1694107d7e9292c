//! Decoded values.

use std::borrow::Cow;

use super::decode::decode_constant;
use super::{ArrayRef, StructRef, TextRef};
use crate::chunk::Chunk;
use crate::error::Error;
use crate::types::Plan;
use crate::types::layout::MAX_DEPTH;
use crate::types::{Class, ClassIndex, Kind};

/// A value of a field, borrowed from the chunk and cheap to copy. Texts, structs, lists and constants are
/// decoded when they are requested.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// No string, or a reference that has no constant.
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
    /// `java.lang.String`; [`TextRef::to_str`] decodes it.
    Text(TextRef<'a>),
    /// An inline struct, or a constant that is one.
    Struct(StructRef<'a>),
    /// A list.
    Array(ArrayRef<'a>),
    /// A key into a constant pool.
    Reference(Reference<'a>),
}

impl<'a> Value<'a> {
    /// Returns any integral value or boolean, widened.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Boolean(v) => Some(i64::from(v)),
            Self::Byte(v) => Some(i64::from(v)),
            Self::Char(v) => Some(i64::from(v)),
            Self::Short(v) => Some(i64::from(v)),
            Self::Int(v) => Some(i64::from(v)),
            Self::Long(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the value with references followed; a struct that is declared `simpleType` becomes its single
    /// field. `Null` if a key has no constant.
    ///
    /// # Errors
    /// The constant is malformed, or is nested too deeply ([`Reference::unbounded`]).
    #[inline]
    pub fn resolved(self) -> Result<Self, Error> {
        match self {
            Self::Reference(_) | Self::Struct(_) => self.followed(),
            plain => Ok(plain),
        }
    }

    /// Returns the value like [`resolved`](Self::resolved), for all fields of many events: the text of a
    /// constant is decoded once per chunk. `Null` also if the constant is malformed.
    #[inline]
    pub fn resolved_or_null(self) -> Self {
        match self {
            Self::Reference(reference) => reference.resolved_or_null(),
            // The contents of a struct or constant were checked when it was skipped.
            Self::Struct(fields) if fields.class.simple => self.followed().unwrap_or(Self::Null),
            plain => plain,
        }
    }

    fn followed(self) -> Result<Self, Error> {
        let mut value = self;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Reference(reference) => reference.resolve()?.unwrap_or(Self::Null),
                Self::Struct(fields) if fields.class.simple && fields.class.fields.len() == 1 => {
                    fields.first()?
                }
                done => return Ok(done),
            };
        }
        Ok(Self::Null)
    }

    /// Decodes the text; follows references, and structs with a single field, declared simple or not.
    ///
    /// # Errors
    /// The constant is malformed.
    pub fn text(self) -> Result<Option<Cow<'a, str>>, Error> {
        let mut value = self.resolved()?;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Text(text) => return Ok(Some(text.to_str())),
                Self::Struct(fields) if fields.class.fields.len() == 1 => fields.first()?.resolved()?,
                _ => return Ok(None),
            };
        }
        Ok(None)
    }

    /// Returns a struct; follows references.
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
    pub(super) chunk: &'a Chunk,
    pub(super) class: Option<ClassIndex>,
    pub(super) key: u64,
    pub(super) depth: u8,
    /// The kind of the class, stored to avoid a lookup.
    pub(super) plan: Plan,
}

impl<'a> Reference<'a> {
    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the type of the pool that it refers to.
    pub fn class(&self) -> Option<&'a Class> {
        self.chunk.types.class(self.class?)
    }

    /// Returns the same reference with the depth of an event's reference. Constants can refer to each other
    /// in circles, so following references stops after about 16 nested constants. This removes that limit,
    /// for callers with a limit of their own. Real recordings have 200 nested constants
    /// (`jdk.OldObjectSample`).
    #[must_use]
    pub fn unbounded(self) -> Self {
        Self { depth: 0, ..self }
    }

    /// Returns the constant; `None` if the key has none, as is usual for key 0.
    ///
    /// # Errors
    /// The constant is malformed, or is nested too deeply ([`unbounded`](Self::unbounded)).
    pub fn resolve(&self) -> Result<Option<Value<'a>>, Error> {
        let Some(class) = self.class else { return Ok(None) };
        decode_constant(self.chunk, class, self.key, self.depth)
    }

    pub(super) fn resolved_or_null(self) -> Value<'a> {
        match self.class() {
            Some(class) if class.textual => self.text(),
            Some(class) if class.kind == Kind::Struct && !class.simple => {
                self.record().map_or(Value::Null, Value::Struct)
            }
            _ => Value::Reference(self).followed().unwrap_or(Value::Null),
        }
    }

    /// Returns the constant of a class that is shown as a string.
    #[inline]
    pub(super) fn text(self) -> Value<'a> {
        match self.class.and_then(|index| self.chunk.pools.known_text(index, self.key)) {
            Some(text) => Value::Text(text),
            None => self.text_first(),
        }
    }

    /// Decodes the text at its first use.
    #[cold]
    #[inline(never)]
    pub(super) fn text_first(self) -> Value<'a> {
        let value = Value::Reference(self).followed().unwrap_or(Value::Null);
        let (Value::Text(text), Some(index)) = (value, self.class) else { return value };
        let kept = self.chunk.pools.keep_text(index, self.key, text.to_str());
        kept.map_or(value, Value::Text)
    }

    /// Returns the constant of a class of structs.
    #[inline]
    pub(super) fn record(self) -> Option<StructRef<'a>> {
        let Self { chunk, key, depth, .. } = self;
        let index = self.class?;
        let class = chunk.types.class(index)?;
        let raw = chunk.pools.get(index, key)?;
        let depth = depth.saturating_add(1);
        Some(StructRef { chunk, class, index, bytes: raw.bytes, offset: raw.offset, depth })
    }
}
