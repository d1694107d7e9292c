//! Cell values of tables.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jfr_format::event::Value;
use jfr_format::read::{Field, Kind};

use super::names::UNNAMED_VIRTUAL;

/// The unit of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// No unit.
    #[default]
    One,
    /// No unit; the bits of the number are unsigned.
    Unsigned,
    /// ns since 1970.
    Time,
    /// ns; the largest number means "infinite".
    Span,
    /// Bytes.
    Bytes,
    /// Bits.
    Bits,
    /// Bytes per second.
    BytesPerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Per second.
    Hertz,
    /// Fraction of 1.
    Share,
    /// An address in memory.
    Address,
}

impl Unit {
    /// The name for programs.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::One | Self::Unsigned => return None,
            Self::Time => "UTC",
            Self::Span => "ns",
            Self::Bytes => "bytes",
            Self::Bits => "bits",
            Self::BytesPerSecond => "bytes/s",
            Self::BitsPerSecond => "bits/s",
            Self::Hertz => "Hz",
            Self::Share => "fraction",
            Self::Address => "address",
        })
    }
}

/// A value of a cell.
#[derive(Clone, Debug, Default)]
pub enum Datum {
    /// No value.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64, Unit),
    /// A floating-point number.
    Real(f64, Unit),
    /// Text.
    Text(Arc<str>),
    /// A name that several objects share, and an id that distinguishes them.
    Named(Arc<str>, u64),
    /// A stack, leaf first.
    Stack(Arc<[Arc<str>]>),
}

impl Datum {
    /// Returns the value that rows are grouped by: virtual threads without a name form one group.
    pub(super) fn grouped(self) -> Self {
        match self {
            Self::Named(name, id) if name.starts_with(UNNAMED_VIRTUAL) => {
                Self::Named("virtual threads".into(), id)
            }
            other => other,
        }
    }

    /// Returns true if there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns true if the value's text equals `text`.
    pub fn is_text(&self, text: &str) -> bool {
        match self {
            Self::Text(own) | Self::Named(own, _) => &**own == text,
            Self::Bool(own) => text == if *own { "true" } else { "false" },
            Self::Int(own, _) => text.parse() == Ok(*own),
            Self::Null | Self::Real(..) | Self::Stack(_) => false,
        }
    }

    /// Returns its magnitude as a number.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Int(v, Unit::Unsigned | Unit::Address) => Some(v as u64 as f64),
            Self::Int(v, _) => Some(v as f64),
            Self::Real(v, _) => Some(v),
            Self::Bool(v) => Some(f64::from(u8::from(v))),
            _ => None,
        }
    }

    /// Returns its unit.
    pub fn unit(&self) -> Unit {
        match *self {
            Self::Int(_, unit) | Self::Real(_, unit) => unit,
            _ => Unit::One,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(..) | Self::Real(..) => 2,
            Self::Text(_) | Self::Named(..) => 3,
            Self::Stack(_) => 4,
        }
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a, u), Self::Int(b, v)) => a == b && u == v,
            (Self::Real(a, u), Self::Real(b, v)) => a.to_bits() == b.to_bits() && u == v,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Named(a, x), Self::Named(b, y)) => x == y && a == b,
            (Self::Stack(a), Self::Stack(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Datum {}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Self::Null => {}
            Self::Bool(v) => v.hash(state),
            Self::Int(v, _) => v.hash(state),
            Self::Real(v, _) => v.to_bits().hash(state),
            Self::Text(v) => v.hash(state),
            Self::Named(v, id) => (v, id).hash(state),
            Self::Stack(v) => v.hash(state),
        }
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(a, Unit::Unsigned | Unit::Address), Self::Int(b, _)) => (*a as u64).cmp(&(*b as u64)),
            (Self::Int(a, _), Self::Int(b, _)) => a.cmp(b),
            (Self::Text(a) | Self::Named(a, _), Self::Text(b) | Self::Named(b, _)) => a.cmp(b),
            (Self::Stack(a), Self::Stack(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }
}

/// How to interpret the numbers of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measure {
    unit: Unit,
    /// Ticks, or the nanoseconds per unit of the field.
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Plain,
    Ticks,
    Nanos(i64),
}

impl Measure {
    /// Derives it from the annotations of a field.
    pub(super) fn from_field(field: &Field) -> Self {
        let unit = |name: &str| field.annotation(name).map(|a| a.value().unwrap_or("TICKS"));
        let scale = |unit: &str| match unit {
            "NANOSECONDS" | "NANOSECONDS_SINCE_EPOCH" => Scale::Nanos(1),
            "MICROSECONDS" => Scale::Nanos(1_000),
            "MILLISECONDS" | "MILLISECONDS_SINCE_EPOCH" => Scale::Nanos(1_000_000),
            "SECONDS" | "SECONDS_SINCE_EPOCH" => Scale::Nanos(1_000_000_000),
            _ => Scale::Ticks,
        };
        if let Some(name) = unit("jdk.jfr.Timestamp") {
            return Self { unit: Unit::Time, scale: scale(name) };
        }
        if let Some(name) = unit("jdk.jfr.Timespan") {
            return Self { unit: Unit::Span, scale: scale(name) };
        }
        let rate = field.annotation("jdk.jfr.Frequency").is_some();
        let bits = field.annotation("jdk.jfr.DataAmount").map(|a| a.value() == Some("BITS"));
        let unit = match (bits, rate) {
            (Some(true), true) => Unit::BitsPerSecond,
            (Some(true), false) => Unit::Bits,
            (Some(false), true) => Unit::BytesPerSecond,
            (Some(false), false) => Unit::Bytes,
            (None, true) => Unit::Hertz,
            (None, false) if field.annotation("jdk.jfr.Percentage").is_some() => Unit::Share,
            (None, false) if field.annotation("jdk.jfr.MemoryAddress").is_some() => Unit::Address,
            (None, false) if field.annotation("jdk.jfr.Unsigned").is_some() => Unit::Unsigned,
            (None, false) => Unit::One,
        };
        Self { unit, scale: Scale::Plain }
    }

    /// Converts a number of an event.
    pub(super) fn datum(self, chunk: &jfr_format::read::Chunk, value: Value<'_>) -> Datum {
        match value {
            Value::Boolean(v) => return Datum::Bool(v),
            Value::Float(v) => return Datum::Real(f64::from(v), self.unit),
            Value::Double(v) => return Datum::Real(v, self.unit),
            _ => {}
        }
        let Some(mut raw) = value.as_i64() else { return Datum::Null };
        if self.unit == Unit::Unsigned {
            raw = match value {
                Value::Byte(v) => i64::from(v as u8),
                Value::Short(v) => i64::from(v as u16),
                Value::Int(v) => i64::from(v as u32),
                _ => raw,
            };
        }
        let nanos = match (self.scale, self.unit, raw) {
            (Scale::Plain, ..) => return Datum::Int(raw, self.unit),
            // The smallest number means "none", and the largest duration "infinite".
            (_, _, i64::MIN) => return Datum::Null,
            (_, Unit::Span, i64::MAX) => raw,
            (Scale::Nanos(scale), ..) => raw.saturating_mul(scale),
            (Scale::Ticks, Unit::Time, _) => chunk.epoch_nanos(raw),
            (Scale::Ticks, ..) => chunk.span_nanos(raw),
        };
        Datum::Int(nanos, self.unit)
    }
}

/// Converts the bits of a binding to a value.
pub(super) fn bits_value(kind: Kind, bits: u64) -> Value<'static> {
    // Narrow types are in the low bits.
    match kind {
        Kind::Boolean => Value::Boolean(bits != 0),
        Kind::Byte => Value::Byte(bits as i8),
        Kind::Char => Value::Char(bits as u16),
        Kind::Short => Value::Short(bits as i16),
        Kind::Int => Value::Int(bits as i32),
        Kind::Long => Value::Long(bits as i64),
        Kind::Float => Value::Float(f32::from_bits(bits as u32)),
        Kind::Double => Value::Double(f64::from_bits(bits)),
        Kind::Text | Kind::Struct => Value::Null,
    }
}
