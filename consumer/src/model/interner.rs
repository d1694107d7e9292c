//! Stores each distinct value once and refers to it by a small typed handle.

use std::hash::{BuildHasher, Hash, Hasher};
use std::marker::PhantomData;

use jfr_format::pool::KeyHash;

/// Handle of a value in its [`Interner`].
pub struct Id<T> {
    index: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// Position in the interner.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<T> Eq for Id<T> {}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.index)
    }
}

/// Distinct values in order of first appearance.
#[derive(Debug)]
pub struct Interner<T> {
    values: Vec<T>,
    /// Hashes of the values, so that they are hashed once.
    hashes: Vec<u64>,
    /// Hash table of indexes with linear probing. Its size is a power of two; it is at most half full.
    places: Vec<u32>,
    hash: KeyHash,
}

const FREE: u32 = u32::MAX;
const FIRST_PLACES: usize = 64;

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), hashes: Vec::new(), places: Vec::new(), hash: KeyHash::default() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Returns the handle of `value`; adds it if it is new.
    pub fn intern(&mut self, value: T) -> Id<T> {
        if self.values.len() * 2 >= self.places.len() {
            self.grow();
        }
        let hash = self.hash.hash_one(&value);
        let known = |index: usize| self.hashes[index] == hash && self.values[index] == value;
        let at = find_slot(&self.places, hash, known);
        let mut index = self.places[at];
        if index == FREE {
            index = self.values.len() as u32;
            self.places[at] = index;
            self.values.push(value);
            self.hashes.push(hash);
        }
        Id { index, of: PhantomData }
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 4).max(FIRST_PLACES);
        self.places.clear();
        self.places.resize(places, FREE);
        for (index, &hash) in self.hashes.iter().enumerate() {
            let at = find_slot(&self.places, hash, |_| false);
            self.places[at] = index as u32;
        }
    }

    /// Adds the values of another interner in their order, each changed by `change`. Handle *i* of the
    /// other interner becomes the *i*-th handle of the result.
    pub fn absorb(&mut self, other: Self, mut change: impl FnMut(T) -> T) -> Vec<Id<T>> {
        other.values.into_iter().map(|value| self.intern(change(value))).collect()
    }

    /// Returns the value of a handle of this interner.
    pub fn get(&self, id: Id<T>) -> &T {
        &self.values[id.index()]
    }

    /// Returns all values with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.values.iter().enumerate().map(|(i, v)| (Id { index: i as u32, of: PhantomData }, v))
    }

    /// Number of distinct values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if it has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Returns the slot with this hash for which `known` is true, or the free slot for it.
#[inline]
fn find_slot(places: &[u32], hash: u64, known: impl Fn(usize) -> bool) -> usize {
    let mask = places.len() - 1;
    let mut at = hash as usize & mask;
    while places[at] != FREE && !known(places[at] as usize) {
        at = (at + 1) & mask;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_get_handles_in_first_appearance_order() {
        let mut interner = Interner::default();
        let mut order: Vec<String> = Vec::new();
        for i in 0..5_000u64 {
            let value = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).rem_euclid(701).to_string();
            let index = order.iter().position(|known| *known == value).unwrap_or_else(|| {
                order.push(value.clone());
                order.len() - 1
            });
            assert_eq!(interner.intern(value.clone()).index(), index);
            assert_eq!(interner.len(), order.len());
        }
        let all: Vec<(usize, &String)> = interner.iter().map(|(id, value)| (id.index(), value)).collect();
        assert_eq!(all, order.iter().enumerate().collect::<Vec<_>>());
    }

    #[test]
    fn absorbed_values_retain_their_order() {
        let mut one = Interner::default();
        let mut other = Interner::default();
        for i in 0..100 {
            one.intern(i);
            other.intern(150 - i);
        }
        let handles = one.absorb(other, |value| value + 1);
        let values: Vec<i32> = handles.iter().map(|&id| *one.get(id)).collect();
        assert_eq!(values, (0..100).map(|i| 151 - i).collect::<Vec<_>>());
        // 0 to 99 from the first, and 100 to 151 from the second, which has 52 to 151.
        assert_eq!(one.len(), 152);
    }
}
