//! Items → what they tell of spans, each span once.

use crate::live::Item;

use super::told::{self, Told, UNNUMBERED};

/// Intervals that wait to see whether they are told otherwise too.
const MOST_DOUBTFUL: usize = 1 << 16;

/// Reads items in the order of a recording or stream. Flightline writes a `profiler.Span` beside each span of its own: these
/// are left out once it is clear whose recording it is.
#[derive(Debug)]
pub struct Listener {
    ticks_per_second: i64,
    ours: bool,
    /// Intervals that came before that was known.
    doubtful: Vec<Told>,
}

impl Default for Listener {
    fn default() -> Self {
        Self::new()
    }
}

impl Listener {
    /// Reads a recording, or several one after the other.
    pub fn new() -> Self {
        Self { ticks_per_second: 1_000_000_000, ours: false, doubtful: Vec::new() }
    }

    /// Nanoseconds that are so many ticks of the present chunk.
    pub(crate) fn nanos(&self, ticks: i64) -> i64 {
        let second = i128::from(self.ticks_per_second.max(1));
        i64::try_from(i128::from(ticks) * 1_000_000_000 / second).unwrap_or(i64::MAX)
    }

    /// What an item tells of spans. Of samples, that is what they tell beside being one.
    pub fn take(&mut self, item: &Item) -> Option<Told> {
        let told = match item {
            Item::ChunkStart(start) => {
                self.ticks_per_second = start.ticks_per_second;
                None
            }
            Item::Sample(sample) => told::of_sample(sample),
            Item::Other(event) => told::of_event(event, |ticks| self.nanos(ticks)),
            _ => None,
        }?;
        match &told {
            Told::Context(..) | Told::Span(..) | Told::Scope(..) => self.ours = true,
            // A profiler.Span.
            Told::Interval(_, span) if span.key == UNNUMBERED && span.labels.is_empty() => {
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

    /// The intervals of which it is clear by now that nothing else tells them: to be asked for whenever a chunk or segment is
    /// over.
    pub fn undoubted(&mut self) -> Vec<Told> {
        let doubtful = std::mem::take(&mut self.doubtful);
        if self.ours { Vec::new() } else { doubtful }
    }
}
