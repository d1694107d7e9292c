//! Memory use is a few megabytes, whatever the length of the recording and the number of chunks.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use jfr_format::ids::Ticks;
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FieldWriter, FileOutput, Geometry};
use nix::sys::resource::{UsageWho, getrusage};

/// Maximum memory of a command in addition to the program: measured 30 MB, and 37 MB on another machine with
/// the same kernel, where pages of the mapped file stay longer; 35 MB with an optimised program of 5 MB. The
/// recordings have 240 MB.
const BOUND_KB: i64 = 48 << 10;
const SIZE: u64 = 240 << 20;
const CHUNK: u64 = 8 << 20;

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
/// Samples per large event. Most of the bytes are in large events, so that the commands finish quickly.
const SAMPLES: u64 = 30;
const TEXT: usize = 4000;
const STACKS: u64 = 50;

/// Writes stacks of ten frames each, and a thread.
fn constants(chunk: &mut ChunkWriter) {
    for key in 1..=STACKS {
        let name = format!("function_{key}");
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(&name)).unwrap();
        chunk.constant(schema::CLASS, key, |c| _ = c.key(0).key(key).key(0).int(0).boolean(false)).unwrap();
        let method = |m: &mut FieldWriter<'_>| {
            m.key(key).key(key).key(key).int(1).boolean(false);
        };
        chunk.constant(schema::METHOD, key, method).unwrap();
        let stack = |s: &mut FieldWriter<'_>| {
            s.boolean(false).array(10);
            for level in 0..10 {
                s.key((key + level) % STACKS + 1).int(0).int(0).key(frame_type::CPP);
            }
        };
        chunk.constant(schema::STACK_TRACE, key, stack).unwrap();
    }
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string("demo (1)")).unwrap();
    let thread = |t: &mut FieldWriter<'_>| {
        t.string("worker").long(7).null().long(0).key(1);
    };
    chunk.constant(schema::THREAD, 1, thread).unwrap();
}

/// Writes a recording of about `size` bytes; returns its number of samples.
fn generate(path: &Path, size: u64, of_chunk: u64) -> u64 {
    let mut out = FileOutput::new(File::create(path).unwrap()).unwrap();
    let text = "x".repeat(TEXT);
    let (mut now, mut samples) = (0, 0);
    while out.end().0 < size {
        let start = out.end();
        let mut chunk = ChunkWriter::begin(Geometry::Patched, &LINE, start, Ticks(now)).unwrap();
        constants(&mut chunk);
        while chunk.end().0 - start.0 < of_chunk {
            for _ in 0..256 {
                let property = |e: &mut FieldWriter<'_>| {
                    e.ticks(Ticks(now)).string("property").string(&text);
                };
                chunk.event(schema::INITIAL_SYSTEM_PROPERTY, property).unwrap();
                for _ in 0..SAMPLES {
                    now += 10;
                    samples += 1;
                    let stack = samples % STACKS + 1;
                    let sample = |e: &mut FieldWriter<'_>| {
                        e.ticks(Ticks(now)).key(1).key(stack).key(thread_state::DEFAULT);
                    };
                    chunk.event(schema::EXECUTION_SAMPLE, sample).unwrap();
                }
            }
            chunk.flush(Ticks(now), &mut out).unwrap();
        }
        chunk.finish(Ticks(now), true, &mut out).unwrap();
    }
    assert_eq!(fs::metadata(path).unwrap().len(), out.end().0);
    samples
}

/// Runs the command; returns its output if `kept`, and the maximum memory of any command so far.
fn measured(args: &[&str], kept: bool) -> (String, i64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(args).stdin(Stdio::null());
    if !kept {
        command.stdout(File::create("/dev/null").unwrap());
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    (String::from_utf8(output.stdout).unwrap(), peak)
}

#[test]
fn memory_does_not_grow_with_recording_size() {
    let program = measured(&["--version"], false).1;
    let run = |args: &[&str], file: &Path, kept| {
        let args = [args, &[file.to_str().unwrap()]].concat();
        let (output, peak) = measured(&args, kept);
        assert!(peak - program <= BOUND_KB, "{args:?}: {peak} KB, {program} KB of them for the program");
        output
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, of_chunk) in [("chunks.jfr", CHUNK), ("one.jfr", SIZE)] {
        let file = folder.path().join(name);
        let samples = generate(&file, SIZE, of_chunk);
        for jobs in ["1", "2", "4", "8"] {
            let summary = run(&["summary", "--jobs", jobs], &file, true);
            assert!(summary.contains(&format!("{samples} samples")), "{summary}");
            let folded = run(&["fold", "--jobs", jobs], &file, true);
            let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
            assert_eq!(counts.sum::<u64>(), samples);
        }
        run(&["print", "--jobs", "2", "--events", "ExecutionSample", "--json"], &file, false);
        run(&["print", "--jobs", "2", "--events", "InitialSystemProperty"], &file, false);
        run(&["view", "hot-methods"], &file, false);
        let output = folder.path().join("out.jfr");
        let output = output.to_str().unwrap();
        run(&["cut", "--from", "5", "--force", "-o", output], &file, false);
        run(&["scrub", "--exclude-events", "jdk.ExecutionSample", "--force", "-o", output], &file, false);
    }
}
