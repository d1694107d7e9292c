//! Support for readers of a stream that connect and disconnect: a chunk for waiting readers, losses that were
//! not sent to any reader, and the information events about machine, settings and processes.

use std::collections::BTreeMap;

use jfr_format::{ids::TypeId, schema};

use super::Recording;

/// Minimum age of a chunk that is closed for a reader that waits for the next one, ns.
const EARLY_NS: u64 = 1_000_000_000;

/// Losses that were not sent to any reader, by event type and cause or kind: number and sum of the values.
#[derive(Default)]
pub(super) struct PendingLosses {
    sums: BTreeMap<(TypeId, &'static str), (u64, u64)>,
}

impl PendingLosses {
    fn add(&mut self, id: TypeId, cause: &'static str, (count, value): (u64, u64)) {
        let sum = self.sums.entry((id, cause)).or_default();
        *sum = (sum.0.saturating_add(count), sum.1.saturating_add(value));
    }
}

/// The chunks with information events.
#[derive(Default)]
pub(super) struct InfoChunks {
    /// The last chunk with information events.
    written: u32,
    /// The chunk that started for new readers, or a later one.
    newcomers: u32,
}

impl InfoChunks {
    /// Returns true if `chunk` needs information events and does not have them yet; they count as written
    /// then.
    fn begin(&mut self, chunk: u32, alone: bool) -> bool {
        let begin = self.written != chunk && (alone || self.newcomers > self.written);
        if begin {
            self.written = chunk;
        }
        begin
    }
}

impl Recording {
    /// Starts a chunk early for waiting readers, but not too often while others follow.
    pub(super) fn begin_for_readers(&mut self) {
        let Some(stream) = self.stream().filter(|stream| stream.wants_chunk()) else { return };
        let now_ns = crate::os::clock::monotonic_ns();
        let young = self.chunk.age_ns(now_ns) < EARLY_NS;
        if self.output.is_finished() || (young && !stream.has_no_reader()) {
            return;
        }
        self.cut(now_ns);
        self.info_chunks.newcomers = self.chunk.number;
        if self.output.has_failed() {
            return;
        }
        // Write its first bytes, so that the reader gets it.
        self.write_out(now_ns);
        self.write_pending_losses(now_ns);
    }

    /// Retains a loss that is written only once, while the output is a stream without a reader.
    pub fn defer_unread_loss(&mut self, id: TypeId, cause: &'static str, loss: (u64, u64)) -> bool {
        let keep = self.output.has_no_reader();
        if keep {
            self.pending_losses.add(id, cause, loss);
        }
        keep
    }

    /// Writes the retained losses as a sum over all threads, because their threads may have ended.
    fn write_pending_losses(&mut self, now_ns: u64) {
        if self.stream().is_none_or(|stream| stream.has_no_reader()) {
            return;
        }
        let now = self.ticks(now_ns);
        for ((id, cause), (count, value)) in std::mem::take(&mut self.pending_losses.sums) {
            self.event(id, None, cause.len(), |e, key| {
                e.ticks(now);
                if id == schema::SAMPLE_LOSS {
                    e.key(key);
                }
                e.string(cause).long(count as i64).long(value as i64);
            });
        }
    }

    /// Returns true if this chunk needs information events and does not have them yet: it must be complete in
    /// itself (`alone`), or it is the first chunk of a new reader. They count as written then.
    pub fn begin_info_events(&mut self, alone: bool) -> bool {
        self.info_chunks.begin(self.chunk.number, alone)
    }
}
