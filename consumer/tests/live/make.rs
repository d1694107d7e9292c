//! Generates streams with known content, in the recorder's format.

use std::collections::BTreeMap;
use std::io;

use flightline_consumer::live::{Feed, Item, Options, Sample, Stats};
use jfr_format::ids::{FileOffset, Ticks, TypeId};
use jfr_format::metadata::Declared;
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, Output};

/// One tick is a microsecond, as in the recorder.
pub const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
/// `CLOCK_MONOTONIC` at tick 0.
pub const MONOTONIC: i64 = 77_000_000_000;

const TYPES: &[TypeId] = &[
    schema::SEGMENT,
    schema::ACTIVE_SETTING,
    schema::STREAM_LOSS,
    schema::CLOCK_ANCHOR,
    schema::EXECUTION_SAMPLE,
    schema::WALL_CLOCK_SAMPLE,
    schema::MALLOC,
    schema::METHOD_TRACE,
    schema::SAMPLE_LOSS,
    schema::CPU_LOAD,
    schema::SAMPLE_CONTEXT,
];

/// Parameters of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub chunks: u64,
    pub segments: u64,
    pub samples: u64,
    pub chunk_size: u32,
    /// Distinct stacks per chunk, frames per stack, and number of functions.
    pub stacks: u64,
    pub frames: u64,
    pub functions: u64,
}

pub const SMALL: Shape =
    Shape { chunks: 4, segments: 3, samples: 5, chunk_size: 16 << 10, stacks: 4, frames: 3, functions: 6 };

/// A stream and the positions of its parts.
#[derive(Debug, Default)]
pub struct Made {
    pub bytes: Vec<u8>,
    /// Ticks of the samples by chunk, in order.
    pub samples: Vec<Vec<i64>>,
    /// Chunk and end of each segment, including its final event.
    pub segments: Vec<(usize, usize)>,
}

impl Made {
    pub fn all(&self) -> Vec<i64> {
        self.samples.iter().flatten().copied().collect()
    }
}

/// Samples are not ordered by time; each has a unique tick.
pub fn make(shape: Shape) -> Made {
    make_with(shape, |_, _| {})
}

/// Creates a stream with additional content in each segment.
pub fn make_with(shape: Shape, mut more: impl FnMut(&mut ChunkWriter, u64)) -> Made {
    let mut made = Made::default();
    let mut out = Bytes::default();
    let mut sequence = 0;
    let declared = Declared::new(TYPES.iter().copied());
    for number in 0..shape.chunks {
        let start = Ticks(number as i64 * 1_000_000);
        let line =
            ClockLine { start_ticks: start, start_epoch_ns: LINE.start_epoch_ns + start.0 * 1_000, ..LINE };
        let at = FileOffset(number * u64::from(shape.chunk_size));
        let geometry = Geometry::Fixed { size: shape.chunk_size };
        let mut chunk = ChunkWriter::declaring(&declared, geometry, &line, at, start).unwrap();
        chunk.enable_segments(sequence);
        chunk
            .event(schema::CLOCK_ANCHOR, |e| {
                e.ticks(start).long(MONOTONIC + start.0 * 1_000).long(line.start_epoch_ns);
            })
            .unwrap();
        constants(&mut chunk, shape);
        let mut samples = Vec::new();
        for segment in 0..shape.segments {
            for sample in 0..shape.samples {
                // Use a new stack in each segment but the first, so that all segments define constants.
                let stack = (segment * shape.samples + sample) % shape.stacks;
                let stack = if sample == 0 && segment > 0 {
                    let key = 1_000 + segment;
                    define_stack(&mut chunk, key, segment, shape);
                    key
                } else {
                    stack + 1
                };
                let shuffled = (segment * shape.samples + sample) * 7_919 % 999_983;
                let time = Ticks(start.0 + shuffled as i64);
                chunk
                    .event(schema::EXECUTION_SAMPLE, |e| {
                        e.ticks(time).key(1).key(stack).key(thread_state::RUNNABLE);
                    })
                    .unwrap();
                samples.push(time.0);
            }
            more(&mut chunk, number * shape.segments + segment);
            chunk.flush(Ticks(start.0 + 1_000 + segment as i64), &mut out).unwrap();
            made.segments.push((number as usize, out.0.len()));
        }
        made.samples.push(samples);
        sequence = chunk.next_segment().expect("segments are told");
        chunk.finish(Ticks(start.0 + 999_999), number + 1 == shape.chunks, &mut out).unwrap();
    }
    made.bytes = out.0;
    made
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Output for Bytes {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn constants(chunk: &mut ChunkWriter, shape: Shape) {
    let symbol = |chunk: &mut ChunkWriter, key: u64, text: &str| {
        chunk
            .constant(schema::SYMBOL, key, |s| {
                s.string(text);
            })
            .unwrap();
    };
    symbol(chunk, 1, "libdemo.so");
    symbol(chunk, 2, "()L;");
    chunk
        .constant(schema::CLASS, 1, |c| {
            c.key(0).key(1).key(0).int(0).boolean(false);
        })
        .unwrap();
    for function in 0..shape.functions {
        symbol(chunk, 10 + function, &format!("function_{function}"));
        chunk
            .constant(schema::METHOD, 1 + function, |m| {
                m.key(1).key(10 + function).key(2).int(0x100).boolean(false);
            })
            .unwrap();
    }
    chunk
        .constant(schema::THREAD_GROUP, 1, |g| {
            g.key(0).string("demo (42)");
        })
        .unwrap();
    chunk
        .constant(schema::THREAD, 1, |t| {
            t.string("worker").long(4711).null().long(0).key(1);
        })
        .unwrap();
    for stack in 0..shape.stacks {
        define_stack(chunk, 1 + stack, stack, shape);
    }
}

fn define_stack(chunk: &mut ChunkWriter, key: u64, seed: u64, shape: Shape) {
    chunk
        .constant(schema::STACK_TRACE, key, |s| {
            s.boolean(false).array(shape.frames as usize);
            for frame in 0..shape.frames {
                let function = (seed + frame * 3) % shape.functions;
                s.key(1 + function).int(10 + function as i32).int(5).key(frame_type::CPP);
            }
        })
        .unwrap();
}

/// The output of a reader.
#[derive(Debug, Default)]
pub struct Seen {
    pub samples: Vec<Sample>,
    /// Ticks of the samples.
    pub ticks: Vec<i64>,
    pub segments: Vec<u64>,
    /// Lost events by cause.
    pub lost: BTreeMap<String, u64>,
    pub warnings: Vec<String>,
    pub damage: usize,
    pub others: BTreeMap<String, u64>,
    pub chunks: u64,
}

impl Seen {
    pub fn take(&mut self, item: Item) {
        match item {
            Item::Sample(sample) => {
                self.ticks.push((sample.time.epoch_nanos - LINE.start_epoch_ns) / 1_000);
                self.samples.push(*sample);
            }
            Item::Segment(segment) => self.segments.push(segment.sequence),
            Item::Loss(loss) => {
                *self.lost.entry(loss.cause.to_string()).or_default() += loss.events.unwrap_or(0);
            }
            Item::Warning(warning) => {
                self.damage += usize::from(warning.damage);
                self.warnings.push(warning.message);
            }
            Item::Other(event) => *self.others.entry(event.event.to_string()).or_default() += 1,
            Item::ChunkStart(_) => self.chunks += 1,
            _ => {}
        }
    }
}

/// Reads bytes in pieces of `step`.
pub fn read(bytes: &[u8], step: usize, options: Options) -> (Seen, Stats) {
    let mut feed = Feed::new(options);
    let mut seen = Seen::default();
    for piece in bytes.chunks(step) {
        feed.push(piece);
        while let Some(item) = feed.next() {
            seen.take(item);
        }
    }
    feed.close();
    while let Some(item) = feed.next() {
        seen.take(item);
    }
    (seen, feed.stats())
}
