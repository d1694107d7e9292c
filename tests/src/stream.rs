//! Checks the bytes that a reader of a stream received: framing and checksums byte by byte, events with the
//! strict reader, and every constant id.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use jfr_format::event::Value;
use jfr_format::read::{Input, Item};

/// The contents of one stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Events by type.
    pub events: BTreeMap<String, u64>,
    /// The losses in `flightline.StreamLoss`: events by cause and type.
    pub lost: BTreeMap<(String, String), u64>,
    /// The losses in `flightline.SampleLoss`: samples and CPU time by cause.
    pub sample_loss: BTreeMap<String, (u64, u64)>,
    /// Numbers of the segments, and events in them.
    pub segments: Vec<(u64, u64)>,
    /// Chunks.
    pub chunks: usize,
    /// Largest total of `jdk.DataLoss`.
    pub data_lost: u64,
    /// Bytes of fillers.
    pub filler: usize,
}

impl Stream {
    /// Events of a type.
    pub fn count(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }

    /// The number of events of a type that were reported as lost.
    pub fn lost(&self, name: &str) -> u64 {
        self.lost.iter().filter(|((_, of), _)| of == name).map(|(_, events)| events).sum()
    }

    /// Returns true if segments are missing.
    pub fn gaps(&self) -> bool {
        self.segments.windows(2).any(|pair| pair[1].0 != pair[0].0 + 1)
    }
}

/// CRC-32 as zlib computes it, independent of the recorder's code.
fn crc32(bytes: &[u8]) -> u64 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    let crc = bytes.iter().fold(!0u32, |crc, b| (crc >> 8) ^ table[usize::from(crc as u8 ^ *b)]);
    u64::from(!crc)
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for i in 0..9 {
        let byte = u64::from(bytes[*at]);
        *at += 1;
        if i == 8 {
            return value | byte << 56;
        }
        value |= (byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The length of the complete chunks at the start of `stream`.
pub fn whole_chunks(stream: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = stream.get(at..at + 68) {
        let size = u64::from_be_bytes(header[8..16].try_into().unwrap()) as usize;
        if at + size > stream.len() {
            break;
        }
        at += size;
    }
    at
}

/// Checks complete chunks.
///
/// # Panics
///
/// Unless everything is correct.
pub fn check(stream: Vec<u8>) -> Stream {
    let mut found = Stream::default();
    let starts = starts(&stream);
    assert!(starts.is_sorted_by(|a, b| a < b), "two chunks start at the same time: {starts:?}");
    let mut at = 0;
    while at < stream.len() {
        assert_eq!(&stream[at..at + 4], b"FLR\0", "a chunk at {at} of {}", stream.len());
        let size = u64::from_be_bytes(stream[at + 8..at + 16].try_into().unwrap()) as usize;
        assert!(at + size <= stream.len(), "a chunk of {size} bytes at {at} of {}", stream.len());
        chunk(&stream[at..at + size], size, &mut found);
        found.chunks += 1;
        at += size;
    }
    assert!(
        found.segments.is_sorted_by(|a, b| a.0 < b.0),
        "segments come once and in order: {:?}",
        found.segments
    );
    read(stream, &mut found);
    found
}

/// Checks only the events of a recording, which need not be a stream.
///
/// # Panics
///
/// Unless everything can be read, and every id refers to a constant.
pub fn check_events(recording: Vec<u8>) -> Stream {
    let mut found = Stream::default();
    read(recording, &mut found);
    found
}

/// The start times of a recording's chunks in ns since 1970. JMC merges two chunks with the same start time.
///
/// # Panics
///
/// If a chunk size exceeds the recording.
pub fn starts(recording: &[u8]) -> Vec<i64> {
    let number = |at: usize| i64::from_be_bytes(recording[at..at + 8].try_into().unwrap());
    let mut starts = Vec::new();
    let mut at = 0;
    while at < recording.len() {
        starts.push(number(at + 32));
        at += usize::try_from(number(at + 8)).expect("a size");
    }
    starts
}

/// Checks the start of a stream that may break off anywhere: framing and checksums only.
///
/// # Panics
///
/// Unless everything up to the break is correct.
pub fn check_start(stream: &[u8]) -> Stream {
    let mut found = Stream::default();
    let mut at = 0;
    while let Some(header) = stream.get(at..at + 68) {
        assert_eq!(&header[..4], b"FLR\0", "a chunk at {at}");
        let size = u64::from_be_bytes(header[8..16].try_into().unwrap()) as usize;
        chunk(&stream[at..stream.len().min(at + size)], size, &mut found);
        found.chunks += 1;
        at += size;
    }
    found
}

/// Records fill the chunk exactly, segments match their description, and type ids are those of the schema.
fn chunk(chunk: &[u8], whole: usize, found: &mut Stream) {
    let segment = u64::from(jfr_format::schema::SEGMENT.0);
    let (mut at, mut begin, mut events) = (68, 0, 0);
    while at < chunk.len() {
        let start = at;
        // Sizes have four bytes at most.
        if chunk.len() < whole && chunk.len() - at < 4 {
            return;
        }
        let size = varint(chunk, &mut at) as usize;
        let end = start + size;
        assert!(size > 1 && end <= whole, "a record of {size} bytes at {start} of {whole}");
        if end > chunk.len() {
            assert!(chunk.len() < whole);
            return;
        }
        match varint(chunk, &mut at) {
            0 if start > 68 => found.filler += size,
            0 | 1 => {}
            ty if ty == segment => {
                let fields: [u64; 6] = std::array::from_fn(|_| varint(chunk, &mut at));
                let [_, number, offset, len, crc, count] = fields;
                assert_eq!((offset as usize, len as usize), (begin, start - begin), "segment {number}");
                assert_eq!(crc, crc32(&chunk[begin..start]), "segment {number}");
                assert_eq!(count, events, "segment {number}");
                found.segments.push((number, count));
                (begin, events) = (end, 0);
            }
            _ => events += 1,
        }
        at = end;
    }
}

fn read(stream: Vec<u8>, found: &mut Stream) {
    let mut input = Input::bytes(Bytes::from(stream));
    while let Some(item) = input.next().unwrap() {
        match item {
            Item::Events(batch) => {
                // The ids of one chunk.
                let mut seen = HashSet::new();
                for event in batch.events() {
                    let name = &*event.class().name;
                    *found.events.entry(name.to_owned()).or_default() += 1;
                    let long = |field: &str| event.field(field).unwrap().unwrap().as_i64().unwrap() as u64;
                    let text = |field: &str| {
                        event.field(field).unwrap().unwrap().text().unwrap().unwrap().into_owned()
                    };
                    match name {
                        "flightline.StreamLoss" => {
                            *found.lost.entry((text("cause"), text("eventType"))).or_default() +=
                                long("events");
                        }
                        "flightline.SampleLoss" => {
                            let sum = found.sample_loss.entry(text("cause")).or_default();
                            *sum = (sum.0 + long("samples"), sum.1 + long("cpuTime"));
                        }
                        "jdk.DataLoss" => found.data_lost = found.data_lost.max(long("total")),
                        _ => {}
                    }
                    for field in &event.class().fields {
                        follow(event.field(&field.name).unwrap().unwrap(), name, &mut seen, 0);
                    }
                }
            }
            Item::Warning(warning) => panic!("{warning}"),
            _ => {}
        }
    }
}

/// Every id refers to a constant.
fn follow(value: Value<'_>, within: &str, seen: &mut HashSet<(String, u64)>, depth: u32) {
    assert!(depth < 30, "{within} goes round in circles");
    match value {
        Value::Reference(reference) => {
            let (key, class) = (reference.key(), reference.class().unwrap().name.to_string());
            // 0 means none, except for the two types that are numbered from 0.
            if key == 0 || !seen.insert((class.clone(), key)) {
                return;
            }
            let to = reference.resolve().unwrap();
            follow(
                to.unwrap_or_else(|| panic!("{class} {key} of {within} is nowhere")),
                &class,
                seen,
                depth + 1,
            );
        }
        Value::Struct(fields) => {
            for field in &fields.class().fields {
                follow(fields.field(&field.name).unwrap().unwrap(), within, seen, depth + 1);
            }
        }
        Value::Array(array) => {
            for element in array.iter() {
                follow(element.unwrap(), within, seen, depth + 1);
            }
        }
        _ => {}
    }
}
