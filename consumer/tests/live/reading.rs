//! Contents of an undamaged stream.

use std::sync::Arc;

use flightline_consumer::live::{Item, Kind, Options, Value};
use flightline_consumer::model::{FrameKind, Unit};
use jfr_format::ids::Ticks;
use jfr_format::schema;

use super::make::{LINE, MONOTONIC, SMALL, Shape, make, make_with, read};

#[test]
fn each_sample_arrives_once_and_every_segment_is_valid() {
    let made = make(SMALL);
    for step in [1, 5, 4096, made.bytes.len()] {
        let (seen, stats) = read(&made.bytes, step, Options::default());
        assert_eq!(seen.ticks, made.all(), "pieces of {step}");
        assert_eq!(seen.segments, (0..SMALL.chunks * SMALL.segments).collect::<Vec<_>>());
        assert_eq!((stats.segments, stats.segments_damaged, stats.unresolved), (12, 0, 0));
        assert_eq!(seen.warnings, Vec::<String>::new());
        assert_eq!(seen.chunks, SMALL.chunks);
        assert!(seen.lost.is_empty(), "{:?}", seen.lost);
    }
}

#[test]
fn sample_has_thread_stack_and_time() {
    let made = make(SMALL);
    let (seen, _) = read(&made.bytes, 1000, Options::default());
    for (sample, &tick) in seen.samples.iter().zip(&made.all()) {
        assert_eq!((&*sample.event, sample.kind), ("jdk.ExecutionSample", Kind::Cpu));
        assert_eq!(sample.time.epoch_nanos, LINE.start_epoch_ns + tick * 1_000);
        assert_eq!(sample.time.monotonic_nanos, Some(MONOTONIC + tick * 1_000));
        let thread = sample.thread.as_ref().unwrap();
        assert_eq!((thread.os_id, thread.os_name.as_deref()), (4711, Some("worker")));
        assert_eq!(thread.group.as_deref(), Some("demo (42)"));
        assert_eq!(sample.state.as_deref(), Some("STATE_RUNNABLE"));
        let stack = sample.stack.as_ref().unwrap();
        assert_eq!((stack.frames.len(), stack.truncated), (SMALL.frames as usize, false));
        let frame = stack.innermost().unwrap();
        assert!(frame.function.starts_with("function_"), "{frame:?}");
        assert_eq!((&*frame.module, &*frame.class), ("libdemo.so", ""));
        assert_eq!((frame.kind, &*frame.type_name), (FrameKind::Native, "C++"));
        assert_eq!(format!("function_{}", frame.line - 10), *frame.function);
        assert_eq!(frame.bytecode_index, 5);
        assert_eq!((sample.span_id, &sample.labels, sample.fields.len()), (None, &None, 0));
        // The stream does not state the sampling period.
        assert_eq!((sample.weight.samples, sample.weight.unit), (1, Unit::Samples));
    }
    let first = seen.samples[0].stack.clone().unwrap();
    let again = seen.samples[4].stack.as_ref().unwrap();
    assert!(Arc::ptr_eq(&first, again), "equal stacks of a chunk are one");
}

#[test]
fn other_sample_types_have_weights_and_fields() {
    let made = make_with(SMALL, |chunk, _| {
        chunk
            .event(schema::WALL_CLOCK_SAMPLE, |e| {
                e.ticks(Ticks(7)).key(1).key(1).key(2).int(3).ticks(Ticks(30_000));
            })
            .unwrap();
        chunk
            .event(schema::MALLOC, |e| {
                e.ticks(Ticks(8)).key(1).key(1).long(0xabc).long(4096);
            })
            .unwrap();
        chunk
            .event(schema::METHOD_TRACE, |e| {
                e.ticks(Ticks(9)).ticks(Ticks(250)).key(1).key(1).key(1);
            })
            .unwrap();
        chunk
            .event(schema::SAMPLE_LOSS, |e| {
                e.ticks(Ticks(9)).key(1).string("ring full").long(17).long(170_000);
            })
            .unwrap();
    });
    let (seen, _) = read(&made.bytes, 777, Options { samples: vec![], ..Options::default() });
    let of = |kind| seen.samples.iter().filter(move |sample| sample.kind == kind).collect::<Vec<_>>();
    let each = (SMALL.chunks * SMALL.segments) as usize;
    assert_eq!(of(Kind::Wall).len(), each);
    let wall = of(Kind::Wall)[0];
    assert_eq!(
        (wall.weight.samples, wall.weight.value, wall.weight.unit),
        (3, 30_000_000, Unit::Nanoseconds)
    );
    assert_eq!(wall.state.as_deref(), Some("STATE_SLEEPING"));
    let alloc = of(Kind::Allocation)[0];
    assert_eq!((alloc.weight.value, alloc.weight.unit), (4096, Unit::Bytes));
    assert_eq!(
        alloc.fields.iter().map(|(n, v)| (&**n, v.integer())).collect::<Vec<_>>(),
        [("address", Some(0xabc))]
    );
    let trace = of(Kind::Trace)[0];
    assert_eq!((trace.duration_nanos, trace.weight.value), (Some(250_000), 250_000));
    let Some((name, Value::Struct(method))) = trace.fields.first() else { panic!("{:?}", trace.fields) };
    assert_eq!(&**name, "method");
    assert!(method.iter().any(|(n, v)| &**n == "name" && v.text() == Some("function_0")), "{method:?}");
    assert_eq!(seen.lost["ring full"], 17 * each as u64);

    let only = Options { samples: vec!["wall".into()], others: false, ..Options::default() };
    let (few, _) = read(&made.bytes, 777, only);
    assert_eq!(few.samples.len(), each);
    assert!(few.others.is_empty() && seen.others["flightline.ClockAnchor"] == SMALL.chunks);
    // Losses are always delivered.
    assert_eq!(few.lost, seen.lost);
}

/// The recorder writes its settings after the first event of the chunk, and the interval may change between
/// chunks.
#[test]
fn sample_period_setting_may_follow_the_samples() {
    let made = make_with(SMALL, |chunk, segment| {
        // The third chunk has no setting.
        if [0, 3, 11].contains(&segment) {
            let interval = if segment < 3 { "10000000" } else { "20000000" };
            chunk
                .event(schema::ACTIVE_SETTING, |e| {
                    let id = i64::from(schema::EXECUTION_SAMPLE.0);
                    e.ticks(Ticks(1)).long(id).string("interval").string(interval);
                })
                .unwrap();
        }
    });
    let (seen, _) = read(&made.bytes, 999, Options::default());
    let chunk = (SMALL.segments * SMALL.samples) as usize;
    for (at, sample) in seen.samples.iter().enumerate() {
        let expected = if at < chunk { 10_000_000 } else { 20_000_000 };
        assert_eq!((sample.weight.value, sample.weight.unit), (expected, Unit::Nanoseconds), "sample {at}");
    }
    assert_eq!(seen.samples.len(), made.all().len());
}

/// J18: a frame is looked up once per chunk, however many samples there are.
#[test]
fn million_samples_look_up_each_frame_once() {
    let shape = Shape {
        chunks: 2,
        segments: 10,
        samples: 50_000,
        chunk_size: 12 << 20,
        stacks: 100,
        frames: 20,
        functions: 150,
    };
    let made = make(shape);
    let mut feed = flightline_consumer::live::Feed::new(Options::default());
    let mut samples = 0u64;
    for piece in made.bytes.chunks(1 << 16) {
        feed.push(piece);
        while let Some(item) = feed.next() {
            if let Item::Sample(sample) = item {
                assert_eq!(sample.stack.map(|stack| stack.frames.len()), Some(20));
                samples += 1;
            }
        }
    }
    let stats = feed.stats();
    assert_eq!(samples, 1_000_000);
    assert_eq!((stats.segments, stats.unresolved), (20, 0));
    assert!(stats.frame_lookups <= shape.chunks * shape.functions, "{stats:?}");
    // Each segment of a chunk but the first adds one stack.
    assert!(stats.stack_lookups <= shape.chunks * (shape.stacks + shape.segments), "{stats:?}");
}

/// J22: unknown types and fields.
#[test]
fn unknown_types_and_fields_are_passed_on() {
    let made = make(SMALL);
    // Same length, so that only the checksums change.
    let bytes = renamed(&made.bytes, b"sampledThread", b"sampledTheard");
    // Find a name for which the checksums have the same encoded length.
    let letters = || b'a'..=b'z';
    let names = letters().flat_map(|c| letters().map(move |d| [b"n", &[c, d][..], b".CPULoad"].concat()));
    let mut tried =
        names.filter_map(|name| with_checksums(renamed(&bytes, b"jdk.CPULoad", &name), &made.segments));
    let bytes = tried.next().expect("one of them fits");
    let (seen, stats) = read(&bytes, 333, Options::default());
    assert_eq!((seen.ticks, stats.segments, stats.segments_damaged), (made.all(), 12, 0));
    assert_eq!(seen.warnings, Vec::<String>::new());
    for sample in &seen.samples {
        assert!(sample.thread.is_none() && sample.stack.is_some());
        let Some((name, Value::Thread(thread))) = sample.fields.first() else { panic!("{sample:?}") };
        assert_eq!((&**name, thread.os_id), ("sampledTheard", 4711));
    }
}

fn renamed(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0);
    bytes
}

/// Recomputes the segments' checksums after the bytes were changed.
fn with_checksums(mut bytes: Vec<u8>, segments: &[(usize, usize)]) -> Option<Vec<u8>> {
    let chunk_size = SMALL.chunk_size as usize;
    let mut start = 0;
    let mut chunk = usize::MAX;
    for &(of, end) in segments {
        if of != chunk {
            (chunk, start) = (of, of * chunk_size);
        }
        let event = super::damage::event_before(&bytes, start, end);
        let crc = crc32(&bytes[start..event]);
        let (old_at, old_len) = super::damage::checksum_in(&bytes[event..end]);
        let mut encoded = Vec::new();
        jfr_format::varint::put(&mut encoded, crc.into());
        if encoded.len() != old_len {
            return None;
        }
        bytes[event + old_at..event + old_at + old_len].copy_from_slice(&encoded);
        start = end;
    }
    Some(bytes)
}

/// CRC-32 as in zlib, computed bit by bit: independent of the tested implementation.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
