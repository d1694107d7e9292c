//! Splits a recording into chunks.

use anyhow::{Result, bail};
use jfr_format::constants::{MAGIC, STATE_FINISHED};
use jfr_format::header::{self, ChunkHeader};
use twox_hash::XxHash3_64;

use crate::footer::Id;
use crate::layout::Day;

/// A chunk of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'r> {
    /// Its bytes.
    pub bytes: &'r [u8],
    /// Offset in the recording.
    pub offset: u64,
    /// Hash of its content.
    pub id: Id,
    /// Day of its start.
    pub day: Day,
    /// True if its writer has completed it.
    pub finished: bool,
}

impl<'r> Chunk<'r> {
    fn new(bytes: &'r [u8], offset: u64, header: Option<&ChunkHeader>, whole: bool) -> Self {
        let start = header.map_or(0, |header| header.start_nanos);
        Self {
            bytes,
            offset,
            id: Id(XxHash3_64::oneshot(bytes)),
            day: Day::from_micros(start.div_euclid(1000)),
            finished: whole && header.is_some_and(|header| header.state == STATE_FINISHED),
        }
    }
}

/// Returns the chunks of a recording. Trailing data that is not a chunk belongs to the last one; its reader
/// reports it.
///
/// # Errors
/// Returns an error if it is not a JFR recording.
pub fn chunks(recording: &[u8]) -> Result<Vec<Chunk<'_>>> {
    if !recording.starts_with(&MAGIC) {
        bail!("it is no JFR recording: it does not begin with FLR");
    }
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < recording.len() {
        let rest = &recording[at..];
        let header = ChunkHeader::decode(rest).ok();
        let size = header.and_then(|header| usize::try_from(header.size).ok());
        let size = size.filter(|&size| size >= header::LEN && size <= rest.len());
        // A chunk without a valid size, or not followed by another chunk, extends to the end.
        let whole = size.filter(|&size| size == rest.len() || rest[size..].starts_with(&MAGIC));
        let len = whole.unwrap_or(rest.len());
        chunks.push(Chunk::new(&rest[..len], at as u64, header.as_ref(), whole.is_some()));
        at += len;
    }
    Ok(chunks)
}
