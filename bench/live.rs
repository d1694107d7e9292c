//! Compares the events per second of the live reader with those of the decoder alone, on the same bytes in blocks of 64 KiB, the size
//! that a pipe delivers. CPU time, best of many rounds.
//!
//! `cargo bench -p flightline-consumer --bench live [-- FILE…]`; the default is fixtures repeated to 32 MB.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flightline_consumer::live::{Feed, Item, Options};
use jfr_format::read::{Decoder, Delivery, Item as Read};

use best::best;

#[path = "best.rs"]
mod best;

const FIXTURES: &[&str] = &["flightline", "jdk25-multichunk", "ap-native-cpu"];
const REPEATED_TO: usize = 32 << 20;
const PIECE: usize = 64 << 10;
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` passes an option for its own harness.
    let files: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|argument| argument != "--bench").map(PathBuf::from).collect();
    for path in &files {
        measure(&path.display().to_string(), &std::fs::read(path)?);
    }
    if files.is_empty() {
        for name in FIXTURES {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
            let once = std::fs::read(folder.join(format!("{name}.jfr")))?;
            measure(name, &once.repeat(REPEATED_TO.div_ceil(once.len())));
        }
    }
    Ok(())
}

fn measure(name: &str, bytes: &[u8]) {
    let (decoding, decoded) = best(ROUNDS, || decode(bytes));
    let samples_only = Options { others: false, ..Options::default() };
    let (sampling, samples) = best(ROUNDS, || follow(bytes, &samples_only));
    let (following, all) = best(ROUNDS, || follow(bytes, &Options::default()));
    assert_eq!((samples.0, all.0), (decoded, decoded), "both see all events");
    println!("{name}: {:.1} MB, {decoded} events, {} samples", bytes.len() as f64 / 1e6, samples.1);
    for (step, time) in [("decoder", decoding), ("live, samples", sampling), ("live, all", following)] {
        let seconds = time.as_secs_f64();
        println!(
            "  {step:14} {:8.1} ms {:7.2} decoders {:12.0} events/s {:6.0} MB/s",
            seconds * 1e3,
            seconds / decoding.as_secs_f64(),
            decoded as f64 / seconds,
            bytes.len() as f64 / 1e6 / seconds,
        );
    }
}

/// Returns the number of events, without reading their fields.
fn decode(bytes: &[u8]) -> u64 {
    let mut decoder = Decoder::new(Delivery::Streaming);
    let mut events = 0;
    let mut take = |decoder: &mut Decoder| {
        while let Some(item) = decoder.next() {
            if let Read::Events(batch) = item {
                events += batch.frames().filter(|frame| frame.type_id > 1).count() as u64;
            }
        }
    };
    for piece in bytes.chunks(PIECE) {
        decoder.push(Bytes::copy_from_slice(piece));
        take(&mut decoder);
    }
    decoder.close();
    take(&mut decoder);
    events
}

/// Returns the number of events, and of samples with all their fields resolved.
fn follow(bytes: &[u8], options: &Options) -> (u64, u64) {
    let mut feed = Feed::new(options.clone());
    let mut samples = 0;
    let mut take = |feed: &mut Feed| {
        while let Some(item) = feed.next() {
            samples += u64::from(matches!(black_box(&item), Item::Sample(_)));
        }
    };
    for piece in bytes.chunks(PIECE) {
        feed.push(piece);
        take(&mut feed);
    }
    feed.close();
    take(&mut feed);
    (feed.stats().events, samples)
}
