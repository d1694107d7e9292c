//! Cost of encoding: ns and bytes per event and per constant, best of many rounds (other load only ever adds time).
//!
//! `cargo bench -p jfr-format --bench write`

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

const LINE: ClockLine = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
const ROUNDS: usize = 300;
const EVENTS: usize = 10_000;
const FRAMES: usize = 40;

fn chunk() -> ChunkWriter {
    let geometry = Geometry::Fixed { size: 1 << 27 };
    ChunkWriter::begin(geometry, &LINE, FileOffset(0), Ticks(0)).expect("a valid geometry")
}

/// Runs `write` for each of `count` numbers in a chunk, many times; prints the best.
fn measure(name: &str, count: usize, mut write: impl FnMut(&mut ChunkWriter, u64)) {
    let mut chunk = chunk();
    let mut out = StreamOutput::new(io::sink());
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        chunk.flush(Ticks(0), &mut out).expect("a sink takes everything");
        if chunk.room() < 1 << 24 {
            chunk = self::chunk();
            continue;
        }
        let start = Instant::now();
        for i in 0..count as u64 {
            write(&mut chunk, black_box(i));
        }
        best = best.min(start.elapsed());
        bytes = chunk.pending();
    }
    let per = |total: f64| total / count as f64;
    println!("{name:30} {:8.1} ns {:8.1} bytes", per(best.as_nanos() as f64), per(bytes as f64));
}

fn main() {
    measure("jdk.ExecutionSample", EVENTS, |chunk, i| {
        let written = chunk.event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(200_000_000 + i as i64))
                .key(2_000_000)
                .key(1 + i % 10_000)
                .key(thread_state::DEFAULT);
        });
        black_box(written).expect("there is room");
    });
    measure("flightline.ThreadCpu", EVENTS, |chunk, i| {
        let written = chunk.event(schema::THREAD_CPU, |e| {
            e.ticks(Ticks(200_000_000))
                .key(2_000_000)
                .long(1_000_000_000 + i as i64)
                .long(990_000_000)
                .long(0)
                .long(0);
        });
        black_box(written).expect("there is room");
    });
    measure("StackTrace of 40 frames", EVENTS / 10, |chunk, i| {
        let written = chunk.constant(schema::STACK_TRACE, i + 1, |s| {
            s.boolean(false).array(FRAMES);
            for frame in 0..FRAMES as u64 {
                s.key(100 + frame * 50).int(0).int(0).key(frame_type::CPP);
            }
        });
        black_box(written).expect("there is room");
    });
    measure("Symbol of 40 bytes", EVENTS, |chunk, i| {
        let written = chunk.constant(schema::SYMBOL, i + 1, |s| {
            s.string("alloc::vec::Vec<T,A>::extend_from_slice0");
        });
        black_box(written).expect("there is room");
    });
    measure("flush of 10,000 samples", 1, |chunk, _| {
        for i in 0..EVENTS as i64 {
            let written = chunk.event(schema::EXECUTION_SAMPLE, |e| {
                e.ticks(Ticks(200_000_000 + i)).key(2_000_000).key(1).key(thread_state::DEFAULT);
            });
            written.expect("there is room");
        }
        chunk.flush(Ticks(0), &mut StreamOutput::new(io::sink())).expect("a sink takes everything");
    });
    println!("metadata: {} bytes", jfr_format::metadata::Declared::all().event().len());
}
