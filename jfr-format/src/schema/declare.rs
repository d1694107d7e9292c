//! What a declaration consists of, and the words the tables are written in.

use super::structs::{BOOLEAN, BYTE, FLOAT, INT, LONG, STRING};
use crate::ids::TypeId;

/// What a type is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Declared by name only; its encoding is fixed by the format.
    Primitive,
    /// Its fields, one after another.
    Struct,
    /// One field, readers show it instead of the type.
    Simple,
    /// An event.
    Event,
    /// Describes types and fields.
    Annotation,
}

/// A type of the schema.
#[derive(Debug)]
pub struct Type {
    /// Id in every chunk we write.
    pub id: TypeId,
    /// Full name.
    pub name: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// Name for people; empty = none.
    pub label: &'static str,
    /// One sentence for people; empty = none.
    pub description: &'static str,
    /// Path in the tree of event types.
    pub category: &'static [&'static str],
    /// Fields in the order in which they are encoded.
    pub fields: &'static [Field],
}

/// A field of a [`Type`].
#[derive(Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Type of the field, or of its elements.
    pub ty: TypeId,
    /// Encoded as a key into the pool of `ty`.
    pub pooled: bool,
    /// Encoded as a count and that many elements.
    pub array: bool,
    /// Name for people; empty = none.
    pub label: &'static str,
    /// Meaning of a number.
    pub unit: Unit,
    /// Tells of what goes on in the thread meanwhile (`jdk.jfr.Contextual`).
    pub contextual: bool,
    /// How it is encoded.
    pub shape: Shape,
}

/// Meaning of a number in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, or no number.
    None,
    /// Without sign.
    Unsigned,
    /// Point in time, ticks.
    Timestamp,
    /// Point in time, ms since 1970.
    EpochMillis,
    /// Length of time, ticks.
    Span,
    /// Length of time, ns.
    Nanos,
    /// Length of time, ms.
    Millis,
    /// Bytes.
    Bytes,
    /// Bytes, without sign.
    UnsignedBytes,
    /// Bits per second.
    BitRate,
    /// Times per second.
    Frequency,
    /// Length of time, µs.
    Micros,
    /// 0 to 1.
    Percentage,
    /// An address.
    Address,
}

/// How a field is encoded, and so which call of the field writer fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Varint key into a pool.
    Key,
    /// Varint in ticks.
    Ticks,
    /// Varint.
    Long,
    /// Varint of a 32-bit pattern.
    Int,
    /// One byte.
    Boolean,
    /// Four bytes.
    Float,
    /// String, inline.
    Text,
    /// Count and raw bytes.
    Bytes,
    /// Count and structs.
    Structs,
    /// Only declared, never written.
    Unwritten,
}

impl Shape {
    /// Whether it is one value without parts.
    pub const fn is_scalar(self) -> bool {
        !matches!(self, Shape::Bytes | Shape::Structs | Shape::Unwritten)
    }
}

impl Type {
    /// Whether constants of this type may be written.
    pub const fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Struct | Kind::Simple) || self.id.0 == STRING.0
    }

    /// The fields of one constant: those of the type, and the text of a string, which is no field.
    pub(crate) const fn constant_fields(&self) -> &'static [Field] {
        const TEXT: &[Field] = &[field("", STRING, "")];
        if self.id.0 == STRING.0 { TEXT } else { self.fields }
    }

    /// Adds a sentence for people.
    pub(super) const fn about(mut self, description: &'static str) -> Type {
        self.description = description;
        self
    }
}

pub(super) const fn primitive(id: TypeId, name: &'static str) -> Type {
    Type { id, name, kind: Kind::Primitive, label: "", description: "", category: &[], fields: &[] }
}

pub(super) const fn structure(
    id: TypeId,
    name: &'static str,
    label: &'static str,
    fields: &'static [Field],
) -> Type {
    Type { id, name, kind: Kind::Struct, label, description: "", category: &[], fields }
}

pub(super) const fn simple(
    id: TypeId,
    name: &'static str,
    label: &'static str,
    fields: &'static [Field],
) -> Type {
    Type { id, name, kind: Kind::Simple, label, description: "", category: &[], fields }
}

pub(super) const fn event(
    id: TypeId,
    name: &'static str,
    label: &'static str,
    category: &'static [&'static str],
    fields: &'static [Field],
) -> Type {
    Type { id, name, kind: Kind::Event, label, description: "", category, fields }
}

pub(super) const fn annotation(id: TypeId, name: &'static str, fields: &'static [Field]) -> Type {
    Type { id, name, kind: Kind::Annotation, label: "", description: "", category: &[], fields }
}

pub(super) const fn field(name: &'static str, ty: TypeId, label: &'static str) -> Field {
    let shape = match ty {
        LONG => Shape::Long,
        INT => Shape::Int,
        BOOLEAN => Shape::Boolean,
        FLOAT => Shape::Float,
        STRING => Shape::Text,
        _ => Shape::Unwritten,
    };
    Field { name, ty, pooled: false, array: false, label, unit: Unit::None, contextual: false, shape }
}

impl Field {
    pub(super) const fn pooled(mut self) -> Field {
        self.pooled = true;
        self.shape = Shape::Key;
        self
    }

    pub(super) const fn contextual(mut self) -> Field {
        self.contextual = true;
        self
    }

    pub(super) const fn array(mut self) -> Field {
        self.array = true;
        self.shape = match self.ty {
            BYTE => Shape::Bytes,
            STRING => Shape::Unwritten,
            _ => Shape::Structs,
        };
        self
    }

    pub(super) const fn unit(mut self, unit: Unit) -> Field {
        self.unit = unit;
        if matches!(unit, Unit::Timestamp | Unit::Span) {
            self.shape = Shape::Ticks;
        }
        self
    }
}
