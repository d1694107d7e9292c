//! Forwards recordings of agents to long-term storage: to Pyroscope as JFR recordings, to OTLP receivers as
//! profiles.
//!
//! ```text
//! window, run ─► offer ─► Queue (bounded, counts drops) ─► thread: payload ─► Sender (retries) ─► receiver
//! ```
//! Producers never wait for a receiver. Recordings that other profilers pushed are not forwarded, so that two
//! services cannot forward them to each other in a loop.

mod payload;
mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use flightline_export::send;

use crate::log::Log;
use queue::Queue;
pub use queue::{Content, Counts, Item};

/// Type of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accepts recordings at `/ingest`.
    Pyroscope,
    /// Accepts OTLP profiles.
    Otlp,
}

impl Kind {
    /// Name in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyroscope => "pyroscope",
            Self::Otlp => "otlp",
        }
    }
}

/// A receiver.
#[derive(Clone)]
pub struct Destination {
    /// Type of the receiver.
    pub kind: Kind,
    /// Its address.
    pub target: send::Target,
    /// Retry settings and HTTP headers.
    pub settings: send::Settings,
    /// Maximum bytes of queued recordings.
    pub most: u64,
}

impl Destination {
    /// Retries after 1 to 30 s, for at most a minute.
    pub fn new(kind: Kind, target: send::Target, headers: Vec<(String, String)>) -> Self {
        let settings = send::Settings {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            // Messages here have already left the queue of recordings.
            queue: 16 << 20,
            headers,
            ..send::Settings::default()
        };
        Self { kind, target, settings, most: 64 << 20 }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Do not print the headers: they contain secrets.
        write!(f, "{} {}", self.kind.name(), self.target)
    }
}

/// All receivers.
#[derive(Debug, Default)]
pub struct Forward {
    queues: Vec<Queue>,
}

impl Forward {
    /// Starts the threads. Connections are opened when there is something to send.
    ///
    /// # Errors
    /// Returns an error if an address or header is invalid, or a thread cannot be started.
    pub fn new(to: &[Destination], log: &Log) -> io::Result<Self> {
        let queues = to.iter().map(|to| Queue::new(to, log)).collect::<io::Result<_>>()?;
        Ok(Self { queues })
    }

    /// Returns true if there are no receivers.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Queues an item for all receivers, without blocking.
    pub fn offer(&self, item: Item) {
        let item = Arc::new(item);
        self.queues.iter().for_each(|queue| queue.offer(Arc::clone(&item)));
    }

    /// Logs failures.
    pub fn look(&self) {
        self.queues.iter().for_each(Queue::look);
    }

    /// Counters by receiver.
    pub fn counts(&self) -> Vec<(Kind, Counts)> {
        self.queues.iter().map(Queue::counts).collect()
    }

    /// Waits up to `limit` until everything has been sent.
    pub fn finish(&self, limit: Duration) {
        let end = std::time::Instant::now() + limit;
        for queue in &self.queues {
            queue.finish(end.saturating_duration_since(std::time::Instant::now()));
        }
        self.look();
    }
}
