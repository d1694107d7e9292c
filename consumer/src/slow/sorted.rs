//! Sorts calls in bounded memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Call;

/// Orders by key, then by arrival.
struct Keyed<K> {
    key: (K, u64),
    call: Call,
}

impl<K: Ord> PartialEq for Keyed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Ord> Eq for Keyed<K> {}

impl<K: Ord> PartialOrd for Keyed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> Ord for Keyed<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Orders calls by start. A stream has the calls of each thread in sequence; calls beyond the memory
/// limit are returned early.
pub struct Sorted {
    calls: BinaryHeap<Reverse<Keyed<i64>>>,
    room: usize,
    used: usize,
    came: u64,
    last: i64,
    late: u64,
}

impl Sorted {
    /// Creates a buffer with `room` bytes.
    pub fn new(room: usize) -> Self {
        Self { calls: BinaryHeap::new(), room, used: 0, came: 0, last: i64::MIN, late: 0 }
    }

    /// Adds a call; returns the earliest call if the limit is exceeded.
    pub fn push(&mut self, call: Call) -> Option<Call> {
        self.used += call.size();
        self.came += 1;
        self.calls.push(Reverse(Keyed { key: (call.start, self.came), call }));
        if self.used > self.room { self.pop() } else { None }
    }

    /// Removes the earliest call.
    pub fn pop(&mut self) -> Option<Call> {
        let Reverse(Keyed { call, .. }) = self.calls.pop()?;
        self.used -= call.size();
        self.late += u64::from(call.start < self.last);
        self.last = self.last.max(call.start);
        Some(call)
    }

    /// Returns the number of calls that were returned after later ones.
    pub fn late(&self) -> u64 {
        self.late
    }
}

/// The longest calls.
pub struct Longest {
    calls: BinaryHeap<Reverse<Keyed<u64>>>,
    most: usize,
    came: u64,
}

impl Longest {
    /// Creates a list of at most `most` calls.
    pub fn new(most: usize) -> Self {
        Self { calls: BinaryHeap::new(), most, came: 0 }
    }

    /// Adds a call.
    pub fn push(&mut self, call: Call) {
        self.came += 1;
        // Retains the first ones of equally long calls.
        self.calls.push(Reverse(Keyed { key: (call.nanos, u64::MAX - self.came), call }));
        if self.calls.len() > self.most {
            self.calls.pop();
        }
    }

    /// Returns the calls, longest first.
    pub fn finish(self) -> Vec<Call> {
        self.calls.into_sorted_vec().into_iter().map(|Reverse(keyed)| keyed.call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CallObject, Direction};
    use super::*;

    fn call(start: i64, nanos: u64) -> Call {
        Call {
            start,
            nanos,
            thread: None,
            what: CallObject::File,
            direction: Direction::Read,
            bytes: None,
            name: "".into(),
            event: "".into(),
        }
    }

    #[test]
    fn calls_are_sorted_within_memory_limit() {
        let mut sorted = Sorted::new(2 * call(0, 0).size());
        let mut out: Vec<i64> = Vec::new();
        for start in [5, 3, 4, 9, 1] {
            out.extend(sorted.push(call(start, 0)).map(|call| call.start));
        }
        out.extend(std::iter::from_fn(|| sorted.pop()).map(|call| call.start));
        assert_eq!(out, [3, 4, 1, 5, 9]);
        assert_eq!(sorted.late(), 1);
    }

    #[test]
    fn longest_calls_are_retained() {
        let mut longest = Longest::new(2);
        [3, 9, 9, 1, 4].iter().enumerate().for_each(|(at, nanos)| longest.push(call(at as i64, *nanos)));
        let kept: Vec<(i64, u64)> = longest.finish().iter().map(|call| (call.start, call.nanos)).collect();
        assert_eq!(kept, [(1, 9), (2, 9)]);
        let mut none = Longest::new(0);
        none.push(call(1, 1));
        assert!(none.finish().is_empty());
    }
}
