//! Finds the innermost of nested intervals of a thread at a given time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A time range with one innermost interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: i64,
    end: i64,
    /// Index of the interval.
    of: usize,
}

/// Pieces in order of time; between pieces, no interval is active.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline(Vec<Segment>);

impl Timeline {
    /// Builds a timeline from intervals (start and end in ns) in any order. Of two that overlap, the one
    /// that began later is the inner one; if they began together, the one that ends earlier, or else the
    /// later one in the list.
    pub(super) fn new(intervals: &[(i64, i64)]) -> Self {
        let mut order: Vec<usize> =
            (0..intervals.len()).filter(|&i| intervals[i].0 <= intervals[i].1).collect();
        order.sort_by_key(|&i| (intervals[i].0, Reverse(intervals[i].1), i));
        let mut pieces: Vec<Segment> = Vec::new();
        // The innermost one first; ended ones are removed when they reach the top.
        let mut active: BinaryHeap<(i64, Reverse<i64>, usize)> = BinaryHeap::new();
        let mut at = i64::MIN;
        let mut put = |start: i64, end: i64, of: usize| match pieces.last_mut() {
            Some(last) if last.of == of && last.end == start => last.end = end,
            // An interval of length 0 is a piece too.
            _ if start < end || intervals[of].0 == intervals[of].1 => pieces.push(Segment { start, end, of }),
            _ => {}
        };
        for &next in &order {
            let (start, end) = intervals[next];
            // Adds the intervals that are active up to `start`.
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

    /// Returns the innermost interval at a time. The end of an interval is included only if no other one
    /// begins there.
    pub(super) fn at(&self, time: i64) -> Option<usize> {
        let behind = self.0.partition_point(|piece| piece.start <= time);
        let before = &self.0[..behind];
        // A piece of length 0 precedes the piece that begins at the same time.
        let moment =
            before.iter().rev().take_while(|piece| piece.start == time).find(|piece| piece.end == time);
        moment.or(before.last()).filter(|piece| time <= piece.end).map(|piece| piece.of)
    }

    /// Returns the parts of the time from `start` to `end`: lengths in ns and the active interval.
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

    /// Reference implementation that checks all intervals.
    fn slowly(intervals: &[(i64, i64)], time: i64) -> Option<usize> {
        let open = |i: &usize| intervals[*i].0 <= time && time < intervals[*i].1;
        let innermost = |&i: &usize| (intervals[i].0, Reverse(intervals[i].1), i);
        (0..intervals.len()).filter(open).max_by_key(innermost)
    }

    #[test]
    fn innermost_interval_is_found_for_any_nesting() {
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
                // The end of an interval counts if there is no other interval.
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
    fn empty_intervals_are_found() {
        let timeline = Timeline::new(&[(0, 10), (5, 5), (10, 12), (20, 20)]);
        assert_eq!(
            [0, 5, 6, 10, 12, 13, 20].map(|t| timeline.at(t)),
            [Some(0), Some(1), Some(0), Some(2), Some(2), None, Some(3)]
        );
    }
}
