//! Decodes profiles of other profilers and encodes recordings for them. Works on bytes only, without network
//! or disk.
//!
//! ```text
//! POST /ingest?name=app{k=v}&format=jfr ────────────────► ingest ─────────────────────────────────────┐
//! POST /ingest?…&format=pprof|folded ───────────────────► ingest ─► profile_builder ─► jfr_writer ────┤
//! POST /push.v1.PusherService/Push (pprof) ─────────────► pusher ─► profile_builder ─► jfr_writer ────┼─► name, labels, recording
//! POST /v1development/profiles (OTLP), for each resource ► otlp ───► profile_builder ─► jfr_writer ────┘
//! recording ─► push ─► query and body for Pyroscope's /ingest
//! ```
//! Bodies may be malicious, so decompression is limited. A decoded protobuf message takes up to 60 times its
//! size, since a sample can be two bytes; it has a smaller limit. The names decoded from it also have a
//! limit, because a message can repeat one name many times.
//!
//! Each name and stack is processed once, and a small message cannot produce a large recording.

mod body;
mod contexts;
mod folded;
mod jfr_writer;
mod otlp;
mod pprof;
mod profile_builder;
mod push;
mod pusher;
mod query;
#[cfg(test)]
mod tests;

use std::fmt;

use axum::http::StatusCode;
use bytes::Bytes;
use flightline_consumer::format;

pub use contexts::Contexts;
#[cfg(feature = "fuzzing")]
pub(crate) use contexts::read as contexts_of;
pub use otlp::{Received, otlp};
use profile_builder::ProfileBuilder;
pub use push::{Push, push};
pub use pusher::pushed;
pub use query::App;

use crate::wire::Labels;

/// Size limits in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A body as received.
    pub body: usize,
    /// A decompressed recording.
    pub recording: usize,
    /// A decompressed protobuf message: pprof, OTLP.
    pub message: usize,
    /// Folded text.
    pub text: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: 64 << 20, recording: 128 << 20, message: 16 << 20, text: 32 << 20 }
    }
}

/// Why a body is rejected, as a message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is too large.
    TooLarge(String),
    /// It is malformed or incomplete.
    Bad(String),
    /// Its format is not supported.
    Unknown(String),
}

impl Error {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn too_large(what: &str, most: usize) -> Self {
        Self::TooLarge(format!(
            "{what} has more than {}; send profiles more often, or raise the limit.",
            format::bytes(most as u64)
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

/// A request to Pyroscope's `/ingest`, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// The application it belongs to.
    pub app: App,
    /// Start, UTC ms.
    pub from: i64,
    /// End, UTC ms.
    pub until: i64,
    /// The recording, not validated yet; `None` if it is empty.
    pub recording: Option<Bytes>,
    /// Labels of samples, by the `contextId` of their events.
    pub contexts: Contexts,
}

/// Decodes a request to Pyroscope's `/ingest` from its query, content type and body. `now` (UTC ms) is used
/// if the request has no times.
///
/// # Errors
/// Returns an error if the request is too large or malformed.
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
    let mut builder = ProfileBuilder::new(limits.text);
    let (mut from, mut until) = (asked.from, asked.until);
    match asked.format {
        query::Format::Jfr => {
            let recording = body::unpacked(parts.profile, limits.recording, "The recording")?;
            return Ok(Ingested { app: asked.app, from, until, recording: Some(recording), contexts });
        }
        query::Format::Pprof => {
            let message = body::unpacked(parts.profile, limits.message, "The profile")?;
            let times = pprof::take(&message, &mut builder)?;
            // Times in the query take precedence over those in the profile.
            if let Some(times) = times.filter(|_| asked.untimed) {
                (from, until) = times;
            }
        }
        query::Format::Folded => {
            let text = body::unpacked(parts.profile, limits.text, "The text")?;
            folded::take(&text, &asked.unit, asked.period, &mut builder)?;
        }
    }
    let recording = jfr_writer::recording(&builder, from, until, limits)?;
    Ok(Ingested { app: asked.app, from, until, recording, contexts })
}

/// Truncates a text and removes control characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

/// Inserts a label unless there are too many.
fn label(labels: &mut Labels, key: &str, value: &str) {
    let (key, value) = (cut(key, crate::limits::LONGEST_LABEL), cut(value, crate::limits::LONGEST_LABEL));
    if !key.is_empty() && (labels.len() < crate::limits::MOST_LABELS || labels.contains_key(&key)) {
        labels.insert(key, value);
    }
}
