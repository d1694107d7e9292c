//! The error of this crate.

use std::{fmt, io};

use flightline_recorder::Error as RecorderError;

/// The reason why a recording could not be started or completed. `Display` writes one line that names the
/// setting or file, and the remedy if there is one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of range, or cannot be combined with another one.
    #[non_exhaustive]
    Setting {
        /// The setting, by its name on the command line: `depth`, `ring-size`.
        name: &'static str,
        /// The problem with its value, and the allowed values.
        problem: String,
    },
    /// A call of the operating system failed, or the recorder did not answer in time ([`io::ErrorKind::TimedOut`]).
    #[non_exhaustive]
    Io {
        /// The operation that failed, with the path: `create /var/lib/fl`.
        operation: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The recorder's memory or its answer differs from what this version of the crate writes.
    #[non_exhaustive]
    Incompatible {
        /// The actual and the expected value.
        problem: String,
    },
}

impl Error {
    /// Not `From`, because the recorder's error is not part of this interface.
    pub(crate) fn from_recorder(error: RecorderError) -> Error {
        match error {
            RecorderError::Io { doing, source } => Error::Io { operation: doing, source },
            RecorderError::Setting { name, problem } => Error::Setting { name, problem },
            other => Error::Incompatible { problem: other.to_string() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Setting { name, problem } => write!(f, "{name}: {problem}"),
            Error::Io { operation, source } => {
                let reason = source.to_string();
                // The operating system's message without Rust's suffix "(os error n)".
                let end = source.raw_os_error().and_then(|_| reason.rfind(" (os error "));
                write!(f, "cannot {operation}: {}", &reason[..end.unwrap_or(reason.len())])
            }
            Error::Incompatible { problem } => f.write_str(problem),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_have_readable_messages() {
        let error = Error::Io { operation: "create /x".into(), source: io::Error::from_raw_os_error(13) };
        assert_eq!(error.to_string(), "cannot create /x: Permission denied");
        let error = Error::Io { operation: "record".into(), source: io::Error::other("it is recorded") };
        assert_eq!(error.to_string(), "cannot record: it is recorded");
    }
}
