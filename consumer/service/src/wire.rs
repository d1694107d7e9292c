//! JSON messages shared by the service, agents and `flightline remote`. Keys are camelCase; times are UTC ms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::window::Bounds;

/// Labels of a target or run.
pub type Labels = BTreeMap<String, String>;

/// Recording modes: those of Flink's profiler, and four more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// CPU time, including the kernel's if permitted.
    Cpu,
    /// All threads, running or not.
    Wall,
    /// Allocations.
    Alloc,
    /// Lock waits.
    Lock,
    /// CPU time by a single process-wide timer.
    Itimer,
    /// Slow reads and writes.
    Io,
    /// Allocations that are not freed.
    Live,
    /// Exceptions.
    Throw,
    /// Off-CPU time, from scheduler events.
    OffCpu,
}

impl Mode {
    /// All modes, in the order of display.
    pub const ALL: [Self; 9] = [
        Self::Itimer,
        Self::Cpu,
        Self::Wall,
        Self::Alloc,
        Self::Lock,
        Self::Io,
        Self::Live,
        Self::Throw,
        Self::OffCpu,
    ];

    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Wall => "WALL",
            Self::Alloc => "ALLOC",
            Self::Lock => "LOCK",
            Self::Itimer => "ITIMER",
            Self::Io => "IO",
            Self::Live => "LIVE",
            Self::Throw => "THROW",
            Self::OffCpu => "OFF_CPU",
        }
    }

    /// Parses a mode, ignoring case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    /// The event group of its flame graph, as in `flightline fold -e`; `None` if it has a graph of its own.
    pub fn event(self) -> Option<&'static str> {
        match self {
            Self::Cpu | Self::Itimer => Some("cpu"),
            Self::Wall => Some("wall"),
            Self::Alloc => Some("alloc"),
            Self::Lock => Some("lock"),
            Self::Io => Some("io"),
            Self::Live => Some("live"),
            Self::Throw => Some("throw"),
            Self::OffCpu => None,
        }
    }
}

/// Availability of a mode on a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capability {
    /// The mode.
    pub mode: Mode,
    /// True if supported.
    pub available: bool,
    /// Why it is not supported; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// An agent's introduction of its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    /// Protocol version: 1.
    pub protocol: u32,
    /// Identifies the process during its lifetime: host, boot, PID and start time. An agent that rejoins
    /// sends the same key.
    pub key: String,
    /// The program's name.
    pub name: String,
    /// Host name.
    pub host: String,
    /// PID.
    pub pid: u32,
    /// Start time, UTC ms.
    pub start_time: i64,
    /// Labels.
    #[serde(default)]
    pub labels: Labels,
    /// Supported modes.
    pub modes: Vec<Capability>,
}

/// Reply to an agent that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// Target id.
    pub target: String,
    /// Secret to send with each request, in the header [`AGENT_HEADER`].
    pub secret: String,
    /// Interval at which the agent must report, in seconds.
    pub heartbeat_seconds: u64,
}

/// Header with an agent's secret.
pub const AGENT_HEADER: &str = "x-flightline-agent";

/// Commands for an agent. A closed set, so that a message can carry nothing but values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Command {
    /// Start a recording.
    Start {
        /// Run id.
        run: String,
        /// Mode.
        mode: Mode,
        /// Duration in seconds.
        duration: u64,
        /// Sampling interval or threshold, as in `record -e`.
        #[serde(default)]
        interval: Option<String>,
        /// Additional engines, as in `record -e`.
        #[serde(default)]
        engines: Vec<String>,
    },
    /// Stop a run early and deliver the recording.
    Stop {
        /// Run id; other runs are not affected.
        run: String,
    },
}

/// A command with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// Increasing number; `after` in the next request acknowledges commands up to it.
    pub number: u64,
    /// The command.
    #[serde(flatten)]
    pub command: Command,
}

/// Reply to an agent's request for commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// In order of their numbers.
    pub commands: Vec<Numbered>,
}

/// An agent's progress report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Progress {
    /// The recording has started.
    Started {
        /// Mode that is actually recorded, if it differs from the request.
        #[serde(default)]
        effective_mode: String,
        /// Reason.
        #[serde(default)]
        message: String,
    },
    /// The recording failed.
    Failed {
        /// Reason.
        message: String,
    },
}

/// The end of the recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// How it ended.
    pub message: String,
}

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Started or about to start.
    Running,
    /// Completed, with a recording.
    Finished,
    /// Stopped early; the recording up to then is available.
    Cancelled,
    /// Failed, without a recording.
    Failed,
}

impl Status {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Finished => "FINISHED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
        }
    }
}

/// A run, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id: the time in ms and a random number.
    pub id: String,
    /// Group of runs started by one request.
    pub group: Option<String>,
    /// Target id.
    pub target: String,
    /// Target name.
    pub target_name: String,
    /// Status.
    pub status: Status,
    /// Requested mode.
    pub mode: Mode,
    /// Mode that is actually recorded, if it differs.
    pub effective_mode: String,
    /// Requested interval; empty for the default.
    pub interval: String,
    /// Requested additional engines.
    pub engines: Vec<String>,
    /// Time of the request, UTC ms.
    pub trigger_time: i64,
    /// Time of the end, UTC ms; 0 while running.
    pub finished_time: i64,
    /// Requested duration, s.
    pub duration: u64,
    /// Elapsed time, ms.
    pub elapsed: u64,
    /// Message for the user.
    pub message: String,
    /// File name of the flame graph; empty if there is none yet.
    pub output_file: String,
    /// Size of the recording in bytes.
    pub bytes: u64,
    /// Event groups with stack traces in the recording, from which flame graphs can be made.
    #[serde(default)]
    pub events: Vec<String>,
    /// Labels of the run.
    pub labels: Labels,
    /// Available download formats.
    pub files: Vec<String>,
}

/// A request to create a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// Mode.
    pub mode: String,
    /// Duration in seconds.
    pub duration: serde_json::Value,
    /// Sampling interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Additional engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Target ids, for a request on several targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
}

/// State of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Its agent reports.
    Live,
    /// Its agent no longer reports.
    Gone,
}

/// A process that can be recorded, or could be in the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Target id.
    pub id: String,
    /// The program's name.
    pub name: String,
    /// Host name.
    pub host: String,
    /// PID.
    pub pid: u32,
    /// Start time, UTC ms.
    pub start_time: i64,
    /// When its agent joined, UTC ms.
    pub joined_time: i64,
    /// When its agent last reported, UTC ms.
    pub last_seen: i64,
    /// State.
    pub state: State,
    /// Why it is gone; empty if it is live.
    pub gone: String,
    /// Labels.
    pub labels: Labels,
    /// Supported modes.
    pub modes: Vec<Capability>,
    /// Id of the run in progress.
    pub run: Option<String>,
    /// Time range and size of its window.
    #[serde(default)]
    pub continuous: Option<Bounds>,
    /// Recent load, if it was requested and the target is profiled continuously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// CPU samples over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Start of the first step, UTC ms.
    pub from: i64,
    /// Length of a step, ms.
    pub step: i64,
    /// Samples per step; null if a step is not completely covered and counted.
    pub samples: Vec<Option<u32>>,
}

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Maximum duration of a run.
    pub max_duration_seconds: u64,
    /// Maximum number of runs kept per target.
    pub history_size: usize,
    /// Maximum bytes kept per target.
    pub history_bytes: u64,
    /// Maximum number of concurrent runs over all targets.
    pub max_concurrent: usize,
    /// Interval at which agents must report, in seconds.
    pub heartbeat_seconds: u64,
}

/// The list of targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Targets {
    /// True if on-demand profiling is enabled.
    pub profiling: bool,
    /// True if local processes can be adopted.
    #[serde(default)]
    pub local: bool,
    /// True if there is a profile store.
    #[serde(default)]
    pub store: bool,
    /// Limits on requests.
    pub limits: Limits,
    /// Sorted by name.
    pub targets: Vec<Target>,
}

/// Runs of a target, newest first. Flink defines the name of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The runs.
    pub profiling_list: Vec<Run>,
}

/// Runs of several targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Their group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Messages that say what to do.
    pub errors: Vec<String>,
}
