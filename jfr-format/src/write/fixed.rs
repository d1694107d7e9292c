//! The geometry of a chunk whose size is known before its content.
//!
//! ```text
//! 0         68                                  ≤ size-72        size-64      size
//! │ header  │ metadata, statics, segments … │ filler (≥ 8 bytes) │ anchor, filler │
//! ```
//!
//! A filler is an event of type 0. Eight bytes are reserved for it, so that there is never a gap that is too
//! small for one.

use super::WriteError;
use super::checkpoint::{MAX_FRAME, Pending};
use super::cut::Fragment;
use crate::constants::METADATA_EVENT;
use crate::header;
use crate::ids::{ChunkOffset, Ticks};
use crate::metadata::Declared;
use crate::varint;
use bytes::{BufMut, BytesMut};

/// Size of the area for the anchor at the end, bytes.
pub(crate) const ANCHOR: usize = 64;
/// Minimum bytes between the last event and the anchor, and between the anchor checkpoint and the end.
pub(super) const MIN_FILLER: usize = 8;
/// Maximum size of a chunk: one filler must be able to fill it.
pub(super) const MAX_SIZE: u32 = varint::MAX_PADDED;
const _: () = assert!(MAX_FRAME + MIN_FILLER <= ANCHOR);

/// Minimum room for events in addition to header, metadata and statics.
const MIN_CONTENT: usize = 1024;

/// Returns the minimum size in bytes of a chunk with [`Geometry::Fixed`](super::Geometry::Fixed) that
/// declares these types.
pub fn min_size(declared: &Declared) -> u32 {
    let frame = header::LEN + declared.event().len() + MIN_FILLER + ANCHOR;
    u32::try_from(frame + MIN_CONTENT).unwrap_or(MAX_SIZE)
}

pub(super) fn check(size: u32, declared: &Declared) -> Result<(), WriteError> {
    let least = min_size(declared);
    if (least..=MAX_SIZE).contains(&size) { Ok(()) } else { Err(WriteError::Size { size, least }) }
}

/// Returns the offset of the anchor.
pub(super) fn anchor_at(size: u32) -> ChunkOffset {
    ChunkOffset(u64::from(size) - ANCHOR as u64)
}

/// Returns the end of a chunk of `size` bytes: filler from `at` to the anchor, the anchor, filler to the end.
///
/// `at` is at least [`MIN_FILLER`] before the anchor: the writer's `room` ensures this.
pub(super) fn end(size: u32, at: ChunkOffset, previous: Option<ChunkOffset>, now: Ticks) -> [Fragment; 3] {
    let anchor = anchor_at(size);
    let gap = usize::try_from(anchor.0.saturating_sub(at.0)).unwrap_or(usize::MAX);
    let mut out = BytesMut::new();
    put_filler_start(&mut out, gap);
    let start = out.split().freeze();
    let zeros = gap.saturating_sub(start.len());
    Pending::default().put(&mut out, anchor, previous, now, 0);
    let (len, rest) = (out.len(), ANCHOR - out.len());
    put_filler_start(&mut out, rest);
    out.put_bytes(0, len + rest - out.len());
    [Fragment::Bytes(start), Fragment::Zeros(zeros), Fragment::Bytes(out.freeze())]
}

/// Appends the start of a filler of `len` bytes, at least [`MIN_FILLER`]; the rest of it is zeros.
fn put_filler_start(out: &mut BytesMut, len: usize) {
    let size = u32::try_from(len).ok().and_then(varint::padded).unwrap_or_default();
    out.put_slice(&size);
    varint::put(out, u64::from(METADATA_EVENT.0));
}
