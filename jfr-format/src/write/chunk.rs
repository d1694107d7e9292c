//! Writes one chunk, from its header to its last byte.

use super::checkpoint::{MAX_FRAME, Pending, statics};
use super::cut::Fragment;
use super::event_type::{Event, EventType};
use super::fields::FieldWriter;
use super::output::Output;
use super::queue::Queue;
use super::{ClockLine, WriteError, buffer, fixed, segment};
use crate::constants::*;
use crate::header::{self, ChunkHeader};
use crate::ids::{ChunkOffset, FileOffset, Ticks, TypeId};
use crate::metadata::Declared;
use crate::schema;
use bytes::BytesMut;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum bytes queued for a flush. Every checkpoint stays far below the 2^28 bytes of its size field.
const MAX_QUEUED: usize = 64 << 20;
/// Maximum size of a patched chunk: JMC reads a chunk into one array.
const MAX_PATCHED: usize = 1 << 30;

/// How a chunk gets a correct header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// The header is rewritten at each flush. Needs a seekable output.
    Patched,
    /// The chunk is filled up to a size known in advance. For pipes.
    Fixed {
        /// Size of the chunk in bytes, at least [`min_fixed_size`](super::min_fixed_size), below 2²⁸.
        size: u32,
    },
}

/// Collects events and constants and writes them as one chunk.
#[derive(Debug)]
pub struct ChunkWriter {
    /// Identifies the constants that a reader of the chunk will have; see [`ChunkWriter::id`].
    id: u64,
    geometry: Geometry,
    declared: Declared,
    line: ClockLine,
    /// Offset of the chunk in the output.
    base: FileOffset,
    start: Ticks,
    /// Number of bytes in the output.
    written: usize,
    queue: Queue,
    /// The last checkpoint in `head` or in the output.
    checkpoint: ChunkOffset,
    generation: u8,
    finished: bool,
    /// The header in the output.
    header: Option<[u8; header::LEN]>,
    /// Memory reused by each flush; empty in between.
    segment: BytesMut,
    /// Sequence number of the next segment, if segment events are enabled.
    next_segment: Option<u64>,
}

impl ChunkWriter {
    /// Begins a chunk at offset `base` of the output, with `now` as its start; nothing is written yet. It
    /// declares the whole schema.
    ///
    /// `line` is the same for all chunks of a file.
    ///
    /// # Errors
    /// [`WriteError::Size`], [`WriteError::TicksPerSecond`].
    pub fn begin(
        geometry: Geometry,
        line: &ClockLine,
        base: FileOffset,
        now: Ticks,
    ) -> Result<ChunkWriter, WriteError> {
        ChunkWriter::declaring(&Declared::all(), geometry, line, base, now)
    }

    /// Begins a chunk that declares only these types; others cannot be written.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn declaring(
        declared: &Declared,
        geometry: Geometry,
        line: &ClockLine,
        base: FileOffset,
        now: Ticks,
    ) -> Result<ChunkWriter, WriteError> {
        if let Geometry::Fixed { size } = geometry {
            fixed::check(size, declared)?;
        }
        if line.ticks_per_second <= 0 {
            return Err(WriteError::TicksPerSecond(line.ticks_per_second));
        }
        let mut chunk = ChunkWriter {
            id: next_id(),
            geometry,
            declared: declared.clone(),
            line: *line,
            base,
            start: now,
            written: 0,
            queue: Queue::default(),
            checkpoint: ChunkOffset(0),
            generation: STATE_FIRST,
            finished: false,
            header: None,
            segment: BytesMut::new(),
            next_segment: None,
        };
        let first_header = chunk.first_header().encode();
        let head = &mut chunk.queue.head;
        head.extend_from_slice(&first_header);
        head.extend_from_slice(declared.event());
        chunk.checkpoint = ChunkOffset(head.len() as u64);
        statics().put(head, chunk.checkpoint, None, now, CHECKPOINT_STATICS);
        Ok(chunk)
    }

    fn first_header(&self) -> ChunkHeader {
        let mut header = ChunkHeader {
            major: MAJOR,
            minor: MINOR,
            // With this size and state 1 the JDK waits; with any other values it may spin or fail.
            size: header::LEN as u64,
            checkpoint: ChunkOffset(0),
            metadata: ChunkOffset(0),
            start_nanos: self.line.epoch_nanos(self.start),
            duration_nanos: 0,
            start_ticks: self.start,
            ticks_per_second: self.line.ticks_per_second,
            state: STATE_FIRST,
            flags: FLAG_COMPRESSED,
        };
        if let Geometry::Fixed { size } = self.geometry {
            header.size = u64::from(size);
            header.checkpoint = fixed::anchor_at(size);
            header.metadata = ChunkOffset(header::LEN as u64);
            header.state = STATE_FINISHED;
        }
        header
    }

    /// Returns the number of bytes for events and constants until a flush is needed or, if that does not
    /// help, the end of the chunk. A constant may take 7 bytes more than its own for the start of its pool.
    #[inline]
    pub fn room(&self) -> usize {
        let end = match self.geometry {
            Geometry::Patched => MAX_PATCHED,
            Geometry::Fixed { size } => size as usize - fixed::ANCHOR - fixed::MIN_FILLER,
        };
        // A flush adds up to two checkpoints around the queued bytes.
        let told = if self.next_segment.is_some() { segment::MAX } else { 0 };
        let queued = self.pending() + 2 * MAX_FRAME + told;
        end.saturating_sub(self.written).min(MAX_QUEUED).saturating_sub(queued)
    }

    /// Ends each flush from now on with a `flightline.Segment`, by which readers of a stream check the
    /// received bytes. `next` is the sequence number of the first one. Has no effect if the geometry is not
    /// fixed or the chunk does not declare the type.
    pub fn enable_segments(&mut self, next: u64) {
        if matches!(self.geometry, Geometry::Fixed { .. }) && self.declares(schema::SEGMENT) {
            self.next_segment = Some(next);
        }
    }

    /// Returns the sequence number of the next segment, for the following chunk; `None` if segment events are
    /// not enabled.
    pub fn next_segment(&self) -> Option<u64> {
        self.next_segment
    }

    /// Returns the number of bytes queued for the next flush.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Returns the offset in the output after the last flush.
    pub fn end(&self) -> FileOffset {
        FileOffset(self.base.0 + self.written as u64)
    }

    /// Returns true if the chunk declares a type, so that it can be written.
    #[inline]
    pub fn declares(&self, id: TypeId) -> bool {
        self.declared.has(id)
    }

    /// Returns the offset of the chunk in the output, and its header there; `None` until a flush has written
    /// it.
    pub fn header(&self) -> (FileOffset, Option<&[u8; header::LEN]>) {
        (self.base, self.header.as_ref())
    }

    /// Returns the start of the chunk.
    pub fn start(&self) -> Ticks {
        self.start
    }

    /// Queues an event; `fields` writes its fields in the order of the schema.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Fields`], [`WriteError::Key`], [`WriteError::NotAnEvent`],
    /// [`WriteError::Undeclared`], [`WriteError::Finished`]; in these cases nothing is queued.
    #[inline]
    pub fn event(&mut self, id: TypeId, fields: impl FnOnce(&mut FieldWriter<'_>)) -> Result<(), WriteError> {
        if self.finished {
            return Err(WriteError::Finished);
        }
        match schema::get(id) {
            Some(of) if of.kind == schema::Kind::Event && !self.declares(id) => {
                Err(WriteError::Undeclared(of.name))
            }
            Some(of) if of.kind == schema::Kind::Event => {
                let room = self.room();
                buffer::put_event(&mut self.queue.events, of, room, fields)?;
                self.queue.event_count += 1;
                Ok(())
            }
            _ => Err(WriteError::NotAnEvent(id)),
        }
    }

    /// Queues an event of a type of the caller's own. `start` is the time at which the event happened or, if it
    /// has a duration, began.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Undeclared`], [`WriteError::Finished`], and [`WriteError::Fields`] if
    /// [`Event::fields`] has not the same fields as when the type was declared; in these cases nothing is
    /// queued.
    #[inline]
    pub fn write<T: Event>(&mut self, ty: &EventType<T>, start: Ticks, event: &T) -> Result<(), WriteError> {
        if self.finished {
            return Err(WriteError::Finished);
        }
        if !self.declared.has_own(&ty.own) {
            return Err(WriteError::Undeclared(T::NAME));
        }
        let room = self.room();
        let id = ty.own.ty.id;
        buffer::put_fields(&mut self.queue.events, id, room, |out| ty.encode(start, event, out))?;
        self.queue.event_count += 1;
        Ok(())
    }

    /// Returns a number that changes whenever constants that were queued must be queued again: it differs between
    /// chunks, and from before to after a [`discard`](Self::discard).
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Queues constant `key` of pool `id`; `value` writes the fields of its type. The next flush writes it
    /// before the events that are queued at that time.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Fields`], [`WriteError::Key`], [`WriteError::NotAPool`],
    /// [`WriteError::Undeclared`], [`WriteError::Finished`]; in these cases nothing is queued.
    pub fn constant(
        &mut self,
        id: TypeId,
        key: u64,
        value: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        if self.finished {
            return Err(WriteError::Finished);
        }
        match schema::get(id) {
            Some(of) if of.is_pool() && !self.declares(id) => Err(WriteError::Undeclared(of.name)),
            Some(of) if of.is_pool() => {
                let room = self.room();
                self.queue.constants.add(of, key, room, value)
            }
            _ => Err(WriteError::NotAPool(id)),
        }
    }

    /// Writes the queued events and constants. Writes nothing if the queue is empty.
    ///
    /// # Errors
    /// Of the output. If appending failed, everything is still queued: flush again, or [`discard`](Self::discard) and
    /// [`finish`](Self::finish). If only patching the header failed, the data are written and the next flush patches.
    pub fn flush(&mut self, now: Ticks, out: &mut dyn Output) -> io::Result<()> {
        if self.pending() == 0 || self.finished {
            return Ok(());
        }
        let mut segment = std::mem::take(&mut self.segment);
        let checkpoint = self.put_segment(&mut segment, now);
        let appended = out.append(&segment);
        let len = segment.len();
        buffer::reuse(&mut segment);
        self.segment = segment;
        appended?;
        self.written += len;
        self.checkpoint = checkpoint;
        self.next_segment = self.next_segment.map(|number| number + 1);
        self.queue.clear();
        match self.geometry {
            Geometry::Patched => {
                self.generation =
                    if self.generation >= STATE_LAST { STATE_FIRST } else { self.generation + 1 };
                self.patch_header(now, self.generation, FLAG_COMPRESSED, out)
            }
            Geometry::Fixed { .. } => Ok(()),
        }
    }

    /// Discards the queue, so that a chunk whose output has failed can still be finished. Queued constants
    /// count as never written.
    pub fn discard(&mut self) {
        self.id = next_id();
        self.queue.discard();
    }

    /// Releases the memory that is retained from one flush to the next, and discards the queue.
    pub fn let_go(&mut self) {
        self.id = next_id();
        self.queue = Queue::default();
        self.segment = BytesMut::new();
    }

    /// Returns the bytes of memory that are retained for the queue.
    pub fn buffer_capacity(&self) -> usize {
        self.queue.capacity() + self.segment.capacity()
    }

    /// Writes the queue and ends the chunk. `last`: no chunk follows in this file.
    ///
    /// # Errors
    /// Of the output. As for [`flush`](Self::flush), a patched chunk may be finished again after that; one of fixed
    /// size whose end was cut is lost.
    pub fn finish(&mut self, now: Ticks, last: bool, out: &mut dyn Output) -> io::Result<()> {
        if self.finished {
            return Ok(());
        }
        self.flush(now, out)?;
        match self.geometry {
            Geometry::Patched => {
                let flags = if last { FLAG_COMPRESSED | FLAG_FINAL } else { FLAG_COMPRESSED };
                self.patch_header(now, STATE_FINISHED, flags, out)?;
            }
            Geometry::Fixed { size } => {
                let at = ChunkOffset(self.written as u64);
                for piece in fixed::end(size, at, Some(self.checkpoint), now) {
                    match &piece {
                        Fragment::Bytes(bytes) => out.append(bytes)?,
                        Fragment::Zeros(len) => out.fill(*len)?,
                    }
                    self.written += piece.len();
                }
            }
        }
        self.finished = true;
        // A caller may store a finished chunk to read its state, so release its buffers.
        self.queue = Queue::default();
        self.segment = BytesMut::new();
        Ok(())
    }

    /// Appends head, constants, events, the closing checkpoint and the segment event. Returns the offset of
    /// the checkpoint in the chunk.
    fn put_segment(&self, segment: &mut BytesMut, now: Ticks) -> ChunkOffset {
        let here = |segment: &BytesMut| ChunkOffset((self.written + segment.len()) as u64);
        segment.extend_from_slice(&self.queue.head);
        let mut previous = self.checkpoint;
        if self.queue.constants.len() > 0 {
            let at = here(segment);
            self.queue.constants.put(segment, at, Some(previous), now, 0);
            previous = at;
        }
        segment.extend_from_slice(&self.queue.events);
        let closing = here(segment);
        Pending::default().put(segment, closing, Some(previous), now, CHECKPOINT_FLUSH);
        if let Some(number) = self.next_segment {
            segment::put(segment, now, number, self.written, self.queue.event_count);
        }
        closing
    }

    /// Patches the header by the JDK's protocol: readers trust fields that they read between two equal states
    /// other than "updating".
    fn patch_header(&mut self, now: Ticks, state: u8, flags: u16, out: &mut dyn Output) -> io::Result<()> {
        let bytes = ChunkHeader {
            size: self.written as u64,
            checkpoint: self.checkpoint,
            metadata: ChunkOffset(header::LEN as u64),
            duration_nanos: self.line.nanos(self.start, now).max(0),
            state,
            flags,
            ..self.first_header()
        }
        .encode();
        let at = |offset: usize| FileOffset(self.base.0 + offset as u64);
        out.patch(at(header::STATE), &[STATE_UPDATING])?;
        out.patch(at(header::PATCHED.start), &bytes[header::PATCHED])?;
        out.patch(at(header::STATE), &bytes[header::STATE..])?;
        self.header = Some(bytes);
        Ok(())
    }
}

/// Returns a number that was not returned before, from 1.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_chunk_releases_its_buffers() {
        let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000_000 };
        let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
        let mut out = crate::write::FileOutput::new(tempfile::tempfile().unwrap()).unwrap();
        for key in 1..1000 {
            chunk.constant(schema::SYMBOL, key, |s| _ = s.string("name")).unwrap();
            chunk.event(schema::NOTICE, |e| _ = e.ticks(Ticks(1)).string("notice")).unwrap();
        }
        let held = |chunk: &ChunkWriter| chunk.queue.events.capacity() + chunk.segment.capacity();
        chunk.flush(Ticks(1), &mut out).unwrap();
        assert!(held(&chunk) > 0, "a flush keeps them for the next one");
        chunk.finish(Ticks(2), true, &mut out).unwrap();
        assert_eq!((held(&chunk), chunk.pending()), (0, 0));
        assert_eq!(chunk.end(), out.end());
    }
}
