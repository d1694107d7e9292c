//! Address ranges that outlive a recording.
//!
//! A thread may still be inside a handler, or between two instructions of ours, when a recording ends. So what it could
//! touch is never unmapped: empty private memory takes the place of the shared files, which gives their pages back, and
//! the next recording is mapped over it. Starting and stopping a thousand times takes the addresses of one recording.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::os::{self, Fd};

/// A place for one range.
pub struct RetainedMapping {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

/// A range in use, and how much of it there is to keep.
#[derive(Clone, Copy)]
pub struct Range {
    /// First address.
    pub at: usize,
    /// Bytes, at least as many as were asked for.
    pub bytes: usize,
}

impl RetainedMapping {
    /// Empty.
    pub const fn new() -> RetainedMapping {
        RetainedMapping { at: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> Option<Range> {
        if self.bytes.load(Acquire) < bytes {
            return None;
        }
        // Whoever gets the address owns the range; its size is only changed by owners.
        let at = self.at.swap(0, Acquire);
        (at != 0).then(|| Range { at, bytes: self.bytes.load(Relaxed) })
    }

    fn put(&self, range: Range) {
        // A smaller one that is still here is lost: addresses only, and only as often as sizes grow.
        self.bytes.store(range.bytes, Relaxed);
        self.at.store(range.at, Release);
    }

    /// Maps a file, or zeroed private memory, into the kept range if it is large enough, else anywhere.
    pub fn map(&self, fd: Option<&Fd>, bytes: usize, prot: c_int, flags: c_int) -> Result<Range, c_int> {
        let Some(range) = self.take(bytes) else {
            return os::map(fd, bytes, prot, flags).map(|at| Range { at, bytes });
        };
        // SAFETY: the range is ours; late users find other memory that is as readable and writable.
        match unsafe { os::map_over(range.at, fd, bytes, prot, flags) } {
            Ok(()) => Ok(range),
            Err(errno) => {
                self.put(range);
                Err(errno)
            }
        }
    }

    /// Empties the range and keeps it. If the kernel refuses (`false`), it stays as it is, and is not used again.
    pub fn keep(&self, range: Range, prot: c_int) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: as in `map`.
        let emptied = unsafe { os::map_over(range.at, None, range.bytes, prot, flags) }.is_ok();
        if emptied {
            self.put(range);
        }
        emptied
    }

    /// Keeps a range whose contents stay.
    pub fn keep_contents(&self, range: Range) {
        self.put(range);
    }
}

impl Default for RetainedMapping {
    fn default() -> Self {
        Self::new()
    }
}
