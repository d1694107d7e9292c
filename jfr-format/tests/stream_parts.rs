//! A stream in parts: the same bytes for pieces of any size, and a complete recording wherever a reader is
//! disconnected.

use crate::walk;

use bytes::Bytes;
use jfr_format::error::Error;
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::metadata::Declared;
use jfr_format::read::{FrameFault, Framer, Input, Item, Part};
use jfr_format::schema::{self, thread_state};
use jfr_format::write::{self, ChunkWriter, ClockLine, Fragment, Geometry, Loss, StreamOutput};

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

/// Three chunks of a few segments; the last one is nearly full.
fn stream() -> Vec<u8> {
    let types =
        [schema::EXECUTION_SAMPLE, schema::NOTICE, schema::SEGMENT, schema::STREAM_LOSS, schema::DATA_LOSS];
    let declared = Declared::new(types);
    let (mut bytes, mut next) = (Vec::new(), 0);
    for (number, more) in [400, 9000, 0].into_iter().enumerate() {
        let size = write::min_fixed_size(&declared) + more;
        let base = FileOffset(bytes.len() as u64);
        let now = Ticks(1000 * number as i64);
        let mut chunk =
            ChunkWriter::declaring(&declared, Geometry::Fixed { size }, &LINE, base, now).unwrap();
        chunk.enable_segments(next);
        let mut out = StreamOutput::new(&mut bytes);
        for i in 1..6 {
            let now = Ticks(now.0 + i);
            let key = (10 * number as i64 + i) as u64;
            let thread =
                |t: &mut write::FieldWriter<'_>| _ = t.string("worker").long(1).null().long(0).key(0);
            chunk.constant(schema::THREAD, key, thread).unwrap();
            let stack = |s: &mut write::FieldWriter<'_>| _ = s.boolean(false).array(0);
            chunk.constant(schema::STACK_TRACE, key, stack).unwrap();
            for _ in 0..i {
                let sample = |e: &mut write::FieldWriter<'_>| {
                    e.ticks(now).key(key).key(key).key(thread_state::DEFAULT);
                };
                chunk.event(schema::EXECUTION_SAMPLE, sample).unwrap();
            }
            chunk.event(schema::NOTICE, |e| _ = e.ticks(now).string("a notice")).unwrap();
            chunk.flush(now, &mut out).unwrap();
        }
        if more == 0 {
            while chunk.room() > 20 {
                chunk.event(schema::NOTICE, |e| _ = e.ticks(now).string("")).unwrap();
            }
        }
        chunk.finish(Ticks(now.0 + 10), number == 2, &mut out).unwrap();
        next = chunk.next_segment().unwrap();
    }
    bytes
}

fn parts(stream: &[u8], step: usize) -> Vec<Part> {
    let (mut framer, mut parts) = (Framer::new(1 << 20), Vec::new());
    for bytes in stream.chunks(step) {
        framer.push(bytes);
        while let Some(part) = framer.next_part().unwrap() {
            parts.push(part);
        }
    }
    assert!(framer.is_between_chunks());
    parts
}

fn put(out: &mut Vec<u8>, pieces: &[Fragment]) {
    for piece in pieces {
        match piece {
            Fragment::Bytes(bytes) => out.extend_from_slice(bytes),
            Fragment::Zeros(len) => out.resize(out.len() + len, 0),
        }
    }
}

/// Samples, notices, and the reported losses: event type and number.
type Seen = (u64, u64, Vec<(String, i64)>);

/// Returns the contents of a stream. Panics if the strict reader reports anything.
fn read(stream: Vec<u8>) -> Result<Seen, Error> {
    walk::chunks(&stream).into_iter().for_each(|chunk| drop(walk::chunk(chunk)));
    let (mut samples, mut notices, mut losses) = (0, 0, Vec::new());
    let mut input = Input::bytes(Bytes::from(stream));
    while let Some(item) = input.next()? {
        match item {
            Item::Events(batch) => {
                for event in batch.events() {
                    match &*event.class().name {
                        "jdk.ExecutionSample" => samples += 1,
                        "flightline.Notice" => notices += 1,
                        "flightline.StreamLoss" => {
                            let text = event.field("eventType").unwrap().unwrap().text().unwrap().unwrap();
                            let count = event.field("events").unwrap().unwrap().as_i64().unwrap();
                            losses.push((text.into_owned(), count));
                        }
                        _ => {}
                    }
                }
            }
            Item::Warning(warning) => panic!("{warning}"),
            _ => {}
        }
    }
    Ok((samples, notices, losses))
}

#[test]
fn reassembled_parts_equal_stream_for_any_input_split() {
    let stream = stream();
    for step in [1, 2, 3, 7, 64, 1000, stream.len()] {
        let parts = parts(&stream, step);
        assert_eq!(parts.iter().filter(|p| p.begins.is_some()).count(), 3);
        assert_eq!(parts.iter().filter(|p| p.ends).count(), 3);
        let mut out = Vec::new();
        parts.iter().for_each(|part| put(&mut out, &part.pieces));
        assert!(out == stream, "steps of {step}");
        let samples = parts.iter().flat_map(|p| &p.counts).filter(|c| &*c.name == "jdk.ExecutionSample");
        assert_eq!(samples.map(|c| c.events).sum::<u64>(), 45);
        // The filler of the second chunk uses no memory.
        assert!(parts.iter().map(Part::memory_bytes).sum::<usize>() + 8000 < stream.len());
    }
}

#[test]
fn disconnected_reader_has_complete_recording() {
    let stream = stream();
    let all = parts(&stream, 512);
    let (mut inside, mut beside) = (0, 0);
    for end in 0..all.len() {
        let Some(cut) = all[end].cut else { continue };
        let mut out = Vec::new();
        all[..=end].iter().for_each(|part| put(&mut out, &part.pieces));
        // The reader misses the rest of the chunk; then the next one follows.
        let rest = &all[end + 1..];
        let missed = rest.iter().position(|p| p.ends).unwrap() + 1;
        let lost = |name: &str| {
            let counts = rest[..missed].iter().flat_map(|p| &p.counts).filter(|c| &*c.name == name);
            counts.fold((0, 0), |sum, c| (sum.0 + c.events, sum.1 + c.bytes))
        };
        let names = ["jdk.ExecutionSample", "flightline.Notice"];
        let losses: Vec<Loss<'_>> = names
            .iter()
            .map(|name| (lost(name), *name))
            .map(|((events, bytes), event_type)| Loss { cause: "reader behind", event_type, events, bytes })
            .collect();
        let now = rest[missed - 1].now;
        let (pieces, complete) = write::complete(cut, now, &losses, 77, 77);
        put(&mut out, &pieces);
        let head = all[..=end].iter().rev().find_map(|p| p.begins.clone()).unwrap();
        assert!(head.declares_loss_events);
        if complete {
            inside += 1;
        } else {
            beside += 1;
            put(&mut out, &write::loss_chunk(&head.header, &head.metadata, now, &losses, 77, 77));
        }
        rest[missed..].iter().for_each(|part| put(&mut out, &part.pieces));
        let (samples, notices, losses_read) = read(out).unwrap();
        let reported: Vec<_> = losses_read.iter().map(|(name, n)| (name.as_str(), *n as u64)).collect();
        assert_eq!(reported, [(names[0], lost(names[0]).0), (names[1], lost(names[1]).0)]);
        let (all_samples, all_notices, _) = read(stream.clone()).unwrap();
        assert_eq!(
            (samples + reported[0].1, notices + reported[1].1),
            (all_samples, all_notices),
            "cut behind part {end}"
        );
    }
    assert!(inside > 5 && beside > 0, "{inside} inside, {beside} beside");
}

#[test]
fn invalid_streams_are_rejected() {
    let fault = |bytes: &[u8]| {
        let mut framer = Framer::new(64 << 10);
        framer.push(bytes);
        loop {
            match framer.next_part() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some((error.at.0, error.what)),
            }
        }
    };
    let stream = stream();
    assert_eq!(fault(b"no JFR"), Some((0, FrameFault::NoChunk)));
    assert_eq!(fault(b"FL"), None);
    let mut live = stream.clone();
    live[64] = 1;
    assert_eq!(fault(&live), Some((0, FrameFault::Unfinished)));
    // A record whose size exceeds the chunk.
    let mut long = stream.clone();
    long[68..72].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
    assert_eq!(fault(&long), Some((68, FrameFault::Record)));
    let mut short = stream.clone();
    short[68] = 0;
    short[69] = 0;
    assert_eq!(fault(&short), Some((68, FrameFault::Record)));
    // A chunk of 200 MB without a position for a disconnect.
    let mut endless = stream[..68].to_vec();
    endless[8..16].copy_from_slice(&(200u64 << 20).to_be_bytes());
    endless.extend([100, 50].iter().chain(&[1; 98]).cycle().take(100_000));
    assert!(matches!(fault(&endless), Some((_, FrameFault::TooLong))), "{:?}", fault(&endless));
    // With damage in any byte, the framer ends.
    for at in 0..stream.len() {
        let mut damaged = stream.clone();
        damaged[at] ^= 0xff;
        fault(&damaged);
    }
}
