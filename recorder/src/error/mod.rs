//! The one error type of this crate.

pub(crate) mod refusal;

use std::{fmt, io, path::Path};

/// What went wrong, in one line that names the file or option concerned and, where one exists, the way out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system call failed.
    Io {
        /// What was being done, with the path: "create the session directory /dev/shm/…".
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
    /// An option has a wrong value: a usage error, see [`Error::is_usage`].
    Setting {
        /// Name of the option.
        name: &'static str,
        /// What is wrong with its value and which values are allowed.
        problem: String,
    },
    /// What an option names cannot be used, though its value may be right: there is no such process, the output cannot be written.
    Unavailable {
        /// Name of the option, or of the thing.
        name: &'static str,
        /// Why not, and the way out.
        problem: String,
    },
    /// The program cannot be recorded; see [`crate::error::refusal::Refusal`].
    Program(crate::error::refusal::Refusal),
    /// A shared file does not hold what a program of this version writes.
    Shared {
        /// The file.
        file: String,
        /// What was read and what was expected.
        problem: String,
    },
}

impl Error {
    /// An [`Error::Io`] about a path.
    pub fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        Error::Io { doing: format!("{doing} {}", path.display()), source }
    }

    /// Returns true if an option is wrong, not the circumstances: commands exit with status 2.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Setting { .. })
    }

    /// An [`Error::Shared`].
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

/// The system's words without Rust's "(os error n)".
pub(crate) fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}
