//! Entry points for the fuzz targets.

use bytes::Bytes;

use crate::store::Kept;
use crate::window::{Line, names};

/// A requested byte range never exceeds the file.
pub fn range(text: &str, length: u64) {
    if let Some((from, to)) = crate::http::range_of(text, length) {
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
            assert!(labels.len() <= crate::settings::MOST_LABELS);
        }
    }
}

/// A run description that can be parsed survives a round trip.
pub fn description(text: &[u8]) {
    let Ok(kept) = serde_json::from_slice::<Kept>(text) else { return };
    let written = serde_json::to_vec(&kept).unwrap_or_default();
    let again = serde_json::from_slice::<Kept>(&written);
    assert_eq!(again.map(|again| again.run).ok(), Some(kept.run));
}

/// A chunk file name that can be parsed is equal to the name built from its parts.
pub fn name(text: &str) {
    if let Some((from, to, random)) = names::chunk(text) {
        assert_eq!(names::of_chunk(from, to, random), text);
    }
}

/// Samples at arbitrary times are counted once, in bounded memory.
pub fn line(moments: &[(i64, u64)]) {
    let mut line = Line::default();
    let mut sum = 0u64;
    for &(at, samples) in moments {
        line.add(at, samples);
        sum = sum.saturating_add(samples);
        assert!(line.steps().count() <= 512);
    }
    assert!(line.total() <= sum);
    let steps: Vec<_> = line.steps().collect();
    assert!(steps.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0)));
}
