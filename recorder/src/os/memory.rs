//! What the recorder's own process let go of goes back to the system. Never called in a recorded program.
//!
//! The GNU allocator raises by itself the size from which a block is a mapping of its own, and how much it keeps at the end of
//! its heap, with the largest block that was ever let go. Dictionaries grow to tens of megabytes and are let go as a whole; then
//! the next ones grow in the heap, are copied as they grow, and their room stays ours: more than what is in use.

/// Blocks from this size on are mappings of their own, which grow without being copied and go back at once.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 256 << 10;
/// As much may be free at the end of the heap.
#[cfg(target_env = "gnu")]
const SPARE: libc::c_int = 1 << 20;
/// One heap for the drain, one for the threads that read files.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

/// Has the allocator of this process keep little for itself.
pub(crate) fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; where the allocator refuses, it does as it did before.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Gives back what is free in the midst of the heaps: debug information and lists of symbols take much for a moment.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator locks what it looks at.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use crate::os::test_isolation::alone;

    /// Pages that a block shares with no other begin with the allocator's own two words.
    fn has_own_pages(bytes: usize) -> bool {
        let block = vec![1u8; bytes];
        block.as_ptr() as usize % 4096 == 16
    }

    /// In a process of its own: elsewhere other tests leave room in the heap, which is taken first.
    #[test]
    fn released_pages_leave_the_rest_unchanged() {
        if !alone(module_path!(), "released_pages_leave_the_rest_unchanged") {
            return;
        }
        super::keep_little();
        for megabytes in [31, 24, 8] {
            drop(std::hint::black_box(vec![1u8; megabytes << 20]));
            let sizes = [300 << 10, 1 << 20, 5 << 20, 16 << 20];
            assert_eq!(sizes.map(has_own_pages), [true; 4], "after {megabytes} MiB");
        }
    }
}
