//! Prints the canonical line of every jdk.ExecutionSample as the crate jfrs reads it, or does a job of bench/readers.py.

mod jobs;

use jfrs::reader::event::Accessor;
use jfrs::reader::value_descriptor::{Primitive, ValueDescriptor};
use jfrs::reader::{ChunkHeader, JfrReader};
use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

const UNRESOLVED: &str = "?";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] => print(path, false),
        ["weights", path] => print(path, true),
        [job @ ("types" | "collapsed" | "fields"), path] => jobs::run(job, path),
        _ => {
            eprintln!("usage: jfrs-lines [types|collapsed|fields|weights] FILE");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("jfrs-lines: {e}");
            ExitCode::FAILURE
        }
    }
}

/// With weights wall-clock samples too, and how many samples each represents.
fn print(path: &str, weights: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = BufWriter::new(stdout().lock());
    let mut reader = JfrReader::new(File::open(path)?);
    for chunk in reader.chunks() {
        let (mut reader, chunk) = chunk?;
        for event in reader.events(&chunk) {
            let event = event?;
            let wall = event.class.name() == "profiler.WallClockSample";
            if event.class.name() != "jdk.ExecutionSample" && !(weights && wall) {
                continue;
            }
            let value = event.value();
            let ticks = value.get_field("startTime").and_then(|v| i64::try_from(v.value).ok());
            let ticks = ticks.ok_or("a sample without startTime")?;
            let thread = value.get_field("sampledThread");
            let name = thread.as_ref().map(|t| {
                let java = string(t.get_field("javaName"));
                java.or_else(|| string(t.get_field("osName"))).unwrap_or_default()
            });
            let id = thread.and_then(|t| t.get_field("osThreadId")).and_then(|v| i64::try_from(v.value).ok());
            let state = string(value.get_field("state").and_then(|s| s.get_field("name")));
            write!(
                out,
                "{}\t{}\t{}\t{}\t{}",
                epoch_nanos(&chunk.header, ticks),
                name.as_deref().unwrap_or(UNRESOLVED),
                id.map_or(UNRESOLVED.into(), |id| id.to_string()),
                state.as_deref().unwrap_or(UNRESOLVED),
                frames(value.get_field("stackTrace")).unwrap_or(UNRESOLVED.into()),
            )?;
            if weights {
                let samples = value.get_field("samples").and_then(|v| i32::try_from(v.value).ok());
                write!(out, "\t{}", samples.unwrap_or(1))?;
            }
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// In f64, as the JDK and JMC do.
fn epoch_nanos(h: &ChunkHeader, ticks: i64) -> i64 {
    let nanos_per_tick = 1e9 / h.ticks_per_second as f64;
    h.start_time_nanos + ((ticks - h.start_ticks) as f64 * nanos_per_tick) as i64
}

fn frames(stack: Option<Accessor<'_>>) -> Option<String> {
    let frames = stack?.get_field("frames")?.as_iter()?;
    let names: Vec<String> =
        frames.map(|f| f.get_field("method").map_or(UNRESOLVED.into(), method)).collect();
    Some(names.join(";"))
}

fn method(m: Accessor<'_>) -> String {
    let symbol =
        |v: Option<Accessor<'_>>| string(v.and_then(|s| s.get_field("string"))).unwrap_or(UNRESOLVED.into());
    let name = symbol(m.get_field("name"));
    let class =
        m.get_field("type").map_or(UNRESOLVED.into(), |c| symbol(c.get_field("name"))).replace('/', ".");
    if class.is_empty() { name } else { format!("{class}.{name}") }
}

fn string(v: Option<Accessor<'_>>) -> Option<String> {
    match v?.value {
        ValueDescriptor::Primitive(Primitive::String(s)) => Some(s.clone()),
        _ => None,
    }
}
