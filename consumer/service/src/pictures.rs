//! Recordings → what is shown or downloaded. Blocking: for a thread that may be.
//!
//! ```text
//! Source, Source, … ─► input ─┬─► flame: page, folded text        ┐
//!                             ├─► off_cpu: the same of off-CPU time├─► out
//!                             ├─► exported: pprof, OTLP            │
//!                             └─► part: JFR, cut and joined        ┘
//! ```
//! Memory for one picture: inputs are mapped, so what is in memory of them can be taken back at any time; [`Wanted::most_bytes`] says how
//! large they may be together. Of what is made of them, boxes, names, samples with a time and exported samples have limits of their own
//! ([`flightline_consumer::fold`], [`TIMED`], [`EXPORTED`]). `check` holds recordings to so many constants a chunk that the index of one takes
//! at most 256 MiB.

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

/// A recording: a regular file that nobody shortens, open for reading. Its position is neither used nor changed.
pub type Source = File;

/// What can be had of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// One self-contained page.
    Html,
    /// The recording itself.
    Jfr,
    /// Folded stacks.
    Folded,
    /// gzipped profile.proto, with threads, labels and spans.
    Pprof,
    /// OpenTelemetry profiles: a ProfilesData of protobuf.
    Otlp,
}

impl Format {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 5] = [Self::Html, Self::Jfr, Self::Folded, Self::Pprof, Self::Otlp];

    /// As it stands in addresses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
        }
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What names of files end in, behind the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pb.gz",
            Self::Otlp => "otlp",
        }
    }

    /// As HTTP has it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Folded => "text/plain; charset=utf-8",
            Self::Otlp => "application/x-protobuf",
            Self::Jfr | Self::Pprof => "application/octet-stream",
        }
    }
}

/// What is wanted of recordings.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Events: cpu, wall, alloc, …, as [`events`] offers them, or the name of a type; or a graph of off-CPU time: offcpu, threadtime, wakeup,
    /// offwake, chain, runqueue. `None`: the best there is, CPU samples first; of pprof and OTLP all there are.
    pub event: Option<String>,
    /// What samples stand for, time or bytes, instead of their number. A page lets choose and begins with this.
    pub total: bool,
    /// Each thread by itself.
    pub threads: bool,
    /// From when on, UTC ms.
    pub from_ms: Option<i64>,
    /// Up to when, UTC ms, which is not part of it.
    pub to_ms: Option<i64>,
    /// Headline of a page.
    pub title: String,
    /// Bytes that the recordings may have together.
    pub most_bytes: u64,
}

/// What [`Wanted::most_bytes`] is if nobody says.
pub const MOST_BYTES: u64 = 256 << 20;

impl Default for Wanted {
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

impl Wanted {
    /// How stacks are folded; functions of one name in different libraries are told apart where that can be seen.
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

/// What has been made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What everything weighs; 0 where nothing was summed up.
    pub total: u64,
    /// In this unit: samples, ns, bytes, us.
    pub unit: String,
    /// All of the recordings could be read.
    pub whole: bool,
    /// Sentences on what is not shown.
    pub notes: Vec<String>,
}

/// Why nothing, or only a part, has been written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is more than a picture may be made of. A sentence.
    TooLarge(String),
    /// What is asked for is not there, or makes no sense. A sentence.
    Refused(String),
    /// A recording cannot be read. A sentence.
    Read(String),
    /// Of the output.
    Write(io::Error),
}

impl Error {
    /// By HTTP.
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
            Self::Write(error) => write!(f, "The picture cannot be written: {error}."),
        }
    }
}

impl std::error::Error for Error {}

impl From<flightline_consumer::Error> for Error {
    fn from(error: flightline_consumer::Error) -> Self {
        use flightline_consumer::Error as E;
        match error {
            E::Write(error) => Self::Write(error),
            E::NoSuchEvent { asked, present } if present.is_empty() => Self::Refused(format!(
                "There are no events of {asked}, nor others with stacks: record for longer, or in another mode."
            )),
            E::NoSuchEvent { asked, .. } if asked == "cpu" => Self::Refused(
                "No CPU time was sampled: it waited, or worked too little. Record for longer, or WALL or OFF_CPU to see what it waits \
                 for."
                    .into(),
            ),
            E::NoSuchEvent { asked, present } => {
                let types = present.into_iter().map(|name| (name, 1)).collect();
                let offered = flightline_consumer::fold::offered(&types).join(", ");
                Self::Refused(format!("There are no events of {asked}: ask for one of {offered}."))
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

const NOTHING: &str = "There is nothing to draw: no sample lies in what was asked for. Choose a longer interval or other events.";

/// Makes `format` of recordings, which count as one, in order of time, and writes it.
///
/// # Errors
/// What is asked for is too large or not there, a recording cannot be read, or `out` cannot be written.
pub fn make(
    format: Format,
    recordings: &[Source],
    wanted: &Wanted,
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
