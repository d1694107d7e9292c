//! What other profilers send, and what is sent to them. Bytes in, bytes out: no connection, no disk.
//!
//! ```text
//! POST /ingest?name=app{k=v}&format=jfr ────────────────► ingest ─────────────────────────┐
//! POST /ingest?…&format=pprof|folded ───────────────────► ingest ─► Making ─► written ────┤
//! POST /push.v1.PusherService/Push (pprof) ─────────────► pushed ─► Making ─► written ────┼─► name, labels, recording
//! POST /v1development/profiles (OTLP), for each resource ► otlp ───► Making ─► written ────┘
//! recording ─► push ─► query and body for Pyroscope's /ingest
//! ```
//! Bodies may be made to do harm. What is packed is unpacked up to a limit. A message of protobuf takes up to 60 times its bytes once it is
//! decoded, since a sample can be two bytes, so it has a smaller limit; text made of it has one too, since it can name one thing again and again.

mod body;
mod contexts;
mod folded;
mod making;
mod otlp;
mod pprof;
mod push;
mod pusher;
mod query;
#[cfg(test)]
mod tests;
mod written;

use std::fmt;

use axum::http::StatusCode;
use bytes::Bytes;
use flightline_consumer::amount;

pub use contexts::Contexts;
#[cfg(feature = "fuzzing")]
pub(crate) use contexts::read as contexts_of;
use making::Making;
pub use otlp::{Received, otlp};
pub use push::{Push, push};
pub use pusher::pushed;
pub use query::App;

use crate::wire::Labels;

/// How large things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A body as it comes.
    pub body: usize,
    /// A recording, unpacked.
    pub recording: usize,
    /// A message of protobuf, unpacked: pprof, OTLP.
    pub message: usize,
    /// Folded text.
    pub text: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: 64 << 20, recording: 128 << 20, message: 16 << 20, text: 32 << 20 }
    }
}

/// Why something is not taken. Sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is too large.
    TooLarge(String),
    /// It is not what it says, or says too little.
    Bad(String),
    /// It says that it is of a kind that is not taken.
    Unknown(String),
}

impl Error {
    /// By HTTP.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn too_large(what: &str, most: usize) -> Self {
        Self::TooLarge(format!(
            "{what} has more than {}: send it more often, or let more in.",
            amount::bytes(most as u64)
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(text) | Self::Bad(text) | Self::Unknown(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// What came by Pyroscope's `/ingest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// Whose it is.
    pub app: App,
    /// When it begins, UTC ms.
    pub from: i64,
    /// When it ends, UTC ms.
    pub until: i64,
    /// What was recorded, not checked yet; `None` if nothing was.
    pub recording: Option<Bytes>,
    /// Labels of moments in a recording, by the number that its events have as `contextId`.
    pub contexts: Contexts,
}

/// Takes a request to Pyroscope's `/ingest`: what stands behind the `?`, its content type and its body. `now` is UTC ms, for what does not say when
/// it was.
///
/// # Errors
/// It is too large, or not what it says.
pub fn ingest(
    query: &str,
    content_type: Option<&str>,
    body: Bytes,
    now: i64,
    limits: Limits,
) -> Result<Ingested, Error> {
    let asked = query::Query::parse(query, now)?;
    if body.len() > limits.body {
        return Err(Error::too_large("The body", limits.body));
    }
    let parts = body::parts(content_type, body)?;
    let contexts = match parts.labels {
        Some(labels) => contexts::read(&labels)?,
        None => Contexts::new(),
    };
    let mut making = Making::new(limits.text);
    let (mut from, mut until) = (asked.from, asked.until);
    match asked.format {
        query::Format::Jfr => {
            let recording = body::unpacked(parts.profile, limits.recording, "The recording")?;
            return Ok(Ingested { app: asked.app, from, until, recording: Some(recording), contexts });
        }
        query::Format::Pprof => {
            let message = body::unpacked(parts.profile, limits.message, "The profile")?;
            let times = pprof::take(&message, &mut making)?;
            // Who asks knows better when it was.
            if let Some(times) = times.filter(|_| asked.untimed) {
                (from, until) = times;
            }
        }
        query::Format::Folded => {
            let text = body::unpacked(parts.profile, limits.text, "The text")?;
            folded::take(&text, &asked.unit, asked.period, &mut making)?;
        }
    }
    let recording = written::recording(&making, from, until, limits)?;
    Ok(Ingested { app: asked.app, from, until, recording, contexts })
}

/// The first letters of a text, without any that a page or terminal would obey.
fn cut(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

/// Puts a label in, as long as there is room.
fn label(labels: &mut Labels, key: &str, value: &str) {
    let (key, value) = (cut(key, crate::settings::LONGEST_LABEL), cut(value, crate::settings::LONGEST_LABEL));
    if !key.is_empty() && (labels.len() < crate::settings::MOST_LABELS || labels.contains_key(&key)) {
        labels.insert(key, value);
    }
}
