//! Sampled mappings that are still mapped: ranges of pages, of which any part may be unmapped.

use std::collections::{BTreeMap, HashMap};

/// Ranges, each a part of one mapping. `T` is the data of a mapping.
pub struct Mappings<T> {
    /// First address → end and mapping. The ranges do not overlap.
    parts: BTreeMap<u64, (u64, u64)>,
    mappings: HashMap<u64, Mapping<T>>,
    next: u64,
}

struct Mapping<T> {
    address: u64,
    left: u64,
    data: T,
}

impl<T> Default for Mappings<T> {
    fn default() -> Mappings<T> {
        Mappings { parts: BTreeMap::new(), mappings: HashMap::new(), next: 0 }
    }
}

impl<T> Mappings<T> {
    /// Returns the number of mappings of which a part remains.
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Adds a mapping. Parts of older ones that it overlaps are removed, because their unmapping was not
    /// seen; the addresses of mappings of which nothing remains are added to `gone`.
    pub fn insert(&mut self, at: u64, bytes: u64, data: T, gone: &mut Vec<u64>) {
        let end = at.saturating_add(bytes);
        if end <= at {
            return;
        }
        self.remove(at, bytes, gone);
        self.next += 1;
        self.parts.insert(at, (end, self.next));
        self.mappings.insert(self.next, Mapping { address: at, left: end - at, data });
    }

    /// Removes a range. The addresses of mappings of which nothing remains are added to `gone`.
    pub fn remove(&mut self, at: u64, bytes: u64, gone: &mut Vec<u64>) {
        let end = at.saturating_add(bytes);
        // Backwards: the last part that starts before the end, as long as it overlaps the range.
        while let Some((&from, &(to, id))) = self.parts.range(..end).next_back() {
            if to <= at {
                return;
            }
            self.parts.remove(&from);
            if end < to {
                self.parts.insert(end, (to, id));
            }
            if from < at {
                self.parts.insert(from, (at, id));
            }
            let cut = to.min(end) - from.max(at);
            let Some(mapping) = self.mappings.get_mut(&id) else { continue };
            mapping.left = mapping.left.saturating_sub(cut);
            if mapping.left == 0 {
                gone.push(mapping.address);
                self.mappings.remove(&id);
            }
        }
    }

    /// Returns address, remaining bytes and data of each mapping.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &T)> {
        self.mappings.values().map(|mapping| (mapping.address, mapping.left, &mapping.data))
    }

    /// Returns the data of each mapping.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.mappings.values_mut().map(|mapping| &mut mapping.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a map of single units, over random operations.
    #[test]
    fn mappings_match_reference_model() {
        let mut mappings = Mappings::default();
        let mut truth: HashMap<u64, u64> = HashMap::new();
        let mut random = 1u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        let mut address_of = HashMap::new();
        for id in 0..20_000 {
            let (at, bytes) = (below(200), 1 + below(40));
            let before: std::collections::HashSet<u64> = truth.values().copied().collect();
            let mut gone = Vec::new();
            truth.retain(|unit, _| !(at..at + bytes).contains(unit));
            let after: std::collections::HashSet<u64> = truth.values().copied().collect();
            if id % 3 == 0 {
                mappings.insert(at, bytes, id, &mut gone);
                truth.extend((at..at + bytes).map(|unit| (unit, id)));
                address_of.insert(id, at);
            } else {
                mappings.remove(at, bytes, &mut gone);
            }
            let mut expected: Vec<u64> = before.difference(&after).map(|id| address_of[id]).collect();
            expected.sort_unstable();
            gone.sort_unstable();
            assert_eq!(gone, expected);
            let mut left: HashMap<u64, u64> = HashMap::new();
            truth.values().for_each(|id| *left.entry(*id).or_default() += 1);
            let remaining: HashMap<u64, u64> = mappings.iter().map(|(_, left, id)| (*id, left)).collect();
            assert_eq!(remaining, left);
        }
    }

    #[test]
    fn overflowing_and_empty_ranges_are_handled() {
        let (mut mappings, mut gone) = (Mappings::default(), Vec::new());
        mappings.insert(u64::MAX - 1, 100, (), &mut gone);
        mappings.insert(u64::MAX, u64::MAX, (), &mut gone);
        mappings.insert(5, 0, (), &mut gone);
        assert_eq!((mappings.len(), gone.len()), (1, 0));
        mappings.remove(0, u64::MAX, &mut gone);
        assert_eq!((mappings.len(), gone), (0, vec![u64::MAX - 1]));
    }
}
