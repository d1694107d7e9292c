//! Any bytes as the metadata event of an otherwise sound chunk.
#![no_main]

#[path = "../chunk.rs"]
mod chunk;
#[path = "../../tests/dump/mod.rs"]
mod dump;

use jfr_format::read::Delivery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    dump::Dump::of(&[&chunk::with_metadata(data)], Delivery::WholeChunks);
});
