//! Returns freed memory of the recorder's own process to the system. Never used in a recorded program.
//!
//! By default, the GNU allocator raises two limits with the largest block that was ever freed: the size from
//! which a block gets its own mapping, and the free space at the end of the heap. Dictionaries grow to tens
//! of megabytes and are freed as a whole. The next ones would grow in the heap, be copied as they grow, and
//! their memory would never be returned: more than the memory in use.

/// Blocks of at least this size get their own mapping, which grows without a copy and is returned at once.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 256 << 10;
/// Limit of free memory at the end of the heap.
#[cfg(target_env = "gnu")]
const SPARE: libc::c_int = 1 << 20;
/// One heap for the drain, and one for the threads that read files.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

/// Limits the memory that the allocator of this process retains.
pub(crate) fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; if the allocator refuses, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Returns free memory inside the heaps, which debug information and symbol tables use for a short time.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator locks its own data.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use crate::os::test_isolation::alone;

    /// Returns true if a block has its own mapping, which begins with two words of the allocator.
    fn has_own_pages(bytes: usize) -> bool {
        let block = vec![1u8; bytes];
        block.as_ptr() as usize % 4096 == 16
    }

    /// Runs in its own process, because other tests leave free space in the heap, which would be used first.
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
