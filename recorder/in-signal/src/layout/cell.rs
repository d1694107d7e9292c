//! A value in shared memory that is longer than one atomic.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// A type that consists of whole, initialized 8-byte words.
///
/// # Safety
/// The type is `repr(C)` and has the alignment 8, no padding and no pointer, and every bit pattern is one of
/// its values.
pub unsafe trait Plain: Copy {}

/// A value that other threads and processes may read and write at any time, word by word.
///
/// Every access is atomic, so a `&SharedCell` to mapped memory is sound whatever another process writes
/// there. A value that is written while it is read may be a mixture of both: its writer publishes it by
/// another atomic, and its reader checks it.
#[repr(transparent)]
pub struct SharedCell<T: Plain>(UnsafeCell<T>);

// SAFETY: the contents are only accessed through atomics, and `Plain` types contain no pointer.
unsafe impl<T: Plain> Sync for SharedCell<T> {}

impl<T: Plain> SharedCell<T> {
    const WORDS: usize = {
        assert!(align_of::<T>() == 8 && size_of::<T>().is_multiple_of(8));
        size_of::<T>() / 8
    };

    /// Wraps a value.
    pub const fn new(value: T) -> SharedCell<T> {
        SharedCell(UnsafeCell::new(value))
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: a `Plain` type is WORDS initialized words, with the size and alignment of an AtomicU64 each.
        // They are inside an UnsafeCell, and no reference to the value itself exists.
        unsafe { core::slice::from_raw_parts(self.0.get().cast(), Self::WORDS) }
    }

    /// Returns the word at `OFFSET` bytes from the start of the value.
    #[inline]
    pub fn word<const OFFSET: usize>(&self) -> &AtomicU64 {
        const { assert!(OFFSET.is_multiple_of(8) && OFFSET / 8 < Self::WORDS) };
        // SAFETY: as in `words`; the assertion shows that the word lies inside the value.
        unsafe { &*self.0.get().cast::<AtomicU64>().add(OFFSET / 8) }
    }

    /// Returns a copy of the value.
    #[inline]
    pub fn load(&self) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        let to = value.as_mut_ptr().cast::<u64>();
        for (i, word) in self.words().iter().enumerate() {
            // SAFETY: `i` is below WORDS, the number of words of the local value.
            unsafe { to.add(i).write(word.load(Ordering::Relaxed)) };
        }
        // SAFETY: all words were written, and every bit pattern is a value of a `Plain` type.
        unsafe { value.assume_init() }
    }

    /// Replaces the value.
    #[inline]
    pub fn store(&self, value: T) {
        let from = (&raw const value).cast::<u64>();
        for (i, word) in self.words().iter().enumerate() {
            // SAFETY: `i` is below WORDS, the number of words of the local value, all of which are initialized.
            word.store(unsafe { from.add(i).read() }, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ModuleEntry;
    use core::mem::offset_of;

    #[test]
    fn value_is_copied_whole_and_word_by_word() {
        let entry = ModuleEntry {
            start: 1,
            end: 2,
            bias: 3,
            eh_frame_hdr: 4,
            eh_readable_end: 5,
            rows_off: 6,
            flags: 7,
            path_id: 8,
            eh_readable_start: 9,
        };
        let cell = SharedCell::new(entry);
        cell.store(ModuleEntry { end: 20, ..cell.load() });
        assert_eq!(cell.word::<{ offset_of!(ModuleEntry, end) }>().load(Ordering::Relaxed), 20);
        assert_eq!(cell.word::<{ offset_of!(ModuleEntry, flags) }>().load(Ordering::Relaxed), 7 | 8 << 32);
        let read = cell.load();
        assert_eq!((read.start, read.end, read.path_id, read.eh_readable_start), (1, 20, 8, 9));
    }
}
