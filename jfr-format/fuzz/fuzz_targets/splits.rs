//! A stream cut into pieces at any places gives what it gives in one piece.

#![no_main]

use bytes::Bytes;
use jfr_format::read::{Decoder, Delivery, Item};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (cuts, data) = input;
    let whole = decode([data].into_iter());
    let mut pieces = Vec::new();
    let mut rest = data;
    for cut in cuts {
        let (piece, more) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    assert_eq!(decode(pieces.into_iter()), whole);
});

/// Offsets and types of the events and the ends of chunks, in order; and the warnings in theirs: what is wrong behind a
/// batch of events may be told before the batch, if both are there at once.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> [Vec<String>; 2] {
    let mut decoder = Decoder::new(Delivery::Streaming);
    let mut seen = [Vec::new(), Vec::new()];
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        take(&mut decoder, &mut seen);
    }
    decoder.close();
    take(&mut decoder, &mut seen);
    seen
}

fn take(decoder: &mut Decoder, [seen, warned]: &mut [Vec<String>; 2]) {
    while let Some(item) = decoder.next() {
        match item {
            Item::Events(batch) => {
                seen.extend(batch.events().map(|e| format!("{} at {}", e.class().name, e.offset())));
            }
            Item::ChunkEnd(end) => seen.push(format!("chunk of {}: {}", end.size, end.complete)),
            Item::Warning(warning) => warned.push(warning.to_string()),
            Item::ChunkStart(_) => {}
        }
    }
}
