//! Lookup in a module's compact rows, which the drain wrote into the shared arena. Every position is checked
//! against the arena: its contents decide where a walk goes, never which memory it reads. When no process has
//! a module mapped any more, its memory in the arena is reused for another module; a handler that is late
//! detects this by the image number.
//!
//! The first words of a table identify its image. They are compared before and after the search, so a handler
//! that was preempted while the table was replaced notices the replacement and continues without the table.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
    fence,
};

use crate::layout::MAGIC;
use crate::unwind::rule::Rule;

/// A module's rows inside the arena.
#[derive(Clone, Copy)]
pub struct UnwindTable<'a> {
    header: &'a [AtomicU64],
    image: u32,
    base: u64,
    shift: u32,
    buckets: usize,
    /// `buckets + 1` first-row numbers, two to a word.
    firsts: &'a [AtomicU64],
    /// One row to a word: location in the low half, rule in the high half.
    rows: &'a [AtomicU64],
}

#[inline]
fn load(words: &[AtomicU64], i: usize) -> Option<u64> {
    words.get(i).map(|word| word.load(Relaxed))
}

/// Returns true if these are the first words of the rows of `image`.
#[inline]
fn belongs(header: &[AtomicU64], image: u32) -> bool {
    load(header, 0) == Some(MAGIC) && load(header, 3).is_some_and(|word| (word >> 32) as u32 == image)
}

impl<'a> UnwindTable<'a> {
    /// Returns the rows of an image at byte `offset` of the arena (a multiple of 8), `None` if they are not
    /// there.
    #[inline]
    pub fn at(arena: &'a [AtomicU64], offset: u64, image: u32) -> Option<UnwindTable<'a>> {
        let words = arena.get((offset / 8) as usize..)?;
        let header = words.get(..4)?;
        if !belongs(header, image) {
            return None;
        }
        fence(Acquire);
        let base = load(words, 1)?;
        let counts = load(words, 2)?;
        let shift = load(words, 3)? as u32;
        let (rows, buckets) = ((counts & 0xffff_ffff) as usize, (counts >> 32) as usize);
        let after_firsts = buckets.wrapping_add(2).wrapping_div(2).checked_add(4)?;
        let firsts = words.get(4..after_firsts)?;
        let rows = words.get(after_firsts..after_firsts.checked_add(rows)?)?;
        (shift < 32).then_some(UnwindTable { header, image, base, shift, buckets, firsts, rows })
    }

    #[inline]
    fn first(&self, bucket: usize) -> Option<usize> {
        let pair = load(self.firsts, bucket / 2)?;
        Some(if bucket & 1 == 0 { pair & 0xffff_ffff } else { pair >> 32 } as usize)
    }

    /// Returns the rule for a file virtual address; `None` if the rows were replaced in the meantime.
    #[inline]
    pub fn rule(&self, address: u64) -> Option<Rule> {
        let found = self.search(address).unwrap_or(Rule::Gap);
        fence(Acquire);
        belongs(self.header, self.image).then_some(found)
    }

    #[inline]
    fn search(&self, address: u64) -> Option<Rule> {
        let location = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let bucket = (location >> self.shift) as usize;
        if bucket >= self.buckets {
            return None;
        }
        let (mut low, mut high) = (self.first(bucket)?, self.first(bucket.wrapping_add(1))?);
        while low < high {
            let middle = low.midpoint(high);
            if load(self.rows, middle)? as u32 <= location {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        Some(Rule::unpack((load(self.rows, low.checked_sub(1)?)? >> 32) as u32))
    }
}
