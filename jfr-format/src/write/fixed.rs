//! The geometry of a chunk whose size is known before anything is in it.
//!
//! ```text
//! 0         68                                  ≤ size-72        size-64      size
//! │ header  │ metadata, statics, segments … │ filler (≥ 8 bytes) │ anchor, filler │
//! ```
//!
//! A filler is an event of type 0. The eight bytes kept free for it mean that a gap too small for one cannot arise.

use super::WriteError;
use super::checkpoint::{MAX_FRAME, Pending};
use super::cut::Fragment;
use crate::constants::METADATA_EVENT;
use crate::header;
use crate::ids::{ChunkOffset, Ticks};
use crate::metadata::Declared;
use crate::varint;
use bytes::{BufMut, BytesMut};

/// Bytes at the end that hold the anchor.
pub(crate) const ANCHOR: usize = 64;
/// Least bytes between the last event and the anchor; and between the anchor checkpoint and the end.
pub(super) const MIN_FILLER: usize = 8;
/// Largest chunk: one filler must be able to fill it.
pub(super) const MAX_SIZE: u32 = varint::MAX_PADDED;
const _: () = assert!(MAX_FRAME + MIN_FILLER <= ANCHOR);

/// Room for at least some events beside header, metadata and statics.
const MIN_CONTENT: usize = 1024;

/// The smallest chunk that [`Geometry::Fixed`](super::Geometry::Fixed) can have if it declares these types, in bytes.
pub fn min_size(declared: &Declared) -> u32 {
    let frame = header::LEN + declared.event().len() + MIN_FILLER + ANCHOR;
    u32::try_from(frame + MIN_CONTENT).unwrap_or(MAX_SIZE)
}

pub(super) fn check(size: u32, declared: &Declared) -> Result<(), WriteError> {
    let least = min_size(declared);
    if (least..=MAX_SIZE).contains(&size) { Ok(()) } else { Err(WriteError::Size { size, least }) }
}

/// Where the anchor begins.
pub(super) fn anchor_at(size: u32) -> ChunkOffset {
    ChunkOffset(u64::from(size) - ANCHOR as u64)
}

/// What ends a chunk of `size` bytes, in order: filler from `at` to the anchor, the anchor, filler to the end.
///
/// `at` is at least [`MIN_FILLER`] before the anchor: the writer's `room` sees to it.
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

/// The start of a filler of `len` bytes, which are at least [`MIN_FILLER`]; the rest of it is zeros.
fn put_filler_start(out: &mut BytesMut, len: usize) {
    let size = u32::try_from(len).ok().and_then(varint::padded).unwrap_or_default();
    out.put_slice(&size);
    varint::put(out, u64::from(METADATA_EVENT.0));
}
