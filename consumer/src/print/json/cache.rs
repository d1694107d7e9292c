//! A bounded cache of printed constants.

/// Size in bytes; each thread has its own cache.
const BYTES: usize = 4 << 20;
/// Larger constants are not cached, but their parts are.
const LARGEST: usize = 64 << 10;
const PLACES: usize = 1 << 14;

/// A constant, and the indentation with which it was printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::print) struct Name {
    pub(in crate::print) class: u32,
    pub(in crate::print) indent: u32,
    pub(in crate::print) key: u64,
}

/// The cost of printing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::print) struct Cost {
    /// Number of values.
    pub(in crate::print) values: usize,
    /// Length of the longest chain of references.
    pub(in crate::print) depth: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct CacheSlot {
    name: Name,
    cost: Cost,
    start: u32,
    len: u32,
    /// 0: unused
    age: u32,
}

/// Printed constants. When the cache is full, it is cleared.
#[derive(Debug)]
pub(in crate::print) struct Cache {
    bytes: Vec<u8>,
    places: Vec<CacheSlot>,
    used: usize,
    age: u32,
}

impl Default for Cache {
    fn default() -> Self {
        Self { bytes: Vec::new(), places: vec![CacheSlot::default(); PLACES], used: 0, age: 1 }
    }
}

impl Cache {
    pub(in crate::print) fn clear(&mut self) {
        self.bytes.clear();
        self.used = 0;
        self.age = self.age.checked_add(1).unwrap_or_else(|| {
            self.places.fill(CacheSlot::default());
            1
        });
    }

    #[inline]
    pub(in crate::print) fn get(&self, name: Name) -> Option<(&[u8], Cost)> {
        let place = &self.places[self.find(name)];
        if place.age != self.age {
            return None;
        }
        let start = place.start as usize;
        Some((self.bytes.get(start..start + place.len as usize)?, place.cost))
    }

    pub(in crate::print) fn put(&mut self, name: Name, text: &[u8], cost: Cost) {
        if text.len() > LARGEST {
            return;
        }
        if self.bytes.len() + text.len() > BYTES || 2 * self.used >= PLACES {
            self.clear();
        }
        let at = self.find(name);
        if self.places[at].age == self.age {
            return;
        }
        let (start, len) = (self.bytes.len() as u32, text.len() as u32);
        self.bytes.extend_from_slice(text);
        self.places[at] = CacheSlot { name, cost, start, len, age: self.age };
        self.used += 1;
    }

    /// Returns the slot with this name, or the free slot for it. At least half of the slots are free.
    #[inline]
    fn find(&self, name: Name) -> usize {
        let mixed = name.key ^ u64::from(name.class) << 40 ^ u64::from(name.indent) << 58;
        let mut at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PLACES;
        loop {
            let place = &self.places[at];
            if place.age != self.age || place.name == name {
                return at;
            }
            at = (at + 1) % PLACES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_text_is_found_until_cleared() {
        let mut cache = Cache::default();
        let name = |key| Name { class: 3, indent: 8, key };
        for key in 0..100_000u64 {
            assert!(cache.get(name(key)).is_none());
            cache.put(name(key), key.to_string().as_bytes(), Cost { values: 1, depth: 2 });
            let (text, cost) = cache.get(name(key)).unwrap();
            assert_eq!((text, cost.values), (key.to_string().as_bytes(), 1));
            assert!(cache.get(Name { indent: 9, ..name(key) }).is_none());
        }
        assert!(cache.bytes.len() <= BYTES && 2 * cache.used <= PLACES);
        cache.put(name(u64::MAX), &vec![b'x'; LARGEST + 1], Cost::default());
        assert!(cache.get(name(u64::MAX)).is_none());
        cache.clear();
        assert!(cache.get(name(99_999)).is_none());
    }
}
