//! Samples of the wall clock.

use jfr_format::schema::WALL_CLOCK_SAMPLE;

use super::{Event, EventSite};
use crate::recording::Recording;

/// Writes the event: index = state, `value` = intervals that it represents, first additional word = its
/// duration, ns.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let time = recording.ticks(place.time_ns);
    let span = recording.span(event.word(0));
    let samples = i32::try_from(event.head.value).unwrap_or(i32::MAX);
    let state = u64::from(event.head.index);
    recording.event_with_stack(WALL_CLOCK_SAMPLE, place.thread, place.trace, 16, |e, thread, stack| {
        e.ticks(time).key(thread).key(stack).key(state).int(samples).ticks(span);
    });
}
