//! Reads bytes of the input. This is the only module that does so, and it checks every read against the
//! remaining length.
//!
//! No allocation is sized by a number from the input that was not checked against the bytes that are left.

use crate::constants::*;
use crate::error::Malformed;
use crate::strings::{self, Short, StringRef, TextRef, Undecoded};
use crate::varint::{MAX_LEN, simd};

const CONTINUE_BITS: u64 = 0x8080_8080_8080_8080;

/// A position in a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    data: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, pos: 0 }
    }

    /// Starts at `pos`, or at the end if `pos` lies after it.
    // Consumers call this once per event. Without `#[inline]` the cursor is returned through memory, and the
    // position of the walk also stays in memory.
    #[inline]
    pub fn at(data: &'a [u8], pos: usize) -> Self {
        Self { data, pos: pos.min(data.len()) }
    }

    /// Returns the number of bytes consumed so far.
    #[inline]
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.data.len() - self.pos
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.data.get(self.pos..).unwrap_or_default()
    }

    /// Reads one raw byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.data.get(self.pos).ok_or(Malformed::End)?;
        self.pos += 1;
        Ok(byte)
    }

    /// Reads `len` raw bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let bytes = self.rest().get(..len).ok_or(Malformed::End)?;
        self.pos += len;
        Ok(bytes)
    }

    /// Reads 4 raw bytes, big-endian.
    pub fn be_u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.rest().first_chunk::<4>().ok_or(Malformed::End)?;
        self.pos += 4;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Reads 8 raw bytes, big-endian.
    pub fn be_u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.rest().first_chunk::<8>().ok_or(Malformed::End)?;
        self.pos += 8;
        Ok(u64::from_be_bytes(*bytes))
    }

    /// Reads a variable-length integer: little-endian groups of 7 bits; all 8 bits of the ninth byte.
    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match self.data.get(self.pos) {
            None => Err(Malformed::End),
            Some(&first) if first < 0x80 => {
                self.pos += 1;
                Ok(u64::from(first))
            }
            Some(_) => self.varint_long(),
        }
    }

    #[inline]
    fn varint_long(&mut self) -> Result<u64, Malformed> {
        let rest = self.rest();
        let Some(chunk) = rest.first_chunk::<8>() else { return self.varint_near_end() };
        let word = u64::from_le_bytes(*chunk);
        let ends = !word & CONTINUE_BITS;
        if ends == 0 {
            let ninth = *rest.get(8).ok_or(Malformed::End)?;
            self.pos += MAX_LEN;
            return Ok(squeeze(word) | u64::from(ninth) << 56);
        }
        // Bits up to and including the first byte without continuation bit.
        let keep = ends ^ (ends - 1);
        self.pos += (ends.trailing_zeros() as usize) / 8 + 1;
        Ok(squeeze(word & keep))
    }

    /// Reads a varint without a branch on its length. For fields whose lengths change from event to event,
    /// where a mispredicted branch costs more than the decoding.
    #[inline(always)]
    pub fn varint_branchless(&mut self) -> Result<u64, Malformed> {
        let Some((word, len)) = self.short_varint() else { return self.varint() };
        self.pos += len;
        Ok(squeeze(word))
    }

    /// Skips one varint, without a branch on its length.
    #[inline(always)]
    pub fn skip_varint_branchless(&mut self) -> Result<(), Malformed> {
        let Some((_, len)) = self.short_varint() else { return self.varint().map(drop) };
        self.pos += len;
        Ok(())
    }

    /// Returns the raw bytes of a varint of at most eight bytes, and their number. `None` for longer ones,
    /// and near the end of the data.
    #[inline(always)]
    fn short_varint(&self) -> Option<(u64, usize)> {
        let word = u64::from_le_bytes(*self.rest().first_chunk::<8>()?);
        let ends = !word & CONTINUE_BITS;
        if ends == 0 {
            return None;
        }
        Some((word & (ends ^ (ends - 1)), ends.trailing_zeros() as usize / 8 + 1))
    }

    /// Reads a varint with fewer than eight bytes left, as in the last fields of a chunk.
    fn varint_near_end(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, &byte) in self.rest().iter().take(MAX_LEN - 1).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.pos += i + 1;
                return Ok(value);
            }
        }
        Err(Malformed::End)
    }

    /// Skips `n` varints. At the end of the data, the cursor stops after the last complete one.
    #[inline]
    pub fn skip_varints(&mut self, n: u64) -> Result<(), Malformed> {
        let after = simd::skip(self.data, self.pos, n);
        self.pos = after.pos;
        if after.left == 0 { Ok(()) } else { Err(Malformed::End) }
    }

    /// Reads a count of elements, each of at least one byte.
    #[inline]
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.varint()?;
        if count > self.left() as u64 { Err(Malformed::Count) } else { Ok(count as usize) }
    }

    /// Reads a string in any of the six encodings.
    pub fn string(&mut self) -> Result<StringRef<'a>, Malformed> {
        Ok(strings::get(self.data, &mut self.pos)?)
    }

    /// Reads a string in any of the six encodings, without decoding its text.
    #[inline]
    pub fn undecoded(&mut self) -> Result<Undecoded<'a>, Malformed> {
        Ok(strings::get_undecoded(self.data, &mut self.pos)?)
    }

    /// Reads a string of a frequent kind; for any other string the cursor does not move.
    #[inline(always)]
    pub fn short_text(&mut self) -> Option<TextRef<'a>> {
        let (short, size) = Short::parse(self.rest())?;
        let text = Short::text(short.bits(), self.data, self.pos)?;
        self.pos += size;
        Some(text)
    }

    /// Skips a string.
    #[inline]
    pub fn skip_string(&mut self) -> Result<(), Malformed> {
        match self.byte()? {
            STRING_NULL | STRING_EMPTY => Ok(()),
            STRING_POOLED => self.skip_varints(1),
            STRING_UTF8 | STRING_LATIN1 => {
                let len = self.count()?;
                self.bytes(len).map(drop)
            }
            STRING_UTF16 => {
                let len = self.count()?;
                self.skip_varints(len as u64)
            }
            _ => Err(Malformed::StringEncoding),
        }
    }
}

/// Joins the low 7 bits of each byte.
#[inline]
fn squeeze(word: u64) -> u64 {
    let x = word & 0x7f7f_7f7f_7f7f_7f7f;
    let x = (x & 0x007f_007f_007f_007f) | (x & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x3fff_0000_3fff_0000) >> 2;
    (x & 0x0000_0000_0fff_ffff) | (x & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes and value. The first group is the table of the format description.
    const VARINTS: &[(&[u8], u64)] = &[
        (&[0x00], 0),
        (&[0x7f], 127),
        (&[0x80, 0x01], 128),
        (&[0xac, 0x02], 300),
        (&[0x80, 0x80, 0x80, 0x80, 0x01], 1 << 28),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], (1 << 56) - 1),
        (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01], 1 << 56),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], i64::MAX as u64),
        (&[0xff; 9], u64::MAX),
        (&[0xd3, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], (-173i64) as u64),
        (&[0xdf, 0x80, 0x80, 0x00], 95),
        (&[0xb9, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 57),
    ];

    #[test]
    fn varints_are_read_in_middle_and_at_input_end() {
        for &(bytes, value) in VARINTS {
            let mut padded = bytes.to_vec();
            padded.extend([0x55; 16]);
            for data in [bytes, &padded] {
                let mut cursor = Cursor::new(data);
                assert_eq!(cursor.varint(), Ok(value), "{bytes:x?}");
                assert_eq!(cursor.pos(), bytes.len(), "{bytes:x?}");
                let mut cursor = Cursor::new(data);
                assert_eq!(cursor.varint_branchless(), Ok(value), "{bytes:x?}");
                assert_eq!(cursor.pos(), bytes.len(), "{bytes:x?}");
                let mut cursor = Cursor::new(data);
                assert_eq!(cursor.skip_varint_branchless(), Ok(()), "{bytes:x?}");
                assert_eq!(cursor.pos(), bytes.len(), "{bytes:x?}");
            }
            for cut in 0..bytes.len() {
                assert_eq!(Cursor::new(&bytes[..cut]).varint(), Err(Malformed::End));
                assert_eq!(Cursor::new(&bytes[..cut]).varint_branchless(), Err(Malformed::End));
                assert_eq!(Cursor::new(&bytes[..cut]).skip_varint_branchless(), Err(Malformed::End));
            }
        }
    }

    #[test]
    fn skipping_agrees_with_reading() {
        // All sequences of four of the table's varints, at every distance from the end of the data.
        let n = VARINTS.len();
        for code in (0..n.pow(4)).step_by(if cfg!(miri) { 101 } else { 1 }) {
            let picks = [code % n, code / n % n, code / n / n % n, code / n / n / n];
            let data: Vec<u8> = picks.iter().flat_map(|&i| VARINTS[i].0).copied().collect();
            for count in 0..=4u64 {
                let mut read = Cursor::new(&data);
                for _ in 0..count {
                    read.varint().unwrap();
                }
                let mut skipped = Cursor::new(&data);
                skipped.skip_varints(count).unwrap();
                assert_eq!(read.pos(), skipped.pos());
            }
            assert_eq!(Cursor::new(&data).skip_varints(5), Err(Malformed::End));
        }
    }

    #[test]
    fn skipping_a_string_agrees_with_reading_it() {
        let strings: &[&[u8]] = &[
            &[0],
            &[1],
            &[2, 0x81, 0x01],
            &[3, 3, b'a', 0xc3, 0xa9],
            &[4, 3, b'a', 0xbd, 0xb0, 0x03, 0x82, 0xbc, 0x03],
            &[5, 2, b'a', 0xe9],
        ];
        for bytes in strings {
            let mut skip = Cursor::new(bytes);
            assert_eq!(skip.skip_string(), Ok(()));
            assert_eq!(skip.pos(), bytes.len());
            let mut read = Cursor::new(bytes);
            assert!(read.string().is_ok());
            assert_eq!(read.pos(), bytes.len());
            for cut in 0..bytes.len() {
                assert!(Cursor::new(&bytes[..cut]).skip_string().is_err());
                assert!(Cursor::new(&bytes[..cut]).string().is_err());
            }
        }
        assert_eq!(Cursor::new(&[6]).skip_string(), Err(Malformed::StringEncoding));
    }
}
