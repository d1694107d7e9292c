//! The decoder's output does not depend on how the input is split into pieces.

use crate::dump;

use dump::{Dump, fixtures, name, stride};
use jfr_format::read::Delivery::{Streaming, WholeChunks};

/// Both deliveries agree, except where a live writer's flush releases events that a complete chunk would
/// resolve later.
#[test]
fn whole_chunk_and_streaming_deliveries_agree() {
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 200_000));
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let whole = Dump::of(&[&bytes], WholeChunks);
        let stream = Dump::of(&[&bytes], Streaming);
        assert_eq!(whole, stream, "{}", name(&path));
    }
}

#[test]
fn input_splits_do_not_change_events() {
    // The special cases: constants before and after their use, metadata last, unpatched, live, torn, several
    // chunks, fixed geometry, padded sizes; the others are split at a prime stride.
    const AT_EVERY_BYTE: &[&str] =
        &["01_", "04_", "13_", "22_", "25_", "27_", "31_", "32_", "41_", "70_", "91_"];
    for path in fixtures("cases") {
        let bytes = std::fs::read(&path).unwrap();
        let want = Dump::of(&[&bytes], Streaming);
        let every = AT_EVERY_BYTE.iter().any(|prefix| name(&path).starts_with(prefix));
        for at in (0..=bytes.len()).step_by(if every { stride(3, 1) } else { stride(307, 61) }) {
            let (front, back) = bytes.split_at(at);
            assert_eq!(Dump::of(&[front, back], Streaming), want, "{} split at {at}", name(&path));
        }
    }
}

#[test]
fn single_byte_input_yields_equal_events() {
    for path in fixtures("cases") {
        let bytes = std::fs::read(&path).unwrap();
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(Dump::of(&pieces, Streaming), Dump::of(&[&bytes], Streaming), "{}", name(&path));
        assert_eq!(Dump::of(&pieces, WholeChunks), Dump::of(&[&bytes], WholeChunks), "{}", name(&path));
    }
}

/// A stream returns a sample as soon as its constants are available, not at the end of the chunk.
#[test]
fn streaming_delivers_events_before_chunk_end() {
    let path = fixtures("cases").into_iter().find(|p| name(p).starts_with("01_")).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let whole = Dump::of(&[&bytes], Streaming);
    let last: u64 = whole.events.last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut decoder = jfr_format::read::Decoder::new(Streaming);
    decoder.push(bytes::Bytes::copy_from_slice(&bytes[..last as usize]));
    let mut events = 0;
    while let Some(item) = decoder.next() {
        if let jfr_format::read::Item::Events(batch) = item {
            events += batch.events().count();
        }
    }
    assert_eq!(events, whole.events.len() - 1, "all but the one whose bytes are missing");
}
