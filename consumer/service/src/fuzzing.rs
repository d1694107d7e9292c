//! Entry points for the fuzz targets.

use bytes::Bytes;

use crate::history::StoredRun;
use crate::window::{Histogram, names};

/// A requested byte range never exceeds the file.
pub fn range(text: &str, length: u64) {
    if let Some((from, to)) = crate::http::parse_range(text, length) {
        assert!(from <= to && to <= length, "{from}..{to} of {length}");
    }
}

/// Parses an agent's introduction.
pub fn hello(text: &str) -> Option<crate::wire::Hello> {
    serde_json::from_str(text).ok()
}

/// Parses the labels that Pyroscope clients send alongside a recording.
pub fn labels(message: &[u8]) {
    if let Ok(contexts) = crate::ingest::contexts_of(&Bytes::copy_from_slice(message)) {
        for labels in contexts.values() {
            assert!(labels.len() <= crate::limits::MOST_LABELS);
        }
    }
}

/// A run description that can be parsed survives a round trip.
pub fn description(text: &[u8]) {
    let Ok(run) = serde_json::from_slice::<StoredRun>(text) else { return };
    let written = serde_json::to_vec(&run).unwrap_or_default();
    let again = serde_json::from_slice::<StoredRun>(&written);
    assert_eq!(again.map(|again| again.run).ok(), Some(run.run));
}

/// A chunk file name that can be parsed is equal to the name built from its parts.
pub fn name(text: &str) {
    if let Some((from, to, random)) = names::chunk(text) {
        assert_eq!(names::chunk_name(from, to, random), text);
    }
}

/// Samples at arbitrary times are counted once, in bounded memory.
pub fn histogram(moments: &[(i64, u64)]) {
    let mut histogram = Histogram::default();
    let mut sum = 0u64;
    for &(at, samples) in moments {
        histogram.add(at, samples);
        sum = sum.saturating_add(samples);
        assert!(histogram.steps().count() <= 512);
    }
    assert!(histogram.total() <= sum);
    let steps: Vec<_> = histogram.steps().collect();
    assert!(steps.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0)));
}
