//! Any bytes as the metadata event of an otherwise sound chunk.
#![no_main]

#[path = "../chunk.rs"]
mod chunk;
#[path = "../look.rs"]
mod look;

use jfr_format::read::Delivery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    look::Looked::at(&chunk::with_metadata(data), Delivery::WholeChunks);
});
