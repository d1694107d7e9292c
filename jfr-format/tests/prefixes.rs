//! Events read from a prefix of a recording are also in the whole recording: no event is invented, and none
//! changes.

use crate::dump;

use std::collections::HashSet;
use std::path::PathBuf;

use bytes::Bytes;
use dump::{Dump, fixtures, name};
use jfr_format::read::Decoder;
use jfr_format::read::Delivery::{self, KeysOnly, Streaming, WholeChunks};

/// All synthetic cases, and recordings that are read quickly.
fn files() -> Vec<PathBuf> {
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 100_000));
    files
}

/// About `times` positions at which to cut; all positions in a small file.
fn cuts(len: usize, times: usize) -> impl Iterator<Item = usize> {
    (0..=len).step_by((len / times).max(1))
}

/// Offset and type of an event.
fn place(event: &str) -> String {
    event.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A stream that has been read in part has returned events with all their constants, which do not change
/// later.
#[test]
fn early_delivered_events_do_not_change() {
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

/// A recording that ends early is salvaged. Constants may be missing, but every event is in the whole
/// recording.
#[test]
fn salvaged_events_are_in_whole_recording() {
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

/// A longer prefix of a recording never has fewer complete chunks before the cut.
#[test]
fn longer_prefix_never_has_fewer_complete_chunks() {
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
