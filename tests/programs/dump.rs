//! Prints a recording as tab-separated lines, like `jdk/Dump.java`, for the benchmark scripts.

use std::io::{BufWriter, Write, stdout};
use std::path::PathBuf;

use flightline_tests::recording::Recording;

/// Runs the program.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(crate::arguments().nth(1).ok_or("usage: dump FILE")?);
    let recording = Recording::read(&path)?;
    let mut out = BufWriter::new(stdout().lock());
    for stack in &recording.stacks {
        write!(out, "stack\t{}", stack.truncated)?;
        for frame in &stack.frames {
            write!(out, "\t{}\t{}", frame.class, frame.method)?;
        }
        writeln!(out)?;
    }
    for s in &recording.samples {
        writeln!(out, "sample\t{}\t{}\t{}", s.time_ns, s.tid, s.stack)?;
    }
    for (tid, name) in &recording.names {
        writeln!(out, "thread\t{tid}\t{name}")?;
    }
    for l in &recording.ledger {
        writeln!(out, "cpu\t{}\t{}\t{}\t{}", l.tid, l.cpu_ns, l.sampled_ns, l.lost_ns)?;
    }
    for l in &recording.losses {
        writeln!(out, "loss\t{}\t{}\t{}\t{}", l.tid, l.cause, l.samples, l.cpu_ns)?;
    }
    for (name, n) in &recording.events {
        writeln!(out, "event\t{name}\t{n}")?;
    }
    for warning in &recording.warnings {
        eprintln!("{warning}");
    }
    Ok(())
}
