//! Spans: the active span of a thread when it was sampled, its duration, and its activations on other
//! threads.
//!
//! Standard events get no additional fields, because readers hard-code them. Instead, a sample and its
//! [`SAMPLE_CONTEXT`] are joined by thread and time, in any order. A sample is any event of that thread with
//! a stack; an event with a duration is joined by its start.

use super::declare::{Field, Type, Unit, event, field, structure};
use super::events::{DURATION, EVENT_THREAD, FLIGHTLINE, START_TIME, THREADS};
use super::structs::{BOOLEAN, INT, LONG, STRING, ids};
use crate::ids::TypeId;

ids! {
    SPAN_CONTEXT = 36 "flightline.types.SpanContext";
    SAMPLE_CONTEXT = 73 "flightline.SampleContext";
    SPAN = 74 "flightline.Span";
    SPAN_SCOPE = 75 "flightline.SpanScope";
    PROFILER_SPAN = 77 "profiler.Span";
    WATERMARK = 78 "flightline.Watermark";
    OPEN_SPAN = 79 "flightline.OpenSpan";
}

const SPAN_ID: Field = field("spanId", LONG, "Span");
const LOCAL_ROOT: Field = field("localRootSpanId", LONG, "Local Root Span");
/// W3C: the first eight bytes of the trace id, big-endian.
const TRACE_HI: Field = field("traceIdHi", LONG, "Trace, High Half");
const TRACE_LO: Field = field("traceIdLo", LONG, "Trace, Low Half");
/// W3C trace flags; bit 0 = sampled.
const FLAGS: Field = field("flags", INT, "Trace Flags");
/// Number of the thread's activations so far, this one included; 0 if they were not counted.
const SEQ: Field = field("seq", LONG, "Activation");

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    structure(SPAN_CONTEXT, "flightline.types.SpanContext", "Span Context", &[
        field("spanId", LONG, ""),
        field("localRootSpanId", LONG, ""),
        field("traceIdHi", LONG, ""),
        field("traceIdLo", LONG, ""),
        field("flags", INT, ""),
        // A JSON object; null if there are none.
        field("labels", STRING, "").pooled(),
    ]),
    event(SAMPLE_CONTEXT, "flightline.SampleContext", "Sample Context", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("context", SPAN_CONTEXT, "Context").pooled(),
        SEQ,
    ]).about("Span that was active when the samples of this thread with this start time were taken"),
    event(SPAN, "flightline.Span", "Span", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        field("name", STRING, "Name").pooled(),
        SPAN_ID,
        field("parentSpanId", LONG, "Parent Span"),
        LOCAL_ROOT,
        TRACE_HI,
        TRACE_LO,
        FLAGS,
        field("samples", INT, "Samples").unit(Unit::Unsigned),
        field("labels", STRING, "Labels (JSON)").pooled(),
    ]).about("A span, and the thread on which it ended. Spans without a sample are written only with --spans all"),
    event(OPEN_SPAN, "flightline.OpenSpan", "Open Span", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        field("name", STRING, "Name").pooled(),
        SPAN_ID,
        field("parentSpanId", LONG, "Parent Span"),
        LOCAL_ROOT,
        TRACE_HI,
        TRACE_LO,
        FLAGS,
        field("labels", STRING, "Labels (JSON)").pooled(),
    ]).about("A sampled span that had not ended when the recording or the process ended, from the start of an activation to the last time it was seen active"),
    event(SPAN_SCOPE, "flightline.SpanScope", "Span Scope", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        SPAN_ID,
        field("previousSpanId", LONG, "Span Before"),
        SEQ,
        // The span had not ended when the recording or its process ended; its duration is the time until it
        // was last seen active.
        field("open", BOOLEAN, "Still Open"),
    ]).about("A time in which a span was active on a thread; other spans may have been active in between"),
    event(PROFILER_SPAN, "profiler.Span", "Span", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        field("tag", STRING, "Tag").pooled().contextual(),
    ]),
    event(WATERMARK, "flightline.Watermark", "Watermark", FLIGHTLINE, &[
        START_TIME,
    ]).about("All events that ended before this time have been written"),
];
