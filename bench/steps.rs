//! Measures the steps of `fold` separately, in one process and on one thread: CPU time, best of many rounds (other load only ever adds).
//! Recordings are read from memory, so that page faults are excluded.
//!
//! `cargo bench -p flightline-consumer --bench steps [-- FILE…]`; the default is fixtures repeated to 32 MB.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use flightline_consumer::fold::{self, FoldOptions, fold};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, Loaded, load_recording};
use jfr_format::read::{Decoder, Delivery, Filter, Item, Recording};

use best::best;

#[path = "best.rs"]
mod best;

const FIXTURES: &[&str] = &["jdk17-multichunk", "jdk25-multichunk", "ap-java-multichunk", "ap-native-lock"];
const REPEATED_TO: usize = 32 << 20;
const ROUNDS: usize = 9;
const CHUNK_HEADER: usize = 68;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` passes an option for its own harness.
    let files: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|argument| argument != "--bench").map(PathBuf::from).collect();
    for path in &files {
        measure(&path.display().to_string(), std::fs::read(path)?.into())?;
    }
    if files.is_empty() {
        for name in FIXTURES {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
            let once = std::fs::read(folder.join(format!("{name}.jfr")))?;
            // Concatenated recordings are a valid recording.
            measure(name, once.repeat(REPEATED_TO.div_ceil(once.len())).into())?;
        }
    }
    Ok(())
}

fn measure(name: &str, bytes: Bytes) -> Result<(), Box<dyn Error>> {
    let (walk, events) = best(ROUNDS, || walk(&bytes));
    let recording = Recording::bytes(bytes.clone());
    let (count, counted) = best(ROUNDS, || count(&recording));
    let counted = counted?;
    assert_eq!(counted, events, "the reader passes the events that the walk does");

    let options = load_options(&recording)?;
    let (load, loaded) = best(ROUNDS, || load_recording(&recording, &options, 1, |_| {}));
    let model = loaded?.model;
    let samples: u64 = model.samples.values().map(|weight| weight.count).sum();
    let fold_options = FoldOptions { by_thread: true, ..FoldOptions::default() };
    let (tree_time, tree) = best(ROUNDS, || fold(&model, &fold_options));
    let tree = tree?;
    let (text, lines) = best(ROUNDS, || {
        let mut out = Vec::new();
        folded::write(&tree, &mut out).map(|()| out)
    });
    let lines = lines?;
    assert_eq!(total(&lines), tree.total, "no sample is lost between tree and text");

    let mb = bytes.len() as f64 / 1e6;
    println!("{name}: {mb:.1} MB, {events} events, {samples} samples, {} distinct", model.samples.len());
    let row = |step: &str, time: Duration, of: u64, each: &str| {
        let (seconds, walks) = (time.as_secs_f64(), time.as_secs_f64() / walk.as_secs_f64());
        let nanos = seconds * 1e9 / of.max(1) as f64;
        let speed = if of == events { format!("{:.0} MB/s", mb / seconds) } else { String::new() };
        println!(
            "  {step:20} {:9.3} ms {walks:7.2} walks {nanos:8.1} ns per {each:15} {speed:>11}",
            seconds * 1e3
        );
    };
    let lines = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
    row("walk of event sizes", walk, events, "event");
    row("count by type", count, events, "event");
    row("load samples", load, events, "event");
    row("model to tree", tree_time, model.samples.len() as u64, "distinct sample");
    row("tree to folded text", text, lines, "line");
    row("all of fold", load + tree_time + text, events, "event");
    Ok(())
}

/// Goes from event to event by their sizes, the minimum that a reader does (see `walk_floor.c`). Returns the number of events.
fn walk(bytes: &[u8]) -> u64 {
    let mut events = 0;
    let mut rest = bytes;
    while let Some(size) = rest.get(8..16).map(|size| u64::from_be_bytes(size.try_into().unwrap_or_default()))
    {
        let Some((chunk, behind)) = rest.split_at_checked(usize::try_from(size).unwrap_or(usize::MAX)) else {
            break;
        };
        let mut at = CHUNK_HEADER;
        while let Some(&first) = chunk.get(at) {
            let mut step = usize::from(first & 0x7f);
            if first & 0x80 != 0 {
                for (i, &byte) in chunk[at + 1..].iter().take(8).enumerate() {
                    step |= usize::from(byte & 0x7f) << (7 * (i + 1));
                    if byte & 0x80 == 0 {
                        break;
                    }
                }
            }
            if step == 0 {
                break;
            }
            at += step;
            events += 1;
        }
        rest = behind;
    }
    events
}

/// Returns the number of events of all types, counted by the decoder.
fn count(recording: &Recording) -> Result<u64, jfr_format::error::Error> {
    let part = |decoder: &mut Decoder| {
        decoder.set_filter(|_| Filter::Skip);
        let mut events = 0;
        while let Some(item) = decoder.next() {
            if let Item::ChunkEnd(end) = item {
                events += end.counts.iter().map(|(_, count)| count.events).sum::<u64>();
            }
        }
        events
    };
    let mut events = 0;
    recording.run_grouped(Delivery::KeysOnly, 1, part, |part| {
        events += part;
        Ok(())
    })?;
    Ok(events)
}

/// Returns the options with which `fold` without `-e` loads a recording.
fn load_options(recording: &Recording) -> Result<LoadOptions, jfr_format::error::Error> {
    let of = |events: Vec<String>| LoadOptions { events, ..LoadOptions::default() };
    let first = of(fold::FIRST_LOADED.iter().map(|&name| name.to_owned()).collect());
    let Loaded { model, .. } = load_recording(recording, &first, 1, |_| {})?;
    if !model.samples.is_empty() {
        return Ok(first);
    }
    Ok(of(fold::else_loaded(&model.passed_over).map(str::to_owned).into_iter().collect()))
}

/// Returns the sum of the numbers at the ends of the lines.
fn total(lines: &[u8]) -> u64 {
    let lines = String::from_utf8_lossy(lines);
    lines.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}
