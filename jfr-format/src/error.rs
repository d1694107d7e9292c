//! Errors in bytes that claim to be a recording.
//!
//! The codecs return [`DecodeError`] and [`Malformed`] for a slice; a reader of a file or stream returns
//! [`Error`], with the offset in the input.

use std::fmt;
use std::io;

use crate::constants::HEADER_LEN;
use crate::ids::ChunkIndex;

/// A part of the input could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the invalid part, counted from the start of the slice that was decoded.
    pub at: usize,
    /// The kind of error.
    pub kind: DecodeErrorKind,
}

/// The kinds of [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The input ends inside the part: more bytes may complete it.
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

/// An invalid byte sequence. Small, so that the hot path returns it in a register; [`Error`] adds the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end inside a value.
    End,
    /// A count declares more elements than there are bytes left.
    Count,
    /// A string starts with an unknown encoding byte.
    StringEncoding,
    /// Structures are nested deeper than any recording needs.
    Depth,
    /// An event has more values than any recording needs, most of them repetitions.
    Values,
    /// A field, pool or event refers to a type that the chunk's metadata does not declare.
    UnknownType,
    /// A constant pool with a primitive type. The JDK refuses the chunk.
    PrimitivePool,
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
            Self::Values => "an event of too many or too deep values",
            Self::UnknownType => "a type is not declared in the metadata",
            Self::PrimitivePool => "a constant pool of a primitive type",
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

/// Data that is contradictory but can be read without loss, or that other readers read differently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nonconformance {
    /// The header's clock declares this invalid number of ticks per second; ticks are treated as nanoseconds.
    Frequency(i64),
    /// The header declares that integers are not compressed. No writer does that, so they are read as
    /// compressed.
    Uncompressed,
    /// A chunk is marked as finished, but its header was never completed.
    Unpatched,
    /// The header declares that it is being changed, and was never completed.
    Updating,
    /// The chunk's end differs from the one in its header.
    ChunkSize {
        /// Size in bytes according to the header.
        declared: u64,
        /// Size in bytes according to the events.
        found: u64,
    },
    /// The header's metadata offset does not point to a metadata event.
    MetadataOffset(u64),
    /// The header's checkpoint offset does not point to a checkpoint.
    CheckpointOffset(u64),
    /// A checkpoint refers to a previous one at an offset without a checkpoint.
    CheckpointChain {
        /// The offset that the first of these refers to, from the start of the chunk.
        target: u64,
        /// Number of such checkpoints.
        count: u64,
    },
    /// The chain of checkpoints is a circle.
    CheckpointCircle,
    /// Checkpoints that are not in the chain. They are read like the others.
    Unchained {
        /// Number of them.
        count: u64,
    },
    /// A type was declared again with another name or other fields. The first declaration holds.
    Redeclared {
        /// Its name.
        class: String,
        /// Its id.
        id: u64,
    },
    /// A constant was defined again with other content. The first definition holds.
    Redefined {
        /// Name of its type.
        class: String,
        /// Its key.
        key: u64,
        /// Number of such constants of the type.
        count: u64,
    },
}

impl Nonconformance {
    /// Returns the name of the structure that was being read.
    pub(crate) fn within(&self) -> &'static str {
        match self {
            Self::CheckpointChain { .. } | Self::CheckpointCircle | Self::Unchained { .. } => {
                "the checkpoint chain"
            }
            Self::Redefined { .. } => "constant pools",
            Self::Redeclared { .. } => "metadata",
            _ => "the chunk header",
        }
    }
}

impl fmt::Display for Nonconformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frequency(frequency) => {
                write!(f, "a clock of {frequency} ticks per second; ticks are treated as nanoseconds")
            }
            Self::Uncompressed => f.write_str("integers said to be uncompressed are read as compressed"),
            Self::Unpatched => f.write_str("the header of the finished chunk was never completed"),
            Self::Updating => f.write_str("the chunk's header was left in the middle of an update"),
            Self::ChunkSize { declared, found } => {
                write!(f, "the header says the chunk has {} bytes, it has {found}", *declared as i64)
            }
            Self::MetadataOffset(at) => {
                write!(f, "no metadata at byte {} of the chunk, where the header says", *at as i64)
            }
            Self::CheckpointOffset(0) => f.write_str("the header names no checkpoint, though there are some"),
            Self::CheckpointOffset(at) => {
                write!(f, "no checkpoint at byte {} of the chunk, where the header says", *at as i64)
            }
            Self::CheckpointChain { target, count: 1 } => {
                write!(
                    f,
                    "the checkpoint chain leads to byte {} of the chunk, where no checkpoint is",
                    *target as i64
                )
            }
            Self::CheckpointChain { target, count } => {
                let target = *target as i64;
                write!(
                    f,
                    "{count} checkpoints lead to places without one, the first to byte {target} of the chunk"
                )
            }
            Self::CheckpointCircle => f.write_str("the checkpoint chain goes in a circle"),
            Self::Unchained { count } => write!(f, "{count} checkpoints are not in the chain"),
            Self::Redeclared { class, id } => {
                write!(f, "type {id}, {class}, is declared again otherwise; the first is taken")
            }
            Self::Redefined { class, key, count: 1 } => {
                write!(f, "constant {key} of {class} is defined again with other content; the first is taken")
            }
            Self::Redefined { class, key, count } => {
                write!(
                    f,
                    "{count} constants of {class} are defined again with other content, the first with key {key}; each time the first is taken"
                )
            }
        }
    }
}

/// The kind of an [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input could not be opened or read.
    Io(io::Error),
    /// There is no chunk header here (`FLR\0`, version 1 or 2).
    NotJfr,
    /// The input is empty.
    Empty,
    /// The input ends within the header of its first chunk.
    HeaderCut {
        /// Number of its bytes in the input.
        bytes: u64,
    },
    /// A structure of the format is broken.
    Malformed(Malformed),
    /// The chunk has no metadata, so its events cannot be decoded.
    NoMetadata,
    /// The header marks the chunk as still being written.
    Unfinished,
    /// The input ends before the chunk does.
    Truncated {
        /// Number of bytes that are missing according to the header; 0 if unknown.
        missing: u64,
    },
    /// Bytes that belong to no chunk were skipped.
    Skipped {
        /// Number of bytes.
        bytes: u64,
    },
    /// Events of a type that the metadata does not declare were skipped.
    UnknownEvents {
        /// The undeclared type id.
        type_id: u64,
        /// Number of events.
        count: u64,
    },
    /// A declared struct does not fit its type: the struct and the reason.
    View(String),
    /// The chunk does not conform to the format; no data was lost.
    Nonconformance(Nonconformance),
    /// Events of further undeclared types, after those that were reported individually.
    UnknownTypes {
        /// Number of types.
        types: u64,
        /// Number of their events.
        events: u64,
    },
}

/// Maximum length of a name in a message, in bytes: a recording may declare a name of megabytes and cause a
/// thousand errors with it.
const LONGEST_NAME: usize = 300;

/// Shortens a name from the recording for a message.
pub(crate) fn shortened(name: impl Into<String>) -> String {
    let mut name = name.into();
    if name.len() > LONGEST_NAME {
        let end = name.floor_char_boundary(LONGEST_NAME);
        // Allocate a short string, to free the long one.
        name = format!("{}…", &name[..end]);
    }
    name
}

/// An error, its offset in the input, the chunk and the structure that was being read.
#[derive(Debug)]
pub struct Error(Box<Fault>);

/// Boxed, so that results without an error are small.
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
        Self(Box::new(Fault { kind, at, chunk, within: shortened(within.into()) }))
    }

    pub(crate) fn malformed(what: Malformed, at: u64, chunk: ChunkIndex, within: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(what), at, Some(chunk), within)
    }

    /// Creates an error for a fault that occurred while a binding read the fields of an event.
    pub fn from_fault(what: Malformed, at: u64, chunk: ChunkIndex, within: impl Into<String>) -> Self {
        Self::malformed(what, at, chunk, within)
    }

    /// Wraps a failure to read the input at `at`.
    pub fn io(source: io::Error, at: u64) -> Self {
        Self::new(ErrorKind::Io(source), at, None, "the input")
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the offset from the start of the input, in bytes.
    pub fn at(&self) -> u64 {
        self.0.at
    }

    /// Returns the chunk with the error, if it is in one.
    pub fn chunk(&self) -> Option<ChunkIndex> {
        self.0.chunk
    }

    /// Returns the name of the structure that was being read.
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
            ErrorKind::HeaderCut { bytes } => {
                write!(f, "the chunk header is cut: {bytes} of its {HEADER_LEN} bytes are there")?;
            }
            ErrorKind::Malformed(m) => write!(f, "{m}")?,
            ErrorKind::NoMetadata => {
                f.write_str("the chunk has no metadata; its events cannot be decoded")?
            }
            ErrorKind::Unfinished => f.write_str("the chunk was never finished")?,
            ErrorKind::Nonconformance(violation) => write!(f, "{violation}")?,
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
        // The input was not read, and its name is the location.
        if matches!(self.0.kind, ErrorKind::Io(_)) && self.0.at == 0 {
            return Ok(());
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
