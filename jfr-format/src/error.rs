//! What can be wrong with bytes that claim to be a recording.

use std::fmt;

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
