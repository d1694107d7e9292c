//! What a chunk has queued for its next flush.

use bytes::BytesMut;

use super::buffer;
use super::checkpoint::Pending;

/// The bytes of the next flush, in the order in which they are written: head, constants, events.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Header, metadata, statics, until the first flush has written them.
    pub(super) head: BytesMut,
    pub(super) constants: Pending,
    pub(super) events: BytesMut,
    /// Number of events in `events`.
    pub(super) event_count: u64,
}

impl Queue {
    /// Upper bound of the bytes that are queued.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.constants.len() + self.events.len()
    }

    /// Empties the queue after it was written. The buffers keep their memory, but for the head, which is written once.
    pub(super) fn clear(&mut self) {
        self.head = BytesMut::new();
        self.discard();
    }

    /// Drops constants and events. The head stays: a chunk without it could not be read.
    pub(super) fn discard(&mut self) {
        self.event_count = 0;
        self.constants.clear();
        buffer::reuse(&mut self.events);
    }

    /// Bytes of memory of the buffers.
    pub(super) fn capacity(&self) -> usize {
        self.head.capacity() + self.events.capacity() + self.constants.buffer_capacity()
    }
}
