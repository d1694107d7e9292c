//! Event types of threads' waits and exceptions: the JDK's own, with the fields of JDK 25.

use super::declare::{Field, Type, Unit, event, field};
use super::events::{DURATION, EVENT_THREAD, FLIGHTLINE, STACK, START_TIME, THREADS};
use super::structs::{BOOLEAN, CLASS, INT, LONG, STRING, THREAD, ids};
use crate::ids::TypeId;

ids! {
    JAVA_MONITOR_ENTER = 63 "jdk.JavaMonitorEnter";
    JAVA_MONITOR_WAIT = 51 "jdk.JavaMonitorWait";
    THREAD_PARK = 52 "jdk.ThreadPark";
    FILE_READ = 53 "jdk.FileRead";
    FILE_WRITE = 54 "jdk.FileWrite";
    FILE_FORCE = 55 "jdk.FileForce";
    SOCKET_READ = 56 "jdk.SocketRead";
    SOCKET_WRITE = 57 "jdk.SocketWrite";
    SOCKET_CONNECT = 58 "flightline.SocketConnect";
    SOCKET_ACCEPT = 59 "flightline.SocketAccept";
    JAVA_EXCEPTION_THROW = 68 "jdk.JavaExceptionThrow";
    JAVA_ERROR_THROW = 61 "jdk.JavaErrorThrow";
    BELOW_THRESHOLD = 62 "flightline.BelowThreshold";
}

const HOST: Field = field("host", STRING, "Remote Host");
const ADDRESS: Field = field("address", STRING, "Remote Address");
const PORT: Field = field("port", INT, "Remote Port");
const PATH: Field = field("path", STRING, "Path");
const OBJECT: Field = field("address", LONG, "Address").unit(Unit::Address);

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    event(JAVA_MONITOR_ENTER, "jdk.JavaMonitorEnter", "Lock Blocked", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("monitorClass", CLASS, "Monitor Class").pooled(),
        field("previousOwner", THREAD, "Previous Monitor Owner").pooled(),
        OBJECT,
    ]).about("A thread waited for a lock that another held"),
    event(JAVA_MONITOR_WAIT, "jdk.JavaMonitorWait", "Condition Wait", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("monitorClass", CLASS, "Monitor Class").pooled(),
        field("notifier", THREAD, "Notifier Thread").pooled(),
        field("timeout", LONG, "Timeout").unit(Unit::Millis),
        field("timedOut", BOOLEAN, "Timed Out"),
        OBJECT,
    ]).about("A thread waited for a condition"),
    event(THREAD_PARK, "jdk.ThreadPark", "Semaphore or Futex Wait", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("parkedClass", CLASS, "Class Parked On").pooled(),
        field("timeout", LONG, "Park Timeout").unit(Unit::Nanos),
        field("until", LONG, "Park Until").unit(Unit::EpochMillis),
        OBJECT,
    ]).about("A thread waited for another thread to continue"),

    event(FILE_READ, "jdk.FileRead", "File Read", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        PATH,
        field("bytesRead", LONG, "Bytes Read").unit(Unit::Bytes),
        field("endOfFile", BOOLEAN, "End of File"),
    ]).about("Reading data from a file"),
    event(FILE_WRITE, "jdk.FileWrite", "File Write", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        PATH,
        field("bytesWritten", LONG, "Bytes Written").unit(Unit::Bytes),
    ]).about("Writing data to a file"),
    event(FILE_FORCE, "jdk.FileForce", "File Force", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        PATH,
        field("metaData", BOOLEAN, "Update Metadata"),
    ]).about("Force updates to be written to file"),
    event(SOCKET_READ, "jdk.SocketRead", "Socket Read", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        HOST,
        ADDRESS,
        PORT,
        field("timeout", LONG, "Timeout Value").unit(Unit::Millis),
        field("bytesRead", LONG, "Bytes Read").unit(Unit::Bytes),
        field("endOfStream", BOOLEAN, "End of Stream"),
    ]).about("Reading data from a socket"),
    event(SOCKET_WRITE, "jdk.SocketWrite", "Socket Write", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        HOST,
        ADDRESS,
        PORT,
        field("bytesWritten", LONG, "Bytes Written").unit(Unit::Bytes),
    ]).about("Writing data to a socket"),
    event(SOCKET_CONNECT, "flightline.SocketConnect", "Socket Connect", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        HOST,
        ADDRESS,
        PORT,
        field("error", INT, "Error Number"),
    ]).about("Connecting to a peer"),
    event(SOCKET_ACCEPT, "flightline.SocketAccept", "Socket Accept", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        HOST,
        ADDRESS,
        PORT,
        field("error", INT, "Error Number"),
    ]).about("Waiting for a peer to connect"),

    event(JAVA_EXCEPTION_THROW, "jdk.JavaExceptionThrow", "Java Exception", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("message", STRING, "Message"),
        field("thrownClass", CLASS, "Class").pooled(),
    ]).about("An exception was thrown"),
    event(JAVA_ERROR_THROW, "jdk.JavaErrorThrow", "Java Error", THREADS, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("message", STRING, "Message"),
        field("thrownClass", CLASS, "Class").pooled(),
    ]).about("A program panicked"),
    event(BELOW_THRESHOLD, "flightline.BelowThreshold", "Below Threshold", FLIGHTLINE, &[
        START_TIME,
        field("event", STRING, "Event"),
        field("count", LONG, "Count").unit(Unit::Unsigned),
        field("value", LONG, "Value"),
    ]).about("Events below the threshold since the last such event, and the sum of their values"),
];
