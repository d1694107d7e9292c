//! Event types of off-CPU time.

use super::declare::{Field, Type, Unit, event, field};
use super::events::{DURATION, EVENT_THREAD, FLIGHTLINE, STACK, START_TIME};
use super::structs::{LONG, STACK_TRACE, STRING, THREAD, ids};
use crate::ids::TypeId;

ids! {
    OFF_CPU = 80 "flightline.OffCpu";
    OPEN_OFF_CPU = 81 "flightline.OpenOffCpu";
}

const STATE: Field = field("state", STRING, "State");
const NANOS: Field = field("nanos", LONG, "Exact Duration").unit(Unit::Nanos);

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    event(OFF_CPU, "flightline.OffCpu", "Off-CPU Time", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        STATE,
        NANOS,
        field("runQueue", LONG, "Run Queue Latency").unit(Unit::Nanos),
        field("wakerThread", THREAD, "Waker Thread").pooled(),
        field("wakerStackTrace", STACK_TRACE, "Waker Stack Trace").pooled(),
        field("wakerKind", STRING, "Waker Kind"),
        field("wakerTime", LONG, "Wake-up Time").unit(Unit::Timestamp),
    ]).about("A thread was descheduled and rescheduled: its stack and state, and the thread that woke it"),
    event(OPEN_OFF_CPU, "flightline.OpenOffCpu", "Open Off-CPU Time", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        STATE,
        NANOS,
    ]).about("A thread that was still descheduled when the recording ended, and the time until then"),
];
