//! What agents record, passed on to where it is kept for longer: to Pyroscope as recordings, to whoever takes OTLP as profiles.
//!
//! ```text
//! window, run ─► offer ─► Queue (bounded; what has no room is counted) ─► thread: made ─► Sender (tries again) ─► receiver
//! ```
//! Nobody who brings something waits for a receiver. What others pushed is not passed on, so that two services cannot send it round and round.

mod made;
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

/// Of what kind a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Takes recordings at `/ingest`.
    Pyroscope,
    /// Takes OTLP profiles.
    Otlp,
}

impl Kind {
    /// As metrics and the log call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyroscope => "pyroscope",
            Self::Otlp => "otlp",
        }
    }
}

/// A receiver.
#[derive(Clone)]
pub struct To {
    /// Of what kind.
    pub kind: Kind,
    /// Where.
    pub target: send::Target,
    /// How patiently it is sent to, and with which headers.
    pub settings: send::Settings,
    /// Bytes of recordings that may wait.
    pub most: u64,
}

impl To {
    /// Tries again after 1 to 30 s, for a minute at most.
    pub fn new(kind: Kind, target: send::Target, headers: Vec<(String, String)>) -> Self {
        let settings = send::Settings {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            // What waits here has left our queue.
            queue: 16 << 20,
            headers,
            ..send::Settings::default()
        };
        Self { kind, target, settings, most: 64 << 20 }
    }
}

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers are secrets.
        write!(f, "{} {}", self.kind.name(), self.target)
    }
}

/// All receivers.
#[derive(Debug, Default)]
pub struct Forward {
    queues: Vec<Queue>,
}

impl Forward {
    /// Begins. Nothing is connected to before there is something to send.
    ///
    /// # Errors
    /// An address or header is wrong, or there can be no thread.
    pub fn new(to: &[To], log: &Log) -> io::Result<Self> {
        let queues = to.iter().map(|to| Queue::new(to, log)).collect::<io::Result<_>>()?;
        Ok(Self { queues })
    }

    /// Whether anything is passed on.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Hands something to all receivers. Waits for nobody.
    pub fn offer(&self, item: Item) {
        let item = Arc::new(item);
        self.queues.iter().for_each(|queue| queue.offer(Arc::clone(&item)));
    }

    /// Tells what went wrong.
    pub fn look(&self) {
        self.queues.iter().for_each(Queue::look);
    }

    /// What became of all, by receiver.
    pub fn counts(&self) -> Vec<(Kind, Counts)> {
        self.queues.iter().map(Queue::counts).collect()
    }

    /// Waits until all is sent, for so long at most.
    pub fn finish(&self, limit: Duration) {
        let end = std::time::Instant::now() + limit;
        for queue in &self.queues {
            queue.finish(end.saturating_duration_since(std::time::Instant::now()));
        }
        self.look();
    }
}
