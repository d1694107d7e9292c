//! One chunk, from its header to its last byte.

use super::checkpoint::{MAX_FRAME, Pending, statics};
use super::cut::Fragment;
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

/// Most bytes that may wait for a flush; keeps every checkpoint far below the 2^28 its size field can say.
const MAX_QUEUED: usize = 64 << 20;
/// Most bytes of a patched chunk: JMC reads a chunk into one array.
const MAX_PATCHED: usize = 1 << 30;

/// How a chunk gets its header right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// The header is rewritten at each flush. Needs a seekable output.
    Patched,
    /// The chunk is filled up to a size known in advance. For pipes.
    Fixed {
        /// Bytes of the chunk, at least [`min_fixed_size`](super::min_fixed_size), below 2²⁸.
        size: u32,
    },
}

/// Collects events and constants and writes them as one chunk.
#[derive(Debug)]
pub struct ChunkWriter {
    geometry: Geometry,
    declared: Declared,
    line: ClockLine,
    /// Where the chunk begins in the output.
    base: FileOffset,
    start: Ticks,
    /// Bytes that are in the output.
    written: usize,
    queue: Queue,
    /// The last checkpoint in `head` or in the output.
    checkpoint: ChunkOffset,
    generation: u8,
    finished: bool,
    /// The header as it is in the output.
    header: Option<[u8; header::LEN]>,
    /// Memory reused by each flush; empty in between.
    segment: BytesMut,
    /// Number of the next segment, if they are told.
    next_segment: Option<u64>,
}

impl ChunkWriter {
    /// Begins a chunk at offset `base` of the output, `now` being its start; nothing is written yet. It declares the whole
    /// schema.
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

    /// The same with these types only; others cannot be written.
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
            // With this size and state 1 the JDK waits; with any other it may spin or fail.
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

    /// Bytes that events and constants may still take before something must happen: a flush, and if that does not
    /// help, the end of the chunk. A constant may take 7 bytes more than its own for the start of its pool.
    #[inline]
    pub fn room(&self) -> usize {
        let end = match self.geometry {
            Geometry::Patched => MAX_PATCHED,
            Geometry::Fixed { size } => size as usize - fixed::ANCHOR - fixed::MIN_FILLER,
        };
        // A flush adds up to two checkpoints around what is queued.
        let told = if self.next_segment.is_some() { segment::MAX } else { 0 };
        let queued = self.pending() + 2 * MAX_FRAME + told;
        end.saturating_sub(self.written).min(MAX_QUEUED).saturating_sub(queued)
    }

    /// Ends each flush from now on with a `flightline.Segment`, by which who reads a stream checks what it got; `next` is the
    /// number of the first one. Nothing if the geometry is not fixed or the chunk does not declare the type.
    pub fn enable_segments(&mut self, next: u64) {
        if matches!(self.geometry, Geometry::Fixed { .. }) && self.declares(schema::SEGMENT) {
            self.next_segment = Some(next);
        }
    }

    /// Number of the next segment, for the chunk that follows this one; `None` if they are not told.
    pub fn next_segment(&self) -> Option<u64> {
        self.next_segment
    }

    /// Bytes queued for the next flush.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Where the output stands after the last flush.
    pub fn end(&self) -> FileOffset {
        FileOffset(self.base.0 + self.written as u64)
    }

    /// Whether the chunk declares a type, so that it can be written.
    #[inline]
    pub fn declares(&self, id: TypeId) -> bool {
        self.declared.has(id)
    }

    /// Where the chunk begins in the output, and its header there; `None` as long as none was written by a flush.
    pub fn header(&self) -> (FileOffset, Option<&[u8; header::LEN]>) {
        (self.base, self.header.as_ref())
    }

    /// Start of the chunk.
    pub fn start(&self) -> Ticks {
        self.start
    }

    /// Queues an event; `fields` writes its fields in the order of the schema.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Fields`], [`WriteError::Key`], [`WriteError::NotAnEvent`],
    /// [`WriteError::Undeclared`], [`WriteError::Finished`]; then nothing is queued.
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

    /// Queues constant `key` of pool `id`; `value` writes the fields of its type. The next flush writes it before the
    /// events queued by then.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Fields`], [`WriteError::Key`], [`WriteError::NotAPool`],
    /// [`WriteError::Undeclared`], [`WriteError::Finished`]; then nothing is queued.
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

    /// Writes what is queued; nothing if there is nothing.
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

    /// Forgets what is queued, so that a chunk whose output has failed can still be finished. Constants queued count as
    /// never written.
    pub fn discard(&mut self) {
        self.queue.discard();
    }

    /// Gives back the memory that it keeps from one flush to the next. What is queued is gone with it.
    pub fn let_go(&mut self) {
        self.queue = Queue::default();
        self.segment = BytesMut::new();
    }

    /// Bytes of memory that it keeps for what is queued.
    pub fn buffer_capacity(&self) -> usize {
        self.queue.capacity() + self.segment.capacity()
    }

    /// Writes what is queued and ends the chunk. `last`: no chunk follows in this file.
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
        // A finished chunk may be kept for what it says of itself: not its buffers with it.
        self.queue = Queue::default();
        self.segment = BytesMut::new();
        Ok(())
    }

    /// Appends head, constants, events, the closing checkpoint and what tells of all that; returns where the checkpoint is in the
    /// chunk.
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

    /// The JDK's protocol: readers trust fields read between two equal states other than "updating".
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_chunk_keeps_no_buffers() {
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
