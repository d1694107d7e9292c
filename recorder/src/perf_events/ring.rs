//! A perf event's ring as mapped here: the kernel writes records, we read them and give their space back.

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
    /// Bytes of data, a power of two, behind the first page.
    size: usize,
    page: usize,
    /// A record that runs over the end of the ring, put together.
    whole: Vec<u8>,
}

impl Ring {
    /// Maps a ring of `size` bytes (a power of two, a multiple of the page) of an event.
    pub fn map(event: OwnedFd, size: usize) -> Result<Ring, (OwnedFd, io::Error)> {
        let page = page_bytes();
        match MmapOptions::new().len(page + size).map_raw(&event) {
            Ok(map) => Ok(Ring { event, map, size, page, whole: Vec::new() }),
            Err(error) => Err((event, error)),
        }
    }

    /// The event it belongs to.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page, which is mapped readable and writable as long as self; aligned; the kernel
        // writes the head and reads the tail, both as whole words.
        unsafe { &*self.map.as_ptr().wrapping_add(offset).cast::<AtomicU64>() }
    }

    /// Where the kernel has written up to.
    pub fn head(&self) -> u64 {
        self.word(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Where we have read up to.
    pub fn tail(&self) -> u64 {
        self.word(DATA_TAIL).load(Ordering::Relaxed)
    }

    /// Gives the kernel back what lies before `tail`.
    pub fn release(&self, tail: u64) {
        self.word(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Bytes of data.
    pub fn size(&self) -> usize {
        self.size
    }

    fn data(&self) -> &[u8] {
        // SAFETY: `size` bytes behind the first page are mapped. The kernel writes only between head and tail − size;
        // `record` looks only at what lies between tail and head.
        unsafe { slice::from_raw_parts(self.map.as_ptr().wrapping_add(self.page), self.size) }
    }

    /// Length of the record at `at`, `None` if none that makes sense ends before `head`.
    fn length(&self, at: u64, head: u64) -> Option<usize> {
        // Records are multiples of 8 bytes, so that a header never runs over the end.
        let start = at as usize & (self.size - 1);
        let header = self.data().get(start..start + 8)?;
        let len = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let sound = len >= 8 && len % 8 == 0 && len as u64 <= head.saturating_sub(at) && len <= self.size;
        sound.then_some(len)
    }

    /// The `len` bytes at `offset` of a record, as one number; 0 outside of it.
    fn peek(&self, at: u64, offset: usize) -> u64 {
        let start = (at as usize + offset) & (self.size - 1);
        let bytes = self.data().get(start..start + 8).and_then(|b| b.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    }

    /// What is at `at`: length and time of a record; `None` at `head`, or if there is something that no kernel writes.
    /// `time_at` says where in a record of that kind and length the time is.
    pub fn look(&self, at: u64, head: u64, time_at: impl Fn(u32, usize) -> usize) -> Option<(usize, u64)> {
        if at >= head {
            return None;
        }
        let len = self.length(at, head)?;
        let kind = self.peek(at, 0) as u32;
        Some((len, self.peek(at, time_at(kind, len))))
    }

    /// The bytes of the record of `len` bytes at `at`.
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

/// Bytes of a page.
pub fn page_bytes() -> usize {
    let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.and_then(|b| usize::try_from(b).ok()).unwrap_or(4096)
}
