//! One chunk, as far as it has been read: its header, types, constants and the conversion from ticks to time.

use std::sync::Arc;

use crate::error::{Error, Malformed};
use crate::header::ChunkHeader;
use crate::ids::{ChunkIndex, FileOffset};
use crate::pool::Pools;
use crate::types::Types;

const NANOS: i64 = 1_000_000_000;

/// The data needed to decode the events of a chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Index of the chunk in the input.
    pub index: ChunkIndex,
    /// Offset of its header.
    pub offset: FileOffset,
    /// The header as it is in the input. In a live or unpatched chunk its fields may not be set yet.
    pub header: ChunkHeader,
    /// The declared types.
    pub types: Arc<Types>,
    /// The constants read so far.
    pub pools: Pools,
}

impl Chunk {
    /// Converts a point in the chunk's ticks to nanoseconds since 1970.
    pub fn epoch_nanos(&self, ticks: i64) -> i64 {
        let since = i128::from(ticks) - i128::from(self.header.start_ticks.0);
        let nanos = i128::from(self.header.start_nanos) + self.scaled(since);
        nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Converts a duration in the chunk's ticks to nanoseconds.
    pub fn span_nanos(&self, ticks: i64) -> i64 {
        self.scaled(i128::from(ticks)).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    fn scaled(&self, ticks: i128) -> i128 {
        match self.header.frequency() {
            NANOS => ticks,
            frequency => ticks * i128::from(NANOS) / i128::from(frequency),
        }
    }

    pub(crate) fn malformed(&self, what: Malformed, at: u64, within: impl Into<String>) -> Error {
        Error::malformed(what, at, self.index, within)
    }
}
