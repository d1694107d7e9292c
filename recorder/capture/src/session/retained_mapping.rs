//! Address ranges that outlive a recording.
//!
//! A thread may still be inside a handler, or in other code of the recorder, when a recording ends. So memory
//! that it could access is never unmapped: empty private memory replaces the shared files, which releases
//! their pages, and the next recording is mapped over it. Starting and stopping a thousand times uses the
//! addresses of one recording.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::os::{self, Fd};

/// Storage for one unused range.
pub struct RetainedMapping {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

/// A mapped range.
#[derive(Clone, Copy)]
pub struct Range {
    /// First address.
    pub at: usize,
    /// Length in bytes, at least the requested length.
    pub bytes: usize,
}

impl RetainedMapping {
    /// Retains no range yet.
    pub const fn new() -> RetainedMapping {
        RetainedMapping { at: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> Option<Range> {
        if self.bytes.load(Acquire) < bytes {
            return None;
        }
        // The caller that gets the address owns the range; only owners change its size.
        let at = self.at.swap(0, Acquire);
        (at != 0).then(|| Range { at, bytes: self.bytes.load(Relaxed) })
    }

    fn put(&self, range: Range) {
        // A smaller range that is still stored here is lost. This only loses addresses, and only when sizes
        // grow.
        self.bytes.store(range.bytes, Relaxed);
        self.at.store(range.at, Release);
    }

    /// Maps a file, or zeroed private memory, into the retained range if it is large enough, else anywhere.
    pub fn map(&self, fd: Option<&Fd>, bytes: usize, prot: c_int, flags: c_int) -> Result<Range, c_int> {
        let Some(range) = self.take(bytes) else {
            return os::map(fd, bytes, prot, flags).map(|at| Range { at, bytes });
        };
        // SAFETY: this call owns the range; late users find other memory with the same access rights.
        match unsafe { os::map_over(range.at, fd, bytes, prot, flags) } {
            Ok(()) => Ok(range),
            Err(errno) => {
                self.put(range);
                Err(errno)
            }
        }
    }

    /// Empties the range and retains it. If the kernel refuses (returns false), the range stays as it is and
    /// is not reused.
    pub fn keep(&self, range: Range, prot: c_int) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: the caller's `Range` owns the memory; late users find empty memory that is readable and
        // writable.
        let emptied = unsafe { os::map_over(range.at, None, range.bytes, prot, flags) }.is_ok();
        if emptied {
            self.put(range);
        }
        emptied
    }

    /// Retains a range with its contents.
    pub fn keep_contents(&self, range: Range) {
        self.put(range);
    }
}

impl Default for RetainedMapping {
    fn default() -> Self {
        Self::new()
    }
}
