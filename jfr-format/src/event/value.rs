//! Decoded values.

use std::borrow::Cow;

use super::decode::constant_ref;
use super::{ArrayRef, StructRef, TextRef};
use crate::chunk::Chunk;
use crate::error::Error;
use crate::types::Plan;
use crate::types::layout::MAX_DEPTH;
use crate::types::{Class, ClassIndex, Kind};

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
                    fields.first()?.into()
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
                    Self::from(fields.first()?).resolved()?
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

impl<'a> From<ValueRef<'a>> for Value<'a> {
    #[inline]
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Boolean(v) => Self::Boolean(v),
            ValueRef::Byte(v) => Self::Byte(v),
            ValueRef::Char(v) => Self::Char(v),
            ValueRef::Short(v) => Self::Short(v),
            ValueRef::Int(v) => Self::Int(v),
            ValueRef::Long(v) => Self::Long(v),
            ValueRef::Float(v) => Self::Float(v),
            ValueRef::Double(v) => Self::Double(v),
            ValueRef::Text(text) => Self::Text(text.to_str()),
            ValueRef::Struct(fields) => Self::Struct(fields),
            ValueRef::Array(list) => Self::Array(list),
            ValueRef::Reference(reference) => Self::Reference(reference),
        }
    }
}

/// A value as it lies in the event: nothing is decoded that nobody asks for, so it can be copied freely.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
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
    /// `java.lang.String`
    Text(TextRef<'a>),
    /// A struct.
    Struct(StructRef<'a>),
    /// A list.
    Array(ArrayRef<'a>),
    /// A key into a constant pool.
    Reference(Reference<'a>),
}

impl<'a> ValueRef<'a> {
    /// The value, references followed; structs declared `simpleType` become their one field. The text of a constant is
    /// decoded once per chunk, whoever asks for it. `Null` if a key has no constant.
    #[inline]
    pub fn resolved(self) -> Self {
        match self {
            Self::Reference(reference) => reference.resolved(),
            // What is in a struct or constant was checked when it was stepped over.
            Self::Struct(fields) if fields.class.simple => self.followed().unwrap_or(Self::Null),
            plain => plain,
        }
    }

    fn followed(self) -> Result<Self, Error> {
        let mut value = self;
        for _ in 0..MAX_DEPTH {
            value = match value {
                Self::Reference(reference) => reference.constant()?.unwrap_or(Self::Null),
                Self::Struct(fields) if fields.class.simple && fields.class.fields.len() == 1 => {
                    fields.first()?
                }
                done => return Ok(done),
            };
        }
        Ok(Self::Null)
    }

    /// Any integral value or boolean, widened.
    pub fn as_i64(self) -> Option<i64> {
        Value::from(self).as_i64()
    }
}

/// A key into the pool of a type.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) class: Option<ClassIndex>,
    pub(super) key: u64,
    pub(super) depth: u8,
    /// What is known of the class without a look at it.
    pub(super) plan: Plan,
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

    /// The same reference as if it stood in an event. What constants refer to can lead in circles, so following references
    /// ends after some 16 constants within each other; this lifts that bound, for those who keep one of their own. Real
    /// recordings go 200 constants deep (`jdk.OldObjectSample`).
    #[must_use]
    pub fn unbounded(self) -> Self {
        Self { depth: 0, ..self }
    }

    /// The constant; `None` if the key has none, as key 0 usually has.
    ///
    /// # Errors
    /// The constant is malformed, or lies too deep within others ([`unbounded`](Self::unbounded)).
    pub fn resolve(&self) -> Result<Option<Value<'a>>, Error> {
        Ok(self.constant()?.map(Value::from))
    }

    fn constant(&self) -> Result<Option<ValueRef<'a>>, Error> {
        let Some(class) = self.class else { return Ok(None) };
        constant_ref(self.chunk, class, self.key, self.depth)
    }

    pub(super) fn resolved(self) -> ValueRef<'a> {
        match self.class() {
            Some(class) if class.textual => self.text(),
            Some(class) if class.kind == Kind::Struct && !class.simple => {
                self.record().map_or(ValueRef::Null, ValueRef::Struct)
            }
            _ => ValueRef::Reference(self).followed().unwrap_or(ValueRef::Null),
        }
    }

    /// The constant of a class that is shown as a string.
    #[inline]
    pub(super) fn text(self) -> ValueRef<'a> {
        match self.class.and_then(|index| self.chunk.pools.known_text(index, self.key)) {
            Some(text) => ValueRef::Text(text),
            None => self.text_first(),
        }
    }

    /// Nobody asked for its text yet.
    #[cold]
    #[inline(never)]
    pub(super) fn text_first(self) -> ValueRef<'a> {
        let value = ValueRef::Reference(self).followed().unwrap_or(ValueRef::Null);
        let (ValueRef::Text(text), Some(index)) = (value, self.class) else { return value };
        let kept = self.chunk.pools.keep_text(index, self.key, text.to_str());
        kept.map_or(value, ValueRef::Text)
    }

    /// The constant of a class of structs.
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
