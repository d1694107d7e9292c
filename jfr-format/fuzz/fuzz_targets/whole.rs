//! Any bytes as a recording at hand: every event and every value is looked at. Nothing may panic, hang or take memory
//! out of proportion.
#![no_main]

#[path = "../look.rs"]
mod look;

use jfr_format::read::Delivery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    look::Looked::at(data, Delivery::WholeChunks);
});
