//! Extracts span records from items, each span once.

use crate::live::Item;

use super::span_events::{self, SpanRecord, UNNUMBERED};

/// Intervals that wait until it is known whether they are duplicates.
const MOST_DOUBTFUL: usize = 1 << 16;

/// Reads items in the order of a recording or stream. Flightline writes a `profiler.Span` in addition to
/// each span of its own. These duplicates are dropped once the producer is known.
#[derive(Debug)]
pub struct Listener {
    ticks_per_second: i64,
    ours: bool,
    /// Intervals that were read before the producer was known.
    doubtful: Vec<SpanRecord>,
}

impl Default for Listener {
    fn default() -> Self {
        Self::new()
    }
}

impl Listener {
    /// Creates a listener for one recording, or several in sequence.
    pub fn new() -> Self {
        Self { ticks_per_second: 1_000_000_000, ours: false, doubtful: Vec::new() }
    }

    /// Converts ticks of the current chunk to nanoseconds.
    pub(crate) fn nanos(&self, ticks: i64) -> i64 {
        let second = i128::from(self.ticks_per_second.max(1));
        i64::try_from(i128::from(ticks) * 1_000_000_000 / second).unwrap_or(i64::MAX)
    }

    /// Returns the span record of an item; of a sample, only the span information in it.
    pub fn take(&mut self, item: &Item) -> Option<SpanRecord> {
        let told = match item {
            Item::ChunkStart(start) => {
                self.ticks_per_second = start.ticks_per_second;
                None
            }
            Item::Sample(sample) => span_events::from_sample(sample),
            Item::Other(event) => span_events::from_event(event, |ticks| self.nanos(ticks)),
            _ => None,
        }?;
        match &told {
            SpanRecord::Context(..) | SpanRecord::Span(..) | SpanRecord::Scope(..) => self.ours = true,
            // An async-profiler span.
            SpanRecord::Interval(_, span) if span.key == UNNUMBERED && span.labels.is_empty() => {
                if !self.ours && self.doubtful.len() < MOST_DOUBTFUL {
                    self.doubtful.push(told);
                    return None;
                }
                return Some(told).filter(|_| !self.ours);
            }
            _ => {}
        }
        Some(told)
    }

    /// Returns the number of intervals that wait for [`Self::undoubted`].
    pub(crate) fn doubtful_count(&self) -> usize {
        self.doubtful.len()
    }

    /// Returns the intervals that are known not to be duplicates. To be called at the end of each chunk
    /// or segment.
    pub fn undoubted(&mut self) -> Vec<SpanRecord> {
        let doubtful = std::mem::take(&mut self.doubtful);
        if self.ours { Vec::new() } else { doubtful }
    }
}
