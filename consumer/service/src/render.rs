//! Converts recordings to the formats for display and download. All functions block.
//!
//! ```text
//! Source, Source, … ─► input ─┬─► flame: page, folded text        ┐
//!                             ├─► off_cpu: the same for off-CPU   ├─► out
//!                             ├─► exported: pprof, OTLP            │
//!                             └─► part: JFR, cut and joined        ┘
//! ```
//! Memory: inputs are mapped, so the kernel can reclaim their pages at any time; [`RenderOptions::most_bytes`]
//! limits their total size. Frames, names, timestamped samples and exported samples have limits of their own
//! ([`flightline_consumer::fold`], [`TIMED`], [`EXPORTED`]). `check` limits the number of constants per chunk
//! so that the index of one chunk takes at most 256 MiB.

mod check;
mod compare;
mod exported;
mod flame;
mod input;
mod off_cpu;
mod part;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};

use axum::http::StatusCode;
use flightline_consumer::fold::{FoldOptions, Measure};

pub use check::{Checked, NotWhole, check, check_bytes, events};
pub use compare::{Side, compare};
pub use exported::MOST as EXPORTED;
pub use flame::TIMED;
use input::{Inputs, Range};

/// A recording: a regular file, open for reading, that is never truncated. Its position is neither used nor
/// changed.
pub type Source = File;

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// One self-contained page.
    Html,
    /// The recording itself.
    Jfr,
    /// Folded stacks.
    Folded,
    /// gzip-compressed profile.proto, with threads, labels and spans.
    Pprof,
    /// OpenTelemetry profiles: a ProfilesData in protobuf.
    Otlp,
}

impl Format {
    /// All formats, in the order of display.
    pub const ALL: [Self; 5] = [Self::Html, Self::Jfr, Self::Folded, Self::Pprof, Self::Otlp];

    /// Name in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
        }
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// File name extension, without the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pb.gz",
            Self::Otlp => "otlp",
        }
    }

    /// MIME type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Folded => "text/plain; charset=utf-8",
            Self::Otlp => "application/x-protobuf",
            Self::Jfr | Self::Pprof => "application/octet-stream",
        }
    }
}

/// Options of a rendering.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// Events: cpu, wall, alloc, … as listed by [`events`], or the name of an event type; or a graph of
    /// off-CPU time: offcpu, threadtime, wakeup, offwake, chain, runqueue. `None` selects the best available,
    /// CPU samples first; for pprof and OTLP it selects all.
    pub event: Option<String>,
    /// Weigh samples by time or bytes instead of counting them. A page offers both and starts with this.
    pub total: bool,
    /// Separate threads.
    pub threads: bool,
    /// Start, UTC ms.
    pub from_ms: Option<i64>,
    /// End (exclusive), UTC ms.
    pub to_ms: Option<i64>,
    /// Title of a page.
    pub title: String,
    /// Maximum size of all recordings in bytes.
    pub most_bytes: u64,
}

/// Default of [`RenderOptions::most_bytes`].
pub const MOST_BYTES: u64 = 256 << 20;

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            event: None,
            total: false,
            threads: false,
            from_ms: None,
            to_ms: None,
            title: String::new(),
            most_bytes: MOST_BYTES,
        }
    }
}

impl RenderOptions {
    /// Options for folding. A page distinguishes functions with the same name in different libraries.
    fn fold_options(&self, page: bool) -> FoldOptions {
        FoldOptions {
            events: self.event.iter().cloned().collect(),
            measure: if self.total { Measure::Total } else { Measure::Samples },
            by_thread: self.threads,
            split_modules: page,
            classes: true,
            ..FoldOptions::default()
        }
    }

    fn range(&self) -> Result<Range, Error> {
        Range::new(self.from_ms, self.to_ms)
    }
}

/// Result of a rendering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Total weight; 0 if nothing was summed up.
    pub total: u64,
    /// Unit of the total: samples, ns, bytes, us.
    pub unit: String,
    /// True if all recordings could be read completely.
    pub whole: bool,
    /// Messages about data that is not shown.
    pub notes: Vec<String>,
}

/// Why output is missing or incomplete.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The input is too large. Contains a message.
    TooLarge(String),
    /// The requested data does not exist or the request is invalid. Contains a message.
    Refused(String),
    /// A recording cannot be read. Contains a message.
    Read(String),
    /// The output cannot be written.
    Write(io::Error),
}

impl Error {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Read(_) | Self::Write(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(text) | Self::Refused(text) | Self::Read(text) => f.write_str(text),
            Self::Write(error) => write!(f, "The flame graph cannot be written: {error}."),
        }
    }
}

impl std::error::Error for Error {}

impl From<flightline_consumer::Error> for Error {
    fn from(error: flightline_consumer::Error) -> Self {
        use flightline_consumer::Error as E;
        match error {
            E::Write(error) => Self::Write(error),
            E::NoSuchEvent { asked: event, present } if present.is_empty() => Self::Refused(format!(
                "The recording has no {event} events and no other events with stacks; record for a longer time, or in another mode."
            )),
            E::NoSuchEvent { asked: event, .. } if event == "cpu" => Self::Refused(
                "No CPU time was sampled: the process waited, or used little CPU time. Record for a \
                 longer time, or use WALL or OFF_CPU to see where it waits."
                    .into(),
            ),
            E::NoSuchEvent { asked: event, present } => {
                let types = present.into_iter().map(|name| (name, 1)).collect();
                let offered = flightline_consumer::fold::offered(&types).join(", ");
                Self::Refused(format!("The recording has no {event} events; choose one of {offered}."))
            }
            E::NoSamples => Self::Refused(NOTHING.into()),
            E::MixedUnits { .. } => Self::Refused(format!("{error}.")),
            error => Self::Read(format!("The recording cannot be read: {error}.")),
        }
    }
}

impl From<jfr_format::error::Error> for Error {
    fn from(error: jfr_format::error::Error) -> Self {
        Self::Read(format!("The recording cannot be read: {error}."))
    }
}

const NOTHING: &str = "No sample matches the request. Choose a longer interval or other events.";

/// Converts recordings to `format` and writes the result. Several recordings are treated as one, in order of
/// time.
///
/// # Errors
/// Returns an error if the input is too large, the requested data does not exist, a recording cannot be read,
/// or `out` cannot be written.
pub fn make(
    format: Format,
    recordings: &[Source],
    wanted: &RenderOptions,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let inputs = Inputs::new(recordings, wanted.most_bytes)?;
    let range = wanted.range()?;
    let graph = wanted.event.as_deref().and_then(off_cpu::graph);
    match (format, graph) {
        (Format::Jfr, _) => part::write(&inputs, range, out),
        (Format::Html, Some(graph)) => off_cpu::page(&inputs, graph, range, wanted, out),
        (Format::Html, None) => flame::page(&inputs, range, wanted, out),
        (Format::Folded, Some(graph)) => off_cpu::folded(&inputs, graph, range, wanted, out),
        (Format::Folded, None) => flame::folded(&inputs, range, wanted, out),
        (Format::Pprof | Format::Otlp, graph) => exported::write(format, &inputs, graph, range, wanted, out),
    }
}
