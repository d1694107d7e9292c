//! No two chunks of a recording start at the same time: JMC takes them for one and leaves the second out.

use std::collections::HashSet;

use crate::header::ChunkHeader;

const NANOS: i64 = 1_000_000_000;

/// Ticks and nanoseconds of the smallest span that is whole in both; a second at most.
pub(super) fn step(header: &ChunkHeader) -> (i64, i64) {
    let frequency = header.frequency();
    let common = gcd(frequency, NANOS);
    (frequency / common, NANOS / common)
}

/// When the chunks written so far start, in nanoseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Starts(HashSet<i64>);

impl Starts {
    /// Another header for a chunk that starts with one before. The start moves along the chunk's own line, so no event's time
    /// changes.
    pub(super) fn moved(&mut self, header: &ChunkHeader) -> Option<ChunkHeader> {
        let mut moved = *header;
        let (ticks, nanos) = step(header);
        while !self.0.insert(moved.start_nanos) {
            moved.start_ticks.0 = moved.start_ticks.0.checked_add(ticks)?;
            moved.start_nanos = moved.start_nanos.checked_add(nanos)?;
            moved.duration_nanos = moved.duration_nanos.saturating_sub(nanos).max(0);
        }
        (moved != *header).then_some(moved)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ticks;

    #[test]
    fn starts_move_along_their_line() {
        for (frequency, ticks, nanos) in [(1_000_000_000, 1, 1), (1_000_000, 1, 1000), (2_600_000_000, 13, 5)]
        {
            let mut bytes = [0; crate::header::LEN];
            bytes[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
            let mut header = ChunkHeader::decode(&bytes).unwrap();
            (header.start_nanos, header.start_ticks) = (1_700_000_000_000_000_000, Ticks(77));
            (header.duration_nanos, header.ticks_per_second) = (1500, frequency);
            let mut starts = Starts::default();
            assert_eq!(starts.moved(&header), None);
            for times in 1..4 {
                let moved = starts.moved(&header).unwrap();
                assert_eq!(moved.start_ticks.0, 77 + times * ticks);
                assert_eq!(moved.start_nanos, header.start_nanos + times * nanos);
                assert_eq!(moved.duration_nanos, (1500 - times * nanos).max(0));
            }
            let last = ChunkHeader { start_nanos: i64::MAX, ..header };
            assert_eq!((starts.moved(&last), starts.moved(&last)), (None, None), "there is no later time");
        }
    }
}
