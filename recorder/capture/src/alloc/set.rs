//! The set of addresses of sampled allocations that are not freed yet.
//!
//! **Problem.** Every `free` must check if its address was sampled; almost none was. So a miss may cost a few
//! ns at most, the memory must be small, and no thread may ever wait.
//!
//! **Mechanism.** Two tables. `filter`: a counter per hash of an address, 16 KiB, which stays in the first
//! cache level; 0 means that no such address is in the set. `slots`: buckets of one cache line; an address is
//! in one of its two buckets. The thread that just got an address from the allocator inserts it, and the
//! thread that frees it removes it. So two threads never insert or remove the same address at the same time,
//! and the allocator's synchronization between them orders these accesses too. Counters that reached their
//! maximum stay there.
//!
//! **Fork.** The memory is wiped in a child: it does not record frees of its parent's allocations.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};

/// log2 of the number of counters.
const FILTER_BITS: u32 = 14;
/// Addresses in a bucket: one cache line.
const WAYS: usize = 8;
/// log2 of the number of buckets.
const BUCKET_BITS: u32 = 15;

/// A set of addresses in zeroed memory.
#[repr(C, align(4096))]
pub struct Set {
    filter: [AtomicU8; 1 << FILTER_BITS],
    slots: [[AtomicU64; WAYS]; 1 << BUCKET_BITS],
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

#[inline(always)]
fn hash(address: usize, factor: u64, bits: u32) -> usize {
    ((address as u64).wrapping_mul(factor) >> (64 - bits)) as usize
}

impl Set {
    /// Returns false if the address is certainly not in the set.
    #[inline(always)]
    pub fn maybe(&self, address: usize) -> bool {
        self.counter(address).is_some_and(|counter| counter.load(Relaxed) != 0)
    }

    #[inline(always)]
    fn counter(&self, address: usize) -> Option<&AtomicU8> {
        self.filter.get(hash(address, FIRST, FILTER_BITS))
    }

    fn buckets(&self, address: usize) -> impl Iterator<Item = &[AtomicU64; WAYS]> {
        // The filter's hash uses the same upper bits of the first product, so these are different ones.
        let places =
            [hash(address, FIRST.rotate_left(17) | 1, BUCKET_BITS), hash(address, SECOND, BUCKET_BITS)];
        places.into_iter().filter_map(|at| self.slots.get(at))
    }

    /// Inserts an address. Returns false if there is no room.
    pub fn insert(&self, address: usize) -> bool {
        let Some(counter) = self.counter(address) else { return false };
        // Use the emptier bucket, so that both fill evenly.
        let used = |bucket: &[AtomicU64; WAYS]| bucket.iter().filter(|slot| slot.load(Relaxed) != 0).count();
        for _ in 0..WAYS {
            let Some(bucket) = self.buckets(address).min_by_key(|bucket| used(bucket)) else { return false };
            let Some(free) = bucket.iter().find(|slot| slot.load(Relaxed) == 0) else { return false };
            if free.compare_exchange(0, address as u64, Relaxed, Relaxed).is_ok() {
                let more = |n: u8| (n < u8::MAX).then(|| n + 1);
                let _ = counter.fetch_update(Relaxed, Relaxed, more);
                return true;
            }
        }
        false
    }

    /// Removes an address. Returns false if it was not in the set.
    pub fn remove(&self, address: usize) -> bool {
        if address == 0 {
            return false;
        }
        let found = self.buckets(address).flatten().any(|slot| {
            slot.load(Relaxed) == address as u64
                && slot.compare_exchange(address as u64, 0, Relaxed, Relaxed).is_ok()
        });
        if let Some(counter) = self.counter(address).filter(|_| found) {
            let less = |n: u8| (0 < n && n < u8::MAX).then(|| n - 1);
            let _ = counter.fetch_update(Relaxed, Relaxed, less);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::collections::HashSet;

    fn set() -> Box<Set> {
        // SAFETY: all zero is the empty set.
        unsafe { Box::<Set>::new_zeroed().assume_init() }
    }

    #[test]
    fn agrees_with_a_hash_set() {
        let (set, mut truth) = (set(), HashSet::new());
        let mut state = 5;
        for _ in 0..200_000 {
            let random = super::super::sampler::next(&mut state);
            let address = 0x7f00_0000_0000 + (random % 4096) as usize * 16;
            if random >> 63 == 0 {
                if truth.insert(address) {
                    assert!(set.insert(address));
                }
            } else {
                assert_eq!(set.remove(address), truth.remove(&address));
            }
            assert!(!truth.contains(&address) || set.maybe(address));
        }
        for address in truth {
            assert!(set.remove(address));
        }
        assert!(!set.remove(0), "null is never in it, whatever a free place looks like");
        // Every bucket and every counter is empty.
        assert!(set.slots.iter().flatten().all(|slot| slot.load(Relaxed) == 0));
        assert!(set.filter.iter().all(|counter| counter.load(Relaxed) == 0));
    }

    const CAPACITY: usize = WAYS << BUCKET_BITS;

    #[test]
    fn full_set_refuses_addresses() {
        let set = set();
        let kept = (1..=2 * CAPACITY).filter(|i| set.insert(i * 48)).count();
        assert!(kept > CAPACITY * 9 / 10 && kept <= CAPACITY, "{kept}");
        // Saturated counters do not hide an address.
        assert!((1..=2 * CAPACITY).filter(|i| set.maybe(i * 48) && set.remove(i * 48)).count() == kept);
    }

    #[test]
    fn concurrent_threads_lose_no_addresses() {
        let set = set();
        std::thread::scope(|scope| {
            for thread in 1..=4usize {
                let set = &set;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let address = |i: usize| (thread << 40) + (round * 64 + i) * 16;
                        (0..64).for_each(|i| assert!(set.insert(address(i))));
                        (0..64).for_each(|i| assert!(set.maybe(address(i)) && set.remove(address(i))));
                    }
                });
            }
        });
        assert!(set.filter.iter().all(|counter| counter.load(Relaxed) == 0));
    }
}
