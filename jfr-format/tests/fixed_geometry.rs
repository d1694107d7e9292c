//! Chunks of a size that is known in advance have exactly that size, for any content and any time of their
//! end.

use crate::walk;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::metadata::Declared;
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{self, ChunkWriter, ClockLine, Geometry, StreamOutput, WriteError};
use walk::Random;

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(1000),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

/// The written data, to be found again.
#[derive(Default)]
struct Written {
    samples: Vec<(i64, u64, u64)>,
    notices: Vec<String>,
    constants: usize,
}

fn define_thread(chunk: &mut ChunkWriter, key: u64) -> Result<(), WriteError> {
    chunk.constant(schema::THREAD, key, |t| {
        t.string("worker").long(key as i64).null().long(0).key(0);
    })
}

fn define_stack(chunk: &mut ChunkWriter, key: u64, frames: usize) -> Result<(), WriteError> {
    chunk.constant(schema::STACK_TRACE, key, |s| {
        s.boolean(false).array(frames);
        for frame in 0..frames {
            s.key(frame as u64 * 50).int(0).int(0).key(frame_type::CPP);
        }
    })
}

/// Adds random constants, samples and notices, and flushes at times, until `stop` items are added or the
/// chunk is full.
fn fill(chunk: &mut ChunkWriter, out: &mut StreamOutput<Vec<u8>>, random: &mut Random, stop: u64) -> Written {
    let mut written = Written::default();
    let mut last_stack = 0;
    for i in 0..stop {
        let now = Ticks(LINE.start_ticks.0 + i as i64);
        let result = match random.below(8) {
            0 => {
                let text = "n".repeat(random.below(200) as usize);
                let result = chunk.event(schema::NOTICE, |e| {
                    e.ticks(now).string(&text);
                });
                if result.is_ok() {
                    written.notices.push(text);
                }
                result
            }
            1 => {
                chunk.flush(now, out).unwrap();
                Ok(())
            }
            2 | 3 => {
                let key = i + 1;
                let frames = random.below(60) as usize;
                // A thread with the same key, so that both exist for the samples to come.
                let result = define_stack(chunk, key, frames).and_then(|()| define_thread(chunk, key));
                if result.is_ok() {
                    last_stack = key;
                    written.constants += 2;
                }
                result
            }
            _ if last_stack == 0 => Ok(()),
            _ => {
                let result = chunk.event(schema::EXECUTION_SAMPLE, |e| {
                    e.ticks(now).key(last_stack).key(last_stack).key(thread_state::DEFAULT);
                });
                if result.is_ok() {
                    written.samples.push((now.0, last_stack, last_stack));
                }
                result
            }
        };
        match result {
            Ok(()) => {}
            Err(WriteError::Full { need, room }) => {
                assert!(need > room);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    written
}

fn check(bytes: &[u8], size: u32, written: &Written) {
    assert_eq!(bytes.len(), size as usize);
    let header = walk::header(bytes);
    assert_eq!((header.state, header.flags, header.duration), (0, 1, 0));
    assert_eq!(header.checkpoint, size as usize - 64);
    let chunk = walk::chunk(bytes);
    let mut samples = Vec::new();
    let mut notices = Vec::new();
    for (ty, body) in &chunk.events {
        let mut body = walk::Bytes::new(body);
        let ticks = body.varint() as i64;
        if *ty == u64::from(schema::EXECUTION_SAMPLE.0) {
            samples.push((ticks, body.varint(), body.varint()));
        } else {
            notices.push(body.string().unwrap());
        }
    }
    assert_eq!(samples, written.samples);
    assert_eq!(notices, written.notices);
    // A pair whose second half did not fit leaves its first half behind.
    let constants = chunk.constants.len() - statics();
    assert!((written.constants..=written.constants + 1).contains(&constants));
}

/// Constants that every chunk has.
fn statics() -> usize {
    schema::frame_type::ALL.len() + schema::thread_state::ALL.len()
}

#[test]
fn chunks_have_exact_size_at_any_fill_level() {
    let least = write::min_fixed_size(&Declared::all());
    let mut random = Random(1);
    let mut fullest = usize::MAX;
    for size in (least..least + 2500).chain([65_536, 65_537, 99_999, 1 << 20]) {
        let stop = if size % 3 == 0 { random.below(300) } else { u64::MAX };
        let mut out = StreamOutput::new(Vec::new());
        let mut chunk =
            ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
        let written = fill(&mut chunk, &mut out, &mut random, stop);
        chunk.finish(Ticks(1_000_000), false, &mut out).unwrap();
        assert_eq!(chunk.end(), FileOffset(u64::from(size)));
        let bytes = out.into_inner();
        check(&bytes, size, &written);
        fullest = fullest.min(walk::chunk(&bytes).filler);
    }
    // The test is only useful if a chunk came near its limit: at least 38 bytes follow the anchor.
    assert!(fullest < 38 + 8 + 60, "least filler seen: {fullest}");
}

#[test]
fn room_equals_largest_event_that_fits() {
    let size = write::min_fixed_size(&Declared::all()) + 5000;
    let mut out = StreamOutput::new(Vec::new());
    let mut chunk =
        ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    let notice = |chunk: &mut ChunkWriter, len: usize| {
        // size, type, ticks, string tag: 2 + 1 + 1 + 1, and two bytes of length
        let text = "x".repeat(len - 7);
        chunk.event(schema::NOTICE, |e| {
            e.ticks(Ticks(1)).string(&text);
        })
    };
    let room = chunk.room();
    assert_eq!(notice(&mut chunk, room + 1), Err(WriteError::Full { need: room + 1, room }));
    assert_eq!(chunk.room(), room, "what was refused takes no room");
    assert_eq!(notice(&mut chunk, room), Ok(()));
    assert_eq!(chunk.room(), 0);
    chunk.finish(Ticks(i64::MAX), false, &mut out).unwrap();
    let bytes = out.into_inner();
    assert_eq!(bytes.len(), size as usize);
    let found = walk::chunk(&bytes);
    assert_eq!(found.events.len(), 1);
    assert_eq!(found.checkpoints.len(), 3, "statics, closing, anchor");
}

#[test]
fn full_chunk_contains_all_accepted_constants() {
    let size = write::min_fixed_size(&Declared::all()) + 3000;
    let mut out = StreamOutput::new(Vec::new());
    let mut chunk =
        ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    let mut key = 0;
    let refused = loop {
        assert!(key < u64::from(size), "more than fits");
        let result = chunk.constant(schema::SYMBOL, key + 1, |s| {
            s.string("symbol");
        });
        match result {
            Ok(()) => key += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, WriteError::Full { .. }), "{refused}");
    chunk.finish(Ticks(i64::MAX), false, &mut out).unwrap();
    let bytes = out.into_inner();
    assert_eq!(bytes.len(), size as usize);
    let found = walk::chunk(&bytes);
    assert_eq!(found.constants.len() as u64, statics() as u64 + key);
}

#[test]
fn room_accounts_for_many_pool_headers() {
    let size = write::min_fixed_size(&Declared::all()) + 3000;
    let mut out = StreamOutput::new(Vec::new());
    let mut chunk =
        ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    for pool in [schema::CLASS, schema::METHOD] {
        let added = chunk.constant(pool, 1, |c| {
            c.key(0).key(0).key(0).int(0).boolean(false);
        });
        added.unwrap();
    }
    for pool in [schema::FRAME_TYPE, schema::THREAD_STATE] {
        let added = chunk.constant(pool, 100, |s| {
            s.string("another");
        });
        added.unwrap();
    }
    define_thread(&mut chunk, 1).unwrap();
    define_stack(&mut chunk, 1, 0).unwrap();
    // Key, tag, two bytes of length; a new pool for up to seven.
    let text = "x".repeat(chunk.room() - 4 - 7);
    let added = chunk.constant(schema::SYMBOL, 1, |s| {
        s.string(&text);
    });
    added.unwrap();
    assert_eq!(chunk.room(), 0);
    // Ticks of nine bytes in the checkpoints.
    chunk.finish(Ticks(i64::MAX), false, &mut out).unwrap();
    let bytes = out.into_inner();
    assert_eq!(bytes.len(), size as usize);
    assert_eq!(walk::chunk(&bytes).constants.len(), statics() + 7);
}

#[test]
fn consecutive_chunks_share_one_clock_line() {
    let size = 32 << 10;
    let mut out = StreamOutput::new(Vec::new());
    let mut base = FileOffset(0);
    for i in 0..5 {
        let now = Ticks(LINE.start_ticks.0 + i * 2_000_000);
        let mut chunk = ChunkWriter::begin(Geometry::Fixed { size }, &LINE, base, now).unwrap();
        chunk.finish(now, i == 4, &mut out).unwrap();
        base = chunk.end();
    }
    let file = out.into_inner();
    let chunks = walk::chunks(&file);
    assert_eq!(chunks.len(), 5);
    for (i, bytes) in (0..).zip(chunks) {
        walk::chunk(bytes);
        let header = walk::header(bytes);
        assert_eq!(header.start_ticks, 1000 + i * 2_000_000);
        assert_eq!(header.start_nanos, 1_700_000_000_000_000_000 + i * 2_000_000_000);
        assert_eq!(header.ticks_per_second, 1_000_000);
    }
}

#[test]
fn invalid_sizes_and_clocks_are_rejected() {
    let begin =
        |size, line| ChunkWriter::begin(Geometry::Fixed { size }, &line, FileOffset(0), Ticks(0)).err();
    let least = write::min_fixed_size(&Declared::all());
    assert_eq!(begin(least, LINE), None);
    assert_eq!(begin(least - 1, LINE), Some(WriteError::Size { size: least - 1, least }));
    assert_eq!(begin(1 << 28, LINE), Some(WriteError::Size { size: 1 << 28, least }));
    let stopped = ClockLine { ticks_per_second: 0, ..LINE };
    assert_eq!(begin(least, stopped), Some(WriteError::TicksPerSecond(0)));
}

#[test]
fn writes_after_finish_are_rejected() {
    let size = write::min_fixed_size(&Declared::all());
    let mut out = StreamOutput::new(Vec::new());
    let mut chunk =
        ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    chunk.finish(Ticks(2000), true, &mut out).unwrap();
    chunk.finish(Ticks(2000), true, &mut out).unwrap();
    let late = chunk.event(schema::NOTICE, |e| {
        e.ticks(Ticks(1)).string("late");
    });
    assert_eq!(late, Err(WriteError::Finished));
    let late = chunk.constant(schema::SYMBOL, 1, |s| {
        s.string("late");
    });
    assert_eq!(late, Err(WriteError::Finished));
    chunk.flush(Ticks(2000), &mut out).unwrap();
    assert_eq!(out.into_inner().len(), size as usize);
}

/// CRC-32 as zlib computes it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn segments_cover_all_flushed_bytes() {
    let declared = Declared::all();
    let size = write::min_fixed_size(&declared) + 4096;
    let mut random = Random(7);
    let (mut stream, mut next, mut numbers) = (Vec::new(), Some(0), Vec::new());
    for _ in 0..20 {
        let mut out = StreamOutput::new(Vec::new());
        let mut chunk =
            ChunkWriter::begin(Geometry::Fixed { size }, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
        chunk.enable_segments(next.unwrap());
        fill(&mut chunk, &mut out, &mut random, u64::MAX);
        chunk.finish(Ticks(i64::MAX), false, &mut out).unwrap();
        next = chunk.next_segment();
        stream.extend(out.into_inner());
    }
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    for bytes in walk::chunks(&stream) {
        let (mut begin, mut events) = (0, 0);
        for (ty, body, at) in walk::events(bytes) {
            if ty != u64::from(schema::SEGMENT.0) {
                events += 1;
                continue;
            }
            let mut body = walk::Bytes::new(body);
            let [_, number, offset, size, crc, count] = std::array::from_fn(|_| body.varint());
            assert_eq!((offset as usize, size as usize), (begin, at - begin));
            assert_eq!(crc as u32, crc32(&bytes[begin..at]));
            assert_eq!(count, events);
            numbers.push(number);
            begin = at + walk::Bytes::new(&bytes[at..]).varint() as usize;
            events = 0;
        }
        assert_eq!(events, 0, "events behind the last segment");
    }
    assert!(numbers.len() > 60 && numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
}
