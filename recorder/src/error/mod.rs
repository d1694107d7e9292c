//! The error type of this crate.

pub(crate) mod refusal;

use std::{fmt, io, path::Path};

/// An error. Its message is one line that names the file or option and, where one exists, the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system call failed.
    Io {
        /// The operation, with the path: "create the session directory /dev/shm/…".
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// An option has an invalid value: a usage error, see [`Error::is_usage`].
    Setting {
        /// Name of the option.
        name: &'static str,
        /// Why the value is invalid, and which values are allowed.
        problem: String,
    },
    /// The object that an option names is not usable, though the value is valid: there is no such process, or
    /// the output cannot be written.
    Unavailable {
        /// Name of the option, or of the object.
        name: &'static str,
        /// Why it is not usable, and the remedy.
        problem: String,
    },
    /// The program cannot be recorded; see [`crate::error::refusal::Refusal`].
    Program(crate::error::refusal::Refusal),
    /// A shared file has contents that a program of this version does not write.
    Shared {
        /// The file.
        file: String,
        /// The actual and the expected contents.
        problem: String,
    },
}

impl Error {
    /// Returns an [`Error::Io`] about a path.
    pub fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        Error::Io { doing: format!("{doing} {}", path.display()), source }
    }

    /// Returns true if the cause is a wrong option; commands then exit with status 2.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Setting { .. })
    }

    /// Returns an [`Error::Shared`].
    pub(crate) fn shared(file: &Path, problem: impl Into<String>) -> Error {
        Error::Shared { file: file.display().to_string(), problem: problem.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, source } => write!(f, "cannot {doing}: {}", plain(source)),
            Error::Setting { name, problem } | Error::Unavailable { name, problem } => {
                write!(f, "{name}: {problem}")
            }
            Error::Program(refusal) => refusal.fmt(f),
            Error::Shared { file, problem } => write!(f, "{file}: {problem}"),
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

/// Returns the operating system's message without Rust's suffix "(os error n)".
pub(crate) fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}
