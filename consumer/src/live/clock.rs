//! Converts the ticks of a chunk to the clocks of the machine.

use jfr_format::read::Chunk;
use rustix::time::{ClockId, clock_gettime};

use super::item::Time;

/// Clocks that differ by more than this are different clocks.
const SAME_NANOS: i128 = 1_000_000_000;

/// Linear mapping from ticks to `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Ticks and nanoseconds at the same time.
    anchor: Option<(i64, i64)>,
    /// True if an anchor event stated the mapping; otherwise it was guessed.
    told: bool,
    /// Ticks and epoch in the last chunk's header.
    header: Option<(i64, i64)>,
    latest: Time,
}

impl Clock {
    /// Starts a chunk. Returns true if its clock continues that of the chunk before.
    pub(super) fn begin(&mut self, chunk: &Chunk) -> bool {
        let (ticks, nanos) = (chunk.header.start_ticks.0, chunk.header.start_nanos);
        // Another recording, or another boot of the machine, has another mapping.
        let goes_on = self.header.is_some_and(|(before, at)| {
            let passed = i128::from(chunk.span_nanos(ticks.saturating_sub(before)));
            (i128::from(nanos) - i128::from(at) - passed).abs() < SAME_NANOS
        });
        self.header = Some((ticks, nanos));
        if !(goes_on && self.told) {
            self.told = false;
            self.anchor = is_monotonic(chunk).then_some((ticks, ticks));
        }
        self.latest = self.time(chunk, ticks);
        goes_on
    }

    /// Sets the anchor: both clocks were read at `ticks`.
    pub(super) fn anchor(&mut self, chunk: &Chunk, ticks: i64, monotonic: i64) {
        let tick = chunk.span_nanos(1).max(1);
        let near = |known: i64| (i128::from(known) - i128::from(monotonic)).abs() <= i128::from(tick);
        // Retains an anchor that agrees within a tick, so that times stay in order.
        if !(self.told && self.monotonic(chunk, ticks).is_some_and(near)) {
            self.anchor = Some((ticks, monotonic));
            self.told = true;
        }
    }

    /// Converts `ticks`.
    pub(super) fn time(&self, chunk: &Chunk, ticks: i64) -> Time {
        Time { epoch_nanos: chunk.epoch_nanos(ticks), monotonic_nanos: self.monotonic(chunk, ticks) }
    }

    /// Converts `ticks` and stores the result as the current time.
    pub(super) fn tick(&mut self, chunk: &Chunk, ticks: i64) -> Time {
        self.latest = self.time(chunk, ticks);
        self.latest
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Time {
        self.latest
    }

    fn monotonic(&self, chunk: &Chunk, ticks: i64) -> Option<i64> {
        let (at, nanos) = self.anchor?;
        Some(nanos.saturating_add(chunk.span_nanos(ticks.checked_sub(at)?)))
    }
}

/// Returns true if the ticks are nanoseconds of this machine's monotonic clock: they then differ from the
/// chunk's wall-clock time by as much as the two clocks do now.
fn is_monotonic(chunk: &Chunk) -> bool {
    let header = &chunk.header;
    let apart = i128::from(header.start_nanos) - i128::from(header.start_ticks.0);
    let here = nanos(ClockId::Realtime) - nanos(ClockId::Monotonic);
    header.frequency() == 1_000_000_000 && (apart - here).abs() < SAME_NANOS
}

fn nanos(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
