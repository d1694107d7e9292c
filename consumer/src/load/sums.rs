//! Events added up by the keys of their references, before anybody knows what the keys stand for.

use jfr_format::pool::KeyHash;

use crate::model::Weight;

/// A sample's references as they stand in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawKey {
    pub(super) kind: u32,
    pub(super) thread: u64,
    pub(super) stack: u64,
    pub(super) state: u64,
}

/// All of an event but its type and its start, as it stands in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawBytes {
    pub(super) kind: u32,
    pub(super) len: u32,
    pub(super) bytes: u128,
}

/// Samples that say nothing but thread, stack and state, counted by their bytes: only the first of each kind is
/// decoded.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    entries: Vec<(RawBytes, RawKey, u64)>,
    places: Vec<u32>,
    hash: KeyHash,
}

impl Repeats {
    /// Counts one more of these bytes; `false` if they have not been met before.
    #[inline(always)]
    pub(super) fn count(&mut self, raw: &RawBytes) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let index = self.places[self.place_of(raw)];
        match self.entries.get_mut(index as usize) {
            Some((_, _, count)) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    /// Notes what bytes mean that were not met before, and counts them once.
    #[cold]
    pub(super) fn insert(&mut self, raw: RawBytes, key: RawKey) {
        self.entries.push((raw, key, 1));
        if self.entries.len() * 8 >= self.places.len() {
            let places = (self.places.len() * 4).max(FIRST_PLACES);
            self.places.clear();
            self.places.resize(places, FREE);
            for index in 0..self.entries.len() {
                let at = self.place_of(&self.entries[index].0);
                self.places[at] = index as u32;
            }
        } else {
            let at = self.place_of(&raw);
            self.places[at] = self.entries.len() as u32 - 1;
        }
    }

    #[inline(always)]
    fn place_of(&self, raw: &RawBytes) -> usize {
        let mask = self.places.len() - 1;
        let high = (raw.bytes >> 64) as u64 ^ u64::from(raw.kind).rotate_left(32) ^ u64::from(raw.len) << 56;
        let mut at = self.hash.pair(raw.bytes as u64, high) as usize & mask;
        loop {
            let index = self.places[at];
            if index == FREE || self.entries.get(index as usize).is_none_or(|(known, ..)| known == raw) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Takes out all counts; the memory stays.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RawKey, Weight)> + '_ {
        self.places.fill(FREE);
        self.entries.drain(..).map(|(_, key, count)| (key, Weight { count, value: 0 }))
    }
}

/// Distinct keys in order of first appearance, found by hash: a table of indexes, at most an eighth full, since
/// a collision costs more than the memory.
#[derive(Debug, Default)]
pub(super) struct Sums {
    entries: Vec<(RawKey, Weight)>,
    places: Vec<u32>,
    hash: KeyHash,
}

const FREE: u32 = u32::MAX;
const FIRST_PLACES: usize = 1024;

impl Sums {
    #[inline(always)]
    pub(super) fn add(&mut self, key: RawKey, weight: Weight) {
        if self.entries.len() * 8 >= self.places.len() {
            self.grow();
        }
        let at = self.place_of(&key);
        match self.places.get(at).and_then(|&index| self.entries.get_mut(index as usize)) {
            Some((_, sum)) => sum.add(weight),
            None => {
                self.places[at] = self.entries.len() as u32;
                self.entries.push((key, weight));
            }
        }
    }

    #[inline]
    fn place_of(&self, key: &RawKey) -> usize {
        let mask = self.places.len() - 1;
        let mixed = key.thread.rotate_left(32) ^ u64::from(key.kind) << 16 ^ key.state.rotate_left(56);
        let mut at = self.hash.pair(key.stack, mixed) as usize & mask;
        loop {
            let index = self.places[at];
            if index == FREE || self.entries.get(index as usize).is_none_or(|(known, _)| known == key) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 4).max(FIRST_PLACES);
        self.places.clear();
        self.places.resize(places, FREE);
        for index in 0..self.entries.len() {
            let at = self.place_of(&self.entries[index].0);
            self.places[at] = index as u32;
        }
    }

    /// Takes out all sums; the memory stays.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RawKey, Weight)> + '_ {
        self.places.fill(FREE);
        self.entries.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn sums_are_those_of_a_map_and_keep_their_order() {
        let mut sums = Sums::default();
        for round in 0..2u64 {
            let mut expected: HashMap<(u32, u64, u64, u64), u64> = HashMap::new();
            let mut order = Vec::new();
            for i in 0..20_000u64 {
                let x = (i + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let key =
                    RawKey { kind: (x % 3) as u32, thread: x % 7, stack: x % 1009, state: x % 2 * u64::MAX };
                let id = (key.kind, key.thread, key.stack, key.state);
                if !expected.contains_key(&id) {
                    order.push(id);
                }
                *expected.entry(id).or_default() += i;
                sums.add(key, Weight { count: 1, value: i });
            }
            let drained: Vec<(RawKey, Weight)> = sums.drain().collect();
            let ids: Vec<_> = drained.iter().map(|(k, _)| (k.kind, k.thread, k.stack, k.state)).collect();
            assert_eq!(ids, order);
            for (id, (_, weight)) in ids.iter().zip(&drained) {
                assert_eq!(expected[id], weight.value);
            }
            assert_eq!(drained.iter().map(|(_, w)| w.count).sum::<u64>(), 20_000);
        }
    }
}
