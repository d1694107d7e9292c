//! The bytes that a chunk has queued for its next flush.

use bytes::BytesMut;

use super::buffer;
use super::checkpoint::Pending;

/// The bytes of the next flush, in the order in which they are written: head, constants, events.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Header, metadata and statics, until the first flush has written them.
    pub(super) head: BytesMut,
    pub(super) constants: Pending,
    pub(super) events: BytesMut,
    /// Number of events in `events`.
    pub(super) event_count: u64,
}

impl Queue {
    /// Returns an upper bound of the queued bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.constants.len() + self.events.len()
    }

    /// Empties the queue after it was written. The buffers retain their memory, except the head, which is
    /// written only once.
    pub(super) fn clear(&mut self) {
        self.head = BytesMut::new();
        self.discard();
    }

    /// Drops constants and events. The head is retained, because a chunk without it could not be read.
    pub(super) fn discard(&mut self) {
        self.event_count = 0;
        self.constants.clear();
        buffer::reuse(&mut self.events);
    }

    /// Returns the bytes of memory of the buffers.
    pub(super) fn capacity(&self) -> usize {
        self.head.capacity() + self.events.capacity() + self.constants.buffer_capacity()
    }
}
