//! The reader reads what the writer wrote: as a file, as a complete pipe, and as a pipe at the moment of each
//! flush.

use bytes::Bytes;
use jfr_format::event::{EventRef, Value};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::read::{Decoder, Delivery, Item};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry, Output, StreamOutput, WriteError};
use std::fmt::Write as _;
use std::io::{self, Read, Seek, Write};

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(7),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
const FUNCTIONS: [&str; 4] = ["main", "räuber<T>::new", "", "memcpy"];

/// Formats one event: type, time, then all fields with everything that they refer to.
fn line(event: &EventRef<'_>) -> String {
    let mut line = format!("{} @{}", event.class().name, event.start_nanos().unwrap());
    for field in event.fields().iter().skip(1) {
        let (field, value) = field.unwrap();
        write!(line, " {}=", field.name).unwrap();
        show(value, &mut line);
    }
    line
}

fn show(value: Value<'_>, line: &mut String) {
    match value.resolved().unwrap() {
        Value::Null => line.push('-'),
        Value::Text(text) => write!(line, "{text:?}").unwrap(),
        Value::Float(number) => write!(line, "{number}").unwrap(),
        Value::Struct(fields) => {
            line.push('(');
            for field in fields.iter() {
                show(field.unwrap().1, line);
                line.push(' ');
            }
            line.push(')');
        }
        Value::Array(elements) => {
            line.push('[');
            for element in elements.iter() {
                show(element.unwrap(), line);
            }
            line.push(']');
        }
        Value::Reference(_) => panic!("resolved() leaves no reference"),
        number => write!(line, "{}", number.as_i64().unwrap()).unwrap(),
    }
}

/// Formats an event that is about to be written.
fn expected_sample(now: i64, tid: u64, depth: usize) -> String {
    let frames: String = (0..depth)
        .map(|level| {
            let name = FUNCTIONS[level % FUNCTIONS.len()];
            format!("(((- \"lib.so\" - 0 0 ) {name:?} \"()L;\" 256 0 ) 0 0 \"C++\" )")
        })
        .collect();
    let truncated = depth % 2;
    let thread = format!("(\"worker {tid}\" {tid} - 0 (- \"demo (1)\" ) )");
    format!(
        "jdk.ExecutionSample @{} sampledThread={thread} stackTrace=({truncated} [{frames}] ) state=\"STATE_DEFAULT\"",
        nanos(now)
    )
}

fn nanos(ticks: i64) -> i64 {
    LINE.epoch_nanos(Ticks(ticks))
}

/// Defines a thread and a stack of `depth` frames with all their constants, under keys from `base` on, and
/// adds a sample.
fn sample(
    chunk: &mut ChunkWriter,
    base: u64,
    now: i64,
    tid: u64,
    depth: usize,
) -> Result<String, WriteError> {
    let symbols = FUNCTIONS.iter().chain(&["lib.so", "()L;"]);
    for (key, text) in (base..).zip(symbols) {
        chunk.constant(schema::SYMBOL, key, |s| {
            s.string(text);
        })?;
    }
    let (library, descriptor) = (base + 4, base + 5);
    chunk.constant(schema::CLASS, base, |c| {
        c.key(0).key(library).key(0).int(0).boolean(false);
    })?;
    for key in base..base + FUNCTIONS.len() as u64 {
        chunk.constant(schema::METHOD, key, |m| {
            m.key(base).key(key).key(descriptor).int(0x100).boolean(false);
        })?;
    }
    chunk.constant(schema::STACK_TRACE, base, |s| {
        s.boolean(depth % 2 == 1).array(depth);
        for level in 0..depth {
            let method = base + (level % FUNCTIONS.len()) as u64;
            s.key(method).int(0).int(0).key(frame_type::CPP);
        }
    })?;
    chunk.constant(schema::THREAD_GROUP, base, |g| {
        g.key(0).string("demo (1)");
    })?;
    chunk.constant(schema::THREAD, base, |t| {
        t.string(&format!("worker {tid}")).long(tid as i64).null().long(0).key(base);
    })?;
    chunk.event(schema::EXECUTION_SAMPLE, |e| {
        e.ticks(Ticks(now)).key(base).key(base).key(thread_state::DEFAULT);
    })?;
    Ok(expected_sample(now, tid, depth))
}

fn load(chunk: &mut ChunkWriter, now: i64) -> Result<String, WriteError> {
    chunk.event(schema::CPU_LOAD, |e| {
        e.ticks(Ticks(now)).float(0.5).float(0.125).float(1.0);
    })?;
    Ok(format!("jdk.CPULoad @{} jvmUser=0.5 jvmSystem=0.125 machineTotal=1", nanos(now)))
}

fn loss(chunk: &mut ChunkWriter, now: i64) -> Result<String, WriteError> {
    chunk.event(schema::SAMPLE_LOSS, |e| {
        e.ticks(Ticks(now)).key(0).string("ring full").long(-1).long(i64::MAX);
    })?;
    Ok(format!(
        "flightline.SampleLoss @{} eventThread=- cause=\"ring full\" samples=-1 cpuTime={}",
        nanos(now),
        i64::MAX
    ))
}

/// Writes events of several kinds, and flushes every few; `flushed` gets the lines that each flush made
/// readable.
fn record<O: Output>(geometry: Geometry, out: &mut O, mut flushed: impl FnMut(&mut O, &[String])) {
    let mut chunk = ChunkWriter::begin(geometry, &LINE, FileOffset(0), LINE.start_ticks).unwrap();
    let mut queued = Vec::new();
    for i in 0..300u64 {
        let now = LINE.start_ticks.0 + i as i64 * 10_000;
        let write = |chunk: &mut ChunkWriter| match i % 5 {
            3 => load(chunk, now),
            4 => loss(chunk, now),
            _ => sample(chunk, 1 + i * 10, now, 1000 + i, (i % 97) as usize),
        };
        match write(&mut chunk) {
            Ok(line) => queued.push(line),
            Err(WriteError::Full { .. }) => {
                chunk.finish(Ticks(now), false, out).unwrap();
                flushed(out, &std::mem::take(&mut queued));
                chunk = ChunkWriter::begin(geometry, &LINE, chunk.end(), Ticks(now)).unwrap();
                queued.push(write(&mut chunk).unwrap());
            }
            Err(error) => panic!("{error}"),
        }
        if i % 7 == 6 {
            chunk.flush(Ticks(now), out).unwrap();
            flushed(out, &std::mem::take(&mut queued));
        }
    }
    chunk.finish(Ticks(4_000_000), true, out).unwrap();
    flushed(out, &std::mem::take(&mut queued));
}

fn drain(decoder: &mut Decoder, lines: &mut Vec<String>) {
    while let Some(item) = decoder.next() {
        match item {
            Item::Events(batch) => lines.extend(batch.events().map(|event| line(&event))),
            Item::ChunkEnd(end) => assert!(end.complete),
            Item::Warning(warning) => panic!("{warning}"),
            Item::ChunkStart(_) => {}
            #[allow(unreachable_patterns)] // the enum may grow
            _ => {}
        }
    }
}

fn read_whole(bytes: Vec<u8>) -> Vec<String> {
    let mut decoder = Decoder::new(Delivery::WholeChunks);
    decoder.push(Bytes::from(bytes));
    decoder.close();
    let mut lines = Vec::new();
    drain(&mut decoder, &mut lines);
    lines
}

const PIPE: Geometry = Geometry::Fixed { size: 30_000 };

#[test]
fn pipe_output_is_readable_as_file() {
    let mut expected = Vec::new();
    let mut out = StreamOutput::new(Vec::new());
    record(PIPE, &mut out, |_, lines| expected.extend_from_slice(lines));
    let bytes = out.into_inner();
    assert!(bytes.len() > 3 * 30_000, "the test wants several chunks");
    assert_eq!(bytes.len() % 30_000, 0);
    assert_eq!(expected.len(), 300);
    assert_eq!(read_whole(bytes), expected);
}

#[test]
fn patched_file_round_trips() {
    let mut file = tempfile::tempfile().unwrap();
    let before = b"not ours";
    file.write_all(before).unwrap();
    let mut expected = Vec::new();
    // A file that is not empty: the chunk begins after the present contents.
    let mut inner = FileOutput::new(file.try_clone().unwrap()).unwrap();
    struct Behind<'a>(&'a mut FileOutput, u64);
    impl Output for Behind<'_> {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.append(bytes)
        }
        fn patch(&mut self, at: FileOffset, bytes: &[u8]) -> io::Result<()> {
            self.0.patch(FileOffset(at.0 + self.1), bytes)
        }
    }
    record(Geometry::Patched, &mut Behind(&mut inner, before.len() as u64), |_, lines| {
        expected.extend_from_slice(lines)
    });
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes.starts_with(before));
    assert_eq!(bytes.len() as u64, inner.end().0);
    assert_eq!(read_whole(bytes.split_off(before.len())), expected);
}

/// An output into a decoder: the other end of a pipe, in pieces of a given size.
struct ToDecoder {
    decoder: Decoder,
    piece: usize,
    lines: Vec<String>,
}

impl Output for ToDecoder {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(self.piece) {
            self.decoder.push(Bytes::copy_from_slice(piece));
            drain(&mut self.decoder, &mut self.lines);
        }
        Ok(())
    }

    fn patch(&mut self, _: FileOffset, _: &[u8]) -> io::Result<()> {
        panic!("a pipe cannot be patched")
    }
}

#[test]
fn pipe_delivers_every_event_with_its_flush() {
    for piece in [1, 2, 3, 7, 64, 4096, usize::MAX] {
        let mut out = ToDecoder { decoder: Decoder::new(Delivery::Streaming), piece, lines: Vec::new() };
        let mut flushes = 0;
        record(PIPE, &mut out, |out, expected| {
            assert_eq!(out.lines, expected, "flush {flushes} in pieces of {piece}");
            out.lines.clear();
            flushes += 1;
        });
        assert!(flushes > 40);
    }
}
