//! Decides when a chunk is flushed, ended, and followed by the next one.

use std::{sync::atomic::AtomicU64, time::Duration};

use jfr_format::{ids::TypeId, schema};

use super::{Recording, output_state::OutputState};
use crate::{
    os::clock::both_ns, output::repository::MOST_CHUNK_BYTES, settings::DICTIONARY_BYTES,
    shared_memory::journal::Entry,
};

/// A fixed chunk is closed after this time even if it has room left, ns.
const FIXED_CHUNK_NS: u64 = 15_000_000_000;
/// Time between clock anchors, ns.
const ANCHOR_NS: u64 = 10_000_000_000;

/// Queued bytes that cause a write before the flush.
const QUEUED_BYTES: usize = 32 << 10;
/// Queued bytes that cause a write within a round. Many samples may come at the same time when symbols have
/// been read.
const MOST_QUEUED_BYTES: usize = 128 << 10;
/// Queued bytes that cause a write within a record, if there is a journal. The events of a record are
/// committed together, unless they exceed this.
const MOST_OF_RECORD_BYTES: usize = 4 << 20;

/// The schedule of flushes.
pub(super) struct FlushSchedule {
    interval_ns: u64,
    last_flush_ns: u64,
    last_anchor_ns: u64,
}

impl FlushSchedule {
    pub(super) fn new(interval: Duration, now_ns: u64) -> FlushSchedule {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        FlushSchedule { interval_ns, last_flush_ns: now_ns, last_anchor_ns: 0 }
    }

    /// Returns the time until the next flush, ns.
    fn due_in(&self, now_ns: u64) -> u64 {
        self.interval_ns.saturating_sub(now_ns.saturating_sub(self.last_flush_ns))
    }

    /// Notes a flush. Returns true if a clock anchor is due too.
    fn note_flush(&mut self, now_ns: u64) -> bool {
        self.last_flush_ns = now_ns;
        let anchor = now_ns.saturating_sub(self.last_anchor_ns) >= ANCHOR_NS;
        if anchor {
            self.last_anchor_ns = now_ns;
        }
        anchor
    }
}

impl Recording {
    /// Ensures that an event of type `id` is declared, by the next chunk if necessary, and that `cost` bytes
    /// fit, by a flush or the next chunk. Returns false if the output has failed.
    #[inline]
    pub(super) fn make_room(&mut self, id: TypeId, cost: impl Fn(&Recording) -> usize) -> bool {
        if !self.output.is_writable() {
            return false;
        }
        if !self.chunk.writer.declares(id) {
            self.declare(id);
            if self.output.has_failed() {
                return false;
            }
        }
        let context_bytes = self.spans.sampled_context_bytes();
        if context_bytes > 0 && !self.chunk.writer.declares(schema::SAMPLE_CONTEXT) {
            self.declare(schema::SAMPLE_CONTEXT);
        }
        let cost = |recording: &Recording| cost(recording) + context_bytes;
        let most = if self.output.journal.is_some() { MOST_OF_RECORD_BYTES } else { MOST_QUEUED_BYTES };
        (self.chunk.writer.room() >= cost(self) && self.chunk.writer.pending() < most)
            || self.make_room_slowly(&cost)
    }

    /// Starts a record. All its events go into one batch, so that a recovery writes all or none.
    #[inline]
    pub fn begin_record(&mut self) {
        if self.chunk.writer.pending() >= MOST_QUEUED_BYTES && self.output.journal.is_some() {
            self.write_batch();
        }
    }

    /// Writes out the queue within a round.
    #[cold]
    fn write_batch(&mut self) {
        if self.output.is_writable() {
            self.make_room_slowly(&|_| 0);
        }
    }

    /// Copies a record to the journal, if there is one. If the journal is full, writes out the queue to make
    /// room.
    pub fn keep(&mut self, process: u64, place: u64, kind: u8, payload: &[AtomicU64]) -> Option<Entry> {
        self.open_before_record();
        let entry = self.output.journal.as_mut()?.append(process, place, kind, payload);
        if entry.is_some() || self.chunk.writer.pending() < QUEUED_BYTES {
            return entry;
        }
        self.write_batch();
        self.output.journal.as_mut()?.append(process, place, kind, payload)
    }

    #[cold]
    fn make_room_slowly(&mut self, cost: &dyn Fn(&Recording) -> usize) -> bool {
        let now = crate::os::clock::monotonic_ns();
        self.write_out(now);
        // At a chunk's end, no other chunk may start.
        let may_end = !self.spans.is_writing_open();
        if !self.output.has_failed() && may_end && self.output.sink.repository().is_some() && self.big() {
            // The caller holds keys of stacks, so the dictionary must not be cleared.
            self.next_chunk(now, 0, usize::MAX);
        }
        // The cost is higher in a new chunk, which has no constants yet; so another, larger chunk may be
        // needed.
        for _ in 0..2 {
            if self.chunk.writer.room() < cost(self) && !self.output.has_failed() && may_end {
                self.next_chunk(now, cost(self) as u64, usize::MAX);
            }
        }
        !self.output.has_failed() && self.chunk.writer.room() >= cost(self)
    }

    /// After a round of the drain: writes out the queue if it is long, so that a full disk loses little.
    pub fn settle(&mut self, now_ns: u64) {
        if self.chunk.writer.pending() > QUEUED_BYTES && self.output.is_writable() {
            self.write_out(now_ns);
            // A repository must be able to remove this chunk before the next flush.
            if self.big() && !self.output.has_failed() {
                self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
            }
        }
    }

    /// Returns true if it is time for [`Recording::flush`].
    pub fn flush_due(&self, now_ns: u64) -> bool {
        self.flush_in(now_ns) == 0
    }

    /// Returns the time until the next flush, ns.
    pub fn flush_in(&self, now_ns: u64) -> u64 {
        self.flushes.due_in(now_ns)
    }

    /// Writes out the queue.
    pub fn flush(&mut self, now_ns: u64) {
        if !self.output.is_writable() {
            return;
        }
        let anchor = self.flushes.note_flush(now_ns);
        if self.sums_due(now_ns) {
            self.write_sums(now_ns);
        }
        if anchor {
            self.anchor();
        }
        self.write_out(now_ns);
        self.output.sync();
    }

    /// Begins another chunk if this one is old or big.
    pub fn rotate(&mut self, now_ns: u64) {
        if !self.output.is_writable() {
            return;
        }
        let longest = match self.output.sink.repository() {
            Some(sink) => sink.repository().chunk_age_limit().as_nanos() as u64,
            None if self.chunk.fixed => FIXED_CHUNK_NS,
            None => u64::MAX,
        };
        let old = self.chunk.age_ns(now_ns) > longest;
        if old || self.big() || self.interner.bytes() > DICTIONARY_BYTES || self.threads.are_many() {
            self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
        }
    }

    /// Starts another chunk, because the settings change.
    pub fn cut(&mut self, now_ns: u64) {
        if self.output.is_writable() {
            self.write_out(now_ns);
            self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
        }
    }

    /// Before a flush that a client requested: queues an event, so that the flush writes a segment. The
    /// segment shows the reader of a stream that everything before it has arrived.
    pub fn mark_flush(&mut self) {
        if self.chunk.writer.pending() == 0 && self.stream().is_some_and(|stream| !stream.has_no_reader()) {
            self.anchor();
        }
    }

    /// Returns true if the chunk has reached the size at which it is closed.
    fn big(&mut self) -> bool {
        let size = self.chunk.size(&self.output.sink);
        match self.output.sink.repository() {
            Some(sink) => size > sink.repository().chunk_limit(),
            None => !self.chunk.fixed && size > MOST_CHUNK_BYTES,
        }
    }

    /// Writes queued bytes to slow readers, and accepts new readers.
    pub fn push(&mut self) {
        if !self.output.has_failed()
            && let Err(error) = self.output.sink.push()
        {
            self.fail(&error);
        }
        self.begin_for_readers();
    }

    /// Returns the bytes queued for the slowest reader.
    pub fn waiting(&self) -> usize {
        if self.output.has_failed() { 0 } else { self.output.sink.waiting() }
    }

    /// Writes a clock anchor: both clocks at this time.
    fn anchor(&mut self) {
        let (mono, wall) = both_ns();
        let time = self.ticks(mono);
        self.event(schema::CLOCK_ANCHOR, None, 40, |e, _| {
            e.ticks(time).long(mono as i64).long(wall as i64);
        });
    }

    pub(super) fn write_out(&mut self, now_ns: u64) {
        self.open_lazy();
        if self.output.has_failed() {
            return;
        }
        let now = self.ticks(now_ns);
        match self.chunk.writer.flush(now, &mut self.output.sink) {
            Ok(()) => {
                self.counters.unsent = 0;
                self.commit();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Notes in the journal that the queued events are in the output.
    pub(super) fn commit(&mut self) {
        let (at, header) = self.chunk.writer.header();
        let OutputState { sink, journal, .. } = &mut self.output;
        if let (Some(journal), Some(header), Some(path)) = (journal, header, sink.file()) {
            journal.commit(path, at.0, sink.position().0, header);
        }
    }

    pub(super) fn next_chunk(&mut self, now_ns: u64, need: u64, dictionary: usize) {
        self.write_sums(now_ns);
        self.write_open_spans();
        let now = self.ticks(now_ns);
        let size = self.chunk.size(&self.output.sink);
        if let Err(error) = self.chunk.writer.finish(now, false, &mut self.output.sink) {
            return self.fail(&error);
        }
        self.counters.unsent = 0;
        self.commit();
        self.output.sync();
        if let Err(error) = self.next_file() {
            return self.fail(&error);
        }
        self.begin_chunk(now_ns, size, need, dictionary);
    }

    pub(super) fn begin_chunk(&mut self, now_ns: u64, size: u64, need: u64, dictionary: usize) {
        if let Err(error) = self.chunk.begin_next(&self.output.sink, now_ns, size, need) {
            return self.fail(&std::io::Error::other(error));
        }
        self.counters.chunks += 1;
        self.interner.next_chunk(dictionary);
        // Otherwise the caller is about to write an event.
        if dictionary != usize::MAX {
            self.threads.trim(self.chunk.number);
            self.names.trim(self.chunk.number);
        }
    }

    /// Ends the recording.
    pub fn finish(&mut self) {
        if self.output.is_finished() {
            return;
        }
        if self.discard_lazy() {
            return self.output.set_finished();
        }
        self.open_lazy();
        if !self.output.has_failed() {
            self.write_sums(crate::os::clock::monotonic_ns());
            self.anchor();
            let now = self.ticks(crate::os::clock::monotonic_ns());
            if let Err(error) = self.chunk.writer.finish(now, true, &mut self.output.sink) {
                self.fail(&error);
            }
        }
        if let Some(stream) = self.stream_mut() {
            stream.finish();
        }
        self.output.sync();
        self.commit();
        if let Some(journal) = self.output.journal.take() {
            journal.remove();
        }
        self.output.set_finished();
    }
}
