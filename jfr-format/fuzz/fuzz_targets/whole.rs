//! Any bytes as a recording at hand: every event and every value is looked at. Nothing may panic, hang or take memory
//! out of proportion.
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
