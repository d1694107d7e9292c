//! Samples, added up by their common properties.

use std::sync::Arc;

use super::frame::Stack;
use super::interner::Id;
use super::thread::Thread;

/// The unit of an event's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// The event has no value; events are counted.
    Samples,
    /// Time.
    Nanoseconds,
    /// Memory.
    Bytes,
    /// Events of another kind.
    Events,
}

impl Unit {
    /// Name shown in flame graphs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Nanoseconds => "ns",
            Self::Bytes => "bytes",
            Self::Events => "events",
        }
    }
}

/// The variant of `jdk.ExecutionSample` for samples in the state `STATE_SLEEPING`. Before async-profiler
/// 4, its wall clock (and that of agents based on it) writes all samples as `jdk.ExecutionSample`;
/// sleeping threads used no CPU time.
pub const ASLEEP: &str = "asleep";

/// The type of CPU samples of the JDK and of async-profiler.
pub const EXECUTION_SAMPLE: &str = "jdk.ExecutionSample";

/// The variant of `jdk.ExecutionSample` in a chunk that also has samples of [`CPU_TIME_SAMPLE`]: both
/// measure the same time.
pub const COVERED: &str = "covered";

/// The type of CPU samples by CPU time in JDK 25, which are more exact (JEP 509).
pub const CPU_TIME_SAMPLE: &str = "jdk.CPUTimeSample";

/// The type of wall-clock samples of async-profiler since version 4.
pub(crate) const WALL_CLOCK_SAMPLE: &str = "profiler.WallClockSample";

/// The state of a thread in a sample of [`ASLEEP`].
pub(crate) const SLEEPING: &str = "STATE_SLEEPING";

/// Returns true for a sample of [`ASLEEP`].
pub(crate) fn is_asleep(event: &str, state: Option<&str>) -> bool {
    event == EXECUTION_SAMPLE && state == Some(SLEEPING)
}

/// An event type whose events have stack traces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventKind {
    /// Name, e.g. `jdk.ExecutionSample`.
    pub name: Arc<str>,
    /// The variant of a type that has several, such as `page-faults`.
    pub variant: Option<Arc<str>>,
    /// Unit of [`Weight::value`].
    pub unit: Unit,
    /// Time in ns that an event without a value represents, if its chunk states it. Chunks may differ.
    pub period_nanos: Option<u64>,
}

/// The properties by which samples are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// Event type.
    pub kind: Id<EventKind>,
    /// Thread; `None` if the event has none.
    pub thread: Option<Id<Thread>>,
    /// Stack; `None` if the event has none.
    pub stack: Option<Id<Stack>>,
    /// Thread state; `None` if the event has none.
    pub state: Option<Id<Arc<str>>>,
    /// Class of the object that was allocated, waited for or thrown, as in source (`byte[]`); `None` if
    /// the event has none.
    pub class: Option<Id<Arc<str>>>,
    /// Title of the process; `None` if it had not changed its arguments.
    pub title: Option<Id<Arc<str>>>,
}

/// Number of samples and sum of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of samples.
    pub count: u64,
    /// Sum of the event's value, in the unit of its kind.
    pub value: u64,
}

impl Weight {
    /// Adds `other`. Sums saturate.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.value = self.value.saturating_add(other.value);
    }
}
