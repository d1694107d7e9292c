//! What a stream tells, owned and shared: an item outlives its chunk.

use std::sync::Arc;

use crate::fold::{self, Types};
use crate::load::CLASS_FIELDS;
use crate::model::{self, ASLEEP, COVERED, FrameKind, Thread, Unit, is_asleep};
use crate::print::class_name;
use crate::spans::SpanContext;

use super::value::{self, Fields, Value};

/// One thing a stream tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// A chunk begins: keys, clocks and settings begin anew.
    ChunkStart(ChunkStart),
    /// A stack of a thread, and what it stands for.
    Sample(Box<Sample>),
    /// Something was recorded and did not come, or happened and was not recorded.
    Loss(Loss),
    /// Any other event.
    Other(Event),
    /// All that one flush of the recorder wrote has come, and is as it was written.
    Segment(Segment),
    /// Something could not be read. Reading goes on.
    Warning(Warning),
}

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds since 1970, by the clock of the chunk's header.
    pub epoch_nanos: i64,
    /// Nanoseconds of `CLOCK_MONOTONIC`, which is Java's `System.nanoTime()`, of the machine recorded on; less than a tick
    /// of the recording early or late (Flightline: 1 µs). `None` if the recording does not tell: it has no
    /// `flightline.ClockAnchor`, and its ticks are not that clock's (async-profiler: `clock=monotonic`).
    pub monotonic_nanos: Option<i64>,
}

/// The start of a chunk.
#[derive(Clone, Debug)]
pub struct ChunkStart {
    /// Position in the stream, from 0.
    pub index: u32,
    /// Offset of its first byte in the stream.
    pub offset: u64,
    /// When it was begun.
    pub time: Time,
    /// How many ticks of its clock are a second.
    pub ticks_per_second: i64,
}

/// What samples are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// CPU time.
    Cpu,
    /// Time that goes by, whatever the thread does; `state` says whether it ran.
    Wall,
    /// Memory being allocated.
    Allocation,
    /// Memory that lives.
    Live,
    /// Waiting for a lock.
    Lock,
    /// Input and output, files or network.
    Io,
    /// A call of a traced function.
    Trace,
    /// An exception being thrown.
    Exception,
    /// A perf event; `variant` says which.
    PerfEvent,
    /// Another event with a stack trace.
    Other,
}

impl Kind {
    /// By the name of the event type.
    pub(crate) fn of(event: &str) -> Self {
        match fold::alias_of(event) {
            Some("cpu") => Self::Cpu,
            Some("wall") => Self::Wall,
            Some("alloc" | "nativemem") => Self::Allocation,
            Some("live") => Self::Live,
            Some("lock") => Self::Lock,
            Some("io") => Self::Io,
            Some("trace") => Self::Trace,
            Some("exception" | "throw") => Self::Exception,
            _ if event == crate::load::VARIED => Self::PerfEvent,
            _ => Self::Other,
        }
    }

    /// Its name in lower case, e.g. `cpu`.
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

/// What a sample stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Samples that the event stands for: 1, unless it says another number.
    pub samples: u64,
    /// How much of `unit` it stands for; 1 if the unit is [`Unit::Samples`].
    pub value: u64,
    /// CPU or waiting time, bytes, events; [`Unit::Samples`] if the stream does not say what a sample stands for.
    pub unit: Unit,
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Event type, e.g. `jdk.ExecutionSample`.
    pub event: Arc<str>,
    /// What it is a sample of.
    pub kind: Kind,
    /// Which of several things events of this type tell of, e.g. `page-faults`.
    pub variant: Option<Arc<str>>,
    /// When it was taken, or what it tells of began.
    pub time: Time,
    /// How long that lasted, in ns, if the event says so.
    pub duration_nanos: Option<u64>,
    /// Whose it is.
    pub thread: Option<Arc<Thread>>,
    /// The title that the thread's process had, if it wrote one over its arguments.
    pub process_title: Option<Arc<str>>,
    /// Where it was; `None` if the event has no stack, or one that is not in the stream.
    pub stack: Option<Arc<Stack>>,
    /// State of the thread, e.g. `STATE_RUNNABLE`.
    pub state: Option<Arc<str>>,
    /// What it stands for.
    pub weight: Weight,
    /// The id of the span it was taken in, if one was told and it is not 0.
    pub span_id: Option<u64>,
    /// The span it was taken in, with trace and labels: as its own fields say, or the `flightline.SampleContext` of its thread and
    /// time.
    pub span: Option<Arc<SpanContext>>,
    /// The field `labels`, if the event has one.
    pub labels: Option<Value>,
    /// The event's other fields.
    pub fields: Fields,
    /// Names of the fields that tell what other events of the thread happened in (`@Contextual`, JDK 25); mostly none.
    pub contextual: Arc<[Arc<str>]>,
    /// Where the event begins in the stream.
    pub offset: u64,
}

impl Sample {
    /// The field `name` among those that are nothing else of it.
    pub fn field(&self, name: &str) -> Option<&Value> {
        value::field(&self.fields, name)
    }

    /// Returns true if the sample is of one of `types`. A sample of [`COVERED`] has this variant after
    /// [`Covering::mark`](super::Covering::mark).
    pub fn matches(&self, types: &Types) -> bool {
        match self.variant.as_deref() {
            Some(COVERED) => types.covered && types.names.contains(&*self.event),
            Some(variant) => types.variants.contains(variant),
            None if is_asleep(&self.event, self.state.as_deref()) => types.variants.contains(ASLEEP),
            None => types.variants.contains(&*self.event),
        }
    }

    /// The class of the object that was allocated, waited for or thrown, as in source (`byte[]`).
    pub fn class(&self) -> Option<Arc<str>> {
        match CLASS_FIELDS.iter().find_map(|name| self.field(name))? {
            Value::Text(name) if !name.contains(['[', '/']) => Some(name.clone()),
            Value::Text(name) => Some(class_name(name, None).into()),
            _ => None,
        }
    }
}

/// A call stack. Samples with the same one share it as long as their chunk lasts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Innermost first: `frames[0]` was executing.
    pub frames: Arc<[Frame]>,
    /// The outermost frames are missing.
    pub truncated: bool,
}

impl Stack {
    /// The frame that was executing.
    pub fn innermost(&self) -> Option<&Frame> {
        self.frames.first()
    }

    /// The frame that everything was called from, if the stack is whole.
    pub fn outermost(&self) -> Option<&Frame> {
        self.frames.last().filter(|_| !self.truncated)
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function or method.
    pub function: Arc<str>,
    /// Java class with dots; empty if it is no Java, or not known.
    pub class: Arc<str>,
    /// File of the code, e.g. `libc.so.6`; empty if it is Java, or not known.
    pub module: Arc<str>,
    /// Source line; 0 if not known.
    pub line: i32,
    /// Index of the bytecode; in recordings of Flightline, where there is no line, the address in the module. 0 if not known.
    pub bytecode_index: i32,
    /// Kind of code.
    pub kind: FrameKind,
    /// What the stream calls it, e.g. `C++`, `JIT compiled`; may be empty.
    pub type_name: Arc<str>,
}

impl Frame {
    /// As models have it.
    pub(crate) fn of_model(&self) -> model::Frame {
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

/// Something that did not come.
#[derive(Clone, Debug)]
pub struct Loss {
    /// When it was told.
    pub time: Time,
    /// The event that told of it, e.g. `flightline.SampleLoss`; [`DAMAGE`] if it was found while reading.
    pub told_by: Arc<str>,
    /// Why, e.g. `reader behind`.
    pub cause: Arc<str>,
    /// Type of what was lost, if the cause does not concern all.
    pub event_type: Option<Arc<str>>,
    /// Whose it was.
    pub thread: Option<Arc<Thread>>,
    /// How many events, if told.
    pub events: Option<u64>,
    /// How many bytes of the stream, if told.
    pub bytes: Option<u64>,
    /// What they stood for, in ns of CPU time, if told.
    pub cpu_nanos: Option<u64>,
}

/// [`Loss::told_by`] of events that came and were not what had been written.
pub const DAMAGE: &str = "damage";

/// An event that is neither sample nor loss.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its type.
    pub event: Arc<str>,
    /// Its start; the chunk's if it has none.
    pub time: Time,
    /// All its fields but the start, in order. Times and spans are in the chunk's ticks.
    pub fields: Fields,
    /// Names of the fields that tell what other events of the thread happened in (`@Contextual`, JDK 25); mostly none.
    pub contextual: Arc<[Arc<str>]>,
    /// Where it begins in the stream.
    pub offset: u64,
}

impl Event {
    /// The field `name`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        value::field(&self.fields, name)
    }
}

/// A segment whose checksum was right.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its number in the recorder's stream.
    pub sequence: u64,
    /// When it was written, or shortly before.
    pub time: Time,
    /// Where it begins in the stream.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Events in it, as its writer counted.
    pub events: u64,
}

/// Something that could not be read.
#[derive(Clone, Debug)]
pub struct Warning {
    /// Where in the stream.
    pub offset: u64,
    /// What, and what becomes of it.
    pub message: String,
    /// Whether something was lost that a sound stream would have given.
    pub damage: bool,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
