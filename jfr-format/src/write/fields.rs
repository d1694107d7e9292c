//! Encodes the fields of one event or constant, and checks them against its declaration.

use super::WriteError;
use crate::ids::Ticks;
use crate::schema::{self, Field, Shape, Type};
use crate::{strings, varint};
use bytes::{BufMut, BytesMut};

/// First key that some reader would truncate.
const KEY_END: u64 = 1 << 31;

/// Takes the values of the fields in their declared order.
///
/// If a value has another kind than declared, or if there are too few or too many, the whole event or
/// constant fails.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    out: &'a mut BytesMut,
    of: &'static Type,
    /// The fields still to come.
    rest: &'static [Field],
    /// Number of structs still to come in the current array, and the fields after the array.
    structs: u64,
    element: &'static [Field],
    after: &'static [Field],
    error: Option<WriteError>,
}

/// Returns `key` if it can be a key of a constant.
pub(super) fn constant_key(key: u64) -> Result<u64, WriteError> {
    if key == 0 || key >= KEY_END { Err(WriteError::Key(key)) } else { Ok(key) }
}

impl<'a> FieldWriter<'a> {
    pub(super) fn new(out: &'a mut BytesMut, of: &'static Type) -> FieldWriter<'a> {
        FieldWriter { out, of, rest: of.constant_fields(), structs: 0, element: &[], after: &[], error: None }
    }

    /// Returns the first error.
    pub(super) fn end(self) -> Result<(), WriteError> {
        match (self.error, self.rest.first()) {
            (Some(error), _) => Err(error),
            (None, Some(field)) => Err(WriteError::Fields { of: self.of.name, field: field.name }),
            (None, None) => Ok(()),
        }
    }

    /// Returns true if a value of `shape` is next, and advances to the field after it.
    #[inline]
    fn expect(&mut self, shape: Shape) -> bool {
        match self.rest.split_first() {
            Some((field, rest)) if field.shape == shape && self.error.is_none() => {
                self.rest = rest;
                if rest.is_empty() && self.structs > 0 {
                    self.next_struct();
                }
                true
            }
            next => {
                let field = next.map_or("", |(field, _)| field.name);
                self.error.get_or_insert(WriteError::Fields { of: self.of.name, field });
                false
            }
        }
    }

    fn next_struct(&mut self) {
        self.structs -= 1;
        self.rest = if self.structs > 0 { self.element } else { self.after };
    }

    /// Writes a point in time or a duration in ticks.
    #[inline]
    pub fn ticks(&mut self, value: Ticks) -> &mut Self {
        if self.expect(Shape::Ticks) {
            varint::put(self.out, value.0 as u64);
        }
        self
    }

    /// Writes a key into the pool of the field's type; 0 = null.
    #[inline]
    pub fn key(&mut self, key: u64) -> &mut Self {
        if key >= KEY_END {
            self.error.get_or_insert(WriteError::Key(key));
        }
        if self.expect(Shape::Key) {
            varint::put(self.out, key);
        }
        self
    }

    /// Writes a `long` (not one in ticks). Unsigned numbers above 2⁶³ are written as their bit pattern.
    #[inline]
    pub fn long(&mut self, value: i64) -> &mut Self {
        if self.expect(Shape::Long) {
            varint::put(self.out, value as u64);
        }
        self
    }

    /// Writes an `int`.
    #[inline]
    pub fn int(&mut self, value: i32) -> &mut Self {
        if self.expect(Shape::Int) {
            // The 32-bit pattern: Go's parser fails with the nine bytes of a negative long.
            varint::put(self.out, u64::from(value as u32));
        }
        self
    }

    /// Writes a `boolean`.
    #[inline]
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        if self.expect(Shape::Boolean) {
            self.out.put_u8(u8::from(value));
        }
        self
    }

    /// Writes a `float`.
    pub fn float(&mut self, value: f32) -> &mut Self {
        if self.expect(Shape::Float) {
            self.out.put_f32(value);
        }
        self
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) -> &mut Self {
        if self.expect(Shape::Text) {
            strings::put(self.out, value);
        }
        self
    }

    /// Writes the null string.
    pub fn null(&mut self) -> &mut Self {
        if self.expect(Shape::Text) {
            strings::put_null(self.out);
        }
        self
    }

    /// Writes an array of bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        if self.expect(Shape::Bytes) {
            varint::put(self.out, value.len() as u64);
            self.out.put_slice(value);
        }
        self
    }

    /// Writes the count of an array of `count` structs; the fields of each must follow.
    pub fn array(&mut self, count: usize) -> &mut Self {
        let element = self.rest.first().and_then(|field| schema::get(field.ty));
        if self.expect(Shape::Structs) {
            varint::put(self.out, count as u64);
            if let (Some(element), true) = (element, count > 0) {
                self.structs = count as u64;
                self.element = element.fields;
                self.after = self.rest;
                self.rest = element.fields;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        ty: crate::ids::TypeId,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<Vec<u8>, WriteError> {
        let mut out = BytesMut::new();
        let mut writer = FieldWriter::new(&mut out, schema::get(ty).unwrap());
        fields(&mut writer);
        writer.end()?;
        Ok(out.to_vec())
    }

    #[test]
    fn values_are_encoded_as_declared() {
        let cpu = written(schema::CPU_INFORMATION, |e| {
            e.ticks(Ticks(300)).string("x86_64").string("").int(-1).int(2).int(128);
        });
        let expected = b"\xac\x02\x03\x06x86_64\x01\xff\xff\xff\xff\x0f\x02\x80\x01";
        assert_eq!(cpu.unwrap(), expected);
        let load = written(schema::CPU_LOAD, |e| {
            e.ticks(Ticks(0)).float(1.0).float(0.5).float(0.0);
        });
        assert_eq!(load.unwrap(), [0, 0x3f, 0x80, 0, 0, 0x3f, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn struct_arrays_are_encoded() {
        let stack = |frames: &[u64]| {
            written(schema::STACK_TRACE, |s| {
                s.boolean(true).array(frames.len());
                for &method in frames {
                    s.key(method).int(0).int(0).key(schema::frame_type::CPP);
                }
            })
        };
        assert_eq!(stack(&[]).unwrap(), [1, 0]);
        assert_eq!(stack(&[7]).unwrap(), [1, 1, 7, 0, 0, 4]);
        assert_eq!(stack(&[7, 300]).unwrap(), [1, 2, 7, 0, 0, 4, 0xac, 2, 0, 0, 4]);
        let one_short = written(schema::STACK_TRACE, |s| {
            s.boolean(true).array(2).key(7).int(0).int(0).key(4);
        });
        assert_eq!(one_short, Err(WriteError::Fields { of: "jdk.types.StackTrace", field: "method" }));
        let bytes = written(schema::CHUNK_HEADER, |c| {
            c.bytes(&[1, 2]);
        });
        assert_eq!(bytes.unwrap(), [2, 1, 2]);
    }

    #[test]
    fn wrong_missing_and_excess_fields_are_rejected() {
        let wrong = |field| Err(WriteError::Fields { of: "jdk.ExecutionSample", field });
        let sample = |fields: fn(&mut FieldWriter<'_>)| written(schema::EXECUTION_SAMPLE, fields);
        assert_eq!(sample(|_| {}), wrong("startTime"));
        assert_eq!(
            sample(|e| {
                e.long(1).key(1).key(1).key(0);
            }),
            wrong("startTime")
        );
        assert_eq!(
            sample(|e| {
                e.ticks(Ticks(1)).key(1).key(1);
            }),
            wrong("state")
        );
        assert_eq!(
            sample(|e| {
                e.ticks(Ticks(1)).key(1).key(1).key(0).key(0);
            }),
            wrong("")
        );
        assert_eq!(
            sample(|e| {
                e.ticks(Ticks(1)).key(1 << 31).key(1).key(0);
            }),
            Err(WriteError::Key(1 << 31))
        );
    }

    #[test]
    fn constant_keys_are_checked() {
        assert_eq!(constant_key(1), Ok(1));
        assert_eq!(constant_key(KEY_END - 1), Ok(KEY_END - 1));
        assert_eq!(constant_key(0), Err(WriteError::Key(0)));
        assert_eq!(constant_key(KEY_END), Err(WriteError::Key(KEY_END)));
    }
}
