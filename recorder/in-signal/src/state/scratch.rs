//! Work memory of handlers, so that their own stack use stays small: alternate signal stacks can be tiny. A
//! fixed pool with a try-lock: a handler that finds no free buffer counts a loss instead of waiting.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::layout::{MAX_CONTEXT, MAX_DEPTH};
use crate::perf::perf_ring::KERNEL_FRAMES;
use crate::unwind::eh_frame::Machine;
use crate::unwind::stack::Windows;

/// Number of buffers in the pool.
pub const BUFFERS: usize = 16;

/// One handler's work memory.
#[repr(C, align(64))]
pub struct Scratch {
    /// Number of frames of the last walk that are still in `frames`: a hint for the next walk.
    pub depth: usize,
    /// Addresses of the walk, leaf first.
    pub frames: [u64; MAX_DEPTH],
    /// The thread's context, see [`crate::context`].
    pub context: [u64; MAX_CONTEXT],
    /// Number of words of it in use.
    pub context_words: usize,
    /// Kernel frames of the overflow that is being recorded, and of the one before.
    pub kernel: [[u64; KERNEL_FRAMES]; 2],
    /// Copies of memory that may be unmapped.
    pub windows: Windows,
    /// State of the CFI interpreter.
    pub machine: Machine,
}

/// The pool. Zeroed memory means that all buffers are free.
#[repr(C, align(64))]
pub struct Pool {
    busy: AtomicU32,
    buffers: [UnsafeCell<Scratch>; BUFFERS],
}

// SAFETY: a buffer is reached only through a `Lease`, of which the bit in `busy` allows one.
unsafe impl Sync for Pool {}

/// Exclusive use of one buffer.
pub struct Lease<'a> {
    pool: &'a Pool,
    bit: u32,
    buffer: &'a UnsafeCell<Scratch>,
}

impl Pool {
    /// Takes a free buffer, `None` if there is none.
    #[inline]
    pub fn take(&self) -> Option<Lease<'_>> {
        self.take_for(0)
    }

    /// Returns a free buffer, preferably the one that a thread of this slot used last, because its contents
    /// help the next walk.
    #[inline]
    pub fn take_for(&self, thread: u32) -> Option<Lease<'_>> {
        let mut busy = self.busy.load(Ordering::Relaxed);
        let own = thread % BUFFERS as u32;
        loop {
            let free = if busy.wrapping_shr(own) & 1 == 0 { own } else { busy.trailing_ones() };
            let buffer = self.buffers.get(free as usize)?;
            let bit = 1u32.checked_shl(free)?;
            match self.busy.compare_exchange(busy, busy | bit, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Lease { pool: self, bit, buffer }),
                Err(now) => busy = now,
            }
        }
    }
}

impl Lease<'_> {
    /// The buffer.
    #[inline]
    pub fn scratch(&mut self) -> &mut Scratch {
        // SAFETY: this lease owns the buffer's bit, and borrows itself mutably.
        unsafe { &mut *self.buffer.get() }
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.busy.fetch_and(!self.bit, Ordering::Release);
    }
}
