//! Gives each chunk of a recording its own start time: JMC treats two chunks with the same start as one and drops the second.

use std::collections::{HashMap, HashSet};

use crate::header::ChunkHeader;
use crate::ids::Ticks;

const NANOS: i64 = 1_000_000_000;

/// Returns ticks and nanoseconds of the smallest duration that is a whole number of both; one second at most.
pub(super) fn step(header: &ChunkHeader) -> (i64, i64) {
    let frequency = header.frequency();
    let common = gcd(frequency, NANOS);
    (frequency / common, NANOS / common)
}

/// Starts of the chunks written so far, in nanoseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct UniqueStartTimes {
    used: HashSet<i64>,
    /// By a used start and a step: the last free start, so that many chunks with the same start cause no long
    /// search.
    free: HashMap<(i64, i64), i64>,
}

impl UniqueStartTimes {
    /// Returns another header for a chunk that starts at the same time as an earlier one. The start moves
    /// along the chunk's own line, so no event's time changes.
    pub(super) fn moved(&mut self, header: &ChunkHeader) -> Option<ChunkHeader> {
        let (ticks, nanos) = step(header);
        let mut at = header.start_nanos;
        let mut passed = Vec::new();
        while !self.used.insert(at) {
            passed.push((at, nanos));
            let next = self.free.get(&(at, nanos)).copied();
            at = next.or(at.checked_add(nanos))?;
        }
        self.free.extend(passed.into_iter().map(|from| (from, at)));
        let by = at - header.start_nanos;
        let start_ticks = Ticks(header.start_ticks.0.checked_add((by / nanos).checked_mul(ticks)?)?);
        let duration_nanos = header.duration_nanos.saturating_sub(by).max(0);
        (by > 0).then_some(ChunkHeader { start_nanos: at, start_ticks, duration_nanos, ..*header })
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_start_times_move_along_clock_line() {
        for (frequency, ticks, nanos) in [(1_000_000_000, 1, 1), (1_000_000, 1, 1000), (2_600_000_000, 13, 5)]
        {
            let mut bytes = [0; crate::header::LEN];
            bytes[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
            let mut header = ChunkHeader::decode(&bytes).unwrap();
            (header.start_nanos, header.start_ticks) = (1_700_000_000_000_000_000, Ticks(77));
            (header.duration_nanos, header.ticks_per_second) = (1500, frequency);
            let mut starts = UniqueStartTimes::default();
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

    #[test]
    fn many_equal_starts_are_moved_in_linear_time() {
        let mut bytes = [0; crate::header::LEN];
        bytes[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
        let header = ChunkHeader::decode(&bytes).unwrap();
        let mut starts = UniqueStartTimes::default();
        assert_eq!(starts.moved(&header), None);
        for number in 1..100_000 {
            assert_eq!(starts.moved(&header).unwrap().start_nanos, number);
        }
    }
}
