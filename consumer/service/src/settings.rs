//! The settings of the service.

use std::time::Duration;

use crate::forward::Destination;
use crate::log::Log;
use crate::profile_store::StoreSettings;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True if on-demand profiling is enabled.
    pub profiling: bool,
    /// Maximum duration of a run.
    pub max_duration: Duration,
    /// Maximum number of runs kept per target.
    pub history_size: usize,
    /// Maximum size of the recordings kept per target, in bytes.
    pub history_bytes: u64,
    /// Maximum number of concurrent runs over all targets.
    pub max_concurrent: usize,
    /// Disk space that must stay free, in bytes.
    pub min_free: u64,
    /// Maximum size of a recording, in bytes.
    pub max_recording: u64,
    /// Size of a target's window in bytes.
    pub window_bytes: u64,
    /// Maximum age of data in a window.
    pub window_age: Duration,
    /// Interval at which agents must report. After twice that an agent counts as gone.
    pub heartbeat: Duration,
    /// Time in which an agent must start a run.
    pub start_timeout: Duration,
    /// Time after the end of a run in which its upload must begin, and the longest pause within the upload.
    pub delivery_timeout: Duration,
    /// Maximum number of targets, including those that are gone.
    pub max_targets: usize,
    /// Token that every request must carry; `None` if there is none.
    pub token: Option<String>,
    /// Token of agents and of programs that push profiles. It is valid only for their paths, and no other
    /// token is valid for these. `None`: `token` applies.
    pub agent_token: Option<String>,
    /// Accepted host names, besides loopback addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Maximum number of concurrent renderings.
    pub pictures: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Timeout for a client that pauses within a request.
    pub client_timeout: Duration,
    /// The log.
    pub log: Log,
    /// Receivers to which agents' recordings are forwarded.
    pub forward: Vec<Destination>,
    /// The profile store, if there is one.
    pub store: Option<StoreSettings>,
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
            client_timeout: Duration::from_secs(30),
            log: Log::default(),
            forward: Vec::new(),
            store: None,
        }
    }
}
