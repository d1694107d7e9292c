//! Items of a stream. Their data is owned and shared, so an item outlives its chunk.

use std::sync::Arc;

use crate::decode::CLASS_FIELDS;
use crate::fold::{self, Types};
use crate::model::{self, ASLEEP, FrameKind, Thread, Unit, is_asleep};
use crate::print::class_name;
use crate::spans::SpanContext;

use super::value::{self, Fields, Value};

/// An item of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// A chunk begins. Keys, clocks and settings of the chunk before are no longer valid.
    ChunkStart(ChunkStart),
    /// A thread's stack and its weight.
    Sample(Box<Sample>),
    /// Something was recorded but did not arrive, or happened but was not recorded.
    Loss(Loss),
    /// Any other event.
    Other(Event),
    /// All events of one flush of the recorder have arrived, and the checksum is correct.
    Segment(Segment),
    /// Something could not be read. Reading continues.
    Warning(Warning),
}

/// A time, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds since 1970, by the clock in the chunk's header.
    pub epoch_nanos: i64,
    /// Nanoseconds of `CLOCK_MONOTONIC` (Java's `System.nanoTime()`) on the recorded machine, accurate to
    /// less than a tick of the recording (Flightline: 1 µs). `None` if the recording does not state it:
    /// it has no `flightline.ClockAnchor`, and its ticks are not those of this clock (async-profiler:
    /// `clock=monotonic`).
    pub monotonic_nanos: Option<i64>,
}

/// The start of a chunk.
#[derive(Clone, Debug)]
pub struct ChunkStart {
    /// Position in the stream, from 0.
    pub index: u32,
    /// Offset of its first byte in the stream.
    pub offset: u64,
    /// Start time.
    pub time: Time,
    /// Ticks of its clock per second.
    pub ticks_per_second: i64,
}

/// The activity that a sample represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// CPU time.
    Cpu,
    /// Elapsed time, whether the thread runs or not; `state` says which.
    Wall,
    /// Allocation of memory.
    Allocation,
    /// Live memory.
    Live,
    /// Waiting for a lock.
    Lock,
    /// I/O of files or the network.
    Io,
    /// A call of a traced function.
    Trace,
    /// An exception that is thrown.
    Exception,
    /// A perf event; `variant` names it.
    PerfEvent,
    /// Another event with a stack trace.
    Other,
}

impl Kind {
    /// Returns the kind of an event type.
    pub(crate) fn from_event(event: &str) -> Self {
        match fold::alias(event) {
            Some("cpu") => Self::Cpu,
            Some("wall") => Self::Wall,
            Some("alloc" | "nativemem") => Self::Allocation,
            Some("live") => Self::Live,
            Some("lock") => Self::Lock,
            Some("io") => Self::Io,
            Some("trace") => Self::Trace,
            Some("exception" | "throw") => Self::Exception,
            _ if event == crate::decode::VARIED => Self::PerfEvent,
            _ => Self::Other,
        }
    }

    /// The name in lower case, e.g. `cpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Allocation => "alloc",
            Self::Live => "live",
            Self::Lock => "lock",
            Self::Io => "io",
            Self::Trace => "trace",
            Self::Exception => "exception",
            Self::PerfEvent => "perf",
            Self::Other => "other",
        }
    }
}

/// The weight of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Number of samples that the event represents: 1, unless it states another number.
    pub samples: u64,
    /// The value in `unit`; 1 if the unit is [`Unit::Samples`].
    pub value: u64,
    /// CPU or waiting time, bytes, or events; [`Unit::Samples`] if the stream does not state the weight
    /// of a sample.
    pub unit: Unit,
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Event type, e.g. `jdk.ExecutionSample`.
    pub event: Arc<str>,
    /// The activity that it represents.
    pub kind: Kind,
    /// The variant of an event type that has several, e.g. `page-faults`.
    pub variant: Option<Arc<str>>,
    /// Time of the sample, or start of the event that it represents.
    pub time: Time,
    /// Duration of the event in ns, if it is recorded.
    pub duration_nanos: Option<u64>,
    /// The sampled thread.
    pub thread: Option<Arc<Thread>>,
    /// The title that the thread's process had, if it overwrote its arguments.
    pub process_title: Option<Arc<str>>,
    /// The stack; `None` if the event has no stack, or one that is not in the stream.
    pub stack: Option<Arc<Stack>>,
    /// State of the thread, e.g. `STATE_RUNNABLE`.
    pub state: Option<Arc<str>>,
    /// The weight.
    pub weight: Weight,
    /// Id of the active span, if one is recorded and it is not 0.
    pub span_id: Option<u64>,
    /// The active span with trace and labels: from the sample's own fields, or the
    /// `flightline.SampleContext` of its thread and time.
    pub span: Option<Arc<SpanContext>>,
    /// The field `labels`, if the event has one.
    pub labels: Option<Value>,
    /// The event's other fields.
    pub fields: Fields,
    /// Names of the fields that provide context for other events of the thread (`@Contextual`, JDK 25);
    /// usually empty.
    pub contextual: Arc<[Arc<str>]>,
    /// Offset of the event in the stream.
    pub offset: u64,
}

impl Sample {
    /// Returns the field `name` from `fields`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        value::field(&self.fields, name)
    }

    /// Returns true if the sample is of one of `types`. A sample of [`COVERED`](model::COVERED) has this variant after
    /// [`Covering::mark`](super::Covering::mark).
    pub fn matches(&self, types: &Types) -> bool {
        let is_asleep = self.variant.is_none() && is_asleep(&self.event, self.state.as_deref());
        types.includes(&self.event, if is_asleep { Some(ASLEEP) } else { self.variant.as_deref() })
    }

    /// Returns the class of the object that was allocated, waited for or thrown, as in source (`byte[]`).
    pub fn class(&self) -> Option<Arc<str>> {
        match CLASS_FIELDS.iter().find_map(|name| self.field(name))? {
            Value::Text(name) if !name.contains(['[', '/']) => Some(name.clone()),
            Value::Text(name) => Some(class_name(name, None).into()),
            _ => None,
        }
    }
}

/// A call stack. Equal stacks of one chunk are shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Leaf first: `frames[0]` was executing.
    pub frames: Arc<[Frame]>,
    /// The outermost frames are missing.
    pub truncated: bool,
}

impl Stack {
    /// Returns the frame that was executing.
    pub fn innermost(&self) -> Option<&Frame> {
        self.frames.first()
    }

    /// Returns the root frame if the stack is complete.
    pub fn outermost(&self) -> Option<&Frame> {
        self.frames.last().filter(|_| !self.truncated)
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function or method.
    pub function: Arc<str>,
    /// Java class with dots; empty if it is not Java or not known.
    pub class: Arc<str>,
    /// File that contains the code, e.g. `libc.so.6`; empty if it is Java or not known.
    pub module: Arc<str>,
    /// Source line; 0 if not known.
    pub line: i32,
    /// Bytecode index. In recordings of Flightline, if there is no line, the address in the module. 0 if
    /// not known.
    pub bytecode_index: i32,
    /// Kind of code.
    pub kind: FrameKind,
    /// The type's name in the stream, e.g. `C++`, `JIT compiled`; may be empty.
    pub type_name: Arc<str>,
}

impl Frame {
    /// Converts it to the frame type of models.
    pub(crate) fn to_model(&self) -> model::Frame {
        let class = if self.kind.in_library() { &self.module } else { &self.class };
        model::Frame {
            function: self.function.clone(),
            class: class.clone(),
            kind: self.kind,
            line: self.line,
            place: None,
        }
    }
}

/// Events or bytes that were lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Time of the report.
    pub time: Time,
    /// Type of the event that reports the loss, e.g. `flightline.SampleLoss`; [`DAMAGE`] if it was
    /// detected while reading.
    pub told_by: Arc<str>,
    /// Cause, e.g. `reader behind`.
    pub cause: Arc<str>,
    /// Type of the lost events, if the loss does not concern all types.
    pub event_type: Option<Arc<str>>,
    /// The thread whose events were lost.
    pub thread: Option<Arc<Thread>>,
    /// Number of events, if it is recorded.
    pub events: Option<u64>,
    /// Number of bytes of the stream, if it is recorded.
    pub bytes: Option<u64>,
    /// CPU time that the lost samples represent, in ns, if it is recorded.
    pub cpu_nanos: Option<u64>,
}

/// [`Loss::told_by`] of events whose bytes were damaged after they were written.
pub const DAMAGE: &str = "damage";

/// An event that is neither a sample nor a loss.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its type.
    pub event: Arc<str>,
    /// Its start; if it has none, that of the chunk.
    pub time: Time,
    /// All fields except the start, in order. Times and durations are in the chunk's ticks.
    pub fields: Fields,
    /// Names of the fields that provide context for other events of the thread (`@Contextual`, JDK 25);
    /// usually empty.
    pub contextual: Arc<[Arc<str>]>,
    /// Offset of the event in the stream.
    pub offset: u64,
}

impl Event {
    /// Returns the field `name`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        value::field(&self.fields, name)
    }
}

/// A segment with a correct checksum.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Sequence number in the recorder's stream.
    pub sequence: u64,
    /// Time at which it was written, or shortly before.
    pub time: Time,
    /// Offset of its start in the stream.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Number of events according to the recorder.
    pub events: u64,
}

/// Something that could not be read.
#[derive(Clone, Debug)]
pub struct Warning {
    /// Offset in the stream.
    pub offset: u64,
    /// The problem, and its effect.
    pub message: String,
    /// True if an undamaged stream would have had more data.
    pub damage: bool,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
