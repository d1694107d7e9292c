//! Event types of signals that end a process.

use super::declare::{Field, Type, Unit, event, field};
use super::events::{EVENT_THREAD, FLIGHTLINE, STACK, START_TIME};
use super::structs::{INT, LONG, STRING, ids};
use crate::ids::TypeId;

ids! {
    FATAL_SIGNAL = 97 "flightline.FatalSignal";
    CAUGHT_SIGNAL = 98 "flightline.CaughtSignal";
    LAST_SAMPLE = 99 "flightline.LastSample";
}

const SIGNAL: Field = field("signal", STRING, "Signal");
const CODE: Field = field("code", INT, "Code");
const REASON: Field = field("reason", STRING, "Reason");
const ADDRESS: Field = field("address", LONG, "Address").unit(Unit::Address);
const SENDER: Field = field("sender", LONG, "Sending Process");

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    event(FATAL_SIGNAL, "flightline.FatalSignal", "Fatal Signal", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        SIGNAL,
        CODE,
        REASON,
        ADDRESS,
        SENDER,
    ]).about("A signal whose default action ends the process, and the stack of the thread that received it"),
    event(CAUGHT_SIGNAL, "flightline.CaughtSignal", "Caught Signal", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        SIGNAL,
        CODE,
        REASON,
        ADDRESS,
        SENDER,
    ]).about("A fault or abort with a signal handler of the program, recorded before the handler runs. Frequent ones are counted in flightline.BelowThreshold"),
    event(LAST_SAMPLE, "flightline.LastSample", "Last Sample", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        SIGNAL,
        field("thread", LONG, "Id of the Thread that Took the Signal"),
    ]).about("The stack of another thread when a signal ended the process"),
];
