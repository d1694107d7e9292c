//! Caches the rules of program counters: one direct-mapped table for all threads of the process.
//!
//! Entries are written without a lock. A reader accepts an entry only if `check ^ value` is its key, so a torn pair of
//! words (two writers, or a write in progress) is a miss, never a wrong rule. The key holds the module
//! generation and the epoch: rules of another set of modules do not match.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of entries (64 KiB).
pub const ENTRIES: usize = 4096;

#[repr(C)]
struct Entry {
    check: AtomicU64,
    value: AtomicU64,
}

/// The table. Zeroed memory is an empty table.
#[repr(C, align(64))]
pub struct RuleCache {
    entries: [Entry; ENTRIES],
}

/// Identifies the present set of modules, in 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u16);

impl RuleCache {
    #[inline]
    fn slot(address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize
    }

    #[inline]
    fn entry(&self, address: u64) -> Option<&Entry> {
        self.entries.get(RuleCache::slot(address))
    }

    /// Prefetches the entry of `address`.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        if let Some(entry) = self.entry(address) {
            crate::unwind::stack::prefetch(core::ptr::from_ref(entry) as u64);
        }
    }

    /// The value stored for `address` under `tag`.
    #[inline]
    pub fn get(&self, address: u64, tag: Tag) -> Option<u64> {
        let entry = self.entry(address)?;
        let value = entry.value.load(Relaxed);
        (entry.check.load(Relaxed) ^ value == key(address, tag)).then_some(value)
    }

    /// Stores a value. Addresses of more than 48 bits are not cached.
    #[inline]
    pub fn put(&self, address: u64, tag: Tag, value: u64) {
        if address >> 48 != 0 || address == 0 {
            return;
        }
        if let Some(entry) = self.entry(address) {
            entry.value.store(value, Relaxed);
            entry.check.store(key(address, tag) ^ value, Relaxed);
        }
    }
}

#[inline]
fn key(address: u64, tag: Tag) -> u64 {
    address ^ u64::from(tag.0) << 48
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    fn empty() -> Box<RuleCache> {
        // SAFETY: all zero is a valid, empty table.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn other_generations_and_torn_entries_miss() {
        let cache = empty();
        assert_eq!(cache.get(0x1000, Tag(1)), None);
        cache.put(0x1000, Tag(1), 77);
        assert_eq!(cache.get(0x1000, Tag(1)), Some(77));
        assert_eq!(cache.get(0x1000, Tag(2)), None);
        cache.entry(0x1000).unwrap().value.store(78, Relaxed);
        assert_eq!(cache.get(0x1000, Tag(1)), None);
    }

    #[test]
    fn racing_writers_never_yield_a_foreign_value() {
        let cache = empty();
        // Miri checks every entry whenever the table is borrowed, so it runs fewer rounds.
        let rounds = if cfg!(miri) { 24 } else { 200_000 };
        let addresses: std::vec::Vec<u64> =
            (1..200_000u64).filter(|a| RuleCache::slot(*a) == RuleCache::slot(1)).take(12).collect();
        assert!(addresses.len() > 8);
        std::thread::scope(|s| {
            for start in 0..3 {
                let (cache, addresses) = (&cache, &addresses);
                s.spawn(move || {
                    for i in start..rounds {
                        let address = addresses[i % addresses.len()];
                        cache.put(address, Tag(3), address.wrapping_mul(31));
                        let other = addresses[(i * 7) % addresses.len()];
                        if let Some(value) = cache.get(other, Tag(3)) {
                            assert_eq!(value, other.wrapping_mul(31));
                        }
                    }
                });
            }
        });
    }
}
