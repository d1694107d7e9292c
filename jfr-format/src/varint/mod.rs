//! Compressed integers: 7 bits a byte, lowest first, high bit = more follows; a ninth byte carries 8 bits.
//!
//! There is no zigzag: a negative `long` takes nine bytes, a negative `int` five.

use crate::error::{DecodeError, DecodeErrorKind};
use bytes::BufMut;

pub(crate) mod simd;

/// Maximum length of an encoding, in bytes.
pub const MAX_LEN: usize = 9;
/// Maximum value of the four-byte padded form.
pub const MAX_PADDED: u32 = (1 << 28) - 1;

/// Returns the length of the shortest encoding of `value` in bytes (1 to 9).
pub const fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    let groups = bits.div_ceil(7);
    if groups > MAX_LEN { MAX_LEN } else { groups }
}

/// Returns the shortest encoding of `value` and its length.
#[inline]
pub fn encode(mut value: u64) -> ([u8; MAX_LEN], usize) {
    let mut out = [0; MAX_LEN];
    for (i, byte) in out.iter_mut().enumerate() {
        if value < 0x80 || i == MAX_LEN - 1 {
            *byte = value as u8;
            return (out, i + 1);
        }
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    (out, MAX_LEN)
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn put(out: &mut impl BufMut, value: u64) {
    // Slices of constant length become stores; one of variable length would be a call of memcpy.
    let group = |i: u32| (value >> (7 * i)) as u8 & 0x7f;
    let more = |i: u32| group(i) | 0x80;
    if value < 1 << 7 {
        out.put_u8(group(0));
    } else if value < 1 << 14 {
        out.put_slice(&[more(0), group(1)]);
    } else if value < 1 << 21 {
        out.put_slice(&[more(0), more(1), group(2)]);
    } else if value < 1 << 28 {
        out.put_slice(&[more(0), more(1), more(2), group(3)]);
    } else if value < 1 << 35 {
        out.put_slice(&[more(0), more(1), more(2), more(3), group(4)]);
    } else {
        let (bytes, len) = encode(value);
        out.put_slice(&bytes[..len]);
    }
}

/// Returns the four-byte form of `value`, so that a size can be filled in later. `None` above [`MAX_PADDED`].
pub fn padded(value: u32) -> Option<[u8; 4]> {
    if value > MAX_PADDED {
        return None;
    }
    let group = |shift: u32| (value >> shift) as u8;
    Some([group(0) | 0x80, group(7) | 0x80, group(14) | 0x80, group(21)])
}

/// Reads the integer at `*at` and moves `*at` to its end; on error `*at` does not change.
///
/// # Errors
/// [`DecodeErrorKind::Truncated`] at `*at` if `input` ends inside it.
#[inline]
pub fn get(input: &[u8], at: &mut usize) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    let rest = input.get(*at..).unwrap_or_default();
    for (i, &byte) in rest.iter().take(MAX_LEN).enumerate() {
        if i == MAX_LEN - 1 {
            *at += MAX_LEN;
            return Ok(value | u64::from(byte) << 56);
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *at += i + 1;
            return Ok(value);
        }
    }
    Err(DecodeError { at: *at, kind: DecodeErrorKind::Truncated })
}

/// Skips `n` integers from `*at` on, many at a time; on error `*at` does not change.
///
/// # Errors
/// [`DecodeErrorKind::Truncated`] at the first integer that is incomplete in `input`.
#[inline]
pub fn skip(input: &[u8], at: &mut usize, n: u64) -> Result<(), DecodeError> {
    let after = simd::skip(input, *at, n);
    if after.left > 0 {
        return Err(DecodeError { at: after.pos, kind: DecodeErrorKind::Truncated });
    }
    *at = after.pos;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, value);
        out
    }

    #[test]
    fn known_varints_are_encoded_and_decoded() {
        let check = |value: u64, bytes: &[u8]| {
            assert_eq!(encoded(value), bytes, "{value}");
            let mut at = 0;
            assert_eq!(get(bytes, &mut at), Ok(value));
            assert_eq!(at, bytes.len());
        };
        check(0, &[0]);
        check(127, &[0x7f]);
        check(128, &[0x80, 1]);
        check(300, &[0xac, 2]);
        check(1 << 28, &[0x80, 0x80, 0x80, 0x80, 1]);
        check((1 << 56) - 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        check(1 << 56, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]);
        check(i64::MAX as u64, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        check(-1i64 as u64, &[0xff; 9]);
        check(-173i64 as u64, &[0xd3, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn binary_powers_and_neighbors_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let bytes = encoded(value);
                assert_eq!(bytes.len(), len(value), "{value:#x}");
                let mut at = 0;
                assert_eq!(get(&bytes, &mut at), Ok(value));
                for cut in 0..bytes.len() {
                    let mut at = 0;
                    let error = get(&bytes[..cut], &mut at).unwrap_err();
                    assert_eq!(error, DecodeError { at: 0, kind: DecodeErrorKind::Truncated });
                    assert_eq!(at, 0);
                }
            }
        }
    }

    #[test]
    fn padded_form_has_four_bytes_and_the_same_value() {
        for value in [0, 1, 95, 127, 128, 1 << 14, 1 << 21, MAX_PADDED] {
            let bytes = padded(value).unwrap();
            let mut at = 0;
            assert_eq!(get(&bytes, &mut at), Ok(u64::from(value)));
            assert_eq!(at, 4);
        }
        assert_eq!(padded(95), Some([0xdf, 0x80, 0x80, 0x00]));
        assert_eq!(padded(MAX_PADDED + 1), None);
    }

    #[test]
    fn start_behind_the_input_is_an_error() {
        assert_eq!(get(&[1], &mut 7).unwrap_err().at, 7);
        assert_eq!(skip(&[1], &mut 7, 1).unwrap_err().at, 7);
        assert_eq!(skip(&[1], &mut 7, 0), Ok(()));
    }
}
