//! When a chunk is flushed, ended and followed by the next one.

use std::sync::atomic::AtomicU64;

use jfr_format::{
    ids::{Ticks, TypeId},
    metadata::Declared,
    schema,
    write::{ChunkWriter, Geometry, min_fixed_size},
};

use super::Recording;
use crate::{
    os::clock::both_ns,
    output::repository::MOST_CHUNK_BYTES,
    settings::{DICTIONARY_BYTES, Settings},
    shared_memory::journal::Entry,
};

/// A fixed chunk is closed after this time even if there is room left, ns.
const FIXED_CHUNK_NS: u64 = 15_000_000_000;
/// Time for which the size of the next fixed chunk is chosen, ns.
const AIM_NS: u64 = 3_000_000_000;
/// Least age of a chunk that tells the rate, ns.
const LEAST_NS: u64 = 500_000_000;
/// Smallest and largest fixed chunk beside its frame, bytes.
const FIXED_BYTES: [u64; 2] = [48 << 10, 8 << 20];
/// Time between clock anchors, ns.
const ANCHOR_NS: u64 = 10_000_000_000;

/// Bytes queued before they are written out ahead of the flush.
const QUEUED_BYTES: usize = 32 << 10;
/// The same in the midst of a round: many samples may come at once when symbols have been read.
const MOST_QUEUED_BYTES: usize = 128 << 10;
/// The same in the midst of a record, where there is a journal: its events are committed together, unless they are that many.
const MOST_OF_RECORD_BYTES: usize = 4 << 20;

impl Recording {
    /// Makes sure that an event of type `id` is declared, by the next chunk, and that `cost` bytes fit: by a flush, or by the
    /// next chunk. `false` if the output is gone.
    #[inline]
    pub(super) fn make_room(&mut self, id: TypeId, cost: impl Fn(&Recording) -> usize) -> bool {
        if self.failure.is_some() || self.finished {
            return false;
        }
        if !self.writer.declares(id) {
            self.declare(id);
            if self.failure.is_some() {
                return false;
            }
        }
        let beside = self.room_for_spans();
        if beside > 0 && !self.writer.declares(schema::SAMPLE_CONTEXT) {
            self.declare(schema::SAMPLE_CONTEXT);
        }
        let cost = |recording: &Recording| cost(recording) + beside;
        let most = if self.journal.is_some() { MOST_OF_RECORD_BYTES } else { MOST_QUEUED_BYTES };
        (self.writer.room() >= cost(self) && self.writer.pending() < most) || self.make_room_slowly(&cost)
    }

    /// Before the events of a record are queued: all of them come into one batch, so that a recovery writes all or none.
    #[inline]
    pub fn begin_record(&mut self) {
        if self.writer.pending() >= MOST_QUEUED_BYTES && self.journal.is_some() {
            self.write_batch();
        }
    }

    /// Writes out what is queued, in the midst of a round.
    #[cold]
    fn write_batch(&mut self) {
        if self.failure.is_none() && !self.finished {
            self.make_room_slowly(&|_| 0);
        }
    }

    /// Copies a record to the journal, if there is one. If that is full, room is made by writing what is queued.
    pub fn keep(&mut self, process: u64, place: u64, kind: u8, payload: &[AtomicU64]) -> Option<Entry> {
        self.open_later();
        let kept = self.journal.as_mut()?.append(process, place, kind, payload);
        if kept.is_some() || self.writer.pending() < QUEUED_BYTES {
            return kept;
        }
        self.write_batch();
        self.journal.as_mut()?.append(process, place, kind, payload)
    }

    #[cold]
    fn make_room_slowly(&mut self, cost: &dyn Fn(&Recording) -> usize) -> bool {
        let now = crate::os::clock::monotonic_ns();
        self.write_out(now);
        // At a chunk's end nothing begins another one.
        let may_end = !self.open.telling();
        if self.failure.is_none() && may_end && self.sink.repository().is_some() && self.big() {
            // Whoever wants room has keys of stacks in hand: the dictionary stays.
            self.next_chunk(now, 0, usize::MAX);
        }
        // In a new chunk it costs more, as nothing is written there yet; so perhaps another, larger one.
        for _ in 0..2 {
            if self.writer.room() < cost(self) && self.failure.is_none() && may_end {
                self.next_chunk(now, cost(self) as u64, usize::MAX);
            }
        }
        self.failure.is_none() && self.writer.room() >= cost(self)
    }

    /// After a round of the drain: writes out what is queued if it is much, so that little is lost by a full disk.
    pub fn settle(&mut self, now_ns: u64) {
        if self.writer.pending() > QUEUED_BYTES && self.failure.is_none() && !self.finished {
            self.write_out(now_ns);
            // A repository must be able to remove what it holds before the next flush.
            if self.big() && self.failure.is_none() {
                self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
            }
        }
    }

    /// Whether it is time for [`Recording::flush`].
    pub fn flush_due(&self, now_ns: u64) -> bool {
        self.flush_in(now_ns) == 0
    }

    /// Time until then, ns.
    pub fn flush_in(&self, now_ns: u64) -> u64 {
        self.flush_ns.saturating_sub(now_ns.saturating_sub(self.last_flush_ns))
    }

    /// Writes out what is queued; begins another chunk when this one is old or big.
    pub fn flush(&mut self, now_ns: u64) {
        if self.failure.is_some() || self.finished {
            return;
        }
        self.last_flush_ns = now_ns;
        if self.sums_due(now_ns) {
            self.write_sums(now_ns);
        }
        if now_ns.saturating_sub(self.last_anchor_ns) >= ANCHOR_NS {
            self.last_anchor_ns = now_ns;
            self.anchor();
        }
        self.write_out(now_ns);
        self.sync();
        let longest = match self.sink.repository() {
            Some(sink) => sink.repository().chunk_age_limit().as_nanos() as u64,
            None if self.fixed => FIXED_CHUNK_NS,
            None => u64::MAX,
        };
        let old = now_ns.saturating_sub(self.chunk_start_ns) > longest;
        if old || self.big() || self.interner.bytes() > DICTIONARY_BYTES || self.many_constants() {
            self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
        }
    }

    /// Begins another chunk, for what is recorded otherwise from now on.
    pub fn cut(&mut self, now_ns: u64) {
        if self.failure.is_none() && !self.finished {
            self.write_out(now_ns);
            self.next_chunk(now_ns, 0, DICTIONARY_BYTES);
        }
    }

    /// Before a flush that somebody asked for: by its segment a reader of the stream knows that all before it has come, so there
    /// must be something in it.
    pub fn mark_flush(&mut self) {
        if self.writer.pending() == 0 && self.stream().is_some_and(|stream| !stream.has_no_reader()) {
            self.anchor();
        }
    }

    /// Whether the chunk has the size at which it is closed.
    fn big(&mut self) -> bool {
        let size = self.sink.bytes() - self.chunk_start_byte;
        match self.sink.repository() {
            Some(sink) => size > sink.repository().chunk_limit(),
            None => !self.fixed && size > MOST_CHUNK_BYTES,
        }
    }

    /// Pushes what waits for slow readers, lets others in.
    pub fn push(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.sink.push()
        {
            self.fail(&error);
        }
        self.begin_for_readers();
    }

    /// Bytes that wait for a slow reader.
    pub fn waiting(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.sink.waiting() }
    }

    /// Both clocks, now.
    fn anchor(&mut self) {
        let (mono, wall) = both_ns();
        let time = self.ticks(mono);
        self.event(schema::CLOCK_ANCHOR, None, 40, |e, _| {
            e.ticks(time).long(mono as i64).long(wall as i64);
        });
    }

    pub(super) fn write_out(&mut self, now_ns: u64) {
        self.make_later();
        if self.failure.is_some() {
            return;
        }
        let now = self.ticks(now_ns);
        match self.writer.flush(now, &mut self.sink) {
            Ok(()) => {
                self.unsent = 0;
                self.commit();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// What was written goes on to the disk, if that is asked for.
    fn sync(&self) {
        if let Some(syncer) = &self.syncer {
            self.sink.sync(syncer);
        }
    }

    /// Notes in the journal that what was queued is in the output.
    pub(super) fn commit(&mut self) {
        let (at, header) = self.writer.header();
        if let (Some(journal), Some(header), Some(path)) = (&mut self.journal, header, self.sink.file()) {
            journal.commit(path, at.0, self.sink.position().0, header);
        }
    }

    pub(super) fn next_chunk(&mut self, now_ns: u64, need: u64, dictionary: usize) {
        self.write_sums(now_ns);
        self.write_open_spans();
        let now = self.ticks(now_ns);
        let size = self.sink.bytes() - self.chunk_start_byte;
        if let Err(error) = self.writer.finish(now, false, &mut self.sink) {
            return self.fail(&error);
        }
        self.unsent = 0;
        self.commit();
        self.sync();
        if let Err(error) = self.next_file() {
            return self.fail(&error);
        }
        self.begin_chunk(now_ns, size, need, dictionary);
    }

    pub(super) fn begin_chunk(&mut self, now_ns: u64, size: u64, need: u64, dictionary: usize) {
        // JMC takes two chunks that start at the same time for one, and what is drained at once may fill several. Between two of them
        // there is a tick for one that tells a reader of a stream what it lost.
        let now = Ticks(self.ticks(now_ns).0.max(self.writer.start().0 + 2));
        let geometry = if self.fixed {
            let lasted = now_ns.saturating_sub(self.chunk_start_ns);
            // A chunk that was soon over is mostly its frame: it says nothing of the rate.
            if lasted >= LEAST_NS {
                let content = size.saturating_sub(u64::from(min_fixed_size(&self.declared)));
                self.wished_bytes = content.saturating_mul(AIM_NS) / lasted;
            }
            Geometry::Fixed { size: fixed_size(self.wished_bytes.max(2 * need), &self.declared) }
        } else {
            Geometry::Patched
        };
        match ChunkWriter::declaring(&self.declared, geometry, &self.line, self.sink.position(), now) {
            Ok(mut writer) => {
                if let Some(next) = self.writer.next_segment() {
                    writer.enable_segments(next);
                }
                self.writer = writer;
            }
            Err(error) => return self.fail(&std::io::Error::other(error)),
        }
        self.chunk += 1;
        self.chunks += 1;
        self.interner.next_chunk(dictionary);
        // Otherwise somebody is about to write an event.
        if dictionary != usize::MAX {
            self.trim_constants();
        }
        self.chunk_start_ns = now_ns;
        self.chunk_start_byte = self.sink.bytes();
    }

    /// Number of the chunk being written.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Ends the recording.
    pub fn finish(&mut self) {
        if self.finished {
            return;
        }
        if self.forget_later() {
            self.finished = true;
            return;
        }
        self.make_later();
        if self.failure.is_none() {
            self.write_sums(crate::os::clock::monotonic_ns());
            self.anchor();
            let now = self.ticks(crate::os::clock::monotonic_ns());
            if let Err(error) = self.writer.finish(now, true, &mut self.sink) {
                self.fail(&error);
            }
        }
        if let Some(stream) = self.stream_mut() {
            stream.finish();
        }
        self.sync();
        self.commit();
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
        self.finished = true;
    }
}

/// A size for a fixed chunk that leaves `content` bytes beside its frame.
pub(super) fn fixed_size(content: u64, declared: &Declared) -> u32 {
    let size = content.clamp(FIXED_BYTES[0], FIXED_BYTES[1]) + u64::from(min_fixed_size(declared));
    (size.next_multiple_of(4096)) as u32
}

/// What the first chunk should have room for: names and stacks, and the samples that a busy thread makes in three seconds.
pub(super) fn first_content(settings: &Settings) -> u64 {
    (settings.rate() * 3.0 * 14.0) as u64 + FIXED_BYTES[0]
}
