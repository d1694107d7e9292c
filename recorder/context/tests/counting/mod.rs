//! An allocator that counts the allocations of the calling thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are forwarded to the system's allocator; the counter is a thread-local word without a
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller guarantees the contract of the allocator, to which the call is forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller guarantees the contract of the allocator, to which the call is forwarded.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the contract of the allocator, to which the call is forwarded.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Returns the number of this thread's allocations during `work`.
pub fn asked(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

/// Checks that the counter works.
pub fn check() {
    assert_eq!(asked(|| drop(std::hint::black_box(Box::new(1u64)))), 1);
    assert_eq!(asked(|| ()), 0);
}
