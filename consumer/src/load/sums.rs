//! Adds up events by the keys of their references, before the keys are resolved.
//!
//! Samples with equal bytes are decoded once per chunk. Two encodings of the same key are therefore
//! correct and cost one more entry.

use std::hash::BuildHasher;
use std::num::NonZero;

use jfr_format::pool::KeyHash;

use crate::model::{EventKind, Id, Weight};

/// The unresolved references of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawKey {
    pub(super) kind: Id<EventKind>,
    pub(super) thread: u64,
    pub(super) stack: u64,
    pub(super) state: u64,
    /// [`EventKind::variant`], the called method, or the class of the object; `u64::MAX` if the type has
    /// none of them.
    pub(super) detail: u64,
}

/// Counts samples that consist of thread, stack and state only, by their bytes. Only the first of equal
/// samples is decoded.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// In order of first appearance.
    entries: Vec<(u64, RawKey)>,
    /// Hash table, at most half full.
    slots: Vec<Slot>,
    hash: KeyHash,
}

/// Bytes and count in one cache line. A slot without bytes is free.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    bytes: u64,
    count: u64,
}

impl Repeats {
    /// Counts a sample with these bytes; returns false if they are new.
    #[inline(always)]
    pub(super) fn count(&mut self, bytes: NonZero<u64>) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let at = self.find_slot(bytes.get());
        let slot = &mut self.slots[at];
        slot.count += 1; // in a free slot: reset when the slot is used
        slot.bytes != 0
    }

    /// Adds new bytes with their key, and counts them once.
    #[cold]
    pub(super) fn insert(&mut self, bytes: NonZero<u64>, key: RawKey) {
        let bytes = bytes.get();
        if self.entries.len() * 2 >= self.slots.len() {
            let len = (self.slots.len() * 2).max(FIRST_SLOTS);
            let old = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
            for slot in old.into_iter().filter(|slot| slot.bytes != 0) {
                let at = self.find_slot(slot.bytes);
                self.slots[at] = slot;
            }
        }
        self.entries.push((bytes, key));
        let at = self.find_slot(bytes);
        self.slots[at] = Slot { bytes, count: 1 };
    }

    /// Returns the slot with these bytes, or the free slot for them.
    #[inline(always)]
    fn find_slot(&self, bytes: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hash.hash_one(bytes) as usize & mask;
        while self.slots[at].bytes != bytes && self.slots[at].bytes != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns all counts.
    pub(super) fn sums(&self) -> impl Iterator<Item = (RawKey, Weight)> + '_ {
        self.entries.iter().map(|&(bytes, key)| {
            let count = self.slots[self.find_slot(bytes)].count;
            (key, Weight { count, value: 0 })
        })
    }
}

const FIRST_SLOTS: usize = 256;

/// Distinct keys in order of first appearance, with a hash table of indexes. The table is at most an
/// eighth full, because a collision costs more than the memory.
#[derive(Debug, Default)]
pub(super) struct Sums {
    entries: Vec<(RawKey, Weight)>,
    places: Vec<u32>,
    hash: KeyHash,
}

const FREE: u32 = u32::MAX;
const FIRST_PLACES: usize = 1024;

impl Sums {
    /// Adds a weight; returns the position of the key.
    #[inline(always)]
    pub(super) fn add(&mut self, key: RawKey, weight: Weight) -> usize {
        if self.entries.len() * 8 >= self.places.len() {
            self.grow();
        }
        let at = self.find_slot(&key);
        let index = self.places[at];
        match self.entries.get_mut(index as usize) {
            Some((_, sum)) => {
                sum.add(weight);
                index as usize
            }
            None => {
                let index = self.entries.len();
                self.places[at] = index as u32;
                self.entries.push((key, weight));
                index
            }
        }
    }

    #[inline]
    fn find_slot(&self, key: &RawKey) -> usize {
        let mask = self.places.len() - 1;
        let mixed = key.thread.rotate_left(32)
            ^ (key.kind.index() as u64) << 16
            ^ key.state.rotate_left(56)
            ^ key.detail.rotate_left(8);
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
            let at = self.find_slot(&self.entries[index].0);
            self.places[at] = index as u32;
        }
    }

    /// Kinds of the samples in the sums.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Id<EventKind>> + '_ {
        self.entries.iter().map(|(key, _)| key.kind)
    }

    /// Removes all sums but retains the memory.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RawKey, Weight)> + '_ {
        self.places.fill(FREE);
        self.entries.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Unit};
    use std::collections::HashMap;

    fn kinds() -> [Id<EventKind>; 3] {
        let mut kinds = Interner::default();
        let kind = |name: &str| EventKind {
            name: name.into(),
            variant: None,
            unit: Unit::Samples,
            period_nanos: None,
        };
        ["a", "b", "c"].map(|name| kinds.intern(kind(name)))
    }

    #[test]
    fn repeat_counts_match_hash_map() {
        let mut repeats = Repeats::default();
        let mut expected: HashMap<u64, u64> = HashMap::new();
        let mut order = Vec::new();
        let kind = kinds()[0];
        let key = |bytes: u64| RawKey { kind, thread: bytes, stack: !bytes, state: 0, detail: u64::MAX };
        for i in 0..20_000u64 {
            let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let bytes = (x % 1009 + 1) << (x % 5 * 8);
            let known = expected.contains_key(&bytes);
            let counted = NonZero::new(bytes).unwrap();
            assert_eq!(repeats.count(counted), known);
            if !known {
                repeats.insert(counted, key(bytes));
                order.push(bytes);
            }
            *expected.entry(bytes).or_default() += 1;
        }
        let sums: Vec<(RawKey, Weight)> = repeats.sums().collect();
        let expected: Vec<(RawKey, Weight)> =
            order.iter().map(|bytes| (key(*bytes), Weight { count: expected[bytes], value: 0 })).collect();
        assert_eq!(sums, expected);
    }

    #[test]
    fn sums_match_hash_map_in_insertion_order() {
        let kinds = kinds();
        let mut sums = Sums::default();
        for round in 0..2u64 {
            let mut expected: HashMap<(Id<EventKind>, u64, u64, u64), u64> = HashMap::new();
            let mut order = Vec::new();
            for i in 0..20_000u64 {
                let x = (i + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let key = RawKey {
                    kind: kinds[(x % 3) as usize],
                    thread: x % 7,
                    stack: x % 1009,
                    state: x % 2 * u64::MAX,
                    detail: u64::MAX,
                };
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
