//! Messages of protobuf: OpenTelemetry's profiles and Pyroscope's pushes, packed or not, and the labels that Pyroscope's clients send beside a
//! recording.
#![no_main]

use bytes::Bytes;
use flightline_service::ingest::{Limits, otlp, pushed};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { body: 1 << 20, recording: 2 << 20, message: 1 << 20, text: 2 << 20 };
/// UTC ms.
const NOW: i64 = 1_700_000_000_000;

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    let bytes = Bytes::copy_from_slice(bytes);
    let made = match which % 3 {
        0 => return flightline_service::fuzzing::labels(&bytes),
        1 => otlp(bytes, NOW, LIMITS).map(|all| all.into_iter().map(|one| (one.app, one.recording)).collect()),
        _ => pushed(bytes, NOW, LIMITS),
    };
    for (app, recording) in made.unwrap_or_default() {
        assert!(app.labels.len() <= 32);
        assert!(recording.len() <= 8 * LIMITS.recording, "{} bytes", recording.len());
        assert!(jfr_format::header::ChunkHeader::decode(recording.first_chunk().unwrap()).is_ok());
    }
});
