//! The events of a chunk in the order of their ends.

use bytes::Bytes;
use jfr_format::event::EventRef;
use jfr_format::read::{Batch, Chunk, Class};
use jfr_format::varint;

use super::selection::Range;

/// Events put aside until their chunk ends: where they lie and when they ended. Their bytes are not copied.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Runs of events, each with its offset in the input, ascending.
    runs: Vec<(u64, Bytes)>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Ticks.
    end: i64,
    /// In the input.
    offset: u64,
}

impl Held {
    /// Puts the chosen events of a batch aside.
    pub(super) fn add(&mut self, batch: &Batch<'_>, chosen: &[bool], range: Range) {
        let before = self.places.len();
        for event in batch.events() {
            if !chosen.get(event.class_index().index()).copied().unwrap_or(false) {
                continue;
            }
            let (start, end) = ticks(&event);
            if range == Range::ALL || range.meets(batch.chunk(), start, end) {
                self.places.push(Place { end, offset: event.offset() });
            }
        }
        if self.places.len() > before {
            self.runs.extend(batch.runs().map(|(offset, bytes)| (offset, bytes.clone())));
        }
    }

    /// The events by their ends; those that ended at once as they lie in the input.
    pub(super) fn sort(&mut self) -> &[Place] {
        self.places.sort();
        &self.places
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.places.clear();
    }

    /// The event at a place.
    pub(super) fn event<'a>(&'a self, chunk: &'a Chunk, place: Place) -> Option<EventRef<'a>> {
        let after = self.runs.partition_point(|(offset, _)| *offset <= place.offset);
        let (offset, bytes) = self.runs.get(after.checked_sub(1)?)?;
        let start = usize::try_from(place.offset - offset).ok()?;
        let mut at = start;
        let size = usize::try_from(varint::get(bytes, &mut at).ok()?).ok()?;
        let type_id = varint::get(bytes, &mut at).ok()?;
        let payload = bytes.get(at..start.checked_add(size)?)?;
        chunk.event(type_id, payload, place.offset)
    }
}

/// When an event started and ended. One without a duration ended when it started.
pub(super) fn ticks(event: &EventRef<'_>) -> (i64, i64) {
    let mut at = 0;
    let mut next = || varint::get(event.payload(), &mut at).map_or(0, u64::cast_signed);
    match clock_fields(event.class()) {
        0 => (0, 0),
        1 => {
            let start = next();
            (start, start)
        }
        _ => {
            let start = next();
            (start, start.wrapping_add(next()))
        }
    }
}

/// Whether an event type starts with a start time (1), followed by a duration (2).
fn clock_fields(class: &Class) -> usize {
    let is = |at: usize, name: &str| {
        class.fields.get(at).is_some_and(|f| &*f.name == name && !f.pooled && !f.array)
    };
    usize::from(is(0, "startTime")) + usize::from(is(0, "startTime") && is(1, "duration"))
}
