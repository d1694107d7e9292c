//! Messages of protobuf: OpenTelemetry's profiles, packed or not, and the labels that Pyroscope's clients send beside a recording.
#![no_main]

use bytes::Bytes;
use flightline_service::ingest::{Limits, otlp};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { body: 1 << 20, recording: 2 << 20, message: 1 << 20, text: 2 << 20 };

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    if which % 2 == 0 {
        flightline_service::fuzzing::labels(bytes);
        return;
    }
    if let Ok(received) = otlp(Bytes::copy_from_slice(bytes), LIMITS) {
        let text: usize = received.iter().flat_map(|one| &one.stacks).map(|stacks| stacks.text.len()).sum();
        assert!(text <= LIMITS.text, "{text} bytes");
        assert!(received.iter().all(|one| one.from <= one.until && one.labels.len() <= 32));
    }
});
