//! What is read of the front of a recording is in the whole of it, too: nothing is invented, nothing turns into
//! something else.

use crate::dump;

use std::collections::HashSet;
use std::path::PathBuf;

use bytes::Bytes;
use dump::{Dump, fixtures, name};
use jfr_format::read::Decoder;
use jfr_format::read::Delivery::{self, KeysOnly, Streaming, WholeChunks};

/// All made cases, and recordings that are soon read.
fn files() -> Vec<PathBuf> {
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 100_000));
    files
}

/// About `times` places to cut at, all of them in a small file.
fn cuts(len: usize, times: usize) -> impl Iterator<Item = usize> {
    (0..=len).step_by((len / times).max(1))
}

/// Where the event lies and of what type it is.
fn place(event: &str) -> String {
    event.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A stream that has been read in part has handed out events with all their constants: they stay what they are.
#[test]
fn what_is_handed_out_early_stays() {
    for path in files() {
        let bytes = std::fs::read(&path).unwrap();
        let whole = Dump::of(&[&bytes], Streaming);
        let all: HashSet<&String> = whole.events.iter().collect();
        for cut in cuts(bytes.len(), 400) {
            let mut decoder = Decoder::new(Streaming);
            decoder.push(Bytes::copy_from_slice(&bytes[..cut]));
            let mut part = Dump::default();
            part.drain(&mut decoder);
            for event in &part.events {
                assert!(all.contains(event), "{} cut at {cut}: {event}", name(&path));
            }
        }
    }
}

/// A recording that ends early is salvaged. Constants may be missing then, but every event is one of the whole.
#[test]
fn salvaged_events_are_of_the_whole() {
    for path in files() {
        let bytes = std::fs::read(&path).unwrap();
        for delivery in [WholeChunks, Streaming, KeysOnly] {
            let places = |bytes: &[u8], delivery: Delivery| -> Vec<String> {
                Dump::of(&[bytes], delivery).events.iter().map(|event| place(event)).collect()
            };
            let all: HashSet<String> = places(&bytes, delivery).into_iter().collect();
            for cut in cuts(bytes.len(), 150) {
                for event in places(&bytes[..cut], delivery) {
                    assert!(all.contains(&event), "{} cut at {cut}, {delivery:?}: {event}", name(&path));
                }
            }
        }
    }
}

/// More of a recording never has fewer whole chunks in front of the cut.
#[test]
fn whole_chunks_stay_whole() {
    for path in files() {
        let bytes = std::fs::read(&path).unwrap();
        let mut before = 0;
        for cut in cuts(bytes.len(), 400) {
            let mut decoder = Decoder::new(WholeChunks);
            decoder.push(Bytes::copy_from_slice(&bytes[..cut]));
            let mut part = Dump::default();
            part.drain(&mut decoder);
            let complete = part.chunks.iter().filter(|&&(_, complete)| complete).count();
            assert!(complete >= before, "{} cut at {cut}: {complete} after {before}", name(&path));
            before = complete;
        }
    }
}
