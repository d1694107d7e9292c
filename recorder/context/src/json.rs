//! Labels as the text of a JSON object.

use crate::record::labels;

/// A text of bounded length.
pub(crate) struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    pub(crate) fn new() -> Text<N> {
        Text { len: 0, bytes: [0; N] }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    fn string(&mut self, text: &str) -> Option<()> {
        self.put(b"\"")?;
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.put(&[b'\\', byte])?,
                0..0x20 => {
                    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                    self.put(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)])?;
                }
                _ => self.put(&[byte])?,
            }
        }
        self.put(b"\"")
    }

    fn member(&mut self, key: &str, value: &str) -> Option<()> {
        self.put(if self.len == 1 { b"" } else { b"," })?;
        self.string(key)?;
        self.put(b":")?;
        self.string(value)
    }
}

/// Writes the labels in `attrs` as a JSON object, with the last value of each key; an empty text if there are
/// none. A label that does not fit is omitted as a whole.
pub(crate) fn object<const N: usize>(attrs: &[u8], name_of: impl Fn(u8) -> Option<&'static str>) -> Text<N> {
    let mut text = Text::new();
    for (at, (key, value)) in labels(attrs).enumerate() {
        let later = labels(attrs).skip(at + 1).any(|(other, _)| other == key);
        let (Some(name), Ok(value)) = (name_of(key), core::str::from_utf8(value)) else { continue };
        if later {
            continue;
        }
        let before = text.len;
        let put = if before == 0 { text.put(b"{") } else { Some(()) };
        // Reserve one byte for the closing brace.
        if put.and_then(|()| text.member(name, value)).is_none() || text.len == N {
            text.len = before;
        }
    }
    if text.len != 0 {
        // The loop has reserved this byte.
        let _ = text.put(b"}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;

    fn encoded<const N: usize>(attrs: &[u8]) -> String {
        let names = |key: u8| ["a", "b\"", "c"].get(usize::from(key)).copied();
        String::from_utf8(object::<N>(attrs, names).bytes().to_vec()).unwrap()
    }

    #[test]
    fn values_are_escaped_and_bounded_and_last_value_wins() {
        assert_eq!(encoded::<64>(b""), "");
        assert_eq!(encoded::<64>(b"\x00\x01x\x01\x03\"\n\xc0\x02\x01y\x00\x01z"), r#"{"c":"y","a":"z"}"#);
        assert_eq!(encoded::<64>("\x01\x04\"\nü".as_bytes()), "{\"b\\\"\":\"\\\"\\u000aü\"}");
        // An incomplete label, and an unknown key.
        assert_eq!(encoded::<64>(b"\x07\x01x\x00\x05x"), "");
        // {"a":"1"} takes 9 bytes, the next member 8.
        let two = b"\x00\x011\x02\x012";
        assert_eq!(encoded::<17>(two), r#"{"a":"1","c":"2"}"#);
        assert_eq!(encoded::<16>(two), r#"{"a":"1"}"#);
        assert_eq!(encoded::<9>(two), r#"{"a":"1"}"#);
        assert_eq!(encoded::<8>(two), "");
    }
}
