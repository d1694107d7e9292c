//! Slow calls of named functions.

use jfr_format::schema::METHOD_TRACE;

use super::{Event, EventSite};
use crate::recording::Recording;

/// Writes the event: value = its duration in ns, word 0 = CLOCK_MONOTONIC ns of its start. The innermost
/// frame is the function. In the recording it is a field, and the stack starts with its caller, as in the
/// JDK's event.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let Some((method, callers)) = place.trace.and_then(|trace| recording.interner.call(trace)) else {
        return;
    };
    let begin = event.word(0).min(place.time_ns);
    let (start, took) = (recording.ticks(begin), recording.span(event.head.value));
    let bytes = 24 + recording.interner.method_cost(method);
    recording.event_with_constants(
        METHOD_TRACE,
        place.thread,
        Some(callers),
        bytes,
        |recording| recording.method_key(method),
        |e, thread, stack, method| {
            e.ticks(start).ticks(took).key(thread).key(stack).key(method);
        },
    );
}
