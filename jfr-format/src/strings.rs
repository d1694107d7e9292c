//! The six string encodings. We write null, empty and UTF-8 only: some readers refuse the rest.

use crate::constants::*;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::varint;
use bytes::BufMut;
use std::borrow::Cow;

/// A decoded string field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StringRef<'a> {
    /// No string.
    Null,
    /// The text itself. Invalid UTF-8 or UTF-16 is replaced by U+FFFD, as the JDK does.
    Text(Cow<'a, str>),
    /// Key into the pool of `java.lang.String`.
    Pooled(u64),
}

/// Appends `text`: tag and length, then UTF-8; the empty string is its tag alone.
#[inline]
pub fn put(out: &mut impl BufMut, text: &str) {
    if text.is_empty() {
        out.put_u8(STRING_EMPTY);
        return;
    }
    out.put_u8(STRING_UTF8);
    varint::put(out, text.len() as u64);
    out.put_slice(text.as_bytes());
}

/// Appends the null string.
#[inline]
pub fn put_null(out: &mut impl BufMut) {
    out.put_u8(STRING_NULL);
}

/// Reads the string at `*at` and moves `*at` behind it; on error `*at` stays.
///
/// # Errors
/// Truncated input and unknown tags, with the offset of the string.
pub fn get<'a>(input: &'a [u8], at: &mut usize) -> Result<StringRef<'a>, DecodeError> {
    let mut pos = *at;
    let &tag = input.get(pos).ok_or_else(|| truncated(*at))?;
    pos += 1;
    let value = match tag {
        STRING_NULL => StringRef::Null,
        STRING_EMPTY => StringRef::Text(Cow::Borrowed("")),
        STRING_POOLED => StringRef::Pooled(varint::get(input, &mut pos)?),
        STRING_UTF8 => StringRef::Text(String::from_utf8_lossy(sized(input, &mut pos)?)),
        STRING_LATIN1 => StringRef::Text(latin1(sized(input, &mut pos)?)),
        STRING_UTF16 => StringRef::Text(Cow::Owned(utf16(input, &mut pos)?)),
        other => return Err(DecodeError { at: *at, kind: DecodeErrorKind::StringEncoding(other) }),
    };
    *at = pos;
    Ok(value)
}

/// Moves `*at` behind the string there without decoding its text.
///
/// # Errors
/// As [`get`].
pub fn skip(input: &[u8], at: &mut usize) -> Result<(), DecodeError> {
    let mut pos = *at;
    let &tag = input.get(pos).ok_or_else(|| truncated(*at))?;
    pos += 1;
    match tag {
        STRING_NULL | STRING_EMPTY => {}
        STRING_POOLED => {
            varint::get(input, &mut pos)?;
        }
        STRING_UTF8 | STRING_LATIN1 => {
            sized(input, &mut pos)?;
        }
        STRING_UTF16 => {
            for _ in 0..varint::get(input, &mut pos)? {
                varint::get(input, &mut pos)?;
            }
        }
        other => return Err(DecodeError { at: *at, kind: DecodeErrorKind::StringEncoding(other) }),
    }
    *at = pos;
    Ok(())
}

fn truncated(at: usize) -> DecodeError {
    DecodeError { at, kind: DecodeErrorKind::Truncated }
}

fn sized<'a>(input: &'a [u8], pos: &mut usize) -> Result<&'a [u8], DecodeError> {
    let start = *pos;
    let len = varint::get(input, pos)?;
    let len = usize::try_from(len).map_err(|_| truncated(start))?;
    let end = pos.checked_add(len).ok_or_else(|| truncated(start))?;
    let bytes = input.get(*pos..end).ok_or_else(|| truncated(start))?;
    *pos = end;
    Ok(bytes)
}

fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|&b| char::from(b)).collect()),
    }
}

fn utf16(input: &[u8], pos: &mut usize) -> Result<String, DecodeError> {
    let start = *pos;
    let count = varint::get(input, pos)?;
    // A unit takes at least a byte, so the input bounds the allocation.
    if count > input.len().saturating_sub(*pos) as u64 {
        return Err(truncated(start));
    }
    let mut units = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let unit = varint::get(input, pos)?;
        units.push(u16::try_from(unit).unwrap_or(0xfffd));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: StringRef<'_>) {
        let mut at = 0;
        assert_eq!(get(bytes, &mut at), Ok(expected));
        assert_eq!(at, bytes.len());
        let mut at = 0;
        assert_eq!(skip(bytes, &mut at), Ok(()));
        assert_eq!(at, bytes.len());
        for cut in 0..bytes.len() {
            let kind = get(&bytes[..cut], &mut 0).unwrap_err().kind;
            assert_eq!(kind, DecodeErrorKind::Truncated, "cut at {cut}");
            assert_eq!(skip(&bytes[..cut], &mut 0).unwrap_err().kind, kind, "cut at {cut}");
        }
    }

    fn text(text: &str) -> StringRef<'_> {
        StringRef::Text(Cow::Borrowed(text))
    }

    #[test]
    fn all_encodings_are_read() {
        check(&[0], StringRef::Null);
        check(&[1], text(""));
        check(&[2, 0xac, 2], StringRef::Pooled(300));
        check(&[3, 3, b'a', 0xc3, 0xa9], text("aé"));
        check(&[3, 0], text(""));
        check(&[4, 2, b'a', 0xe9, 1], text("aé"));
        check(&[5, 2, b'a', 0xe9], text("aé"));
    }

    #[test]
    fn broken_text_is_replaced() {
        check(&[3, 1, 0xff], text("\u{fffd}"));
        check(&[4, 1, 0x80, 0xb0, 3], text("\u{fffd}")); // lone surrogate d800
        check(&[4, 1, 0xff, 0xff, 0xff, 0xff, 1], text("\u{fffd}")); // beyond 16 bits
    }

    #[test]
    fn unknown_tag_and_endless_length() {
        let error = get(&[0, 9], &mut 1).unwrap_err();
        assert_eq!(error, DecodeError { at: 1, kind: DecodeErrorKind::StringEncoding(9) });
        for tag in [3, 4, 5] {
            let mut bytes = vec![tag];
            bytes.extend([0xff; 9]);
            assert_eq!(get(&bytes, &mut 0).unwrap_err().kind, DecodeErrorKind::Truncated);
            assert_eq!(skip(&bytes, &mut 0).unwrap_err().kind, DecodeErrorKind::Truncated);
        }
    }

    #[test]
    fn written_strings_come_back() {
        for sample in ["", "x", "größer", &"long ".repeat(100)] {
            let mut bytes = Vec::new();
            put(&mut bytes, sample);
            check(&bytes, text(sample));
        }
        let mut bytes = Vec::new();
        put_null(&mut bytes);
        check(&bytes, StringRef::Null);
    }
}
