//! Fuzzes the protobuf decoders: OTLP profiles (compressed or not), Pyroscope's PushRequest, and the labels
//! that Pyroscope clients send alongside a recording. Each recording built from them must be valid.
#![no_main]

use bytes::Bytes;
use flightline_service::ingest::{Limits, otlp, pushed};
use flightline_service::render::check_bytes;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { body: 1 << 20, recording: 2 << 20, message: 1 << 20, text: 2 << 20 };
const NOW: i64 = 1_700_000_000_000;

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(bytes);
    let whole = |recording: &Bytes| {
        if let Err(flaw) = check_bytes(recording.clone()) {
            panic!("{flaw}");
        }
    };
    match which % 3 {
        0 => flightline_service::fuzzing::labels(bytes),
        1 => otlp(body, NOW, LIMITS).iter().flatten().for_each(|one| whole(&one.recording)),
        _ => pushed(body, NOW, LIMITS).iter().flatten().for_each(|(_, recording)| {
            // A JFR recording is passed through unchecked, so its check may fail.
            let _ = check_bytes(recording.clone());
        }),
    }
});
