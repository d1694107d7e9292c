//! The six string encodings. The writer uses null, empty and UTF-8 only, because some readers refuse the
//! others.

use crate::constants::*;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::varint;
use bytes::BufMut;
use std::borrow::Cow;
use std::fmt;

/// A decoded string field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StringRef<'a> {
    /// No string.
    Null,
    /// The text itself. Invalid UTF-8 or UTF-16 is replaced by U+FFFD, as in the JDK.
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

/// Text in the encoding of the recording, decoded on demand.
#[derive(Clone, Copy)]
pub struct TextRef<'a>(Encoded<'a>);

#[derive(Clone, Copy)]
enum Encoded<'a> {
    /// Text, and its length in UTF-16 units.
    Str(&'a str, usize),
    /// ASCII.
    Ascii(&'a [u8]),
    Utf8(&'a [u8]),
    Latin1(&'a [u8]),
    /// Complete varints, one per unit.
    Utf16 {
        units: &'a [u8],
        count: usize,
    },
}

impl<'a> TextRef<'a> {
    /// Returns the text; borrowed if it is UTF-8 or ASCII. Invalid UTF-8 or UTF-16 is replaced by U+FFFD.
    pub fn to_str(self) -> Cow<'a, str> {
        match self.0 {
            Encoded::Str(text, _) => Cow::Borrowed(text),
            Encoded::Ascii(bytes) | Encoded::Utf8(bytes) => utf8(bytes),
            Encoded::Latin1(bytes) => latin1(bytes),
            Encoded::Utf16 { units, count } => Cow::Owned(utf16(units, count)),
        }
    }

    /// Returns its length in UTF-16 units, as in Java.
    #[inline]
    pub fn utf16_len(self) -> usize {
        match self.0 {
            Encoded::Ascii(bytes) | Encoded::Latin1(bytes) => bytes.len(),
            Encoded::Str(_, units) => units,
            Encoded::Utf16 { count, .. } => count,
            Encoded::Utf8(bytes) if bytes.is_ascii() => bytes.len(),
            Encoded::Utf8(bytes) => units(&utf8(bytes)),
        }
    }

    /// Returns true if it is empty.
    pub fn is_empty(self) -> bool {
        match self.0 {
            Encoded::Str(text, _) => text.is_empty(),
            Encoded::Ascii(bytes) | Encoded::Utf8(bytes) | Encoded::Latin1(bytes) => bytes.is_empty(),
            Encoded::Utf16 { count, .. } => count == 0,
        }
    }
}

/// Formats the decoded text like a `str`.
impl fmt::Debug for TextRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_str().fmt(f)
    }
}

impl<'a> From<&'a str> for TextRef<'a> {
    fn from(text: &'a str) -> Self {
        Self(Encoded::Str(text, units(text)))
    }
}

/// Text that is stored separately from the recording.
#[derive(Debug)]
pub(crate) struct OwnedText {
    text: Box<str>,
    units: usize,
}

impl OwnedText {
    #[inline]
    pub(crate) fn text(&self) -> TextRef<'_> {
        TextRef(Encoded::Str(&self.text, self.units))
    }
}

impl From<Cow<'_, str>> for OwnedText {
    fn from(text: Cow<'_, str>) -> Self {
        Self { units: units(&text), text: text.into() }
    }
}

/// Returns the number of UTF-16 units: one for each first byte of a character, and a second one for
/// characters of four bytes.
fn units(text: &str) -> usize {
    text.bytes().map(|b| usize::from(b & 0xc0 != 0x80) + usize::from(b >= 0xf0)).sum()
}

/// The kind of a string, and its length or key, in one number. 0 is not used for any kind.
#[derive(Clone, Copy)]
pub(crate) struct Short(u64);

/// The text is ASCII, in any encoding.
const ASCII: u8 = 0x80;

impl Short {
    /// Parses the string at the start of `input`. Returns it with its size; `None` if it is not of a frequent
    /// kind.
    #[inline(always)]
    pub(crate) fn parse(input: &[u8]) -> Option<(Self, usize)> {
        let [tag, len, rest @ ..] = input else { return None };
        let len @ 0..0x80 = *len else { return None };
        let size = 2 + usize::from(len);
        let kind = match *tag {
            STRING_UTF8 | STRING_LATIN1 => *tag,
            // Java writes short strings this way: one byte per unit, if they are ASCII.
            STRING_UTF16 if rest.get(..usize::from(len))?.is_ascii() => ASCII,
            _ => return None,
        };
        Some((Self(u64::from(len) << 8 | u64::from(kind)), size))
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the text of the string at `at`; `bits` come from [`Short::bits`].
    #[inline(always)]
    pub(crate) fn text(bits: u64, input: &[u8], at: usize) -> Option<TextRef<'_>> {
        let bytes = input.get(at + 2..at + 2 + (bits >> 8) as usize)?;
        Some(TextRef(match bits as u8 {
            ASCII => Encoded::Ascii(bytes),
            STRING_UTF8 => Encoded::Utf8(bytes),
            STRING_LATIN1 => Encoded::Latin1(bytes),
            _ => return None,
        }))
    }
}

/// A string field, its text not yet decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undecoded<'a> {
    Null,
    Text(TextRef<'a>),
    Pooled(u64),
}

/// Reads a string like [`get`], without decoding the text.
#[inline]
pub(crate) fn get_undecoded<'a>(input: &'a [u8], at: &mut usize) -> Result<Undecoded<'a>, DecodeError> {
    let mut pos = *at;
    let &tag = input.get(pos).ok_or_else(|| truncated(*at))?;
    pos += 1;
    let text = match tag {
        STRING_NULL => {
            *at = pos;
            return Ok(Undecoded::Null);
        }
        STRING_EMPTY => Encoded::Str("", 0),
        STRING_POOLED => {
            let key = varint::get(input, &mut pos)?;
            *at = pos;
            return Ok(Undecoded::Pooled(key));
        }
        STRING_UTF8 => Encoded::Utf8(sized(input, &mut pos)?),
        STRING_LATIN1 => Encoded::Latin1(sized(input, &mut pos)?),
        STRING_UTF16 => {
            let start = pos;
            // A unit takes at least one byte.
            let count = varint::get(input, &mut pos)?;
            let count = usize::try_from(count).ok().filter(|&n| n <= input.len().saturating_sub(pos));
            let count = count.ok_or_else(|| truncated(start))?;
            let first = pos;
            varint::skip(input, &mut pos, count as u64)?;
            Encoded::Utf16 { units: input.get(first..pos).unwrap_or_default(), count }
        }
        other => return Err(DecodeError { at: *at, kind: DecodeErrorKind::StringEncoding(other) }),
    };
    *at = pos;
    Ok(Undecoded::Text(TextRef(text)))
}

/// Reads the string at `*at` and moves `*at` to its end; on error `*at` does not change.
///
/// # Errors
/// Truncated input and unknown tags, with the offset of the string.
pub fn get<'a>(input: &'a [u8], at: &mut usize) -> Result<StringRef<'a>, DecodeError> {
    Ok(match get_undecoded(input, at)? {
        Undecoded::Null => StringRef::Null,
        Undecoded::Text(text) => StringRef::Text(text.to_str()),
        Undecoded::Pooled(key) => StringRef::Pooled(key),
    })
}

/// Moves `*at` to the end of the string there, without decoding its text.
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

/// Decodes UTF-8, or HotSpot's form of it: names of threads and classes use the class file's variant, with
/// characters beyond the basic plane as two encoded surrogates, and NUL in two bytes.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(class_file_utf8(bytes)),
    }
}

fn class_file_utf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        text.push_str(chunk.valid());
        rest = rest.get(chunk.valid().len()..).unwrap_or_default();
        let (char, len) = match *rest {
            [0xc0, 0x80, ..] => ('\0', 2),
            [0xed, a @ 0xa0..0xb0, b @ 0x80..0xc0, 0xed, c @ 0xb0..0xc0, d @ 0x80..0xc0, ..] => {
                let high = u32::from(a & 0x0f) << 6 | u32::from(b & 0x3f);
                let low = u32::from(c & 0x0f) << 6 | u32::from(d & 0x3f);
                let code = 0x1_0000 + (high << 10 | low);
                (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
            }
            _ if chunk.invalid().is_empty() => break,
            _ => (char::REPLACEMENT_CHARACTER, chunk.invalid().len()),
        };
        text.push(char);
        rest = rest.get(len..).unwrap_or_default();
    }
    text
}

fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|&b| char::from(b)).collect()),
    }
}

fn utf16(units: &[u8], count: usize) -> String {
    let mut pos = 0;
    // A unit takes at least one byte, so the input limits the allocation.
    let mut text = Vec::with_capacity(count.min(units.len()));
    while let (true, Ok(unit)) = (text.len() < count, varint::get(units, &mut pos)) {
        text.push(u16::try_from(unit).unwrap_or(0xfffd));
    }
    String::from_utf16_lossy(&text)
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
    fn all_string_encodings_are_decoded() {
        check(&[0], StringRef::Null);
        check(&[1], text(""));
        check(&[2, 0xac, 2], StringRef::Pooled(300));
        check(&[3, 3, b'a', 0xc3, 0xa9], text("aé"));
        check(&[3, 0], text(""));
        check(&[4, 2, b'a', 0xe9, 1], text("aé"));
        check(&[5, 2, b'a', 0xe9], text("aé"));
    }

    #[test]
    fn invalid_text_is_replaced() {
        check(&[3, 1, 0xff], text("\u{fffd}"));
        check(&[4, 1, 0x80, 0xb0, 3], text("\u{fffd}")); // lone surrogate d800
        check(&[4, 1, 0xff, 0xff, 0xff, 0xff, 1], text("\u{fffd}")); // beyond 16 bits
    }

    #[test]
    fn modified_utf8_surrogates_and_nul_are_decoded() {
        let crab = [0xed, 0xa0, 0xbe, 0xed, 0xb6, 0x80];
        let bytes = |parts: &[&[u8]]| {
            let body = parts.concat();
            [&[3, body.len() as u8], body.as_slice()].concat()
        };
        check(&bytes(&[b"crab-", &crab]), text("crab-\u{1f980}"));
        check(&bytes(&[&crab, &crab, "é".as_bytes()]), text("\u{1f980}\u{1f980}é"));
        check(&bytes(&[b"a", &[0xc0, 0x80], b"b"]), text("a\0b"));
        // A lone surrogate is not a character; U+10FFFF is the last one.
        check(&bytes(&[&crab[..3], b"x"]), text("\u{fffd}\u{fffd}\u{fffd}x"));
        check(&bytes(&[&[0xed, 0xaf, 0xbf, 0xed, 0xbf, 0xbf]]), text("\u{10ffff}"));
    }

    #[test]
    fn unknown_tag_and_excessive_length_are_errors() {
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
    fn written_strings_round_trip() {
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
