//! Which of some nested intervals of a thread is the innermost one at a moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The innermost interval between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: i64,
    end: i64,
    /// Position among the intervals.
    of: usize,
}

/// Pieces of time in order, each of one interval; where there is none, nothing is active.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline(Vec<Piece>);

impl Timeline {
    /// Of intervals in any order, start and end in ns. Where two overlap, the one that began later is within the other;
    /// of two that began together, the one that ends earlier, and else the later one in the list.
    pub(super) fn new(intervals: &[(i64, i64)]) -> Self {
        let mut order: Vec<usize> =
            (0..intervals.len()).filter(|&i| intervals[i].0 <= intervals[i].1).collect();
        order.sort_by_key(|&i| (intervals[i].0, Reverse(intervals[i].1), i));
        let mut pieces: Vec<Piece> = Vec::new();
        // The innermost first; those that are over are taken out when they come up.
        let mut active: BinaryHeap<(i64, Reverse<i64>, usize)> = BinaryHeap::new();
        let mut at = i64::MIN;
        let mut put = |start: i64, end: i64, of: usize| match pieces.last_mut() {
            Some(last) if last.of == of && last.end == start => last.end = end,
            // An interval that began and ended at one moment is a piece, too.
            _ if start < end || intervals[of].0 == intervals[of].1 => pieces.push(Piece { start, end, of }),
            _ => {}
        };
        for &next in &order {
            let (start, end) = intervals[next];
            // Up to there, those that are active.
            while let Some(&(_, Reverse(until), of)) = active.peek() {
                if until >= start {
                    put(at, start, of);
                    break;
                }
                if until > at {
                    put(at, until, of);
                    at = until;
                }
                active.pop();
            }
            at = start;
            active.push((start, Reverse(end), next));
            if start == end {
                put(start, end, next);
            }
        }
        while let Some((_, Reverse(until), of)) = active.pop() {
            if until > at {
                put(at, until, of);
                at = until;
            }
        }
        Self(pieces)
    }

    /// The innermost interval at this moment. Its last moment counts only if nothing else begins there.
    pub(super) fn at(&self, time: i64) -> Option<usize> {
        let behind = self.0.partition_point(|piece| piece.start <= time);
        let before = &self.0[..behind];
        // What has no length lies before what goes on then.
        let moment =
            before.iter().rev().take_while(|piece| piece.start == time).find(|piece| piece.end == time);
        moment.or(before.last()).filter(|piece| time <= piece.end).map(|piece| piece.of)
    }

    /// The parts of the time from `start` to `end`, as lengths in ns and what is active.
    pub(super) fn parts(&self, start: i64, end: i64) -> Vec<(i64, i64, Option<usize>)> {
        let mut parts: Vec<(i64, i64, Option<usize>)> = Vec::new();
        let mut at = start;
        let first = self.0.partition_point(|piece| piece.end <= start);
        for piece in self.0[first..].iter().take_while(|piece| piece.start < end) {
            if piece.start > at {
                parts.push((at, piece.start, None));
            }
            let (from, to) = (piece.start.max(at), piece.end.min(end));
            if from < to {
                parts.push((from, to, Some(piece.of)));
            }
            at = at.max(to);
        }
        if at < end {
            parts.push((at, end, None));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By looking at all intervals.
    fn slowly(intervals: &[(i64, i64)], time: i64) -> Option<usize> {
        let open = |i: &usize| intervals[*i].0 <= time && time < intervals[*i].1;
        let innermost = |&i: &usize| (intervals[i].0, Reverse(intervals[i].1), i);
        (0..intervals.len()).filter(open).max_by_key(innermost)
    }

    #[test]
    fn the_innermost_is_found_wherever_intervals_lie() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let intervals: Vec<(i64, i64)> = (0..random(12))
                .map(|_| {
                    let start = random(40) as i64;
                    (start, start + 1 + random(20) as i64)
                })
                .collect();
            let timeline = Timeline::new(&intervals);
            for time in 0..60 {
                let expected = slowly(&intervals, time);
                // At its last moment an interval is taken if there is no other.
                if let Some(expected) = expected {
                    assert_eq!(timeline.at(time), Some(expected), "{intervals:?} at {time}");
                }
            }
            let parts = timeline.parts(0, 60);
            assert_eq!(parts.iter().map(|(from, to, _)| to - from).sum::<i64>(), 60);
            for (from, to, of) in parts {
                assert!((from..to).all(|t| slowly(&intervals, t) == of), "{intervals:?}: {from} to {to}");
            }
        }
    }

    #[test]
    fn moments_without_length_count() {
        let timeline = Timeline::new(&[(0, 10), (5, 5), (10, 12), (20, 20)]);
        assert_eq!(
            [0, 5, 6, 10, 12, 13, 20].map(|t| timeline.at(t)),
            [Some(0), Some(1), Some(0), Some(2), Some(2), None, Some(3)]
        );
    }
}
