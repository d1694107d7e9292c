//! Native memory that has not been freed.

use std::collections::{HashMap, HashSet};

use jfr_format::pool::KeyHash;

/// Allocations not freed yet that are kept.
const MAX_LIVE: usize = 1 << 22;
/// Freed addresses that are remembered for the allocations of an earlier part of the recording.
const MAX_GONE: usize = 1 << 16;

/// Row and size.
type Allocation = (usize, i64);

/// Allocations not freed.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// By address: in which row, how large.
    pub(super) held: HashMap<i64, Allocation, KeyHash>,
    /// Of the current batch, in file order: threads write on their own, so a free may come before its allocation.
    pub(super) waiting: Vec<(i64, i64, Option<Allocation>)>,
    pub(super) lost: u64,
    /// Addresses freed and not allocated again, whether an allocation of them was seen or not.
    gone: HashSet<i64, KeyHash>,
    /// There were too many of those.
    forgot: bool,
}

impl Live {
    /// An allocation at an address: in which row, how large.
    pub(crate) fn allocated(&mut self, address: i64, time: i64, row: usize, size: i64) {
        self.waiting.push((time, address, Some((row, size))));
    }

    /// The memory at an address was freed.
    pub(crate) fn freed(&mut self, address: i64, time: i64) {
        self.waiting.push((time, address, None));
    }

    /// Steps that are not in order yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Row and size of what is not freed.
    pub(crate) fn left(&self) -> impl Iterator<Item = (usize, i64)> {
        self.held.values().copied()
    }

    /// Allocations that there was no room for.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes the steps of a batch in the order of time.
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
        // Its room is used again.
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

    /// Whether [`merge`](Self::merge) makes what all the steps in one would have.
    pub(super) fn can_merge(&self, later: &Self) -> bool {
        let complete = self.lost == 0 && later.lost == 0 && self.held.len() + later.held.len() <= MAX_LIVE;
        let known = self.held.is_empty() || !later.forgot;
        complete && known
    }

    /// Takes what comes later; `rows` are the rows here of the rows there.
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
