//! Edits any bytes: the result must be readable without a warning and contain all selected events.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/edited/mod.rs"]
mod edited;

fuzz_target!(|input: (u8, u32, &[u8])| {
    let (what, number, data) = input;
    let bytes = Bytes::copy_from_slice(data);
    match what % 5 {
        0 => drop(edited::repair(&bytes, "repair")),
        1 => edited::scrub(&bytes, u64::from(number % 7), "scrub"),
        2 => edited::cut(&bytes, i64::from(number), i64::from(number.swap_bytes()), "cut"),
        3 => edited::redact(&bytes, "redact"),
        _ => {
            let at = number as usize % (bytes.len() + 1);
            edited::assemble([&bytes.slice(..at), &bytes.slice(at..)], "assemble");
        }
    }
});
