//! Spans and their scopes, as the program tells them when they end.

use flightline_in_signal::payload::{scope, span};

use super::{Event, Place};
use crate::recording::{Recording, Scope, Span, SpanContext};

/// When it began and how long it took, ns: as the record says, but neither begins after its end nor ends after the record.
fn interval(event: &Event<'_>, start: usize, end: usize, told_ns: u64) -> (u64, u64) {
    let end = event.word(end).min(told_ns);
    let start = event.word(start).min(end);
    (start, end - start)
}

/// Writes a span.
pub fn write(recording: &mut Recording, place: &Place, event: &Event<'_>) {
    let (start_ns, took_ns) = interval(event, span::START, span::END, place.time_ns);
    let (name, next) = event.bytes(span::WORDS);
    let name = String::from_utf8_lossy(&name);
    let flags = event.word(span::FLAGS);
    let context = SpanContext {
        span: event.word(span::SPAN),
        local_root: event.word(span::ROOT),
        trace: [event.word(span::TRACE_HI), event.word(span::TRACE_LO)],
        flags: flags as u8,
        labels: event.text(next),
    };
    let (parent, samples) = (event.word(span::PARENT), (flags >> 32) as u32);
    recording.span_end(place.thread, &Span { start_ns, took_ns, name: &name, parent, samples, context });
}

/// Writes an activation.
pub fn write_scope(recording: &mut Recording, place: &Place, event: &Event<'_>) {
    let (start_ns, took_ns) = interval(event, scope::START, scope::END, place.time_ns);
    let (span, previous) = (event.word(scope::SPAN), event.word(scope::PREVIOUS));
    let seq = event.word(scope::SEQ);
    recording.scope_end(place.thread, &Scope { start_ns, took_ns, span, previous, seq });
}
