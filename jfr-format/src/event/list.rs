//! Counted lists.

use super::Value;
use super::decode::ValueDecoder;
use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::types::Field;

/// A counted list of values of one type.
#[derive(Clone, Copy, Debug)]
pub struct ArrayRef<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) field: &'a Field,
    pub(super) count: usize,
    pub(super) bytes: &'a [u8],
    pub(super) offset: u64,
    pub(super) depth: u8,
}

impl<'a> ArrayRef<'a> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the elements. Ends after an error.
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
