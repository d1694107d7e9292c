//! Truncated, corrupted and synthetic streams.

use std::collections::BTreeSet;

use flightline_consumer::live::{Feed, Item, Options};
use jfr_format::ids::Ticks;
use jfr_format::schema;

use super::make::{Made, SMALL, Seen, make, make_with, read};

/// Start of the `flightline.Segment` that ends at `end`. The search starts at `start`, the beginning of a
/// chunk or event.
pub fn event_before(bytes: &[u8], start: usize, end: usize) -> usize {
    let mut at = if bytes[start..].starts_with(b"FLR\0") { start + 68 } else { start };
    loop {
        let (size, _) = varint(&bytes[at..]);
        if at + size as usize == end {
            return at;
        }
        at += size as usize;
    }
}

/// Offset and length of the checksum in a `flightline.Segment`.
pub fn checksum_in(event: &[u8]) -> (usize, usize) {
    let mut at = 0;
    // Size, type, startTime, sequence, offset, size.
    for _ in 0..6 {
        at += varint(&event[at..]).1;
    }
    (at, varint(&event[at..]).1)
}

fn varint(bytes: &[u8]) -> (u64, usize) {
    let mut value = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (value, i + 1);
        }
    }
    panic!("a varint without end")
}

/// Invariants after damage to one chunk: other chunks are complete, no sample is duplicated or invented, and
/// losses are reported.
fn check(made: &Made, seen: &Seen, damaged: usize, what: &str) {
    let written: BTreeSet<i64> = made.all().into_iter().collect();
    let got: BTreeSet<i64> = seen.ticks.iter().copied().collect();
    assert_eq!(got.len(), seen.ticks.len(), "{what}: a sample came twice");
    assert!(got.is_subset(&written), "{what}: samples that were not written");
    for (number, samples) in made.samples.iter().enumerate().filter(|(number, _)| *number != damaged) {
        assert!(samples.iter().all(|tick| got.contains(tick)), "{what}: chunk {number} was sound");
    }
    if got != written {
        assert!(seen.damage > 0, "{what}: nothing is said of {} samples", written.len() - got.len());
    }
    for sample in &seen.samples {
        let frames = &sample.stack.as_ref().unwrap().frames;
        assert_eq!(frames.len(), SMALL.frames as usize, "{what}");
        assert!(frames.iter().all(|f| f.function.starts_with("function_")), "{what}: {frames:?}");
    }
}

#[test]
fn altered_byte_costs_at_most_its_chunk() {
    let made = make(SMALL);
    let size = SMALL.chunk_size as usize;
    // The header, all segments and some padding of the second chunk.
    let end = made.segments.iter().rfind(|(chunk, _)| *chunk == 1).unwrap().1 + 40;
    let mut left_out = 0u64;
    for at in (size..end).chain(2 * size - 80..2 * size) {
        let bit = at * 3 % 8;
        let mut bytes = made.bytes.clone();
        bytes[at] ^= 1 << bit;
        let (seen, _) = read(&bytes, 4096, Options::default());
        check(&made, &seen, 1, &format!("bit {bit} of byte {at}"));
        left_out += u64::from(seen.ticks.len() < made.all().len());
    }
    assert!(left_out > 1_000, "damage was found in {left_out} cases only");
}

/// J8, for damage: if the segments state the number of events, exactly the omitted events are counted.
#[test]
fn events_lost_by_damaged_segment_are_counted() {
    let made = make(SMALL);
    // A byte in the samples of the chunk's second segment, just before its final checkpoint.
    let (_, first_end) = made.segments[3];
    let (_, second_end) = made.segments[4];
    let event = event_before(&made.bytes, first_end, second_end);
    let mut bytes = made.bytes.clone();
    bytes[event - 20] ^= 0x15;
    let (seen, stats) = read(&bytes, 4096, Options::default());
    check(&made, &seen, 1, "a sample of the second segment");
    assert_eq!((stats.segments, stats.segments_damaged, stats.segments_missing), (11, 1, 0));
    // Five samples in each of the two omitted segments.
    assert_eq!(seen.lost["damaged"], 10);
    assert_eq!(seen.ticks.len() as u64 + seen.lost["damaged"], made.all().len() as u64);
    let place = format!("from byte {first_end} to byte {event}");
    assert!(seen.warnings.iter().any(|warning| warning.contains(&place)), "{:?}", seen.warnings);
}

/// Loss events after damage are valid, since they refer to no other data.
#[test]
fn losses_after_damage_are_counted() {
    let made = make_with(SMALL, |chunk, segment| {
        chunk
            .event(schema::SAMPLE_LOSS, |e| {
                e.ticks(Ticks(9)).key(1).string("ring full").long(1 << segment).long(0);
            })
            .unwrap();
    });
    let mut bytes = made.bytes.clone();
    let (_, first_end) = made.segments[3];
    bytes[first_end + 30] ^= 4;
    let (seen, _) = read(&bytes, 4096, Options::default());
    // All but the fifth segment, which was altered.
    assert_eq!(seen.lost["ring full"], (1 << 12) - 1 - (1 << 4));
    // Six events of the altered segment, five samples of the next one.
    assert_eq!(seen.lost["damaged"], 11);
}

#[test]
fn truncated_stream_yields_complete_segments() {
    let made = make(SMALL);
    let all = made.all();
    let each = SMALL.samples as usize;
    for cut in (0..made.segments[5].1 + 100).step_by(3) {
        let (seen, stats) = read(&made.bytes[..cut], 4096, Options::default());
        let whole = made.segments.iter().filter(|(_, end)| *end <= cut).count();
        assert_eq!(seen.ticks, all[..whole * each], "cut at {cut}");
        assert_eq!((stats.segments as usize, stats.unresolved), (whole, 0), "cut at {cut}");
        assert!(
            cut % SMALL.chunk_size as usize == 0 && cut > 0 || seen.damage > 0,
            "cut at {cut} is reported"
        );
    }
}

/// J26: a reader that starts in the middle of a chunk gets everything from the next chunk on.
#[test]
fn reading_from_any_byte_starts_at_next_chunk() {
    let made = make(SMALL);
    let size = SMALL.chunk_size as usize;
    for from in (1..2 * size).step_by(97) {
        let (seen, stats) = read(&made.bytes[from..], 1000, Options::default());
        let chunk = from.div_ceil(size);
        assert_eq!(seen.ticks, made.samples[chunk..].concat(), "from {from}");
        assert_eq!((stats.segments_missing, stats.segments_damaged), (0, 0));
    }
}

#[test]
fn missing_chunks_are_reported_unless_stream_reports_them() {
    let size = SMALL.chunk_size as usize;
    let without_second = |made: &Made| [&made.bytes[..size], &made.bytes[2 * size..]].concat();
    let made = make(SMALL);
    let (seen, stats) = read(&without_second(&made), 512, Options::default());
    assert_eq!(stats.segments_missing, 3);
    assert!(seen.warnings[0].contains("3 segments are missing before segment 6"), "{:?}", seen.warnings);
    check(&made, &seen, 1, "without the second chunk");

    let told = make_with(SMALL, |chunk, segment| {
        if segment == 6 {
            chunk
                .event(schema::STREAM_LOSS, |e| {
                    e.ticks(Ticks(9))
                        .string("reader behind")
                        .string("jdk.ExecutionSample")
                        .long(15)
                        .long(300);
                })
                .unwrap();
        }
    });
    let (seen, stats) = read(&without_second(&told), 512, Options::default());
    assert_eq!((stats.segments_missing, seen.damage), (3, 0), "{:?}", seen.warnings);
    assert_eq!(seen.ticks.len() as u64 + seen.lost["reader behind"], told.all().len() as u64);
}

/// Arbitrary input: randomly altered recordings, and data that is not a recording.
#[test]
fn arbitrary_input_does_not_panic() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let mut cases: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jfr"))
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(!cases.is_empty());
    cases.push(make(SMALL).bytes);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut items = 0u64;
    for case in &cases {
        for _ in 0..60 {
            let mut bytes = case.clone();
            for _ in 0..1 + next(6) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes[at] ^= 1 << next(8),
                    2 => drop(bytes.drain(at..(at + 1 + next(40)).min(bytes.len()))),
                    _ => bytes.truncate(at.max(1)),
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            let step = 1 + next(5000);
            let (seen, stats) = read(&bytes, step, Options { memory: 1 << 20, ..Options::default() });
            items += stats.events + seen.warnings.len() as u64;
        }
    }
    assert!(items > 10_000);
}

#[test]
fn chunk_with_excessive_size_is_abandoned() {
    let made = make(SMALL);
    let size = SMALL.chunk_size as usize;
    let mut bytes = made.bytes[..size].to_vec();
    // A chunk with a size of an exabyte and damage after its metadata, so that the start of the next chunk is
    // unknown.
    bytes[8..16].copy_from_slice(&(1u64 << 60).to_be_bytes());
    let events = made.segments[0].1;
    bytes[events] = 0;
    bytes.resize(4 << 20, 0);
    bytes.extend_from_slice(&made.bytes[size..]);
    let mut feed = Feed::new(Options { memory: 1 << 20, ..Options::default() });
    let mut seen = Seen::default();
    for piece in bytes.chunks(10_000) {
        feed.push(piece);
        while let Some(item) = feed.next() {
            seen.take(item);
        }
    }
    assert!(
        seen.warnings.iter().any(|w| w.contains("more than 1048576 bytes in memory")),
        "{:?}",
        seen.warnings
    );
    assert!(made.samples[1..].concat().iter().all(|tick| seen.ticks.contains(tick)));
    // Closing the stream yields no further samples.
    feed.close();
    assert!(!matches!(feed.next(), Some(Item::Sample(_))));
}
