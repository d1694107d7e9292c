//! A stream that is split into chunks: the sink contains a valid recording after every step, and no complete
//! event is lost, whatever happens to the stream.

use crate::walk;

use std::collections::BTreeSet;
use std::io;

use jfr_format::edit::collect::{ChunkSink, Collected, Collector};
use jfr_format::header::{ChunkHeader, LEN};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::metadata::Declared;
use jfr_format::read::{Input, Item, Recording};
use jfr_format::schema;
use jfr_format::write::{self, ChunkWriter, ClockLine, Geometry, StreamOutput};
use walk::Random;

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(1000),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

/// A recording in memory.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    base: usize,
    most: u64,
    /// Start and end of each chunk, ns since 1970.
    times: Vec<(i64, i64)>,
    growths: usize,
}

impl ChunkSink for Memory {
    fn begin(&mut self, most: u64) -> io::Result<()> {
        (self.base, self.most) = (self.bytes.len(), most);
        Ok(())
    }

    fn grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        self.bytes.extend(bytes);
        self.bytes[self.base..self.base + LEN].copy_from_slice(&header.encode());
        assert_eq!(header.size as usize, self.bytes.len() - self.base);
        assert!(header.size <= self.most, "{} of {}", header.size, self.most);
        self.growths += 1;
        Ok(())
    }

    fn end(&mut self, header: &ChunkHeader, _: bool) -> io::Result<()> {
        self.times.push((header.start_nanos, header.start_nanos + header.duration_nanos));
        Ok(())
    }
}

/// Returns the texts of all notices, in order. Panics if the reader reports anything, or if the JDK would
/// refuse a checkpoint.
fn notices(bytes: &[u8]) -> Vec<String> {
    Recording::bytes(bytes.to_vec().into()).validate(|_| {}).unwrap();
    let mut input = Input::bytes(bytes.to_vec().into());
    let mut found = Vec::new();
    while let Some(item) = input.next().unwrap() {
        match item {
            Item::Warning(warning) => panic!("{warning}"),
            Item::Events(batch) => {
                for event in batch.events() {
                    if &*event.class().name != "flightline.Notice" {
                        continue;
                    }
                    let thread = event.field("message").unwrap().unwrap().text().unwrap().unwrap();
                    found.push(thread.into_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns chunks with numbered notices and samples with stacks, the texts, and the ends of the segments.
fn stream(chunks: usize, segments: bool) -> (Vec<u8>, Vec<String>, Vec<usize>) {
    let types = [schema::NOTICE, schema::EXECUTION_SAMPLE, schema::SEGMENT];
    let declared = Declared::new(types.into_iter().take(if segments { 3 } else { 2 }));
    let size = write::min_fixed_size(&declared) + 6000;
    let (mut random, mut next, mut now) = (Random(3), 0, 1000);
    let (mut bytes, mut texts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..chunks {
        let mut out = StreamOutput::new(Vec::new());
        let geometry = Geometry::Fixed { size };
        let mut chunk =
            ChunkWriter::declaring(&declared, geometry, &LINE, FileOffset(0), Ticks(now)).unwrap();
        if segments {
            chunk.enable_segments(next);
        }
        let (base, mut flushed) = (bytes.len(), 0);
        loop {
            now += 10;
            let key = now as u64;
            let text = format!("notice {} {}", texts.len(), "x".repeat(random.below(90) as usize));
            if chunk.room() < 600 {
                break;
            }
            chunk.event(schema::NOTICE, |e| _ = e.ticks(Ticks(now)).string(&text)).unwrap();
            texts.push(text);
            if random.below(3) == 0 {
                chunk
                    .constant(schema::STACK_TRACE, key, |s| {
                        s.boolean(false).array(1);
                        s.key(1).int(0).int(0).key(schema::frame_type::CPP);
                    })
                    .unwrap();
                chunk
                    .event(schema::EXECUTION_SAMPLE, |e| _ = e.ticks(Ticks(now)).key(1).key(key).key(1))
                    .unwrap();
            }
            if random.below(6) == 0 {
                chunk.flush(Ticks(now), &mut out).unwrap();
                flushed += 1;
                ends.push(base + chunk.end().0 as usize);
            }
        }
        assert!(flushed > 1);
        now += 10;
        chunk.finish(Ticks(now), false, &mut out).unwrap();
        next = chunk.next_segment().unwrap_or(0);
        bytes.extend(out.into_inner());
    }
    (bytes, texts, ends)
}

fn collect(
    bytes: &[u8],
    mut piece: impl FnMut() -> usize,
    mut look: impl FnMut(&Memory),
) -> (Memory, Collected) {
    let (mut collector, mut memory) = (Collector::default(), Memory::default());
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + piece().max(1)).min(bytes.len());
        let before = memory.growths;
        collector.push(&bytes[at..end], &mut memory).unwrap();
        if memory.growths > before {
            look(&memory);
        }
        at = end;
    }
    collector.end(&mut memory).unwrap();
    look(&memory);
    (memory, collector.report().clone())
}

#[test]
fn collected_recording_is_complete_after_every_step() {
    for segments in [true, false] {
        let (bytes, texts, ends) = stream(5, segments);
        let mut random = Random(9);
        let mut seen = 0;
        let (memory, report) = collect(
            &bytes,
            || random.below(900) as usize,
            |memory| {
                let found = notices(&memory.bytes);
                assert!(
                    found.len() >= seen && texts.starts_with(&found),
                    "{} of {}",
                    found.len(),
                    texts.len()
                );
                seen = found.len();
            },
        );
        assert_eq!(notices(&memory.bytes), texts);
        assert!(memory.growths > ends.len() / 2, "{} of {}", memory.growths, ends.len());
        assert_eq!(
            (report.chunks, report.damaged, report.lost_bytes, report.cut),
            (5, 0, 0, 0),
            "{report:?}"
        );
        assert_eq!(report.bytes, bytes.len() as u64);
        // Without filler and anchors.
        assert!(memory.bytes.len() < bytes.len() && report.written == memory.bytes.len() as u64);
        assert_eq!(report.segments > 0, segments, "{report:?}");
        assert_eq!((report.segments_missing, report.segments_wrong), (0, 0));
        // Required by an event stream of the JDK: a chunk begins where the previous one ended, or later.
        assert!(memory.times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", memory.times);
        assert!(memory.times.iter().all(|(start, end)| start < end), "{:?}", memory.times);
        // The collected recording is a stream that can be collected again.
        let (again, report) = collect(&memory.bytes, || 4096, |_| {});
        assert_eq!((notices(&again.bytes), report.damaged), (texts, 0), "{report:?}");
    }
}

#[test]
fn truncation_at_any_byte_retains_complete_events() {
    let (bytes, texts, _) = stream(2, true);
    // An event is complete if all its bytes arrived; its text identifies it.
    let ends: Vec<usize> = texts.iter().map(|text| find(&bytes, text).unwrap() + text.len()).collect();
    let whole = |cut: usize| ends.iter().filter(|end| **end <= cut).count();
    for cut in (0..bytes.len()).step_by(7).chain([bytes.len()]) {
        let (memory, report) = collect(&bytes[..cut], || 1 << 20, |_| {});
        let found = if memory.bytes.is_empty() { Vec::new() } else { notices(&memory.bytes) };
        assert!(texts.starts_with(&found), "cut at {cut}");
        assert_eq!(found.len(), whole(cut), "cut at {cut}: {report:?}");
        assert_eq!(report.damaged, 0, "cut at {cut}: {report:?}");
    }
}

fn find(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

/// A byte is changed, bytes are missing, or bytes are added: undamaged events are retained, and the damage is
/// reported.
#[test]
fn damage_is_reported_and_does_not_spread() {
    let (bytes, texts, ends) = stream(4, true);
    let size = bytes.len() / 4;
    let places: Vec<usize> = texts.iter().map(|text| find(&bytes, text).unwrap()).collect();
    let mut random = Random(17);
    let (mut least, mut reported) = (usize::MAX, 0);
    for round in 0..600 {
        let at = random.below(bytes.len() as u64) as usize;
        let mut damaged = bytes.clone();
        match round % 3 {
            0 => damaged[at] ^= 1 << random.below(8),
            1 => drop(damaged.drain(at..(at + 1 + random.below(300) as usize).min(bytes.len()))),
            _ => drop(damaged.splice(at..at, (0..random.below(300)).map(|n| (n * 37) as u8))),
        }
        if damaged == bytes {
            continue;
        }
        let (memory, report) = collect(&damaged, || 5000, |_| {});
        let found: BTreeSet<String> = events(&memory.bytes).into_iter().collect();
        // All events of the other chunks, except of the next one if its header was hit, and the segments
        // before the damage.
        let chunk = at / size;
        let before = ends.iter().filter(|end| **end <= at && **end > chunk * size).max().copied();
        for (n, (text, place)) in texts.iter().zip(places.iter().copied()).enumerate() {
            let safe = place / size != chunk && place / size != (at + 300) / size
                || before.is_some_and(|end| place < end && place / size == chunk);
            assert!(
                !safe || found.contains(text),
                "round {round}: {n} at {place}, damage at {at}: {report:?}"
            );
        }
        let whole = texts.iter().filter(|text| found.contains(*text)).count();
        least = least.min(whole);
        let filler = report.segments_wrong == 0 && report.damaged == 0 && report.cut == 0;
        reported += usize::from(!filler);
        // Only one kind of damage goes unnoticed: a changed filler.
        assert!(!filler || whole == texts.len(), "round {round}: silent damage at {at}: {report:?}");
    }
    assert!(reported > 300 && least < texts.len(), "{reported}");
}

/// Without segments no checksum finds damage that has the form of events. Every reader must be able to open
/// the recording.
#[test]
fn damage_without_segments_leaves_readable_recording() {
    let (bytes, _, _) = stream(2, false);
    for at in (0..bytes.len()).step_by(3) {
        let mut inserted = bytes.clone();
        drop(inserted.splice(at..at, [7; 100]));
        let mut replaced = bytes.clone();
        replaced[at..(at + 40).min(bytes.len())].fill(0xa5);
        for damaged in [&inserted, &replaced] {
            let (memory, _) = collect(damaged, || 5000, |_| {});
            if !memory.bytes.is_empty() {
                notices(&memory.bytes);
            }
        }
    }
}

/// Returns the texts of notices, and ignores all errors.
fn events(bytes: &[u8]) -> Vec<String> {
    let mut input = Input::bytes(bytes.to_vec().into());
    let mut found = Vec::new();
    while let Some(item) = input.next().unwrap() {
        if let Item::Events(batch) = item {
            for event in batch.events() {
                if &*event.class().name == "flightline.Notice"
                    && let Ok(Some(value)) = event.field("message")
                    && let Ok(Some(text)) = value.text()
                {
                    found.push(text.into_owned());
                }
            }
        }
    }
    found
}

/// A recorder is killed and started again: the complete part of the interrupted chunk is retained, and the
/// next chunk follows.
#[test]
fn consecutive_streams_are_collected() {
    let (bytes, texts, _) = stream(3, true);
    let (mut collector, mut memory) = (Collector::default(), Memory::default());
    let cut = bytes.len() / 2;
    for _ in 0..3 {
        collector.push(&bytes[..cut], &mut memory).unwrap();
        collector.cut(&mut memory).unwrap();
    }
    collector.push(&bytes, &mut memory).unwrap();
    collector.end(&mut memory).unwrap();
    let report = collector.report();
    assert_eq!((report.cut, report.damaged, report.segments_missing), (3, 0, 0), "{report:?}");
    let found = notices(&memory.bytes);
    let part = texts.iter().filter(|text| find(&bytes, text).unwrap() + text.len() <= cut).count();
    assert_eq!(found.len(), 3 * part + texts.len());
    // Segments that a reader did not receive are detected by their numbers.
    let (mut collector, mut memory) = (Collector::default(), Memory::default());
    collector.push(&bytes[..bytes.len() / 3], &mut memory).unwrap();
    collector.push(&bytes[2 * bytes.len() / 3..], &mut memory).unwrap();
    collector.end(&mut memory).unwrap();
    assert!(collector.report().segments_missing > 1, "{:?}", collector.report());
    assert_eq!(collector.report().damaged, 0);
}

#[test]
fn arbitrary_input_does_not_panic() {
    let (bytes, _, _) = stream(2, true);
    let mut random = Random(5);
    for round in 0..300 {
        let mut junk: Vec<u8> = (0..random.below(4000)).map(|_| random.below(256) as u8).collect();
        let from = random.below(bytes.len() as u64) as usize;
        junk.extend(&bytes[from..(from + random.below(20_000) as usize).min(bytes.len())]);
        junk.extend(b"FLR\0\0\x02\0\x01");
        let (memory, report) = collect(&junk, || 777, |_| {});
        assert!(memory.bytes.is_empty() || Input::bytes(memory.bytes.into()).next().is_ok(), "{round}");
        assert_eq!(report.bytes, junk.len() as u64);
    }
}
