//! Any bytes as a complete recording: every event and every value is read. The reader must not panic, hang or
//! use disproportionate memory.
#![no_main]

#[path = "../look.rs"]
mod look;

use jfr_format::read::{Delivery, Recording};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    look::Looked::at(data, Delivery::WholeChunks);
    let mut events = 0;
    match Recording::bytes(data.to_vec().into()).validate(|_| events += 1) {
        Ok(whole) => assert!(whole.chunks > 0 && events <= whole.events),
        Err(error) => assert!(error.at() <= data.len() as u64, "{error}"),
    }
});
