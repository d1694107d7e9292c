//! What can be wrong with bytes that claim to be a recording.
//!
//! [`DecodeError`] and [`Malformed`] are what the codecs say of a slice; [`Error`] is what a reader of a file or
//! stream says, with the place in the input.

use std::fmt;
use std::io;

use crate::read::ChunkIndex;

/// A piece of input could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the offending piece, counted from the start of the slice that was decoded.
    pub at: usize,
    /// What is wrong there.
    pub kind: DecodeErrorKind,
}

/// The kinds of [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The input ends inside the piece: more bytes may cure it.
    Truncated,
    /// A string starts with an encoding byte that does not exist.
    StringEncoding(u8),
    /// A chunk does not start with `FLR\0`.
    Magic([u8; 4]),
    /// The chunk's major version is neither 1 nor 2.
    Version(u16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {}: ", self.at)?;
        match self.kind {
            DecodeErrorKind::Truncated => write!(f, "input ends too early"),
            DecodeErrorKind::StringEncoding(tag) => write!(f, "unknown string encoding {tag}"),
            DecodeErrorKind::Magic(found) => {
                write!(f, "not a JFR chunk: starts with {found:02x?}, not with 46 4c 52 00")
            }
            DecodeErrorKind::Version(major) => write!(f, "unsupported JFR version {major}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Result of this crate's fallible operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A byte sequence that is not what the format asks for. Small, so that the hot path returns it in a register;
/// [`Error`] adds the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end inside a value.
    End,
    /// A count promises more elements than there are bytes left.
    Count,
    /// A string starts with an unknown encoding byte.
    StringEncoding,
    /// Structures are nested deeper than any recording needs.
    Depth,
    /// A field, pool or event names a type that the chunk's metadata does not declare.
    UnknownType,
    /// An event is smaller than its own head or larger than the chunk or the limit.
    EventSize,
    /// A metadata element refers to a string that is not in its table.
    StringIndex,
    /// The root element of the metadata is missing or an attribute is not a number.
    Metadata,
}

impl Malformed {
    fn text(self) -> &'static str {
        match self {
            Self::End => "the data ends inside a value",
            Self::Count => "a count is larger than the bytes left",
            Self::StringEncoding => "unknown string encoding",
            Self::Depth => "structures nested too deeply",
            Self::UnknownType => "a type is not declared in the metadata",
            Self::EventSize => "impossible event size",
            Self::StringIndex => "a string index is out of range",
            Self::Metadata => "the metadata tree is malformed",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What kind of fault it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input could not be opened or read.
    Io(io::Error),
    /// There is no chunk header here (`FLR\0`, version 1 or 2).
    NotJfr,
    /// The input holds no byte.
    Empty,
    /// A structure of the format is broken.
    Malformed(Malformed),
    /// The chunk has no metadata, so its events cannot be decoded.
    NoMetadata,
    /// The input ends before the chunk does.
    Truncated {
        /// Bytes the header promises beyond the end of the input; 0 if it makes no promise.
        missing: u64,
    },
    /// Bytes that belong to no chunk were skipped.
    Skipped {
        /// How many.
        bytes: u64,
    },
    /// Events of a type that the metadata does not declare were skipped.
    UnknownEvents {
        /// The undeclared type id.
        type_id: u64,
        /// How many events.
        count: u64,
    },
    /// A declared struct does not fit the type it stands for: which, and why.
    View(String),
    /// The same of the types beyond those told one by one.
    UnknownTypes {
        /// How many types more.
        types: u64,
        /// How many events of theirs.
        events: u64,
    },
}

/// A fault, the offset in the input, the chunk and what was being read.
#[derive(Debug)]
pub struct Error(Box<Fault>);

/// Kept aside, so that results are small where nothing is wrong.
#[derive(Debug)]
struct Fault {
    kind: ErrorKind,
    at: u64,
    chunk: Option<ChunkIndex>,
    within: String,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        at: u64,
        chunk: Option<ChunkIndex>,
        within: impl Into<String>,
    ) -> Self {
        Self(Box::new(Fault { kind, at, chunk, within: within.into() }))
    }

    pub(crate) fn malformed(what: Malformed, at: u64, chunk: ChunkIndex, within: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(what), at, Some(chunk), within)
    }

    /// A fault found while the fields of an event were taken out by a binding.
    pub fn from_fault(what: Malformed, at: u64, chunk: ChunkIndex, within: impl Into<String>) -> Self {
        Self::malformed(what, at, chunk, within)
    }

    /// Wraps a failure to read the input at `at`.
    pub fn io(source: io::Error, at: u64) -> Self {
        Self::new(ErrorKind::Io(source), at, None, "the input")
    }

    /// What is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Offset from the start of the input, in bytes.
    pub fn at(&self) -> u64 {
        self.0.at
    }

    /// The chunk it was found in, if in one.
    pub fn chunk(&self) -> Option<ChunkIndex> {
        self.0.chunk
    }

    /// What was being read, in words.
    pub fn within(&self) -> &str {
        &self.0.within
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Io(e) => write!(f, "{e}")?,
            ErrorKind::NotJfr => f.write_str("not a JFR chunk (no \"FLR\\0\" header of version 1 or 2)")?,
            ErrorKind::Empty => f.write_str("the input is empty")?,
            ErrorKind::Malformed(m) => write!(f, "{m}")?,
            ErrorKind::NoMetadata => {
                f.write_str("the chunk has no metadata; its events cannot be decoded")?
            }
            ErrorKind::View(text) => f.write_str(text)?,
            ErrorKind::Truncated { missing: 0 } => f.write_str("the input ends inside an event")?,
            ErrorKind::Truncated { missing } => {
                write!(f, "the input ends {missing} bytes before the chunk does")?;
            }
            ErrorKind::Skipped { bytes } => write!(f, "skipped {bytes} bytes that could not be read")?,
            ErrorKind::UnknownEvents { type_id, count } => {
                write!(f, "skipped {count} events of undeclared type {type_id}")?;
            }
            ErrorKind::UnknownTypes { types, events } => {
                write!(f, "skipped {events} events of {types} more undeclared types")?;
            }
        }
        write!(f, " (at offset {}", self.0.at)?;
        if let Some(chunk) = self.0.chunk {
            write!(f, ", chunk {}", chunk.number())?;
        }
        write!(f, ", reading {})", self.0.within)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<DecodeError> for Malformed {
    fn from(error: DecodeError) -> Self {
        match error.kind {
            DecodeErrorKind::StringEncoding(_) => Self::StringEncoding,
            _ => Self::End,
        }
    }
}
