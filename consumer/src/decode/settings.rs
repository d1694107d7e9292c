//! Sampling settings in a recording.

use std::borrow::Cow;
use std::sync::Arc;

use jfr_format::event::EventRef;
use jfr_format::read::Chunk;

use crate::model::EXECUTION_SAMPLE as CPU;

/// Sampling periods in the current chunk, from its `jdk.ActiveSetting` events.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    periods: Vec<Period>,
    /// The producer counts something other than time.
    counts_events: bool,
    /// The wall clock was recorded. async-profiler writes its interval as a setting of
    /// `jdk.ExecutionSample`.
    by_wall_clock: bool,
    /// Settings whose strings were unknown when they were read, and all settings after them: type id,
    /// payload, offset.
    kept: Vec<(u64, Box<[u8]>, u64)>,
}

#[derive(Debug)]
struct Period {
    event: Arc<str>,
    nanos: u64,
    /// Stated by `interval`, whose unit is the counted event.
    is_interval: bool,
}

/// Values of async-profiler's `event` for which `interval` is in ns.
const TIMES: &[&str] = &["cpu", "itimer", "ctimer", "wall", "cpu-clock", "task-clock"];

const WALL: &str = "profiler.WallClockSample";

/// Maximum number of settings of a chunk; real chunks have some hundreds.
const MOST: usize = 1 << 16;

/// A string is null, or in a pool that has not been read.
struct NotKnown;

impl Settings {
    /// Stores a setting.
    pub(crate) fn take(&mut self, event: &EventRef<'_>, type_id: u64) {
        if self.periods.len() + self.kept.len() >= MOST {
            return;
        }
        // The first setting takes precedence, so the order must be preserved.
        if !self.kept.is_empty() || self.read(event).is_err() {
            self.kept.push((type_id, event.payload().into(), event.offset()));
        }
    }

    /// Reads `interval` in ns as written by async-profiler and Flightline, async-profiler's `wall`, and
    /// the JDK's `period` (`20 ms`).
    fn read(&mut self, event: &EventRef<'_>) -> Result<(), NotKnown> {
        let Some(name) = text(event, "name")? else { return Ok(()) };
        if !["interval", "period", "event", "wall"].contains(&&*name) {
            return Ok(());
        }
        let Some(value) = text(event, "value")? else { return Ok(()) };
        let id = event.field("id").ok().flatten().and_then(|id| id.as_i64());
        let of = id.and_then(|id| event.chunk().types.by_id(id.cast_unsigned()));
        let sample = of.filter(|class| class.field_index("stackTrace").is_some());
        let (event, nanos) = match (&*name, sample) {
            ("interval", Some(class)) => (class.name.clone(), value.parse().ok()),
            ("interval", None) => (CPU.into(), value.parse().ok()),
            ("wall", Some(_)) => (WALL.into(), value.parse().ok().map(wall_interval)),
            ("period", Some(class)) => (class.name.clone(), span(&value)),
            ("event", None) if of.is_some_and(|class| &*class.name == "jdk.ActiveRecording") => {
                self.counts_events |= !TIMES.contains(&&*value);
                self.by_wall_clock |= &*value == "wall";
                return Ok(());
            }
            _ => return Ok(()),
        };
        if let Some(nanos) = nanos.filter(|&nanos: &u64| nanos > 0) {
            self.periods.push(Period { event, nanos, is_interval: &*name == "interval" });
        }
        Ok(())
    }

    /// Returns the time in ns that a sample of `event` represents, from the settings so far.
    pub(crate) fn period(&self, event: &str) -> Option<u64> {
        let counts = |period: &&Period| !(self.counts_events && period.is_interval);
        let of = |event: &str| self.periods.iter().find(|period| *period.event == *event && counts(period));
        let by_wall_clock = self.by_wall_clock && event == WALL;
        let period = of(event).or_else(|| of(CPU).filter(|_| by_wall_clock));
        period.map(|period| period.nanos).or_else(|| by_wall_clock.then(|| wall_interval(0)))
    }

    /// Returns true if no period is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.periods.is_empty()
    }

    /// Retries settings that could not be read, because further constants may be known.
    pub(crate) fn more(&mut self, chunk: &Chunk) {
        let mut kept = std::mem::take(&mut self.kept).into_iter();
        for (type_id, payload, offset) in kept.by_ref() {
            if chunk.event(type_id, &payload, offset).is_some_and(|event| self.read(&event).is_err()) {
                self.kept.push((type_id, payload, offset));
                break;
            }
        }
        self.kept.extend(kept);
    }

    /// Returns event types and the time in ns that one of their samples represents, at the end of the
    /// chunk.
    pub(crate) fn finish(&mut self, chunk: &Chunk) -> Vec<(Arc<str>, u64)> {
        for (type_id, payload, offset) in std::mem::take(&mut self.kept) {
            if let Some(event) = chunk.event(type_id, &payload, offset) {
                // A string that is still unknown is null.
                let _ = self.read(&event);
            }
        }
        let told = std::mem::take(self);
        let mut first: Vec<(Arc<str>, u64)> = Vec::new();
        for event in told.periods.iter().map(|period| period.event.clone()).chain([WALL.into()]) {
            if first.iter().all(|(known, _)| *known != event)
                && let Some(nanos) = told.period(&event)
            {
                first.push((event, nanos));
            }
        }
        first
    }
}

/// Returns async-profiler's interval of the wall clock. It writes 0 if no interval was given, and then
/// uses 50 ms.
fn wall_interval(nanos: u64) -> u64 {
    if nanos == 0 { 50_000_000 } else { nanos }
}

/// Returns the text of a field; `None` if the field is missing or malformed.
fn text<'a>(event: &EventRef<'a>, name: &str) -> Result<Option<Cow<'a, str>>, NotKnown> {
    match event.field(name).ok().flatten().map(|value| value.text()) {
        Some(Ok(Some(text))) => Ok(Some(text)),
        Some(Ok(None)) => Err(NotKnown),
        Some(Err(_)) | None => Ok(None),
    }
}

fn span(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let number: u64 = number.parse().ok()?;
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(scale).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn setting_durations_are_parsed() {
        assert_eq!(span("20 ms"), Some(20_000_000));
        assert_eq!(span("1 s"), Some(1_000_000_000));
        for not in ["everyChunk", "0 ms", "20", "-1 ms", "99999999999999999999 s", "18446744073709551615 s"] {
            assert_eq!(span(not), None, "{not}");
        }
    }
}
