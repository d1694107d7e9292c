//! A set of sequences of numbers, each with an index: stacks by their addresses, stacks by their methods.
//!
//! One arena and one open-addressed table; a lookup that finds its stack touches three cache lines and allocates
//! nothing. Indices count up from 0 and are only thrown away all together.

/// Distinct sequences of `T`.
pub struct StackTable<T> {
    arena: Vec<T>,
    /// End of each sequence in the arena; its start is the end of the previous one.
    ends: Vec<usize>,
    hashes: Vec<u64>,
    /// Index + 1 of the sequence in this slot, 0 = none. The length is a power of two.
    table: Vec<u32>,
}

impl<T: Copy + Eq + Into<u64>> Default for StackTable<T> {
    fn default() -> StackTable<T> {
        StackTable::new()
    }
}

impl<T: Copy + Eq + Into<u64>> StackTable<T> {
    /// Returns an empty set.
    pub fn new() -> StackTable<T> {
        StackTable { arena: Vec::new(), ends: Vec::new(), hashes: Vec::new(), table: vec![0; 64] }
    }

    /// Returns the index of `sequence`, if present.
    pub fn find(&self, sequence: &[T]) -> Option<u32> {
        self.look(sequence, hash(sequence)).ok()
    }

    /// Returns the index of `sequence`, or the slot for it.
    fn look(&self, sequence: &[T], hash: u64) -> Result<u32, usize> {
        let mut place = self.place(hash);
        loop {
            match self.table[place] {
                0 => return Err(place),
                found => {
                    let index = found - 1;
                    if self.hashes[index as usize] == hash && self.get(index) == sequence {
                        return Ok(index);
                    }
                }
            }
            place = (place + 1) & (self.table.len() - 1);
        }
    }

    /// Returns the index of `sequence`, and whether it is new.
    pub fn intern(&mut self, sequence: &[T]) -> (u32, bool) {
        let hash = hash(sequence);
        let place = match self.look(sequence, hash) {
            Ok(index) => return (index, false),
            Err(place) => place,
        };
        let index = self.ends.len() as u32;
        self.table[place] = index + 1;
        self.arena.extend_from_slice(sequence);
        self.ends.push(self.arena.len());
        self.hashes.push(hash);
        if self.ends.len() * 2 > self.table.len() {
            self.grow();
        }
        (index, true)
    }

    /// Returns a sequence by its index; empty if there is none.
    pub fn get(&self, index: u32) -> &[T] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends.get(index - 1).copied().unwrap_or(0) };
        self.ends.get(index).and_then(|&end| self.arena.get(start..end)).unwrap_or(&[])
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the memory in use, bytes.
    pub fn bytes(&self) -> usize {
        self.arena.capacity() * size_of::<T>()
            + self.ends.capacity() * 8
            + self.hashes.capacity() * 8
            + self.table.capacity() * 4
    }

    /// Removes all sequences and releases the memory.
    pub fn clear(&mut self) {
        *self = StackTable::new();
    }

    fn place(&self, hash: u64) -> usize {
        (hash >> 20) as usize & (self.table.len() - 1)
    }

    fn grow(&mut self) {
        self.table = vec![0; self.table.len() * 2];
        for (index, &hash) in self.hashes.iter().enumerate() {
            let mut place = self.place(hash);
            while self.table[place] != 0 {
                place = (place + 1) & (self.table.len() - 1);
            }
            self.table[place] = index as u32 + 1;
        }
    }
}

/// Multiplies and folds one word at a time. Addresses differ mostly in their low bits; the fold mixes them
/// into the high ones.
fn hash<T: Copy + Into<u64>>(words: &[T]) -> u64 {
    let mut h = 0x9e37_79b9_7f4a_7c15u64 ^ words.len() as u64;
    for &word in words {
        let product = u128::from(h ^ word.into()) * 0xd6e8_feb8_6659_fd93_u128;
        h = (product as u64) ^ ((product >> 64) as u64);
    }
    // A word equal to the state would make the product zero, so mix in the length again.
    (h ^ words.len() as u64).wrapping_mul(0x9fb2_1c65_1e98_df25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_equal_indices() {
        let mut set = StackTable::<u64>::new();
        let stacks: Vec<Vec<u64>> =
            (0..10_000u64).map(|i| (0..1 + i % 50).map(|j| 0x7f00_0000_0000 + i * 8 + j).collect()).collect();
        for (i, stack) in stacks.iter().enumerate() {
            assert_eq!(set.intern(stack), (i as u32, true));
        }
        for (i, stack) in stacks.iter().enumerate() {
            assert_eq!(set.intern(stack), (i as u32, false));
            assert_eq!(set.get(i as u32), &stack[..]);
        }
        assert_eq!(set.get(10_000), &[] as &[u64]);
        assert!(set.bytes() > 8 * stacks.iter().map(Vec::len).sum::<usize>());
        set.clear();
        assert_eq!((set.len(), set.intern(&[1])), (0, (0, true)));
    }

    #[test]
    fn empty_stack_and_prefixes_are_distinct() {
        let mut set = StackTable::<u32>::new();
        let all: [&[u32]; 5] = [&[], &[0], &[0, 0], &[1], &[1, 0]];
        let ids: Vec<_> = all.iter().map(|s| set.intern(s).0).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
    }
}
