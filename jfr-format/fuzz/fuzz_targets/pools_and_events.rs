//! Any bytes as checkpoints and events behind sound metadata: framing is made right, so that the bytes get to the
//! decoders of pools and fields. The first byte of each piece is its length, the second its type.
#![no_main]

#[path = "../chunk.rs"]
mod chunk;
#[path = "../look.rs"]
mod look;

use jfr_format::read::Delivery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let recording = chunk::with_events(data);
    let whole = look::Looked::at(&recording, Delivery::WholeChunks);
    let stream = look::Looked::at(&recording, Delivery::Streaming);
    assert_eq!((whole.events, whole.chunks), (stream.events, stream.chunks));
});
