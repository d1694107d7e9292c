//! A growing file, as a live reader sees it between any two writes.

use crate::walk;

use jfr_format::ids::{FileOffset, Ticks, TypeId};
use jfr_format::schema::{self, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, Output, WriteError};
use std::io;

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

/// A file in memory that records all operations and fails on request.
#[derive(Default)]
struct Memory {
    file: Vec<u8>,
    steps: Vec<Step>,
    fail_append: bool,
    fail_patch: bool,
}

#[derive(Debug, PartialEq)]
enum Step {
    Append(usize),
    Patch(u64, Vec<u8>),
}

impl Output for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.fail_append {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.steps.push(Step::Append(bytes.len()));
        self.file.extend_from_slice(bytes);
        Ok(())
    }

    fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
        if self.fail_patch {
            return Err(io::ErrorKind::Other.into());
        }
        self.steps.push(Step::Patch(at.0, bytes.to_vec()));
        let at = at.0 as usize;
        self.file[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

fn begin(base: u64) -> ChunkWriter {
    ChunkWriter::begin(Geometry::Patched, &LINE, FileOffset(base), Ticks(0)).unwrap()
}

fn define(chunk: &mut ChunkWriter, key: u64) {
    chunk
        .constant(schema::THREAD, key, |t| {
            t.string("worker").long(key as i64).null().long(0).key(0);
        })
        .unwrap();
    chunk
        .constant(schema::STACK_TRACE, key, |s| {
            s.boolean(false).array(0);
        })
        .unwrap();
}

fn sample(chunk: &mut ChunkWriter, ticks: i64, key: u64) {
    chunk
        .event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(ticks)).key(key).key(key).key(thread_state::DEFAULT);
        })
        .unwrap();
}

/// Returns the bytes of the chunk at `base` up to the size in its header, as a finished chunk.
fn vouched_for(file: &[u8], base: usize) -> Vec<u8> {
    let size = walk::header(&file[base..]).size;
    file[base..base + size].to_vec()
}

/// Constants that every chunk has.
fn statics() -> usize {
    schema::frame_type::ALL.len() + schema::thread_state::ALL.len()
}

#[test]
fn flush_appends_once_then_patches_guarded_header() {
    let mut out = Memory { file: b"an earlier chunk".to_vec(), ..Memory::default() };
    let base = out.file.len();
    let mut chunk = begin(base as u64);
    let mut samples = 0;
    for flush in 0..600u64 {
        define(&mut chunk, flush + 1);
        for i in 0..flush % 4 {
            sample(&mut chunk, (flush * 10 + i) as i64, flush + 1);
            samples += 1;
        }
        chunk.flush(Ticks(flush as i64 * 1_000_000), &mut out).unwrap();
        assert_eq!(chunk.end().0, out.file.len() as u64);
        assert_eq!(chunk.pending(), 0);

        let generation = (flush + 1) % 254 + 1;
        let [
            Step::Append(_),
            Step::Patch(guard, updating),
            Step::Patch(fields, body),
            Step::Patch(state, end),
        ] = &out.steps[..]
        else {
            panic!("{:?}", out.steps)
        };
        assert_eq!((*guard, &updating[..]), (base as u64 + 64, &[0xff][..]));
        assert_eq!((*fields, body.len()), (base as u64 + 8, 56));
        assert_eq!((*state, &end[..]), (base as u64 + 64, &[generation as u8, 0, 0, 1][..]));
        out.steps.clear();

        if flush % 50 == 49 {
            let found = walk::chunk(&vouched_for(&out.file, base));
            assert_eq!(found.events.len(), samples);
            assert_eq!(found.last.1, 1, "a segment ends with a FLUSH checkpoint");
        }
    }
    chunk.finish(Ticks(600_000_000), true, &mut out).unwrap();
    let header = walk::header(&out.file[base..]);
    assert_eq!((header.state, header.flags), (0, 3));
    assert_eq!(header.duration, 600_000_000_000);
    assert_eq!(header.size, out.file.len() - base);
    walk::chunk(&out.file[base..]);
}

#[test]
fn header_is_unfinished_before_first_patch() {
    let mut out = Memory { fail_patch: true, ..Memory::default() };
    let mut chunk = begin(0);
    sample(&mut chunk, 1, 1);
    assert!(chunk.flush(Ticks(1), &mut out).is_err());
    let header = walk::header(&out.file);
    assert_eq!((header.size, header.checkpoint, header.metadata, header.state), (68, 0, 0, 1));
}

#[test]
fn only_last_chunk_has_final_flag() {
    let mut out = Memory::default();
    begin(0).finish(Ticks(5), false, &mut out).unwrap();
    let header = walk::header(&out.file);
    assert_eq!((header.state, header.flags, header.duration), (0, 1, 5000));
    let found = walk::chunk(&out.file);
    assert_eq!((found.events.len(), found.constants.len()), (0, statics()));
}

#[test]
fn empty_flush_writes_nothing() {
    let mut out = Memory::default();
    let mut chunk = begin(0);
    chunk.flush(Ticks(1), &mut out).unwrap();
    out.steps.clear();
    chunk.flush(Ticks(2), &mut out).unwrap();
    assert_eq!(out.steps, []);
}

#[test]
fn failed_append_loses_no_events_after_retry() {
    let mut out = Memory::default();
    let mut chunk = begin(0);
    define(&mut chunk, 1);
    sample(&mut chunk, 1, 1);
    chunk.flush(Ticks(1), &mut out).unwrap();
    define(&mut chunk, 2);
    sample(&mut chunk, 2, 2);
    out.fail_append = true;
    let error = chunk.flush(Ticks(2), &mut out).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(walk::chunk(&vouched_for(&out.file, 0)).events.len(), 1, "what was there stays readable");
    out.fail_append = false;
    sample(&mut chunk, 3, 1);
    chunk.finish(Ticks(3), true, &mut out).unwrap();
    assert_eq!(walk::chunk(&out.file).events.len(), 3);
}

#[test]
fn discard_allows_finishing_chunk_on_full_disk() {
    let mut out = Memory::default();
    let mut chunk = begin(0);
    define(&mut chunk, 1);
    sample(&mut chunk, 1, 1);
    chunk.flush(Ticks(1), &mut out).unwrap();
    define(&mut chunk, 2);
    sample(&mut chunk, 2, 2);
    out.fail_append = true;
    assert!(chunk.finish(Ticks(2), true, &mut out).is_err());
    chunk.discard();
    chunk.finish(Ticks(2), true, &mut out).unwrap();
    let header = walk::header(&out.file);
    assert_eq!((header.state, header.flags, header.size), (0, 3, out.file.len()));
    assert_eq!(walk::chunk(&out.file).events.len(), 1);
}

#[test]
fn invalid_writes_are_rejected_without_side_effects() {
    let mut out = Memory::default();
    let mut chunk = begin(0);
    let before = chunk.pending();
    let symbol = |chunk: &mut ChunkWriter, key| {
        chunk.constant(schema::SYMBOL, key, |s| {
            s.string("main");
        })
    };
    assert_eq!(symbol(&mut chunk, 0), Err(WriteError::Key(0)));
    assert_eq!(symbol(&mut chunk, 1 << 31), Err(WriteError::Key(1 << 31)));
    assert_eq!(chunk.event(schema::SYMBOL, |_| {}), Err(WriteError::NotAnEvent(schema::SYMBOL)));
    assert_eq!(chunk.event(TypeId(0), |_| {}), Err(WriteError::NotAnEvent(TypeId(0))));
    assert_eq!(chunk.event(TypeId(u32::MAX), |_| {}), Err(WriteError::NotAnEvent(TypeId(u32::MAX))));
    assert_eq!(chunk.constant(schema::NOTICE, 1, |_| {}), Err(WriteError::NotAPool(schema::NOTICE)));
    assert_eq!(chunk.constant(schema::LONG, 1, |_| {}), Err(WriteError::NotAPool(schema::LONG)));
    let left_out = chunk.constant(schema::SYMBOL, 1, |_| {});
    assert_eq!(left_out, Err(WriteError::Fields { of: "jdk.types.Symbol", field: "string" }));
    assert_eq!(chunk.pending(), before);
    chunk.finish(Ticks(1), true, &mut out).unwrap();
    assert_eq!(walk::chunk(&out.file).constants.len(), statics());
}

#[test]
fn sample_takes_at_most_14_bytes() {
    let mut chunk = begin(0);
    let before = chunk.pending();
    // Ticks of 1 µs after nine hours, a thread id of three bytes, two million stacks.
    let hours = 9 * 3600 * 1_000_000;
    chunk
        .event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(hours)).key(2_000_000).key(2_000_000).key(thread_state::DEFAULT);
        })
        .unwrap();
    assert_eq!(chunk.pending() - before, 14);
    // A typical sample: within four minutes, 16,000 stacks.
    let before = chunk.pending();
    chunk
        .event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(200_000_000)).key(2_000_000).key(16_000).key(thread_state::DEFAULT);
        })
        .unwrap();
    assert_eq!(chunk.pending() - before, 12);
}
