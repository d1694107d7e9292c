//! Every limit of the service.

use std::time::Duration;

use crate::forward::To;
use crate::log::Log;
use crate::stored::Place;

/// What can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether runs can be asked for at all.
    pub profiling: bool,
    /// Longest run.
    pub max_duration: Duration,
    /// Runs kept of each target.
    pub history_size: usize,
    /// Bytes of recordings kept of each target.
    pub history_bytes: u64,
    /// Runs at a time, of all targets.
    pub max_concurrent: usize,
    /// Bytes that must stay free on the disk.
    pub min_free: u64,
    /// Largest recording that an agent may send.
    pub max_recording: u64,
    /// Bytes kept of each target of what is recorded all the time.
    pub window_bytes: u64,
    /// For how long it is kept.
    pub window_age: Duration,
    /// Within this time an agent is heard of; after twice that it is gone.
    pub heartbeat: Duration,
    /// How long an agent has to take up a run.
    pub start_timeout: Duration,
    /// How long after its end a recording has to be there, while nothing of it comes.
    pub delivery_timeout: Duration,
    /// Targets at a time, those that are gone included.
    pub max_targets: usize,
    /// The token that every request must carry; `None`: none.
    pub token: Option<String>,
    /// The token of agents and of programs that push profiles. It opens their paths only, and theirs open to no other token. `None`: `token`
    /// is theirs too.
    pub agent_token: Option<String>,
    /// Names under which the service may be called, besides numbers of the loopback and `localhost`.
    pub hosts: Vec<String>,
    /// Pictures that are made at a time.
    pub pictures: usize,
    /// Connections at a time.
    pub connections: usize,
    /// How long a client may let us wait in the midst of something.
    pub patience: Duration,
    /// Where is told what happens.
    pub log: Log,
    /// Where what agents record is passed on to.
    pub forward: Vec<To>,
    /// The store that can be asked, if there is one.
    pub store: Option<Place>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profiling: false,
            max_duration: Duration::from_secs(300),
            history_size: 10,
            history_bytes: 256 << 20,
            max_concurrent: 64,
            min_free: 512 << 20,
            max_recording: 128 << 20,
            window_bytes: 64 << 20,
            window_age: Duration::from_secs(24 * 3600),
            heartbeat: Duration::from_secs(5),
            start_timeout: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(30),
            max_targets: 4096,
            token: None,
            agent_token: None,
            hosts: Vec::new(),
            pictures: 2,
            connections: 8192,
            patience: Duration::from_secs(30),
            log: Log::default(),
            forward: Vec::new(),
            store: None,
        }
    }
}

/// Largest body of a request that is not a recording.
pub const SMALL_BODY: usize = 64 << 10;
/// Largest body of chunks of what is recorded all the time.
pub const LARGEST_CHUNKS: usize = 16 << 20;
/// Names, hosts, reasons and messages are cut at this length.
pub const LONGEST_TEXT: usize = 512;
/// Labels of a target or run.
pub const MOST_LABELS: usize = 32;
/// Letters of a label's key or value.
pub const LONGEST_LABEL: usize = 256;
/// Other engines of a run.
pub const MOST_ENGINES: usize = 16;
/// Targets of one request.
pub const MOST_AT_ONCE: usize = 1024;
/// Commands that wait for an agent.
pub const MOST_COMMANDS: usize = 64;
