//! Damaged recordings cause no panic and no disproportionate allocation, and errors contain an offset in the
//! input.

use crate::dump;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dump::{Dump, fixtures, name, stride};
use jfr_format::read::Delivery::{self, Streaming, WholeChunks};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(change: isize) {
    // Destructors of thread-locals may allocate after these are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is forwarded to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Maximum memory of the decoder and the dump: the dump prints each event's stack in full, so the limit is
/// generous.
const MOST: isize = 24 << 20;

fn survives(bytes: &[u8], delivery: Delivery, what: impl Fn() -> String) -> Dump {
    let before = LIVE.get();
    PEAK.set(before);
    let dump = Dump::of(&[bytes], delivery);
    let peak = PEAK.get() - before;
    assert!(peak < MOST, "{}: {peak} bytes at once", what());
    for at in &dump.offsets {
        assert!(*at <= bytes.len() as u64, "{}: offset {at} of {}", what(), bytes.len());
    }
    dump
}

#[test]
fn truncated_recordings_do_not_panic() {
    for path in fixtures("cases") {
        let bytes = std::fs::read(&path).unwrap();
        let whole = survives(&bytes, WholeChunks, || name(&path));
        let few = ["02_", "40_", "88_"].iter().any(|prefix| name(&path).starts_with(prefix));
        for cut in (0..bytes.len()).step_by(if few { stride(5, 1) } else { stride(211, 37) }) {
            for delivery in [WholeChunks, Streaming] {
                let dump = survives(&bytes[..cut], delivery, || format!("{} cut at {cut}", name(&path)));
                assert!(dump.events.len() <= whole.events.len());
            }
        }
    }
}

#[test]
fn flipped_bytes_do_not_panic() {
    for path in fixtures("cases") {
        let original = std::fs::read(&path).unwrap();
        let few = ["02_", "43_", "82_"].iter().any(|prefix| name(&path).starts_with(prefix));
        let mut bytes = original.clone();
        for at in (0..bytes.len()).step_by(if few { stride(5, 1) } else { stride(251, 41) }) {
            for flip in [0x01, 0x80, 0xff] {
                bytes[at] ^= flip;
                survives(&bytes, WholeChunks, || format!("{}: byte {at} ^ {flip:#x}", name(&path)));
                bytes[at] = original[at];
            }
        }
    }
}

/// One damaged size in a chunk costs the events up to the next checkpoint, not the rest of the chunk.
#[test]
fn reading_resumes_after_damage() {
    let path = fixtures("cases").into_iter().find(|p| name(p).starts_with("40_")).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let whole = Dump::of(&[&bytes], WholeChunks);
    let second: usize = whole.events[1].split(' ').next().unwrap().parse().unwrap();
    bytes[second] = 0;
    let damaged = Dump::of(&[&bytes], WholeChunks);
    assert_eq!(damaged.chunks.iter().map(|c| c.1).collect::<Vec<_>>(), [false, true]);
    assert!(damaged.offsets.contains(&(second as u64)), "{:?}", damaged.warnings);
    assert!(damaged.events.len() > whole.events.len() / 2 + 1, "{} events", damaged.events.len());
    assert!(damaged.events.iter().all(|event| whole.events.contains(event)));
}

/// Bytes between two chunks are skipped and reported.
#[test]
fn junk_between_chunks_is_skipped() {
    let path = fixtures("cases").into_iter().find(|p| name(p).starts_with("02_")).unwrap();
    let good = std::fs::read(path).unwrap();
    let alone = Dump::of(&[&good], WholeChunks);
    for junk in [&b"x"[..], b"FLR", b"FLR\0FLR\0", &[0; 300]] {
        let bytes = [junk, &good, junk, &good].concat();
        for delivery in [WholeChunks, Streaming] {
            let dump = Dump::of(&[&bytes], delivery);
            assert_eq!(dump.events.len(), 2 * alone.events.len(), "{junk:?}");
            assert_eq!(dump.offsets, [0, (junk.len() + good.len()) as u64], "{junk:?}");
        }
    }
}

/// Types that contain themselves or no fields, and counts that are far too large.
#[test]
fn input_without_recording_yields_no_events() {
    for bytes in [&b""[..], b"F", b"FLR\0", b"not a recording at all", &[0xff; 4096], &[0; 4096]] {
        for delivery in [WholeChunks, Streaming] {
            let dump = survives(bytes, delivery, || format!("{bytes:x?}"));
            assert_eq!((dump.events.len(), dump.warnings.len()), (0, 1), "{:?}", dump.warnings);
        }
    }
}
