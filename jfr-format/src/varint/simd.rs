//! Skips runs of varints, 64 bytes at a time. Together with the map the only unsafe code of the crate.
//!
//! A varint ends at its first byte without a continuation bit, or at its ninth byte in any case. So in 64
//! bytes that start with a varint and have no eight continuation bits in a row, each byte without a
//! continuation bit ends a varint: their number is the number of varints, and a run of n varints ends at the
//! n-th of them. The scalar code handles a block with eight in a row.
//!
//! [`skip_words`] and [`skip_bytes`] do the same with eight bytes and one byte at a time; the tests compare
//! each with the next simpler one.

#![allow(unsafe_code)]

use crate::varint::MAX_LEN;

const CONTINUE_BITS: u64 = 0x8080_8080_8080_8080;
/// Shorter runs do not justify a call that cannot be inlined.
const WIDE_FROM: u64 = 12;

/// The position after skipping varints, and the number of varints that are still to be skipped: not 0 if the
/// data ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) pos: usize,
    pub(crate) left: u64,
}

/// Skips `n` varints from `pos` on, or as many complete ones as there are.
#[inline]
pub(crate) fn skip(data: &[u8], pos: usize, n: u64) -> Skipped {
    let start = Skipped { pos, left: n };
    if n < WIDE_FROM { skip_words(data, start) } else { skip_long(data, start) }
}

fn skip_long(data: &[u8], start: Skipped) -> Skipped {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        // SAFETY: this code is compiled for processors with the feature that the function requires.
        return unsafe { x86::skip_blocks(data, start) };
    }
    skip_words(data, start)
}

/// Skips eight bytes at a time.
#[inline]
pub(crate) fn skip_words(data: &[u8], mut at: Skipped) -> Skipped {
    while at.left > 0 {
        let Some(chunk) = data.get(at.pos..).and_then(|rest| rest.first_chunk::<8>()) else {
            return skip_bytes(data, at);
        };
        let mut ends = !u64::from_le_bytes(*chunk) & CONTINUE_BITS;
        let count = u64::from(ends.count_ones());
        if count == 0 {
            if data.len() - at.pos < MAX_LEN {
                return at;
            }
            at = Skipped { pos: at.pos + MAX_LEN, left: at.left - 1 };
        } else if count <= at.left {
            at = Skipped { pos: at.pos + 8 - ends.leading_zeros() as usize / 8, left: at.left - count };
        } else {
            for _ in 1..at.left {
                ends &= ends - 1;
            }
            at = Skipped { pos: at.pos + ends.trailing_zeros() as usize / 8 + 1, left: 0 };
        }
    }
    at
}

/// Skips one byte at a time, exactly as the format defines it.
#[inline(never)]
pub(crate) fn skip_bytes(data: &[u8], mut at: Skipped) -> Skipped {
    while at.left > 0 {
        let rest = data.get(at.pos..).unwrap_or_default();
        let len = rest.iter().take(MAX_LEN - 1).position(|byte| byte & 0x80 == 0).map_or(MAX_LEN, |i| i + 1);
        if len > rest.len() {
            return at;
        }
        at = Skipped { pos: at.pos + len, left: at.left - 1 };
    }
    at
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_loadu_si256, _mm256_movemask_epi8, _pdep_u64, _popcnt64, _tzcnt_u64,
    };

    use super::{Skipped, skip_words};

    /// Skips 64 bytes at a time.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn skip_blocks(data: &[u8], mut at: Skipped) -> Skipped {
        while at.left > 0 {
            let Some(block) = data.get(at.pos..).and_then(|rest| rest.first_chunk::<64>()) else { break };
            let more = continuation_bits(block);
            // Bit i: bytes i to i + 7 all have a continuation bit.
            let mut runs = more & more >> 1;
            runs &= runs >> 2;
            runs &= runs >> 4;
            if runs != 0 {
                // Skip the long one, but not many more: the next block may have no long one again.
                let few = at.left.min(8);
                let after = skip_words(data, Skipped { pos: at.pos, left: few });
                at = Skipped { pos: after.pos, left: at.left - few + after.left };
                if after.left > 0 {
                    return at;
                }
                continue;
            }
            let ends = !more;
            let count = _popcnt64(ends as i64) as u64;
            if count >= at.left {
                let nth = _pdep_u64(1 << (at.left - 1), ends);
                return Skipped { pos: at.pos + _tzcnt_u64(nth) as usize + 1, left: 0 };
            }
            at = Skipped { pos: at.pos + 64 - ends.leading_zeros() as usize, left: at.left - count };
        }
        skip_words(data, at)
    }

    /// Bit i: byte i has its top bit set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn continuation_bits(block: &[u8; 64]) -> u64 {
        let (low, high) = block.split_at(32);
        // SAFETY: both halves are 32 bytes long, and the load needs no alignment.
        let (low, high) = unsafe {
            (
                _mm256_loadu_si256(low.as_ptr().cast::<__m256i>()),
                _mm256_loadu_si256(high.as_ptr().cast::<__m256i>()),
            )
        };
        u64::from(_mm256_movemask_epi8(low) as u32) | u64::from(_mm256_movemask_epi8(high) as u32) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All three agree, at every start in the first bytes and for every relevant count.
    fn check(data: &[u8]) {
        for pos in 0..data.len().min(12) {
            let all = skip_bytes(data, Skipped { pos, left: u64::MAX });
            let there = u64::MAX - all.left;
            let counts = (0..20).chain([there / 2, there.saturating_sub(1), there, there + 1, u64::MAX]);
            for left in counts {
                let start = Skipped { pos, left };
                let expected = skip_bytes(data, start);
                assert_eq!(skip_words(data, start), expected, "words: {left} from {pos} of {data:02x?}");
                assert_eq!(skip_long(data, start), expected, "blocks: {left} from {pos} of {data:02x?}");
                assert_eq!(skip(data, pos, left), expected, "{left} from {pos} of {data:02x?}");
            }
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn skip_matches_scalar_on_random_bytes() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for round in 0..400 {
            // This many of 16 bytes have a continuation bit.
            let density = round % 17;
            let len = random(&mut state) % 300;
            let data: Vec<u8> = (0..len)
                .map(|_| {
                    let byte = random(&mut state);
                    let more = u8::from(byte >> 32 & 15 < density) << 7;
                    byte as u8 & 0x7f | more
                })
                .collect();
            check(&data);
        }
    }

    #[test]
    fn skip_matches_scalar_on_any_continuation_run() {
        for place in 0..80 {
            for run in 0..30 {
                let mut data = vec![1u8; 160];
                data[place..place + run].fill(0xff);
                check(&data);
                data.truncate(place + run);
                check(&data);
            }
        }
    }

    #[test]
    fn ninth_byte_has_no_continuation_bit() {
        for pattern in [&[0xff; 9][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]] {
            let data = pattern.repeat(20);
            for n in 0..=20u64 {
                assert_eq!(skip(&data, 0, n), Skipped { pos: n as usize * 9, left: 0 });
            }
            for cut in 0..data.len() {
                let there = cut as u64 / 9;
                let expected = Skipped { pos: there as usize * 9, left: 20 - there };
                assert_eq!(skip(&data[..cut], 0, 20), expected);
            }
        }
    }

    #[test]
    fn skip_ends_at_boundaries_for_varying_lengths() {
        let mut data = Vec::new();
        let mut ends = vec![0];
        for i in 0..200u32 {
            crate::varint::put(&mut data, 1u64 << (i * 13 % 64));
            ends.push(data.len());
        }
        for (n, &end) in ends.iter().enumerate() {
            assert_eq!(skip(&data, 0, n as u64), Skipped { pos: end, left: 0 });
        }
    }
}
