//! What can be wrong with bytes that claim to be a recording.
//!
//! [`DecodeError`] and [`Malformed`] are what the codecs say of a slice; [`Error`] is what a reader of a file or
//! stream says, with the place in the input.

use std::fmt;
use std::io;

use crate::constants::HEADER_LEN;
use crate::ids::ChunkIndex;

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
    /// An event has more values than any recording needs, most of them the same ones over and over.
    Values,
    /// A field, pool or event names a type that the chunk's metadata does not declare.
    UnknownType,
    /// A constant pool has values of a primitive type. The JDK refuses the chunk.
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

/// Something that can be read without loss but contradicts itself, or that other readers read otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nonconformance {
    /// The header's clock makes so many ticks per second; ticks are taken for nanoseconds.
    Frequency(i64),
    /// The header says that integers are not compressed. No writer does that: they are read as if they were.
    Uncompressed,
    /// A chunk that is said to be finished, whose header was never completed.
    Unpatched,
    /// The header says that it is being changed just now, and never was after.
    Updating,
    /// The chunk ends elsewhere than its header says.
    ChunkSize {
        /// Bytes by the header.
        declared: u64,
        /// Bytes by the events.
        found: u64,
    },
    /// There is no metadata event where the header says.
    MetadataOffset(u64),
    /// There is no checkpoint where the header says.
    CheckpointOffset(u64),
    /// A checkpoint says that the one before it is where none is.
    CheckpointChain {
        /// Where the first one leads, from the start of the chunk.
        target: u64,
        /// How many such there are.
        count: u64,
    },
    /// A checkpoint comes before itself in the chain.
    CheckpointCircle,
    /// Checkpoints that the chain does not lead to. They are read like the others.
    Unchained {
        /// How many.
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
        /// How many constants of the type were.
        count: u64,
    },
}

impl Nonconformance {
    /// What was being read.
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
                write!(f, "a clock of {frequency} ticks per second; ticks are taken for nanoseconds")
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
    /// The input ends within the header of its first chunk.
    HeaderCut {
        /// Bytes of it that are there.
        bytes: u64,
    },
    /// A structure of the format is broken.
    Malformed(Malformed),
    /// The chunk has no metadata, so its events cannot be decoded.
    NoMetadata,
    /// The header says that the chunk is still being written.
    Unfinished,
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
    /// The chunk does not conform to the format; nothing of it was lost.
    Nonconformance(Nonconformance),
    /// The same of the types beyond those told one by one.
    UnknownTypes {
        /// How many types more.
        types: u64,
        /// How many events of theirs.
        events: u64,
    },
}

/// Longest name in a message, in bytes: a recording may declare a name of megabytes and a thousand faults under it.
const LONGEST_NAME: usize = 300;

/// A name from the recording as a message shows it.
pub(crate) fn shortened(name: impl Into<String>) -> String {
    let mut name = name.into();
    if name.len() > LONGEST_NAME {
        let end = name.floor_char_boundary(LONGEST_NAME);
        // The rest is given back, not only hidden.
        name = format!("{}…", &name[..end]);
    }
    name
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
        Self(Box::new(Fault { kind, at, chunk, within: shortened(within.into()) }))
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
        // Nothing was read: the place is the name of the input.
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
