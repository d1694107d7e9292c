//! The error type of this crate.

use std::fmt;
use std::io;

/// The reason why a profile could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    Recording(jfr_format::error::Error),
    /// The output cannot be written.
    Write(io::Error),
    /// The input cannot be read.
    Read(io::Error),
    /// A line of folded text is not `frame;frame;frame value`.
    FoldedLine {
        /// Line number, from 1.
        line: usize,
    },
    /// The recording has no event that was requested.
    NoSuchEvent {
        /// The requested events.
        asked: String,
        /// The events with stack traces in the recording.
        present: Vec<String>,
    },
    /// The weights of samples were requested for event types with different units.
    MixedUnits {
        /// An event type.
        event: String,
        /// Its unit.
        unit: &'static str,
        /// Another event type.
        other_event: String,
        /// Its unit.
        other_unit: &'static str,
    },
    /// There are no samples to show.
    NoSamples,
}

const LIVE_MEMORY: &str = "flightline.LiveMemory";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recording(e) => e.fmt(f),
            // An error with its own message already names the output that failed.
            Self::Write(e) if e.get_ref().is_some() => e.fmt(f),
            Self::Write(e) => write!(f, "cannot write the output: {e}"),
            Self::Read(e) => write!(f, "cannot read the input: {e}"),
            Self::FoldedLine { line } => {
                write!(f, "line {line} is neither JFR nor folded text (\"frame;frame value\")")
            }
            Self::NoSuchEvent { asked, present } if present.is_empty() => {
                write!(f, "the recording has no event {asked}, nor any other with stack traces")
            }
            Self::NoSuchEvent { asked, present } => {
                write!(
                    f,
                    "the recording has no event {asked}; with stack traces it has {}",
                    present.join(", ")
                )?;
                // Live allocations are written at the program's end; this program still runs, or was
                // killed.
                if asked.split(", ").any(|asked| asked == "live")
                    && present.iter().any(|name| name == LIVE_MEMORY)
                {
                    write!(
                        f,
                        ". While the program runs, live memory is in {LIVE_MEMORY} events, written every --live-interval; select them with --last"
                    )?;
                }
                Ok(())
            }
            Self::MixedUnits { event, unit, other_event, other_unit } => write!(
                f,
                "{event} measures in {unit} and {other_event} in {other_unit}, which cannot be added: \
                 choose events of one unit, or count samples"
            ),
            Self::NoSamples => {
                f.write_str("nothing is left to draw: the input has no samples, or none passes the filters")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Recording(e) => Some(e),
            Self::Write(e) | Self::Read(e) => Some(e),
            _ => None,
        }
    }
}

impl From<jfr_format::error::Error> for Error {
    fn from(error: jfr_format::error::Error) -> Self {
        Self::Recording(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_live_event_error_suggests_last_option() {
        let told = |asked: &str, present: &[&str]| {
            let present = present.iter().map(|&name| name.to_owned()).collect();
            Error::NoSuchEvent { asked: asked.to_owned(), present }.to_string()
        };
        assert!(told("live", &["profiler.Malloc", LIVE_MEMORY]).contains("--last"));
        assert!(!told("live", &["profiler.Malloc"]).contains("--last"));
        assert!(!told("lock", &[LIVE_MEMORY]).contains("--last"));
    }
}
