//! The mapped ring buffer of a perf event: the kernel writes records; we read them and release their space.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};

/// Offsets in the ring's first page (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The ring of one processor, with the event that owns it.
pub struct Ring {
    event: OwnedFd,
    map: MmapRaw,
    /// Bytes of data, a power of two, after the first page.
    size: usize,
    page: usize,
    /// A copy of a record that wraps around the end of the ring.
    whole: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event with `size` bytes (a power of two, a multiple of the page size).
    pub fn map(event: OwnedFd, size: usize) -> Result<Ring, (OwnedFd, io::Error)> {
        let page = page_bytes();
        match MmapOptions::new().len(page + size).map_raw(&event) {
            Ok(map) => Ok(Ring { event, map, size, page, whole: Vec::new() }),
            Err(error) => Err((event, error)),
        }
    }

    /// Returns the event that owns the ring.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page, which is mapped readable and writable as long as self; aligned; the kernel
        // writes the head and reads the tail, both as whole words.
        unsafe { &*self.map.as_ptr().wrapping_add(offset).cast::<AtomicU64>() }
    }

    /// Returns the position up to which the kernel has written.
    pub fn head(&self) -> u64 {
        self.word(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Returns the position up to which we have read.
    pub fn tail(&self) -> u64 {
        self.word(DATA_TAIL).load(Ordering::Relaxed)
    }

    /// Releases the space before `tail` to the kernel.
    pub fn release(&self, tail: u64) {
        self.word(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Returns the bytes of data.
    pub fn size(&self) -> usize {
        self.size
    }

    fn data(&self) -> &[u8] {
        // SAFETY: `size` bytes after the first page are mapped. The kernel writes only between head and tail
        // − size; `record` reads only between tail and head.
        unsafe { slice::from_raw_parts(self.map.as_ptr().wrapping_add(self.page), self.size) }
    }

    /// Returns the length of the record at `at`; `None` if no valid record ends before `head`.
    fn length(&self, at: u64, head: u64) -> Option<usize> {
        // Records are multiples of 8 bytes, so a header never wraps around the end.
        let start = at as usize & (self.size - 1);
        let header = self.data().get(start..start + 8)?;
        let len = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let sound = len >= 8 && len % 8 == 0 && len as u64 <= head.saturating_sub(at) && len <= self.size;
        sound.then_some(len)
    }

    /// Returns the `len` bytes at `offset` of a record as a number; 0 outside of it.
    fn peek(&self, at: u64, offset: usize) -> u64 {
        let start = (at as usize + offset) & (self.size - 1);
        let bytes = self.data().get(start..start + 8).and_then(|b| b.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    }

    /// Returns length and time of the record at `at`; `None` at `head`, or if the data is invalid. `time_at`
    /// returns the offset of the time in a record of this kind and length.
    pub fn look(&self, at: u64, head: u64, time_at: impl Fn(u32, usize) -> usize) -> Option<(usize, u64)> {
        if at >= head {
            return None;
        }
        let len = self.length(at, head)?;
        let kind = self.peek(at, 0) as u32;
        Some((len, self.peek(at, time_at(kind, len))))
    }

    /// Returns the bytes of the record of `len` bytes at `at`.
    pub fn record(&mut self, at: u64, len: usize) -> &[u8] {
        let start = at as usize & (self.size - 1);
        if start + len <= self.size {
            return &self.data()[start..start + len];
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        let first = self.size - start;
        whole.extend_from_slice(&self.data()[start..]);
        whole.extend_from_slice(&self.data()[..(len - first).min(start)]);
        self.whole = whole;
        &self.whole
    }
}

/// Returns the page size, bytes.
pub fn page_bytes() -> usize {
    let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.and_then(|b| usize::try_from(b).ok()).unwrap_or(4096)
}
