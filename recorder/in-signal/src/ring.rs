//! The sample ring: many producers (handlers of one process), one consumer (the drain, another process).
//!
//! **Problem.** Handlers of several threads append records of different lengths at the same time; any of them
//! can be preempted for long, and the whole process can die at any instruction. The usual reserve-then-fill
//! (`fetch_add` on the head) leaves a hole of unknown length when the producer dies between the two steps.
//!
//! **Mechanism.** A record is claimed by one compare-and-swap on its *own header word*, which then holds its
//! length: there is no moment at which space is claimed but its length is unknown. The free value of a word
//! contains the lap for which it is free, so a producer that slept through a whole lap cannot claim the wrong
//! place (no ABA). `head` is a hint that any producer may advance ("helping"); the consumer does not need it.
//!
//! ```text
//! header word:  63 ........ 32 | 31 .... 16 | 15 ... 8 | 7 ... 0
//!               lap             | len, words | kind     | state
//! state:  FREE ──cas──▶ CLAIMED ──store──▶ READY ──consumer──▶ FREE of the next lap (every word of the record)
//! ```
//! Zeroed memory is FREE for lap 0. Positions count words from the start and never wrap (2^64 words).
//!
//! **Orderings.** READY is stored with Release and loaded with Acquire: the payload is visible with it.
//! `tail` is stored with Release after the words were freed, loaded with Acquire before a claim: the claim's
//! compare-and-swap sees the free markers. The header's compare-and-swap is AcqRel.
//!
//! **Cost.** A full ring refuses records (the caller counts the loss). A claimed record of a live but stopped
//! producer holds up the consumer of this one process; a dead producer's record is skipped as torn.
//!
//! **Model checking.** `loom/` runs this file in every order that C11's memory model allows: with two
//! producers and the consumer, with a producer that dies, and with a consumer that dies.

use crate::atomic::{AtomicU64, Ordering, TRIES};
use crate::layout::{MIN_RING_WORDS, RingHeader, record};

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const READY: u64 = 2;
const STATE: u64 = 0xff;

/// Maximum length of a record in words, header included.
pub const MAX_RECORD_WORDS: usize = 4096;

/// Reason why a claim failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not enough free words: the consumer is behind.
    Full,
    /// Other producers won too many times in a row.
    Contended,
}

/// A producer's or consumer's view of a ring. `Copy`: it is three words.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    header: &'a RingHeader,
    words: &'a [AtomicU64],
    shift: u32,
}

/// A claimed record: fill `words`, then [`publish`](Claim::publish).
pub struct Claim<'a> {
    header: &'a AtomicU64,
    ready: u64,
    /// The payload, header word excluded.
    pub words: &'a [AtomicU64],
}

impl Claim<'_> {
    /// Makes the record visible to the consumer.
    #[inline]
    pub fn publish(self) {
        self.header.store(self.ready, Ordering::Release);
    }
}

/// The record that the consumer found at the tail.
pub enum Next<'a> {
    /// The ring is empty.
    Empty,
    /// A record still being written by its producer.
    InFlight,
    /// A finished record: its kind and payload. Call [`Ring::release`] with the same length when done.
    Ready {
        /// [`record`] kind.
        kind: u8,
        /// Payload words, header word excluded.
        payload: &'a [AtomicU64],
        /// Length to give to [`Ring::release`].
        len: u64,
    },
    /// The memory contains something that no producer writes; the ring must not be read any further.
    Corrupt,
}

impl<'a> Ring<'a> {
    /// Wraps shared memory. `None` unless the number of words is a power of two in [`MIN_RING_WORDS`] ..= 2^31.
    #[inline]
    pub fn new(header: &'a RingHeader, words: &'a [AtomicU64]) -> Option<Ring<'a>> {
        let n = words.len();
        if !n.is_power_of_two() || !(MIN_RING_WORDS..=1 << 31).contains(&n) {
            return None;
        }
        Some(Ring { header, words, shift: n.trailing_zeros() })
    }

    #[inline]
    fn lap(&self, position: u64) -> u64 {
        (position >> self.shift) << 32
    }

    #[inline]
    fn word(&self, position: u64) -> Option<&'a AtomicU64> {
        self.words.get((position & (self.words.len() as u64).wrapping_sub(1)) as usize)
    }

    /// Prefetches the words of the next record, assuming a common size.
    #[inline]
    pub fn prefetch(&self) {
        let head = self.header.head.load(Ordering::Relaxed);
        for line in 0..8 {
            if let Some(word) = self.word(head.wrapping_add(line * 8)) {
                crate::unwind::stack::prefetch(core::ptr::from_ref(word) as u64);
            }
        }
    }

    /// Claims a record with `payload` words.
    #[inline]
    pub fn claim(&self, kind: u8, payload: usize) -> Result<Claim<'a>, Refused> {
        let size = self.words.len() as u64;
        let need = payload as u64 + 1;
        if payload + 1 > MAX_RECORD_WORDS {
            return Err(Refused::Full);
        }
        for _ in 0..TRIES {
            let head = self.header.head.load(Ordering::Acquire);
            let tail = self.header.tail.load(Ordering::Acquire);
            let to_end = size - (head & (size - 1));
            let (len, kind, state) =
                if to_end < need { (to_end, record::PAD, READY) } else { (need, kind, CLAIMED) };
            // A head that lags behind the tail was overtaken by helpers and the consumer: retry.
            let Some(used) = head.checked_sub(tail) else {
                let _ = self.header.head.compare_exchange(head, tail, Ordering::AcqRel, Ordering::Relaxed);
                continue;
            };
            if used.saturating_add(len) > size {
                return Err(Refused::Full);
            }
            let Some(slot) = self.word(head) else { return Err(Refused::Full) };
            let lap = self.lap(head);
            // A pad may be longer than 16 bits can express; its length follows from the end of the memory.
            let tag = lap | ((len & 0xffff) << 16) | (u64::from(kind) << 8);
            match slot.compare_exchange(lap | FREE, tag | state, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let _ = self.header.head.compare_exchange(
                        head,
                        head.wrapping_add(len),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    if state == READY {
                        continue;
                    }
                    let start = (head & (size - 1)) as usize + 1;
                    let Some(words) = self.words.get(start..start + payload) else {
                        return Err(Refused::Full);
                    };
                    return Ok(Claim { header: slot, ready: tag | READY, words });
                }
                Err(now) if now & !0xffff_ffff == lap && now & STATE != FREE => {
                    let len = self.record_len(now, to_end);
                    let _ = self.header.head.compare_exchange(
                        head,
                        head.wrapping_add(len),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                }
                Err(_) => {}
            }
        }
        Err(Refused::Contended)
    }

    #[inline]
    fn record_len(&self, header: u64, to_end: u64) -> u64 {
        if (header >> 8) & 0xff == u64::from(record::PAD) { to_end } else { (header >> 16) & 0xffff }
    }

    /// Consumer: returns the record at the tail. Only one consumer may exist.
    pub fn next(&self) -> Next<'a> {
        let mut padded = false;
        loop {
            let tail = self.header.tail.load(Ordering::Relaxed);
            let size = self.words.len() as u64;
            let Some(slot) = self.word(tail) else { return Next::Corrupt };
            let header = slot.load(Ordering::Acquire);
            if header & !0xffff_ffff != self.lap(tail) & !0xffff_ffff {
                return Next::Corrupt;
            }
            let to_end = size - (tail & (size - 1));
            let len = self.record_len(header, to_end);
            match header & STATE {
                FREE => return Next::Empty,
                CLAIMED => return Next::InFlight,
                READY if len >= 1 && len <= to_end => {
                    let kind = ((header >> 8) & 0xff) as u8;
                    if kind == record::PAD {
                        // A pad is followed by a record. A second pad here means a damaged ring, which could
                        // contain pads forever.
                        if padded {
                            return Next::Corrupt;
                        }
                        padded = true;
                        self.release(len);
                        continue;
                    }
                    let start = (tail & (size - 1)) as usize;
                    let Some(payload) = self.words.get(start + 1..start + len as usize) else {
                        return Next::Corrupt;
                    };
                    return Next::Ready { kind, payload, len };
                }
                _ => return Next::Corrupt,
            }
        }
    }

    /// Consumer: frees `len` words at the tail, for the next lap.
    pub fn release(&self, len: u64) {
        let tail = self.header.tail.load(Ordering::Relaxed);
        let size = self.words.len() as u64;
        // If the drain is killed before the last store, its successor reads here what was being freed.
        self.header.releasing.store(tail.wrapping_add(len), Ordering::Release);
        for i in 0..len {
            if let Some(word) = self.word(tail.wrapping_add(i)) {
                word.store(self.lap(tail.wrapping_add(i).wrapping_add(size)) | FREE, Ordering::Relaxed);
            }
        }
        self.header.tail.store(tail.wrapping_add(len), Ordering::Release);
    }

    /// Consumer, only after the producing process has died: skips a claimed record. Returns false if there is
    /// none.
    pub fn skip_torn(&self) -> bool {
        let tail = self.header.tail.load(Ordering::Relaxed);
        let size = self.words.len() as u64;
        let Some(slot) = self.word(tail) else { return false };
        let header = slot.load(Ordering::Acquire);
        let to_end = size - (tail & (size - 1));
        let len = self.record_len(header, to_end);
        if header & STATE != CLAIMED || len < 1 || len > to_end {
            return false;
        }
        self.release(len);
        true
    }

    /// Resumes where another consumer was killed: completes a release that had begun, and skips records
    /// before `place`, which that consumer had taken. The words are not freed, so this is allowed only when
    /// no producer writes any more.
    pub fn resume(&self, place: u64) {
        let tail = self.header.tail.load(Ordering::Acquire);
        let begun = self.header.releasing.load(Ordering::Acquire);
        // Damaged positions must not point outside the ring.
        let size = self.words.len() as u64;
        let known = |at: u64| at > tail && at.wrapping_sub(tail) <= size;
        let to = [begun, place].into_iter().filter(|at| known(*at)).max().unwrap_or(tail);
        self.header.tail.store(to, Ordering::Release);
    }

    /// Consumer: its position, in words since the ring was created.
    pub fn position(&self) -> u64 {
        self.header.tail.load(Ordering::Relaxed)
    }

    /// Returns true if more than half of the ring is in use.
    pub fn is_half_full(&self) -> bool {
        self.used() > self.words.len() as u64 / 2
    }

    /// Number of words in use, according to the head, which may lag behind.
    pub fn used(&self) -> u64 {
        let head = self.header.head.load(Ordering::Relaxed);
        head.saturating_sub(self.header.tail.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{thread, vec::Vec};

    // Miri checks every word whenever the memory is borrowed, so it runs fewer laps.
    const LAPS: u64 = if cfg!(miri) { 30 } else { 1000 };
    const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
    const WORDS: usize = if cfg!(miri) { 1024 } else { 4096 };

    fn memory(words: usize) -> (RingHeader, Vec<AtomicU64>) {
        let z = || AtomicU64::new(0);
        let header = RingHeader { head: z(), pad0: [0; 7], tail: z(), releasing: z(), pad1: [0; 6] };
        (header, (0..words).map(|_| z()).collect())
    }

    fn put(ring: &Ring<'_>, value: u64, payload: usize) -> Result<(), Refused> {
        let claim = ring.claim(record::SAMPLE, payload)?;
        for word in claim.words {
            word.store(value, Ordering::Relaxed);
        }
        claim.publish();
        Ok(())
    }

    #[test]
    fn full_ring_rejects_then_recovers() {
        let (header, words) = memory(1024);
        let ring = Ring::new(&header, &words).unwrap();
        let mut n = 0;
        while put(&ring, n, 99).is_ok() {
            n += 1;
        }
        assert_eq!(n, 10);
        for lap in 0..LAPS {
            let Next::Ready { payload, len, .. } = ring.next() else { panic!("lap {lap}") };
            assert!(payload.iter().all(|w| w.load(Ordering::Relaxed) == lap));
            ring.release(len);
            if put(&ring, lap + 10, 99) == Err(Refused::Full) {
                // The gap at the end of the memory is padded once it is free; until then the ring is full.
                let Next::Ready { payload, len, .. } = ring.next() else { panic!() };
                assert_eq!(payload[0].load(Ordering::Relaxed), lap + 1);
                let _ = len;
                break;
            }
        }
    }

    #[test]
    fn consecutive_pads_are_corrupt() {
        let (header, words) = memory(1024);
        let ring = Ring::new(&header, &words).unwrap();
        // Laps of one pad each: a program could write them faster than they are read.
        header.tail.store(1024, Ordering::Relaxed);
        words[0].store(1 << 32 | u64::from(record::PAD) << 8 | READY, Ordering::Relaxed);
        for word in &words[1..] {
            word.store(1 << 32 | FREE, Ordering::Relaxed);
        }
        assert!(matches!(ring.next(), Next::Empty));
        words[0].store(2 << 32 | u64::from(record::PAD) << 8 | READY, Ordering::Relaxed);
        assert!(matches!(ring.next(), Next::Empty), "a pad of its own is skipped");
        assert_eq!(ring.position(), 3 * 1024);
        // Two pads in one call: the first is at the end of a lap.
        header.tail.store(4 * 1024 - 1, Ordering::Relaxed);
        words[1023].store(3 << 32 | u64::from(record::PAD) << 8 | READY, Ordering::Relaxed);
        words[0].store(4 << 32 | u64::from(record::PAD) << 8 | READY, Ordering::Relaxed);
        assert!(matches!(ring.next(), Next::Corrupt));
    }

    #[test]
    fn torn_claim_is_skipped() {
        let (header, words) = memory(1024);
        let ring = Ring::new(&header, &words).unwrap();
        let torn = ring.claim(record::SAMPLE, 7).unwrap();
        put(&ring, 5, 3).unwrap();
        assert!(matches!(ring.next(), Next::InFlight));
        let _abandoned = torn;
        assert!(ring.skip_torn());
        assert!(matches!(ring.next(), Next::Ready { len: 4, .. }));
    }

    #[test]
    fn interrupted_release_is_completed() {
        let (header, words) = memory(1024);
        let ring = Ring::new(&header, &words).unwrap();
        for n in 0..4 {
            put(&ring, n, 9).unwrap();
        }
        let Next::Ready { len, .. } = ring.next() else { panic!() };
        ring.release(len);
        // The consumer was killed with the first word freed and the tail unchanged.
        header.releasing.store(20, Ordering::Relaxed);
        words[10].store(1 << 32, Ordering::Relaxed);
        assert!(matches!(ring.next(), Next::Corrupt));
        ring.resume(0);
        let Next::Ready { payload, .. } = ring.next() else { panic!() };
        assert_eq!(payload[0].load(Ordering::Relaxed), 2);
        // One record was copied elsewhere before the release began.
        ring.resume(30);
        let Next::Ready { payload, .. } = ring.next() else { panic!() };
        assert_eq!(payload[0].load(Ordering::Relaxed), 3);
        ring.resume(u64::MAX);
        assert!(matches!(ring.next(), Next::Ready { .. }));
    }

    #[test]
    fn many_producers_lose_nothing() {
        let (header, words) = memory(WORDS);
        let ring = Ring::new(&header, &words).unwrap();
        let (sum, refused) = thread::scope(|s| {
            let producers: Vec<_> = (0..4u64)
                .map(|p| {
                    s.spawn(move || {
                        let mut refused = 0u64;
                        for i in 0..EACH {
                            let value = p * EACH + i;
                            while put(&ring, value, 1 + (value % 60) as usize).is_err() {
                                refused += 1;
                                thread::yield_now();
                            }
                        }
                        refused
                    })
                })
                .collect();
            let mut sum = 0u64;
            let mut got = 0;
            while got < 4 * EACH {
                match ring.next() {
                    Next::Ready { payload, len, .. } => {
                        let value = payload[0].load(Ordering::Relaxed);
                        assert_eq!(payload.len() as u64, 1 + value % 60);
                        assert!(payload.iter().all(|w| w.load(Ordering::Relaxed) == value));
                        sum += value;
                        got += 1;
                        ring.release(len);
                    }
                    Next::Corrupt => panic!("corrupt"),
                    _ => thread::yield_now(),
                }
            }
            (sum, producers.into_iter().map(|p| p.join().unwrap()).sum::<u64>())
        });
        let n = 4 * EACH;
        assert_eq!(sum, n * (n - 1) / 2, "refused {refused}");
    }
}
