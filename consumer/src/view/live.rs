//! Live native memory.

use std::collections::{HashMap, HashSet};

use jfr_format::pool::KeyHash;

/// Maximum number of live allocations.
const MAX_LIVE: usize = 1 << 22;
/// Maximum number of freed addresses stored for allocations in an earlier part of the recording.
const MAX_GONE: usize = 1 << 16;

/// Row and size.
type Allocation = (usize, i64);

/// Live allocations.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Row and size by address.
    pub(super) held: HashMap<i64, Allocation, KeyHash>,
    /// Events of the current batch in file order. Each thread writes its own events, so a free may
    /// precede its allocation.
    pub(super) waiting: Vec<(i64, i64, Option<Allocation>)>,
    pub(super) lost: u64,
    /// Addresses that were freed and not allocated again, with or without a known allocation.
    gone: HashSet<i64, KeyHash>,
    /// True if there were more than the limit.
    forgot: bool,
}

impl Live {
    /// Adds an allocation at an address, with its row and size.
    pub(crate) fn allocated(&mut self, address: i64, time: i64, row: usize, size: i64) {
        self.waiting.push((time, address, Some((row, size))));
    }

    /// Adds a free of an address.
    pub(crate) fn freed(&mut self, address: i64, time: i64) {
        self.waiting.push((time, address, None));
    }

    /// Returns the number of events that are not sorted yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns row and size of the live allocations.
    pub(crate) fn left(&self) -> impl Iterator<Item = (usize, i64)> {
        self.held.values().copied()
    }

    /// Returns the number of allocations beyond the limit.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Processes the events of a batch in order of time.
    pub(crate) fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|&(time, _, what)| (time, what.is_some()));
        for (_, address, what) in waiting.drain(..) {
            match what {
                None => self.free(address),
                Some(_) if self.held.len() >= MAX_LIVE => self.lost += 1,
                Some(allocation) => {
                    self.gone.remove(&address);
                    self.held.insert(address, allocation);
                }
            }
        }
        // Reuses the allocated memory.
        self.waiting = waiting;
    }

    fn free(&mut self, address: i64) {
        self.held.remove(&address);
        if self.gone.len() < MAX_GONE {
            self.gone.insert(address);
        } else {
            self.forgot |= !self.gone.contains(&address);
        }
    }

    /// Returns true if [`merge`](Self::merge) gives the same result as processing all events in sequence.
    pub(super) fn can_merge(&self, later: &Self) -> bool {
        let complete = self.lost == 0 && later.lost == 0 && self.held.len() + later.held.len() <= MAX_LIVE;
        let known = self.held.is_empty() || !later.forgot;
        complete && known
    }

    /// Merges a later part; `rows` maps its rows to rows of this one.
    pub(super) fn merge(&mut self, later: Self, rows: &[usize]) {
        for address in later.gone {
            self.free(address);
        }
        self.forgot |= later.forgot;
        for (address, (row, size)) in later.held {
            if let Some(&row) = rows.get(row) {
                self.gone.remove(&address);
                self.held.insert(address, (row, size));
            }
        }
    }
}
