//! The Rust types of event fields, and how they are declared and encoded.

use super::WriteError;
use super::fields::constant_key;
use crate::ids::{Ticks, TypeId};
use crate::schema::{self, Field, Unit, field};
use crate::{strings, varint};
use bytes::{BufMut, BytesMut};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A Rust type whose values can be written into a field of an [`Event`](super::Event).
///
/// | Rust type | field |
/// |---|---|
/// | `bool` | `boolean` |
/// | `i8`, `i16`, `i32`, `i64` | `byte`, `short`, `int`, `long` |
/// | `u8`, `u16`, `u32`, `u64` | the same, marked as unsigned |
/// | `f32`, `f64` | `float`, `double` |
/// | `&str`, `Option<&str>` | a string; `None` is the null string |
/// | [`Duration`] | a time span in nanoseconds; saturates at 292 years |
/// | [`SystemTime`] | a point in time in milliseconds since 1970 |
/// | [`Ticks`] | a point in time of the recording's clock; with [`Unit::Span`] a time span |
/// | [`ThreadKey`], [`StackTraceKey`], [`ClassKey`], [`StringKey`] | a reference to a constant |
/// | `Option` of a key | the same; `None` is null |
///
/// Prefer 16-bit numbers to bytes: JDK Mission Control 9 swaps the signs of `byte` fields.
///
/// The trait is sealed.
pub trait FieldValue: sealed::Encode {}

impl<V: sealed::Encode> FieldValue for V {}

pub(super) mod sealed {
    use super::{BytesMut, Field};

    /// Declares and encodes the values of a type.
    pub trait Encode {
        /// The declaration, without name and label.
        const FIELD: Field;

        /// Appends the value.
        fn encode(self, out: &mut BytesMut);
    }
}

macro_rules! encode {
    ($($rust:ty, $ty:ident, $unit:ident, |$value:ident, $out:ident| $encode:expr;)*) => {
        $(
            impl sealed::Encode for $rust {
                const FIELD: Field = field("", schema::$ty, "").unit(Unit::$unit);

                #[inline]
                fn encode(self, $out: &mut BytesMut) {
                    let $value = self;
                    $encode;
                }
            }
        )*
    };
}

encode! {
    bool, BOOLEAN, None, |value, out| out.put_u8(u8::from(value));
    i8, BYTE, None, |value, out| out.put_i8(value);
    u8, BYTE, Unsigned, |value, out| out.put_u8(value);
    // The bit pattern: sign extension would take nine bytes, which Go's parser refuses.
    i16, SHORT, None, |value, out| varint::put(out, u64::from(value as u16));
    u16, SHORT, Unsigned, |value, out| varint::put(out, u64::from(value));
    i32, INT, None, |value, out| varint::put(out, u64::from(value as u32));
    u32, INT, Unsigned, |value, out| varint::put(out, u64::from(value));
    i64, LONG, None, |value, out| varint::put(out, value as u64);
    u64, LONG, Unsigned, |value, out| varint::put(out, value);
    f32, FLOAT, None, |value, out| out.put_f32(value);
    f64, DOUBLE, None, |value, out| out.put_f64(value);
    &str, STRING, None, |value, out| strings::put(out, value);
    Option<&str>, STRING, None, |value, out| match value {
        Some(text) => strings::put(out, text),
        None => strings::put_null(out),
    };
    Duration, LONG, Nanos, |value, out| {
        let nanos = i64::try_from(value.as_nanos()).unwrap_or(i64::MAX);
        varint::put(out, nanos as u64)
    };
    SystemTime, LONG, EpochMillis, |value, out| varint::put(out, epoch_millis(value) as u64);
    Ticks, LONG, Timestamp, |value, out| varint::put(out, value.0 as u64);
}

/// Returns the time in milliseconds since 1970; saturates.
fn epoch_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident: $ty:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u64);

            impl $name {
                /// Type of the constants.
                pub const TYPE: TypeId = schema::$ty;

                /// Returns the key of a constant that [`ChunkWriter::constant`](super::ChunkWriter::constant)
                /// writes.
                ///
                /// # Errors
                /// [`WriteError::Key`] if the key is not in 1 .. 2³¹.
                pub fn new(key: u64) -> Result<$name, WriteError> {
                    constant_key(key).map($name)
                }

                /// Returns the key.
                pub fn get(self) -> u64 {
                    self.0
                }
            }

            impl sealed::Encode for $name {
                const FIELD: Field = field("", schema::$ty, "").pooled();

                #[inline]
                fn encode(self, out: &mut BytesMut) {
                    varint::put(out, self.0);
                }
            }

            impl sealed::Encode for Option<$name> {
                const FIELD: Field = <$name as sealed::Encode>::FIELD;

                #[inline]
                fn encode(self, out: &mut BytesMut) {
                    varint::put(out, self.map_or(0, |key| key.0));
                }
            }
        )*
    };
}

keys! {
    /// Key of a thread.
    ThreadKey: THREAD;
    /// Key of a stack trace.
    StackTraceKey: STACK_TRACE;
    /// Key of a class.
    ClassKey: CLASS;
    /// Key of a string that many events share.
    StringKey: STRING;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_the_range() {
        assert_eq!(epoch_millis(UNIX_EPOCH + Duration::from_micros(2500)), 2);
        assert_eq!(epoch_millis(UNIX_EPOCH - Duration::from_micros(2500)), -2);
    }

    #[test]
    fn keys_are_checked() {
        assert_eq!(ThreadKey::new(0), Err(WriteError::Key(0)));
        assert_eq!(StackTraceKey::new(1 << 31), Err(WriteError::Key(1 << 31)));
        assert_eq!(StringKey::new(7).map(StringKey::get), Ok(7));
    }
}
