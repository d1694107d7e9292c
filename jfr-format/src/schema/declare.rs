//! The parts of a declaration, and the functions with which the tables are written.

use super::structs::{BOOLEAN, BYTE, DOUBLE, FLOAT, INT, LONG, SHORT, STRING};
use crate::ids::TypeId;

/// The purpose of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Declared by name only; its encoding is fixed by the format.
    Primitive,
    /// A struct: its fields, one after another.
    Struct,
    /// A struct with one field, which readers show instead of the type.
    Simple,
    /// An event.
    Event,
    /// An annotation, which describes types and fields.
    Annotation,
}

/// A type of the schema.
#[derive(Debug)]
pub struct Type {
    /// Its id in every chunk that this writer writes.
    pub id: TypeId,
    /// Full name.
    pub name: &'static str,
    /// Its purpose.
    pub kind: Kind,
    /// Name for display; empty = none.
    pub label: &'static str,
    /// A sentence for display; empty = none.
    pub description: &'static str,
    /// Path in the tree of event types.
    pub category: &'static [&'static str],
    /// Fields in the order in which they are encoded.
    pub fields: &'static [Field],
}

/// The declaration of an event type of the caller's own. Its id is the same in all chunks of a file.
#[derive(Debug)]
pub(crate) struct OwnType {
    /// The type, without its fields.
    pub(crate) ty: Type,
    /// Fields in the order in which they are encoded.
    pub(crate) fields: Vec<Field>,
}

/// A field of a [`Type`].
#[derive(Debug, Clone)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Type of the field, or of its elements.
    pub ty: TypeId,
    /// Encoded as a key into the pool of `ty`.
    pub pooled: bool,
    /// Encoded as a count and that many elements.
    pub array: bool,
    /// Name for display; empty = none.
    pub label: &'static str,
    /// Meaning of a number.
    pub unit: Unit,
    /// The field describes the context of the thread's other events (`jdk.jfr.Contextual`).
    pub contextual: bool,
    /// Its encoding.
    pub shape: Shape,
}

/// Meaning of a number in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, or no number.
    None,
    /// An unsigned number.
    Unsigned,
    /// A point in time, ticks.
    Timestamp,
    /// A point in time, ms since 1970.
    EpochMillis,
    /// A duration, ticks.
    Span,
    /// A duration, ns.
    Nanos,
    /// A duration, ms.
    Millis,
    /// Bytes.
    Bytes,
    /// Bytes, unsigned.
    UnsignedBytes,
    /// Bits per second.
    BitRate,
    /// Events per second.
    Frequency,
    /// A duration, µs.
    Micros,
    /// 0 to 1.
    Percentage,
    /// An address.
    Address,
}

/// The encoding of a field, which determines the method of the field writer.
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
    /// Varint of a 16-bit pattern.
    Short,
    /// One byte, a number.
    Byte,
    /// One byte.
    Boolean,
    /// Four bytes.
    Float,
    /// Eight bytes.
    Double,
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
    /// Returns true if it is a single value without parts.
    pub const fn is_scalar(self) -> bool {
        !matches!(self, Shape::Bytes | Shape::Structs | Shape::Unwritten)
    }
}

impl Type {
    /// Returns true if constants of this type may be written.
    pub const fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Struct | Kind::Simple) || self.id.0 == STRING.0
    }

    /// Returns the fields of one constant: those of the type, or the text of a string, which has no field.
    pub(crate) const fn constant_fields(&self) -> &'static [Field] {
        const TEXT: &[Field] = &[field("", STRING, "")];
        if self.id.0 == STRING.0 { TEXT } else { self.fields }
    }

    /// Adds a description for display.
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

pub(crate) const fn field(name: &'static str, ty: TypeId, label: &'static str) -> Field {
    let shape = match ty {
        LONG => Shape::Long,
        INT => Shape::Int,
        SHORT => Shape::Short,
        BYTE => Shape::Byte,
        BOOLEAN => Shape::Boolean,
        FLOAT => Shape::Float,
        DOUBLE => Shape::Double,
        STRING => Shape::Text,
        _ => Shape::Unwritten,
    };
    Field { name, ty, pooled: false, array: false, label, unit: Unit::None, contextual: false, shape }
}

impl Field {
    pub(crate) const fn pooled(mut self) -> Field {
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

    pub(crate) const fn unit(mut self, unit: Unit) -> Field {
        self.unit = unit;
        if matches!(unit, Unit::Timestamp | Unit::Span) {
            self.shape = Shape::Ticks;
        }
        self
    }
}
