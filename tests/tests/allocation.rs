//! The memory that the reader allocates, counted by the allocator: a small multiple of the input, whatever
//! its bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flightline_tests::malformed::{cases, of_one_text};
use jfr_format::event::Value;
use jfr_format::read::{Decoder, Delivery, Item};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(change: isize) {
    // Destructors of thread-locals may allocate after these are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
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

/// The memory that small files may use: the types of a recording of 4 kB, and tables of one entry per type
/// id.
const FLOOR: usize = 1 << 20;
/// In multiples of the input: the densest declarations are a class of few bytes, stored with its name, fields
/// and layout.
const TIMES: usize = 48;

/// The peak, and the largest single allocation, while all events and their fields are read.
fn most(bytes: &[u8], delivery: Delivery, piece: usize) -> (usize, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    LARGEST.set(0);
    let mut decoder = Decoder::new(delivery);
    for piece in bytes.chunks(piece) {
        decoder.push(piece.to_vec().into());
        look(&mut decoder);
    }
    decoder.close();
    look(&mut decoder);
    ((PEAK.get() - before) as usize, LARGEST.get())
}

fn look(decoder: &mut Decoder) {
    let mut fields = 0_u64;
    while let Some(item) = decoder.next() {
        let Item::Events(batch) = item else { continue };
        for event in batch.events() {
            // Other tests check fields, so errors are ignored here.
            let _ = event.visit(|field| fields += u64::from(!matches!(field.resolved(), Value::Null)));
        }
    }
}

/// All delivery modes; returns the excessive allocations.
fn too_much(name: &str, bytes: &[u8]) -> Vec<String> {
    let whole = bytes.len().max(1);
    let ways = [
        (Delivery::WholeChunks, whole),
        (Delivery::KeysOnly, whole),
        (Delivery::Streaming, whole),
        (Delivery::Streaming, 4096),
    ];
    let allowed = FLOOR + TIMES * bytes.len();
    let one = |(delivery, piece)| {
        let (peak, largest) = most(bytes, delivery, piece);
        let over = peak.max(largest) > allowed;
        over.then(|| {
            format!(
                "{name}, {delivery:?} by {piece}: {peak} at once, {largest} in one piece of {}",
                bytes.len()
            )
        })
    };
    ways.into_iter().filter_map(one).collect()
}

#[test]
fn reader_memory_is_bounded_for_malformed_recordings() {
    let over: Vec<String> = cases().iter().flat_map(|case| too_much(case.name, &case.bytes)).collect();
    assert!(over.is_empty(), "\n{}", over.join("\n"));
}

/// Stored texts are a small multiple of the input, even if constants of two bytes have the text of another
/// one.
#[test]
fn reader_memory_is_bounded_for_shared_strings() {
    let over = too_much("one text", &of_one_text(2000, 200_000));
    assert!(over.is_empty(), "\n{}", over.join("\n"));
}

/// Each number of a recording is set to the largest value of its bytes: counts, lengths, sizes, keys,
/// offsets.
#[test]
fn reader_memory_is_bounded_for_maximal_numbers() {
    let sound = include_bytes!("../../fixtures/cases/58_strings.jfr");
    let mut over = Vec::new();
    for at in (0..sound.len()).step_by(3) {
        for len in [1, 4, 9] {
            let mut bytes = sound.to_vec();
            for byte in bytes.iter_mut().skip(at).take(len) {
                *byte = 0xff;
            }
            over.extend(too_much(&format!("{len} bytes at {at}"), &bytes));
        }
    }
    assert!(over.is_empty(), "\n{}", over.join("\n"));
}
