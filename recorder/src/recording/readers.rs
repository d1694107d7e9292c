//! Readers of a stream that come and go: a chunk for those who wait for one, and what there was nobody to be told of.

use jfr_format::{ids::TypeId, schema};

use super::Recording;

/// Least age of a chunk that is closed for a reader who waits for the next one, ns.
const EARLY_NS: u64 = 1_000_000_000;

impl Recording {
    /// Begins a chunk early for readers who wait for one; not too often while others follow.
    pub(super) fn begin_for_readers(&mut self) {
        let Some(stream) = self.stream().filter(|stream| stream.wants_chunk()) else { return };
        let now_ns = crate::os::clock::monotonic_ns();
        let young = now_ns.saturating_sub(self.chunk_start_ns) < EARLY_NS;
        if self.finished || (young && !stream.has_no_reader()) {
            return;
        }
        self.cut(now_ns);
        self.newcomers_chunk = self.chunk;
        if self.failure.is_some() {
            return;
        }
        // Its first bytes, by which the reader gets it.
        self.write_out(now_ns);
        self.write_pending_losses(now_ns);
    }

    /// Keeps a loss, which is told only once, while nobody would be told of it.
    pub fn keeps_untold(&mut self, id: TypeId, what: &'static str, (count, value): (u64, u64)) -> bool {
        let keep = self.stream().is_some_and(|stream| stream.has_no_reader());
        if keep {
            let sum = self.untold.entry((id, what)).or_default();
            *sum = (sum.0.saturating_add(count), sum.1.saturating_add(value));
        }
        keep
    }

    /// Tells it, of all threads together: those that it was about may be over.
    fn write_pending_losses(&mut self, now_ns: u64) {
        if self.stream().is_none_or(|stream| stream.has_no_reader()) {
            return;
        }
        let now = self.ticks(now_ns);
        for ((id, what), (count, value)) in std::mem::take(&mut self.untold) {
            self.event(id, None, what.len(), |e, key| {
                e.ticks(now);
                if id == schema::SAMPLE_LOSS {
                    e.key(key);
                }
                e.string(what).long(count as i64).long(value as i64);
            });
        }
    }
}
