//! Writes a large recording of nothing but execution samples, to measure readers with.
//!
//! ```text
//! cargo run --release --example write_samples -- out.jfr [samples] [chunks] [stacks]
//! ```
//! Every chunk defines the threads and stacks it uses; samples are about 10 µs apart and pick them in no regular order.

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry, WriteError};

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(5_000_000_000),
    start_epoch_ns: 1_750_000_000_000_000_000,
    ticks_per_second: 1_000_000_000,
};
const THREADS: u64 = 8;
const FLUSH_EVERY: u64 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: write_samples OUT.jfr [SAMPLES] [CHUNKS] [STACKS]")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (samples, chunks, stacks) = (number(10_000_000)?, number(8)?.max(1), number(1460)?.max(1));
    let mut out = FileOutput::new(File::create(path)?)?;
    let mut state = 88_172_645_463_325_252_u64;
    let mut now = LINE.start_ticks;
    let mut at = FileOffset(0);
    for index in 0..chunks {
        let mut chunk = ChunkWriter::begin(Geometry::Patched, &LINE, at, now)?;
        let mut defined = HashSet::new();
        for i in 0..samples / chunks {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            now = Ticks(now.0 + 8_000 + (state >> 40) as i64 % 4_000);
            let stack = state % stacks;
            let thread = 1 + stack % THREADS;
            define(&mut chunk, &mut defined, thread, stack)?;
            chunk.event(schema::EXECUTION_SAMPLE, |e| {
                e.ticks(now).key(thread).key(stack + 1).key(thread_state::DEFAULT);
            })?;
            if i % FLUSH_EVERY == FLUSH_EVERY - 1 {
                chunk.flush(now, &mut out)?;
            }
        }
        chunk.finish(now, index + 1 == chunks, &mut out)?;
        at = chunk.end();
    }
    Ok(())
}

fn define(
    chunk: &mut ChunkWriter,
    defined: &mut HashSet<(u32, u64)>,
    thread: u64,
    stack: u64,
) -> Result<(), WriteError> {
    if defined.insert((schema::THREAD.0, thread)) {
        chunk.constant(schema::THREAD, thread, |t| {
            t.string(&format!("worker-{thread}")).long(4000 + thread as i64).null().long(0).key(0);
        })?;
    }
    if !defined.insert((schema::STACK_TRACE.0, stack)) {
        return Ok(());
    }
    let methods: Vec<u64> = (0..12 + stack % 20).map(|level| 1 + (stack / 7 * level + level) % 400).collect();
    for &method in &methods {
        self::method(chunk, defined, method)?;
    }
    chunk.constant(schema::STACK_TRACE, stack + 1, |s| {
        s.boolean(false).array(methods.len());
        for &method in &methods {
            s.key(method).int(0).int(0).key(frame_type::CPP);
        }
    })
}

fn method(chunk: &mut ChunkWriter, defined: &mut HashSet<(u32, u64)>, method: u64) -> Result<(), WriteError> {
    const DESCRIPTOR: u64 = 100_000;
    const CLASS: u64 = 100_001;
    if defined.insert((schema::CLASS.0, CLASS)) {
        chunk.constant(schema::SYMBOL, DESCRIPTOR, |s| {
            s.string("()L;");
        })?;
        chunk.constant(schema::SYMBOL, CLASS, |s| {
            s.string("libsamples.so");
        })?;
        chunk.constant(schema::CLASS, CLASS, |c| {
            c.key(0).key(CLASS).key(0).int(0).boolean(false);
        })?;
    }
    if defined.insert((schema::METHOD.0, method)) {
        chunk.constant(schema::SYMBOL, method, |s| {
            s.string(&format!("samples::module_{}::function_{method}", method % 17));
        })?;
        chunk.constant(schema::METHOD, method, |m| {
            m.key(CLASS).key(method).key(DESCRIPTOR).int(0x100).boolean(false);
        })?;
    }
    Ok(())
}
