//! One chunk as far as it has been read: its header, types, constants and the line from ticks to time.

use std::sync::Arc;

use crate::error::{Error, Malformed};
use crate::header::ChunkHeader;
use crate::ids::{ChunkIndex, FileOffset};
use crate::pool::Pools;
use crate::types::Types;

const NANOS: i64 = 1_000_000_000;

/// What is needed to understand the events of a chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Which chunk of the input.
    pub index: ChunkIndex,
    /// Where its header starts.
    pub offset: FileOffset,
    /// The header as it stands in the input; for a live or unpatched chunk it may say little.
    pub header: ChunkHeader,
    /// The declared types.
    pub types: Arc<Types>,
    /// The constants met so far.
    pub pools: Pools,
}

impl Chunk {
    /// Nanoseconds since 1970 of a point in the chunk's ticks.
    pub fn epoch_nanos(&self, ticks: i64) -> i64 {
        let since = i128::from(ticks) - i128::from(self.header.start_ticks.0);
        let nanos = i128::from(self.header.start_nanos) + self.scaled(since);
        nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Nanoseconds of a span of the chunk's ticks.
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
