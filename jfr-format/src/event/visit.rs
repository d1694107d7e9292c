//! All fields of an event in one go: the quick level.

use super::{EventRef, Reference, StructRef, ValueRef};
use crate::error::{Error, Malformed};
use crate::read::Field;
use crate::read::cursor::Cursor;
use crate::read::types::Plan;

impl<'a> EventRef<'a> {
    /// Calls `see` with each field in order and its value: what [`fields`](Self::fields) iterates over, several times
    /// as quick.
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn visit(&self, see: impl FnMut(&'a Field, ValueRef<'a>)) -> Result<(), Error> {
        self.fields().visit_in(self.tail, see)
    }
}

impl<'a> StructRef<'a> {
    /// Calls `see` with each field in order and its value.
    ///
    /// # Errors
    /// A value is malformed; the fields before it have been seen.
    #[inline]
    pub fn visit(&self, see: impl FnMut(&'a Field, ValueRef<'a>)) -> Result<(), Error> {
        self.visit_in(self.bytes, see)
    }

    /// `tail` starts with the struct's bytes, and may go on behind them.
    #[inline(always)]
    fn visit_in(&self, tail: &'a [u8], mut see: impl FnMut(&'a Field, ValueRef<'a>)) -> Result<(), Error> {
        let Self { chunk, class, bytes, depth, .. } = *self;
        let mut cursor = Cursor::new(tail);
        for (field, &plan) in class.fields.iter().zip(&class.plans) {
            let start = cursor;
            let value = match plan {
                Plan::Reference => cursor.varint().map(|key| {
                    ValueRef::Reference(Reference { chunk, class: field.class, key, depth: depth + 1 })
                }),
                Plan::Long => cursor.varint().map(|v| ValueRef::Long(v as i64)),
                Plan::Int => cursor.varint().map(|v| ValueRef::Int(v as i32)),
                Plan::Boolean => cursor.byte().map(|v| ValueRef::Boolean(v != 0)),
                _ => self.less_usual(plan, field, &mut cursor),
            };
            match value {
                Ok(value) if cursor.pos() <= bytes.len() => see(field, value),
                _ => return Err(self.fault_of(field, start)),
            }
        }
        Ok(())
    }

    fn less_usual(
        &self,
        plan: Plan,
        field: &'a Field,
        cursor: &mut Cursor<'a>,
    ) -> Result<ValueRef<'a>, Malformed> {
        // Narrow types are stored as the low bits of a varint; the casts take just those.
        Ok(match plan {
            Plan::Byte => ValueRef::Byte(cursor.byte()? as i8),
            Plan::Char => ValueRef::Char(cursor.varint()? as u16),
            Plan::Short => ValueRef::Short(cursor.varint()? as i16),
            Plan::Float => ValueRef::Float(f32::from_bits(cursor.be_u32()?)),
            Plan::Double => ValueRef::Double(f64::from_bits(cursor.be_u64()?)),
            _ => {
                // Places in a struct or list are counted from its bytes, so these must end where it does.
                let mut within = Cursor::at(self.bytes, cursor.pos());
                let value = self.decoder().field(field, &mut within)?;
                cursor.move_to(within.pos());
                value
            }
        })
    }

    /// What is wrong with the field at `start`.
    #[cold]
    fn fault_of(&self, field: &'a Field, start: Cursor<'a>) -> Error {
        let mut cursor = Cursor::at(self.bytes, start.pos());
        match self.value(field, &mut cursor) {
            Err(error) => error,
            Ok(_) => self.fault(Malformed::End, &cursor, field),
        }
    }
}
