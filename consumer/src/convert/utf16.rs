//! Decodes UTF-16 text, which PowerShell 5 writes when output is redirected.

use std::io::{self, Read};

/// Bytes decoded at a time.
const BLOCK: usize = 64 << 10;

/// Byte order of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Returns the byte order that the byte order mark indicates; `None` if the text does not begin with one.
pub fn order(head: &[u8]) -> Option<Order> {
    match head {
        [0xff, 0xfe, ..] => Some(Order::Little),
        [0xfe, 0xff, ..] => Some(Order::Big),
        _ => None,
    }
}

/// Reads UTF-16 as UTF-8; unpaired surrogates become replacement characters.
pub struct Decoder<R> {
    input: R,
    order: Order,
    /// Decoded text, and how much of it has been returned.
    text: Vec<u8>,
    given: usize,
    /// A high surrogate whose low surrogate has not been read yet.
    half: Option<u16>,
}

impl<R: Read> Decoder<R> {
    /// Creates a decoder for `input`, which begins with a byte order mark. The mark is decoded too.
    pub fn new(input: R, order: Order) -> Self {
        Self { input, order, text: Vec::new(), given: 0, half: None }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(BLOCK as u64).read_to_end(&mut bytes)?;
        let is_last = bytes.len() < BLOCK;
        let units = bytes.chunks(2).map(|pair| match (self.order, pair) {
            (Order::Little, &[low, high]) => u16::from_le_bytes([low, high]),
            (Order::Big, &[high, low]) => u16::from_be_bytes([high, low]),
            // An incomplete code unit at the end.
            _ => 0xfffd,
        });
        let mut units: Vec<u16> = self.half.take().into_iter().chain(units).collect();
        if let Some(&last) = units.last()
            && !is_last
            && (0xd800..0xdc00).contains(&last)
        {
            self.half = Some(last);
            units.pop();
        }
        self.text.clear();
        self.given = 0;
        for letter in char::decode_utf16(units) {
            let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.given == self.text.len() {
            self.fill()?;
        }
        let mut left = &self.text[self.given..];
        let read = left.read(to)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_are_decoded() {
        let text = format!("\u{feff}main;é;𝄞 3\n{}", "long;stack 1\n".repeat(9000));
        for order in [Order::Little, Order::Big] {
            let bytes: Vec<u8> = text
                .encode_utf16()
                .flat_map(|unit| if order == Order::Little { unit.to_le_bytes() } else { unit.to_be_bytes() })
                .collect();
            assert_eq!(super::order(&bytes), Some(order));
            let mut read = String::new();
            Decoder::new(&bytes[..], order).read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }

    #[test]
    fn surrogate_pair_across_blocks_is_one_character() {
        let text = format!("{}𝄞x", "a".repeat(BLOCK / 2 - 1));
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut read = String::new();
        Decoder::new(&bytes[..], Order::Little).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }

    #[test]
    fn lone_surrogates_and_odd_bytes_are_replaced() {
        let mut read = String::new();
        Decoder::new(&[0x00, 0xd8, b'a', 0, b'b'][..], Order::Little).read_to_string(&mut read).unwrap();
        assert_eq!(read, "\u{fffd}a\u{fffd}");
    }
}
