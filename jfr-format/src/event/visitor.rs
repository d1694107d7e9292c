//! The fastest level: one method per kind of value, and no value is stored in memory as a whole.

use super::decode::ValueDecoder;
use super::{ArrayRef, EventRef, Reference, StructRef, TextRef, Value};
use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::types::Plan;
use crate::types::{Class, Field};

/// Receives the values of fields, by kind. Methods that an implementation marks as `#[inline]` cost almost
/// nothing.
///
/// ```
/// use jfr_format::event::{StructRef, TextRef, Value, Visitor};
/// use jfr_format::read::Field;
///
/// /// Adds up what events say of bytes, and keeps the longest text.
/// #[derive(Default)]
/// struct Sums {
///     bytes: i64,
///     longest: String,
/// }
///
/// impl<'a> Visitor<'a> for Sums {
///     #[inline]
///     fn integer(&mut self, field: &'a Field, value: i64) {
///         if field.annotation("jdk.jfr.DataAmount").is_some() {
///             self.bytes += value;
///         }
///     }
///
///     #[inline]
///     fn text(&mut self, _: &'a Field, text: TextRef<'a>) {
///         if text.utf16_len() > self.longest.len() {
///             self.longest = text.to_str().into_owned();
///         }
///     }
///
///     fn other(&mut self, _: &'a Field, _: Value<'a>) {}
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use jfr_format::{ids::{FileOffset, Ticks}, schema, write::{ChunkWriter, ClockLine, Geometry, StreamOutput}};
/// # let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
/// # let mut pipe = StreamOutput::new(Vec::new());
/// # let mut chunk = ChunkWriter::begin(Geometry::Fixed { size: 32 << 10 }, &line, FileOffset(0), Ticks(0))?;
/// # chunk.event(schema::NOTICE, |e| { e.ticks(Ticks(1)).string("hello"); })?;
/// # chunk.finish(Ticks(3), true, &mut pipe)?;
/// # let mut input = jfr_format::read::Input::bytes(pipe.into_inner().into());
/// let mut sums = Sums::default();
/// while let Some(item) = input.next()? {
///     if let jfr_format::read::Item::Events(batch) = item {
///         for event in batch.events() {
///             event.accept(&mut sums)?;
///         }
///     }
/// }
/// assert_eq!(sums.longest, "hello");
/// # Ok(()) }
/// ```
pub trait Visitor<'a> {
    /// Receives a value of a kind whose method is not implemented. References have been followed.
    fn other(&mut self, field: &'a Field, value: Value<'a>);

    /// `byte`, `short`, `int`, `long`, or `char`: a UTF-16 code unit.
    #[inline]
    fn integer(&mut self, field: &'a Field, value: i64) {
        self.other(field, Value::Long(value));
    }

    /// `boolean`
    #[inline]
    fn boolean(&mut self, field: &'a Field, value: bool) {
        self.other(field, Value::Boolean(value));
    }

    /// `float`
    #[inline]
    fn float(&mut self, field: &'a Field, value: f32) {
        self.other(field, Value::Float(value));
    }

    /// `double`
    #[inline]
    fn double(&mut self, field: &'a Field, value: f64) {
        self.other(field, Value::Double(value));
    }

    /// No string, or a key without constant.
    #[inline]
    fn null(&mut self, field: &'a Field) {
        self.other(field, Value::Null);
    }

    /// `java.lang.String`, or a constant that is shown as one.
    #[inline]
    fn text(&mut self, field: &'a Field, text: TextRef<'a>) {
        self.other(field, Value::Text(text));
    }

    /// A struct, in the event or a constant.
    #[inline]
    fn record(&mut self, field: &'a Field, record: StructRef<'a>) {
        self.other(field, Value::Struct(record));
    }

    /// A list.
    #[inline]
    fn list(&mut self, field: &'a Field, list: ArrayRef<'a>) {
        self.other(field, Value::Array(list));
    }

    /// A key into a constant pool. By default, calls the method for the kind of its constant.
    #[inline(always)]
    fn reference(&mut self, field: &'a Field, reference: Reference<'a>) {
        reference.hand_to(field, self);
    }
}

impl<'a> EventRef<'a> {
    /// Passes the fields in order to `visitor`: the fastest way to read all of them.
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn accept(&self, visitor: &mut impl Visitor<'a>) -> Result<(), Error> {
        let Self { chunk, class, payload: bytes, tail, .. } = *self;
        let head = u64::from(self.size).saturating_sub(bytes.len() as u64);
        match walk(chunk, class, bytes, tail, (self.offset + head, 0), visitor) {
            Ok(()) => Ok(()),
            Err((field, start)) => Err(self.fields().fault_at(field, start)),
        }
    }
}

impl<'a> StructRef<'a> {
    /// Passes the fields in order to `visitor`.
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn accept(&self, visitor: &mut impl Visitor<'a>) -> Result<(), Error> {
        match walk(self.chunk, self.class, self.bytes, self.bytes, (self.offset, self.depth), visitor) {
            Ok(()) => Ok(()),
            Err((field, start)) => Err(self.fault_at(field, start)),
        }
    }
}

impl<'a> Reference<'a> {
    /// Looks the constant up and calls the method of `visitor` for its kind.
    #[inline(always)]
    fn hand_to(self, field: &'a Field, visitor: &mut (impl Visitor<'a> + ?Sized)) {
        match self.plan {
            Plan::StructKey => match self.record() {
                Some(record) => visitor.record(field, record),
                None => visitor.null(field),
            },
            Plan::TextKey => {
                match self.class.and_then(|index| self.chunk.pools.known_text(index, self.key)) {
                    Some(text) => visitor.text(field, text),
                    None => hand(self.text_first(), field, visitor),
                }
            }
            _ => hand(self.resolved_or_null(), field, visitor),
        }
    }
}

/// Calls the method of `visitor` for the kind of `value`.
#[cold]
#[inline(never)]
fn hand<'a>(value: Value<'a>, field: &'a Field, visitor: &mut (impl Visitor<'a> + ?Sized)) {
    match value {
        Value::Null => visitor.null(field),
        Value::Boolean(v) => visitor.boolean(field, v),
        Value::Byte(v) => visitor.integer(field, v.into()),
        Value::Char(v) => visitor.integer(field, v.into()),
        Value::Short(v) => visitor.integer(field, v.into()),
        Value::Int(v) => visitor.integer(field, v.into()),
        Value::Long(v) => visitor.integer(field, v),
        Value::Float(v) => visitor.float(field, v),
        Value::Double(v) => visitor.double(field, v),
        Value::Text(text) => visitor.text(field, text),
        Value::Struct(record) => visitor.record(field, record),
        Value::Array(list) => visitor.list(field, list),
        Value::Reference(reference) => visitor.other(field, Value::Reference(reference)),
    }
}

/// Walks over the fields. `tail` starts with the struct's `bytes`, and may extend beyond them; `place` is
/// their offset and depth. The error is the position of a fault.
#[inline(always)]
fn walk<'a>(
    chunk: &'a Chunk,
    class: &'a Class,
    bytes: &'a [u8],
    tail: &'a [u8],
    place: (u64, u8),
    visitor: &mut impl Visitor<'a>,
) -> Result<(), (&'a Field, usize)> {
    let mut cursor = Cursor::new(tail);
    for (field, &plan) in class.fields.iter().zip(&class.plans) {
        let start = cursor.pos();
        macro_rules! read {
            ($read:expr) => {
                match $read {
                    Ok(value) if cursor.pos() <= bytes.len() => value,
                    _ => return Err((field, start)),
                }
            };
        }
        let reference = |key, plan| Reference { chunk, class: field.class, key, depth: place.1 + 1, plan };
        // A separate call for each kind, which the compiler can merge with the decoding of the value.
        match plan {
            // Narrow types are stored as the low bits of a varint; the casts select these bits.
            Plan::Long => visitor.integer(field, read!(cursor.varint()) as i64),
            Plan::Int => visitor.integer(field, (read!(cursor.varint()) as i32).into()),
            Plan::Short => visitor.integer(field, (read!(cursor.varint()) as i16).into()),
            Plan::Char => visitor.integer(field, (read!(cursor.varint()) as u16).into()),
            Plan::Byte => visitor.integer(field, (read!(cursor.byte()) as i8).into()),
            Plan::Boolean => visitor.boolean(field, read!(cursor.byte()) != 0),
            Plan::Float => visitor.float(field, f32::from_bits(read!(cursor.be_u32()))),
            Plan::Double => visitor.double(field, f64::from_bits(read!(cursor.be_u64()))),
            // The plan is a constant argument, so that the compiler can merge the call with its target.
            Plan::StructKey => visitor.reference(field, reference(read!(cursor.varint()), Plan::StructKey)),
            Plan::TextKey => visitor.reference(field, reference(read!(cursor.varint()), Plan::TextKey)),
            Plan::OtherKey => visitor.reference(field, reference(read!(cursor.varint()), Plan::OtherKey)),
            Plan::Text => match cursor.short_text() {
                Some(text) if cursor.pos() <= bytes.len() => visitor.text(field, text),
                _ => {
                    cursor = Cursor::at(tail, wide(chunk, bytes, place, field, start, visitor)?);
                }
            },
            Plan::Struct | Plan::Array | Plan::Undeclared => {
                cursor = Cursor::at(tail, wide(chunk, bytes, place, field, start, visitor)?);
            }
        }
    }
    Ok(())
}

/// Reads a value of an infrequent kind at `start`. Returns its end.
#[inline(never)]
fn wide<'a>(
    chunk: &'a Chunk,
    bytes: &'a [u8],
    (offset, depth): (u64, u8),
    field: &'a Field,
    start: usize,
    visitor: &mut impl Visitor<'a>,
) -> Result<usize, (&'a Field, usize)> {
    let mut cursor = Cursor::at(bytes, start);
    let decoder = ValueDecoder { chunk, offset, bytes, depth };
    let value = decoder.field(field, &mut cursor).map_err(|_| (field, start))?;
    hand(value.resolved_or_null(), field, visitor);
    Ok(cursor.pos())
}
