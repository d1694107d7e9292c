//! Slow calls of named functions.

use jfr_format::schema::METHOD_TRACE;

use super::{Event, Place};
use crate::recording::Recording;

/// Writes one: value = ns it took, word 0 = CLOCK_MONOTONIC ns of its begin. The innermost frame is the function.
pub fn write(recording: &mut Recording, place: &Place, event: &Event<'_>) {
    let Some(trace) = place.trace else { return };
    let begin = event.word(0).min(place.time_ns);
    let (start, took) = (recording.ticks(begin), recording.span(event.head.value));
    let method = recording.interner.leaf_key(trace);
    recording.event_with_stack(METHOD_TRACE, place.thread, Some(trace), 24, |e, thread, stack| {
        e.ticks(start).ticks(took).key(thread).key(stack).key(method);
    });
}
