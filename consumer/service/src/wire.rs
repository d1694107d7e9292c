//! What goes over the wire, as the service, agents and `flightline remote` share it. JSON, camelCase; times are UTC ms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::window::Bounds;

/// Names that a target or run is told apart by.
pub type Labels = BTreeMap<String, String>;

/// What a run records: the modes of Flink's profiler, and four of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// CPU time, the kernel's share included where it may be seen.
    Cpu,
    /// All threads, running or not.
    Wall,
    /// Allocations.
    Alloc,
    /// Waits for locks.
    Lock,
    /// CPU time by one timer of the process.
    Itimer,
    /// Slow reads and writes.
    Io,
    /// Allocations that were never freed.
    Live,
    /// Exceptions.
    Throw,
    /// Where threads wait, by the scheduler.
    OffCpu,
}

impl Mode {
    /// All of them, in the order in which they are offered.
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

    /// As JSON has it.
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

    /// The mode of this name, in letters of either case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    /// The group of events that a picture of it shows, as `flightline fold -e` has it; `None`: not a group but a graph of its own.
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

/// Whether a target can be recorded in a mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capability {
    /// Which.
    pub mode: Mode,
    /// Whether.
    pub available: bool,
    /// Why not; empty if it can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// How an agent introduces the process that it records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    /// Of this protocol: 1.
    pub protocol: u32,
    /// What the process is known by for as long as it lives: host, boot, number and start. An agent that comes back has the same.
    pub key: String,
    /// Of the program.
    pub name: String,
    /// Where it runs.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// When it began, UTC ms.
    pub start_time: i64,
    /// What else it is told apart by.
    #[serde(default)]
    pub labels: Labels,
    /// What can be recorded of it.
    pub modes: Vec<Capability>,
}

/// What an agent is told when it has been let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The target's id.
    pub target: String,
    /// To be sent with each request, as [`AGENT_HEADER`].
    pub secret: String,
    /// Within how many seconds it is to be heard of.
    pub heartbeat_seconds: u64,
}

/// The header with an agent's secret.
pub const AGENT_HEADER: &str = "x-flightline-agent";

/// What an agent is asked to do: a closed list, so that nothing in it can be more than a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Command {
    /// Record.
    Start {
        /// The run's id.
        run: String,
        /// What.
        mode: Mode,
        /// For so many seconds.
        duration: u64,
        /// How far apart samples are, or the least that is recorded, as `record -e` has it.
        #[serde(default)]
        interval: Option<String>,
        /// Other engines at the same time, as `record -e` has them.
        #[serde(default)]
        engines: Vec<String>,
    },
    /// End a run early, and send what there is of it.
    Stop {
        /// The run's id: of another one nothing is stopped.
        run: String,
    },
}

/// A command with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// Grows by one; `after` in the next question says which have been heard.
    pub number: u64,
    /// What to do.
    #[serde(flatten)]
    pub command: Command,
}

/// What an agent is given when it asks for commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// In order of their numbers.
    pub commands: Vec<Numbered>,
}

/// How a run goes on, as its agent tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Progress {
    /// It has begun.
    Started {
        /// What is recorded in truth, if that is not what was asked for.
        #[serde(default)]
        effective_mode: String,
        /// Why.
        #[serde(default)]
        message: String,
    },
    /// It will not be.
    Failed {
        /// Why.
        message: String,
    },
}

/// The end of the recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// How.
    pub message: String,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Begun, or about to.
    Running,
    /// Its recording is there.
    Finished,
    /// It was ended early; what there is of its recording is there.
    Cancelled,
    /// There is no recording.
    Failed,
}

impl Status {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Finished => "FINISHED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
        }
    }
}

/// A run, as everybody sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id: the time in ms and a random number.
    pub id: String,
    /// The runs that were asked for together.
    pub group: Option<String>,
    /// The target's id.
    pub target: String,
    /// The target's name.
    pub target_name: String,
    /// How far it is.
    pub status: Status,
    /// What was asked for.
    pub mode: Mode,
    /// What is recorded in truth, if that differs.
    pub effective_mode: String,
    /// As asked for; empty: the usual.
    pub interval: String,
    /// Other engines that were asked for.
    pub engines: Vec<String>,
    /// When it was asked for, UTC ms.
    pub trigger_time: i64,
    /// When it ended, UTC ms; 0 before.
    pub finished_time: i64,
    /// What was asked for, s.
    pub duration: u64,
    /// How long it has taken, ms.
    pub elapsed: u64,
    /// What there is to say.
    pub message: String,
    /// What the picture is called; empty as long as there is none.
    pub output_file: String,
    /// Of the recording.
    pub bytes: u64,
    /// Groups of events with stacks that are in it: what pictures can be of.
    #[serde(default)]
    pub events: Vec<String>,
    /// What it was given to be told apart by.
    pub labels: Labels,
    /// Formats in which it can be had.
    pub files: Vec<String>,
}

/// What is asked for with a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// What to record.
    pub mode: String,
    /// For how many seconds.
    pub duration: serde_json::Value,
    /// How far apart samples are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Other engines at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<String>,
    /// What it is told apart by.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Which targets, where several are asked at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
}

/// Whether a target is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Its agent is heard of.
    Live,
    /// It is not any more.
    Gone,
}

/// A process that can be recorded, or could.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its id.
    pub id: String,
    /// Of the program.
    pub name: String,
    /// Where it runs.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// When it began, UTC ms.
    pub start_time: i64,
    /// When its agent came, UTC ms.
    pub joined_time: i64,
    /// When its agent was last heard of, UTC ms.
    pub last_seen: i64,
    /// Whether it is there.
    pub state: State,
    /// Why it is gone; empty while it is there.
    pub gone: String,
    /// What else it is told apart by.
    pub labels: Labels,
    /// What can be recorded of it.
    pub modes: Vec<Capability>,
    /// The run that goes on.
    pub run: Option<String>,
    /// What is kept of what is recorded all the time.
    #[serde(default)]
    pub continuous: Option<Bounds>,
    /// How busy it was of late, if it is recorded all the time and that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// Samples of CPU time by steps of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// When the first step begins, UTC ms.
    pub from: i64,
    /// Length of a step, ms.
    pub step: i64,
    /// Samples in each; null where not all of the step is kept and counted.
    pub samples: Vec<Option<u32>>,
}

/// What can be asked for at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Longest run.
    pub max_duration_seconds: u64,
    /// Runs kept of each target.
    pub history_size: usize,
    /// Bytes kept of each target.
    pub history_bytes: u64,
    /// Runs at a time, of all targets.
    pub max_concurrent: usize,
    /// Within how many seconds an agent is heard of.
    pub heartbeat_seconds: u64,
}

/// The list of targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Targets {
    /// Whether runs can be asked for.
    pub profiling: bool,
    /// Whether processes of the service's machine are offered.
    #[serde(default)]
    pub local: bool,
    /// Whether a store can be asked.
    #[serde(default)]
    pub store: bool,
    /// What can be asked for at most.
    pub limits: Limits,
    /// In order of names.
    pub targets: Vec<Target>,
}

/// Runs of a target, newest first, under the name that Flink gives the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The runs.
    pub profiling_list: Vec<Run>,
}

/// Runs of several targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// What they were asked for under together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Sentences that say what to do.
    pub errors: Vec<String>,
}
