//! Writes intervals as events.

use jfr_format::schema;

use super::{intervals::Interval, tracepoints::States};
use crate::{names::intern::TraceIndex, recording::Recording};

/// The waker of a thread, in an output.
pub struct Waker {
    /// Its constant, if a thread was the waker.
    pub thread: Option<usize>,
    /// Its stack.
    pub trace: Option<TraceIndex>,
    /// Time of the wake-up, CLOCK_MONOTONIC ns.
    pub time_ns: u64,
}

/// Writes an interval of a thread.
pub fn interval<S>(
    recording: &mut Recording,
    interval: &Interval<S>,
    states: &States,
    thread: usize,
    trace: Option<TraceIndex>,
    waker: Option<&Waker>,
) {
    let state = states.text(interval.out.state);
    let (start, took) = recording.interval(interval.out.since_ns, interval.took_ns());
    let (kind, waker_thread, waker_trace, time_ns) = match waker {
        None => ("none", None, None, interval.end_ns),
        Some(w) => (w.thread.map_or("interrupt", |_| "thread"), w.thread, w.trace, w.time_ns),
    };
    let woken = recording.ticks(time_ns);
    let stack_bytes = waker_trace.map_or(0, |trace| recording.interner.most_cost(trace));
    let bytes = state.len() + kind.len() + recording.other_thread_bytes(waker_thread) + stack_bytes;
    recording.event_with_constants(
        schema::OFF_CPU,
        thread,
        trace,
        bytes,
        |recording| (recording.other_thread_key(waker_thread), recording.other_stack_key(waker_trace)),
        |e, thread, stack, (waker_thread, waker_stack)| {
            e.ticks(start).ticks(took).key(thread).key(stack).string(&state);
            e.long(interval.took_ns() as i64).long(interval.queued_ns() as i64);
            e.key(waker_thread).key(waker_stack).string(kind).ticks(woken);
        },
    );
}

/// Writes the waits that are still open at the end of a recording.
pub fn open<S>(
    recording: &mut Recording,
    interval: &Interval<S>,
    states: &States,
    thread: usize,
    trace: Option<TraceIndex>,
) {
    let state = states.text(interval.out.state);
    let (start, took) = recording.interval(interval.out.since_ns, interval.took_ns());
    recording.event_with_stack(schema::OPEN_OFF_CPU, thread, trace, state.len(), |e, thread, stack| {
        e.ticks(start).ticks(took).key(thread).key(stack).string(&state).long(interval.took_ns() as i64);
    });
}
