//! Perf events by name.

use jfr_format::schema::EVENT_SAMPLE;

use super::{Event, EventSite};
use crate::recording::Recording;

/// Writes the event; `value` = events that it represents.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let time = recording.ticks(place.time_ns);
    let index = event.head.index;
    let bytes = recording.event_name_bytes(index) + 16;
    recording.event_with_constants(
        EVENT_SAMPLE,
        place.thread,
        place.trace,
        bytes,
        |recording| recording.event_name_key(index),
        |e, thread, stack, name| {
            e.ticks(time).key(thread).key(stack).key(name).long(event.head.value as i64);
        },
    );
}
