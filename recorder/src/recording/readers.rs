//! Readers of a stream that come and go: a chunk for those who wait for one, the losses that no reader has been sent, and the
//! chunks that describe machine, settings and processes.

use std::collections::BTreeMap;

use jfr_format::{ids::TypeId, schema};

use super::Recording;

/// Least age of a chunk that is closed for a reader that waits for the next one, ns.
const EARLY_NS: u64 = 1_000_000_000;

/// Losses that no reader has been sent, by type of event and cause or kind: number and sum of the values.
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

/// The chunks that describe machine, settings and processes.
#[derive(Default)]
pub(super) struct InfoChunks {
    /// The last chunk that has the description.
    written: u32,
    /// The chunk that was begun for readers who have seen nothing before, or a later one.
    newcomers: u32,
}

impl InfoChunks {
    /// Returns true if `chunk` needs the description and does not have it yet; it counts as written then.
    fn begin(&mut self, chunk: u32, alone: bool) -> bool {
        let begin = self.written != chunk && (alone || self.newcomers > self.written);
        if begin {
            self.written = chunk;
        }
        begin
    }
}

impl Recording {
    /// Begins a chunk early for readers who wait for one; not too often while others follow.
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
        // Its first bytes, by which the reader gets it.
        self.write_out(now_ns);
        self.write_pending_losses(now_ns);
    }

    /// Retains a loss, which is written only once, while the output is a stream without a reader.
    pub fn defer_unread_loss(&mut self, id: TypeId, cause: &'static str, loss: (u64, u64)) -> bool {
        let keep = self.output.has_no_reader();
        if keep {
            self.pending_losses.add(id, cause, loss);
        }
        keep
    }

    /// Writes the losses that were retained, of all threads together: those that they belong to may be over.
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

    /// Returns true if machine, settings and processes are not in this chunk yet, although a reader needs them there: it is read
    /// alone (`alone`), or it is the first one of a new reader. They count as written then.
    pub fn begin_info_events(&mut self, alone: bool) -> bool {
        self.info_chunks.begin(self.chunk.number, alone)
    }
}
