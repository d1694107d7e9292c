//! Decodes events of type 1: constants.

use bytes::Bytes;

use super::buffer::Buffer;
use super::events::EventHead;
use super::{Decoder, Delivery};
use crate::constants::{CHECKPOINT_EVENT, CHECKPOINT_FLUSH};
use crate::cursor::Cursor;
use crate::pool::CheckpointHead;
use crate::read::batch::Region;

/// Start of async-profiler's checkpoint if it could not seek back to fill in the size, as on a FIFO: five
/// bytes of its buffer, which contained the chunk header, then the type.
pub(crate) const UNSIZED: [u8; 6] = *b"FLR\0\0\x01";

impl Decoder {
    pub(super) fn checkpoint(&mut self, head: EventHead, at: u64) {
        let payload = (head.size - head.head) as usize;
        let region = match &self.input.buffer {
            // Shared, not copied.
            Buffer::Whole(bytes) => bytes.slice(self.input.scanned - payload..self.input.scanned),
            Buffer::Growing(_) => {
                self.hold();
                let last = self.current.deferred.back().map(|r| r.bytes.clone()).unwrap_or_default();
                last.slice(last.len() - payload..)
            }
        };
        let region = Region { bytes: region, offset: at + u64::from(head.head), picked: None };
        let delta = CheckpointHead::delta(&mut Cursor::new(&region.bytes)).unwrap_or(0);
        let start = self.chunk.as_ref().map_or(0, |chunk| chunk.offset.0);
        self.current.landmarks.checkpoint(at - start, delta);
        let lazily = self.delivery == Delivery::KeysOnly && self.current.filters.is_some();
        let flags = if lazily && !self.current.needs_constants {
            self.current.skipped_checkpoints.push(region);
            0
        } else if self.current.has_types {
            self.read_skipped_checkpoints();
            self.constants(&region)
        } else {
            let flags = CheckpointHead::read(&mut Cursor::new(&region.bytes)).map_or(0, |head| head.flags);
            self.current.early.push(region);
            flags
        };
        self.deliver(flags & CHECKPOINT_FLUSH != 0);
    }

    /// Reads a checkpoint whose size was never filled in, by its content. Returns false if there is none.
    pub(super) fn unsized_checkpoint(&mut self, at: u64) -> bool {
        let Some(chunk) = &mut self.chunk else { return false };
        let start = self.input.scanned + UNSIZED.len();
        let payload = Bytes::copy_from_slice(self.input.bytes().get(start..).unwrap_or_default());
        match chunk.pools.add(&chunk.types, &payload, at + UNSIZED.len() as u64) {
            Ok((_, len)) => {
                let size = UNSIZED.len() + len;
                // The bytes before the payload are not an event that could be walked over later.
                self.hold();
                self.input.discard(size);
                self.current.counts.add(u64::from(CHECKPOINT_EVENT.0), size as u64);
                true
            }
            Err(_) => false,
        }
    }

    pub(super) fn constants(&mut self, region: &Region) -> u8 {
        let Some(chunk) = &mut self.chunk else { return 0 };
        match chunk.pools.add(&chunk.types, &region.bytes, region.offset) {
            Ok((head, _)) => head.flags,
            Err((fault, pos)) => {
                self.current.damaged = true;
                self.warn(self.fault(fault, region.offset + pos as u64, "constant pools"));
                0
            }
        }
    }

    /// Reads the checkpoints that were skipped, now that an event needs constants.
    pub(super) fn read_skipped_checkpoints(&mut self) {
        for region in std::mem::take(&mut self.current.skipped_checkpoints) {
            self.constants(&region);
        }
    }
}
