//! The ring of one perf event: a control page and one data page, read by the thread that the event counts.
//!
//! Several overflows inside one system call raise one signal, but each writes a record with the kernel's part
//! of the stack at that moment. The ring wakes no reader. The kernel counts overflows that do not fit in a
//! record of its own.
//!
//! **Unmapping.** A handler marks the handle BUSY while it reads. A thread that disarms this one at the same
//! time only marks the handle CLOSE, and the handler unmaps the pages when it is done.
//!
//! A sample's kernel frames precede those of the program in one list of addresses. They are recognized by
//! their addresses, which are in the upper half.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::os::sys;

/// Bits of a handle; the rest is the address of the control page.
mod bits {
    /// A data page follows the control page.
    pub const DATA: u64 = 1;
    /// A handler is reading the pages.
    pub const BUSY: u64 = 2;
    /// To be unmapped by the handler that reads it.
    pub const CLOSE: u64 = 4;
    /// All bits.
    pub const ALL: u64 = 0xfff;
}

/// Maximum number of kernel frames stored from one record.
pub const KERNEL_FRAMES: usize = 48;

/// Maps an event with a data page, or without one if locked memory is used up. Returns the handle for the
/// functions below.
pub(crate) fn map(fd: i32, data: bool) -> Result<u64, i32> {
    if data && let Ok(address) = sys::map_event(fd, 2) {
        return Ok(address as u64 | bits::DATA);
    }
    sys::map_event(fd, 1).map(|address| address as u64)
}

/// Unmaps an event's pages, which destroys the event.
///
/// # Safety
/// The handle came from [`map`], and the caller is its only owner.
pub(crate) unsafe fn unmap(handle: u64) {
    let pages = if handle & bits::DATA != 0 { 2 } else { 1 };
    let address = handle & !bits::ALL;
    if address != 0 {
        // SAFETY: the caller guarantees that the handle is of pages mapped by [`map`] and that it is the only
        // owner.
        unsafe { sys::unmap_event(address as usize, pages) };
    }
}

/// Removes a handle from its slot and unmaps it, immediately or when the handler that reads it is done.
pub(crate) fn close(slot: &AtomicU64) {
    let mut handle = slot.load(Ordering::Relaxed);
    while handle != 0 {
        let (new, mine) = if handle & bits::BUSY != 0 { (handle | bits::CLOSE, false) } else { (0, true) };
        match slot.compare_exchange(handle, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) if mine => {
                // SAFETY: the exchange makes this call the handle's only owner.
                unsafe { unmap(handle) };
                return;
            }
            Ok(_) => return,
            Err(now) => handle = now,
        }
    }
}

/// One overflow.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// The counter, and how long it was enabled and running, ns. Zero if the event's records do not contain
    /// its counter.
    pub counter: [u64; 3],
    /// Number of kernel frames, leaf first, that were written to the reader's buffer.
    pub kernel: usize,
}

/// Exclusive reading of one event's ring.
pub struct Reader<'a> {
    slot: &'a AtomicU64,
    control: *const AtomicU64,
    data: *const AtomicU64,
    words: u64,
    tail: u64,
    head: u64,
    reads_counter: bool,
    /// Unread records stay in the ring.
    keep: bool,
}

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Words of `data_head` and `data_tail` in the control page.
const HEAD: usize = 1024 / 8;
const TAIL: usize = 1032 / 8;

impl<'a> Reader<'a> {
    /// Takes exclusive access to the ring of `slot`; `None` if there is none. `reads_counter`: its records
    /// contain the counter.
    #[inline]
    pub fn take(slot: &'a AtomicU64, reads_counter: bool) -> Option<Reader<'a>> {
        let handle = slot.load(Ordering::Relaxed);
        if handle & bits::DATA == 0 || handle & bits::BUSY != 0 {
            return None;
        }
        slot.compare_exchange(handle, handle | bits::BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let control = (handle & !bits::ALL) as *const AtomicU64;
        let page = sys::page_bytes();
        // SAFETY: two mapped pages, which no thread unmaps while BUSY is set.
        let data = unsafe { control.cast::<u8>().add(page) }.cast::<AtomicU64>();
        let words = (page / 8) as u64;
        let mut reader = Reader { slot, control, data, words, tail: 0, head: 0, reads_counter, keep: false };
        reader.tail = reader.control_word(TAIL).load(Ordering::Relaxed) / 8;
        reader.head = reader.control_word(HEAD).load(Ordering::Acquire) / 8;
        // Only the kernel writes there. A program that writes there too loses its records.
        if reader.head.wrapping_sub(reader.tail) > words {
            reader.tail = reader.head;
        }
        Some(reader)
    }

    #[inline]
    fn control_word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: inside the control page, which stays mapped while `self` lives.
        unsafe { &*self.control.add(index) }
    }

    #[inline]
    fn word(&self, at: u64) -> u64 {
        // SAFETY: the index is below the words of the data page, a power of two.
        unsafe { &*self.data.add((at & (self.words.wrapping_sub(1))) as usize) }.load(Ordering::Relaxed)
    }

    /// Returns type and length in words of the record at `at`; `None` at the end.
    #[inline]
    fn header(&self, at: u64) -> Option<(u32, u64)> {
        let left = self.head.wrapping_sub(at);
        if left == 0 || left > self.words {
            return None;
        }
        let header = self.word(at);
        let words = header >> 48 >> 3;
        (1..=left).contains(&words).then_some((header as u32, words))
    }

    /// Returns the number of pending overflows, including those that the kernel dropped.
    #[inline]
    pub fn waiting(&self) -> u64 {
        let (mut at, mut n) = (self.tail, 0u64);
        while let Some((kind, words)) = self.header(at) {
            n = n.saturating_add(match kind {
                RECORD_SAMPLE => 1,
                RECORD_LOST => self.word(at.wrapping_add(2)).min(1 << 20),
                _ => 0,
            });
            at = at.wrapping_add(words);
        }
        n
    }

    /// Returns the next overflow; its kernel frames are written to `frames`.
    #[inline]
    pub fn next(&mut self, frames: &mut [u64; KERNEL_FRAMES]) -> Option<Overflow> {
        loop {
            let at = self.tail;
            let Some((kind, words)) = self.header(at) else {
                self.tail = self.head;
                return None;
            };
            self.tail = at.wrapping_add(words);
            if kind == RECORD_SAMPLE {
                return Some(self.overflow(at, words, frames));
            }
        }
    }

    /// Layout: time, [value, enabled, running,] number of addresses, addresses.
    #[inline]
    fn overflow(&self, at: u64, words: u64, frames: &mut [u64; KERNEL_FRAMES]) -> Overflow {
        let word = |i: u64| if i < words { self.word(at.wrapping_add(i)) } else { 0 };
        let (counter, chain) =
            if self.reads_counter { ([word(2), word(3), word(4)], 5) } else { ([0; 3], 2) };
        let count = word(chain).min(words);
        let mut kernel = 0;
        for i in 1..=count {
            let address = word(chain.wrapping_add(i));
            // The kernel's context markers are addresses of the last page.
            if !is_kernel(address) {
                continue;
            }
            let Some(frame) = frames.get_mut(kernel) else { break };
            *frame = address;
            kernel = kernel.wrapping_add(1);
        }
        Overflow { time_ns: word(1), counter, kernel }
    }
}

impl Drop for Reader<'_> {
    #[inline]
    fn drop(&mut self) {
        let read = if self.keep { self.tail } else { self.head };
        self.control_word(TAIL).store(read.wrapping_mul(8), Ordering::Release);
        let before = self.slot.fetch_and(!bits::BUSY, Ordering::AcqRel);
        if before & bits::CLOSE != 0 {
            self.slot.store(0, Ordering::Release);
            // SAFETY: the thread that set CLOSE left the unmapping to this reader.
            unsafe { unmap(before) };
        }
    }
}

/// Returns true if the ring of `slot` has a pending overflow; reads nothing.
#[inline]
pub fn is_waiting(slot: &AtomicU64) -> bool {
    let Some(mut reader) = Reader::take(slot, false) else { return false };
    reader.keep = true;
    reader.waiting() > 0
}

/// Consecutive overflows with the same kernel stack.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Time of the first overflow, ns.
    pub time_ns: u64,
    /// The counter at the last overflow.
    pub counter: [u64; 3],
    /// Number of overflows.
    pub count: u64,
}

/// Reads a ring to its end and calls `take(run, is the last, kernel frames)` for each run, at least once.
#[inline]
pub fn runs(
    mut reader: Reader<'_>,
    buffers: &mut [[u64; KERNEL_FRAMES]; 2],
    mut take: impl FnMut(&Run, bool, &[u64]),
) {
    let [kept, next] = buffers;
    let mut open: Option<(Run, usize)> = None;
    while let Some(overflow) = reader.next(next) {
        if let Some((run, depth)) = &mut open {
            if *depth == overflow.kernel && kept.iter().zip(next.iter()).take(*depth).all(|(a, b)| a == b) {
                run.count = run.count.wrapping_add(1);
                run.counter = overflow.counter;
                continue;
            }
            take(run, false, kept.get(..*depth).unwrap_or_default());
        }
        core::mem::swap(kept, next);
        let run = Run { time_ns: overflow.time_ns, counter: overflow.counter, count: 1 };
        open = Some((run, overflow.kernel));
    }
    let none = Run { time_ns: u64::MAX, counter: [0; 3], count: 0 };
    let (run, depth) = open.unwrap_or((none, 0));
    take(&run, true, kept.get(..depth).unwrap_or_default());
}

/// Returns true if an address is kernel code, not a context marker.
#[inline]
pub fn is_kernel(address: u64) -> bool {
    (1 << 63..u64::MAX - 4095).contains(&address)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    /// Two pages with the given records, as the kernel would write them.
    fn pages(records: &[&[u64]]) -> std::vec::Vec<AtomicU64> {
        let mut all = vec![0u64; 1024];
        let mut at = 512;
        for record in records {
            all[at..at + record.len()].copy_from_slice(record);
            at += record.len();
        }
        all[HEAD] = (at as u64 - 512) * 8;
        all.into_iter().map(AtomicU64::new).collect()
    }

    fn reader<'a>(slot: &'a AtomicU64, memory: &[AtomicU64], reads_counter: bool) -> Reader<'a> {
        let control = memory.as_ptr();
        // SAFETY: two pages of 512 words.
        let data = unsafe { control.add(512) };
        let (tail, head) = (0, memory[HEAD].load(Ordering::Relaxed) / 8);
        Reader { slot, control, data, words: 512, tail, head, reads_counter, keep: false }
    }

    const fn header(kind: u64, words: u64) -> u64 {
        kind | ((words * 8) << 48)
    }

    #[test]
    fn records_are_read_with_and_without_kernel_frames() {
        let kernel = 0xffff_ffff_8100_0000;
        let mark = u64::MAX - 127;
        let memory = pages(&[
            &[header(9, 9), 100, 7, 50, 25, 3, mark, kernel, kernel + 8],
            &[header(2, 3), 0, 4],
            &[header(9, 6), 200, 9, 60, 30, 0],
        ]);
        let slot = AtomicU64::new(0);
        let mut reader = reader(&slot, &memory, true);
        assert_eq!(reader.waiting(), 6);
        let mut frames = [0; KERNEL_FRAMES];
        let first = reader.next(&mut frames).unwrap();
        assert_eq!((first.time_ns, first.counter, first.kernel), (100, [7, 50, 25], 2));
        assert_eq!(frames[..2], [kernel, kernel + 8]);
        let second = reader.next(&mut frames).unwrap();
        assert_eq!((second.time_ns, second.counter, second.kernel), (200, [9, 60, 30], 0));
        assert!(reader.next(&mut frames).is_none());
        drop(reader);
        assert_eq!(memory[TAIL].load(Ordering::Relaxed), memory[HEAD].load(Ordering::Relaxed));
    }

    #[test]
    fn malformed_records_terminate_within_bounds() {
        let mut frames = [0; KERNEL_FRAMES];
        for record in [
            &[header(9, 0), 1][..],
            &[header(9, 4000), 1],
            &[header(9, 3), 1, u64::MAX],
            &[header(9, 1)],
            &[u64::MAX, u64::MAX],
        ] {
            let memory = pages(&[record]);
            let slot = AtomicU64::new(0);
            let mut reader = reader(&slot, &memory, false);
            while let Some(overflow) = reader.next(&mut frames) {
                assert!(overflow.kernel <= KERNEL_FRAMES);
            }
            drop(reader);
        }
    }
}
