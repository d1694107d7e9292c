//! The 68-byte chunk header. Everything in it is big-endian and of fixed width.
//!
//! ```text
//!  0 magic "FLR\0"     4 major u16      6 minor u16
//!  8 chunk size       16 offset of the last checkpoint     24 offset of the metadata
//! 32 start, ns since 1970     40 duration, ns     48 start, ticks     56 ticks per second
//! 64 state u8         65 zero           66 flags u16
//! ```

use crate::constants::*;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::ids::{ChunkOffset, Ticks};
use byteorder::{BigEndian, ByteOrder};
use std::ops::Range;

/// Size of the header in bytes.
pub const LEN: usize = HEADER_LEN;
/// The bytes that change while a chunk grows, without the state: size to ticks per second.
pub const PATCHED: Range<usize> = CHUNK_SIZE..STATE;
/// Where the state byte is.
pub const STATE: usize = 64;

const MAJOR_AT: usize = 4;
const MINOR_AT: usize = 6;
pub(crate) const CHUNK_SIZE: usize = 8;
pub(crate) const CHECKPOINT: usize = 16;
pub(crate) const METADATA: usize = 24;
const START_NANOS: usize = 32;
const DURATION: usize = 40;
const START_TICKS: usize = 48;
pub(crate) const TICKS_PER_SECOND: usize = 56;
pub(crate) const FLAGS: usize = 66;
const _: () = assert!(FLAGS + 2 == LEN);

/// The fields of a chunk header, as they stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// 1 or 2.
    pub major: u16,
    /// 0 or 1; no reader behaves differently.
    pub minor: u16,
    /// Bytes of the chunk, this header included.
    pub size: u64,
    /// The last checkpoint event; 0 if there is none yet.
    pub checkpoint: ChunkOffset,
    /// The metadata event; 0 if there is none yet.
    pub metadata: ChunkOffset,
    /// Wall-clock time that belongs to `start_ticks`, in ns since 1970.
    pub start_nanos: i64,
    /// Length of the chunk in ns; 0 if unknown.
    pub duration_nanos: i64,
    /// Ticks at the start.
    pub start_ticks: Ticks,
    /// Unit of all ticks in the chunk.
    pub ticks_per_second: i64,
    /// [`STATE_FINISHED`], a live generation, or [`STATE_UPDATING`].
    pub state: u8,
    /// [`FLAG_COMPRESSED`] | [`FLAG_FINAL`].
    pub flags: u16,
}

impl ChunkHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..MAJOR_AT].copy_from_slice(&MAGIC);
        BigEndian::write_u16(&mut out[MAJOR_AT..], self.major);
        BigEndian::write_u16(&mut out[MINOR_AT..], self.minor);
        BigEndian::write_u64(&mut out[CHUNK_SIZE..], self.size);
        BigEndian::write_u64(&mut out[CHECKPOINT..], self.checkpoint.0);
        BigEndian::write_u64(&mut out[METADATA..], self.metadata.0);
        BigEndian::write_i64(&mut out[START_NANOS..], self.start_nanos);
        BigEndian::write_i64(&mut out[DURATION..], self.duration_nanos);
        BigEndian::write_i64(&mut out[START_TICKS..], self.start_ticks.0);
        BigEndian::write_i64(&mut out[TICKS_PER_SECOND..], self.ticks_per_second);
        out[STATE] = self.state;
        BigEndian::write_u16(&mut out[FLAGS..], self.flags);
        out
    }

    /// Ticks per second; a billion where the header says that the clock stands still or goes backwards.
    pub fn frequency(&self) -> i64 {
        if self.ticks_per_second > 0 { self.ticks_per_second } else { 1_000_000_000 }
    }

    /// Reads the header at the start of `input`. Only magic and major version are judged here.
    ///
    /// # Errors
    /// Wrong magic (also if fewer than 68 bytes are there), truncation, unknown major version.
    pub fn decode(input: &[u8]) -> Result<ChunkHeader, DecodeError> {
        let seen = &input[..input.len().min(MAGIC.len())];
        if !MAGIC.starts_with(seen) {
            let mut found = [0; 4];
            found[..seen.len()].copy_from_slice(seen);
            return Err(DecodeError { at: 0, kind: DecodeErrorKind::Magic(found) });
        }
        let Some(bytes) = input.first_chunk::<LEN>() else {
            return Err(DecodeError { at: input.len(), kind: DecodeErrorKind::Truncated });
        };
        let major = BigEndian::read_u16(&bytes[MAJOR_AT..]);
        if !(1..=MAJOR).contains(&major) {
            return Err(DecodeError { at: MAJOR_AT, kind: DecodeErrorKind::Version(major) });
        }
        Ok(ChunkHeader {
            major,
            minor: BigEndian::read_u16(&bytes[MINOR_AT..]),
            size: BigEndian::read_u64(&bytes[CHUNK_SIZE..]),
            checkpoint: ChunkOffset(BigEndian::read_u64(&bytes[CHECKPOINT..])),
            metadata: ChunkOffset(BigEndian::read_u64(&bytes[METADATA..])),
            start_nanos: BigEndian::read_i64(&bytes[START_NANOS..]),
            duration_nanos: BigEndian::read_i64(&bytes[DURATION..]),
            start_ticks: Ticks(BigEndian::read_i64(&bytes[START_TICKS..])),
            ticks_per_second: BigEndian::read_i64(&bytes[TICKS_PER_SECOND..]),
            state: bytes[STATE],
            flags: BigEndian::read_u16(&bytes[FLAGS..]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of a finished chunk written by JDK 17.
    const JDK_17: [u8; LEN] = [
        0x46, 0x4c, 0x52, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x2b, 0x26, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x03, 0x2a, 0xc7, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f, 0x9c, 0x18, 0xe9,
        0xdc, 0x45, 0x70, 0x4e, 0xbe, 0x83, 0x00, 0x00, 0x00, 0x00, 0xba, 0xaa, 0xe6, 0xec, 0x00, 0x00, 0x00,
        0x01, 0x0a, 0xc0, 0xb3, 0x62, 0x00, 0x00, 0x00, 0x00, 0x3b, 0x9a, 0xca, 0x00, 0x00, 0x00, 0x00, 0x03,
    ];

    #[test]
    fn jdk_header_round_trips() {
        let header = ChunkHeader::decode(&JDK_17).unwrap();
        assert_eq!(header.size, 207_654);
        assert_eq!(header.checkpoint, ChunkOffset(207_559));
        assert_eq!(header.metadata, ChunkOffset(8092));
        assert_eq!(header.ticks_per_second, 1_000_000_000);
        assert_eq!((header.state, header.flags), (STATE_FINISHED, FLAG_COMPRESSED | FLAG_FINAL));
        assert_eq!(header.encode(), JDK_17);
    }

    #[test]
    fn truncation_differs_from_wrong_magic() {
        for cut in 0..LEN {
            let error = ChunkHeader::decode(&JDK_17[..cut]).unwrap_err();
            assert_eq!(error, DecodeError { at: cut, kind: DecodeErrorKind::Truncated });
        }
        let error = ChunkHeader::decode(b"FX").unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::Magic([b'F', b'X', 0, 0]));
        let mut other = JDK_17;
        other[5] = 3;
        let error = ChunkHeader::decode(&other).unwrap_err();
        assert_eq!(error, DecodeError { at: 4, kind: DecodeErrorKind::Version(3) });
    }
}
