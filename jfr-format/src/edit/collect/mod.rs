//! Writes a stream of chunks, while it arrives, as chunks that grow in a file or a repository.
//!
//! ```text
//! stream   │ header  metadata  segment  segment … filler anchor │ header …
//!              └─────┬──────┘     │
//! place     begin, grow          grow   … what is left, without filler and anchor; end when the next one begins
//! ```
//! The header of a streamed chunk declares more bytes than have arrived, and most of them may turn out to be
//! filler. So a [`ChunkSink`] gets other headers. Whenever a segment is complete, and its checksum, if any,
//! is right, its bytes are passed on with a header that is valid at that moment. Bytes of a chunk never move,
//! so readers that follow it can continue. After damage, and when a stream ends inside a chunk, the events
//! that [`repair`](super::repair()) finds in the rest of the chunk become a separate chunk, with the
//! constants of the chunk before it.

mod salvage;
mod segment;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BytesMut};

use super::scan::{fills, parse_types};
use super::validation_error::sound_checkpoint;
use crate::constants::*;
use crate::cursor::Cursor;
use crate::header::{ChunkHeader, LEN};
use crate::ids::ChunkOffset;
use crate::pool::CheckpointHead;
use crate::read::push::{MAX_EVENT, trusted_end};
use crate::read::resync;
use crate::types::Types;
use crate::write::ANCHOR;
use segment::Segment;

/// Maximum size of a chunk of a stream, bytes: the maximum size of its filler.
pub const MAX_CHUNK: u64 = MAX_EVENT - 4096;
/// Maximum number of damaged places that are listed; more are only counted.
const KEPT: usize = 100;
/// Maximum plausible duration of a chunk: ten years, in ns.
const LONGEST: i128 = 10 * 365 * 86_400 * 1_000_000_000;

/// The destination of chunks while they grow.
pub trait ChunkSink {
    /// Begins a chunk of at most `most` bytes. The previous one has ended.
    ///
    /// # Errors
    /// Of the output.
    fn begin(&mut self, most: u64) -> io::Result<()>;

    /// Appends `bytes` to the chunk; the first 68 bytes of a chunk are those of a header. Then `header`
    /// describes the chunk, as finished if no more bytes were to follow.
    ///
    /// # Errors
    /// Of the output.
    fn grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()>;

    /// Ends the chunk with its final `header`; `last` if no chunk follows.
    ///
    /// # Errors
    /// Of the output.
    fn end(&mut self, header: &ChunkHeader, last: bool) -> io::Result<()>;
}

/// Statistics of the collected stream.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Number of bytes in the stream.
    pub bytes: u64,
    /// Number of bytes passed on.
    pub written: u64,
    /// Number of the stream's chunks of which any bytes were passed on.
    pub chunks: u64,
    /// Number of events passed on, without metadata, constants and segments.
    pub events: u64,
    /// Number of segments whose checksum was right.
    pub segments: u64,
    /// Number of segments whose checksum was wrong.
    pub segments_wrong: u64,
    /// Number of segments that never arrived, according to the sequence numbers of the others.
    pub segments_missing: u64,
    /// Number of streams that ended inside a chunk.
    pub cut: u64,
    /// Number of events among [`events`](Self::events) that come after damage or from an incomplete segment.
    pub salvaged: u64,
    /// Number of bytes that belong to no event that could be retained.
    pub lost_bytes: u64,
    /// Number of damaged places.
    pub damaged: u64,
    /// The first damaged places.
    pub damage: Vec<Damage>,
}

impl Collected {
    fn damaged(&mut self, at: u64, what: &'static str) {
        self.damaged += 1;
        if self.damage.len() < KEPT {
            self.damage.push(Damage { at, what });
        }
    }
}

/// A damaged place of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the stream.
    pub at: u64,
    /// The kind of damage.
    pub what: &'static str,
}

/// Splits a stream into chunks and segments.
#[derive(Debug, Default)]
pub struct Collector {
    /// Bytes that have not been passed on.
    buffer: BytesMut,
    /// Offset in the stream of the buffer's first byte.
    offset: u64,
    state: State,
    /// The header of the chunk that has not ended in the sink.
    open: Option<ChunkHeader>,
    /// Sequence number of the next segment, if known.
    next: Option<u64>,
    report: Collected,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Header,
    Inside(Box<Inside>),
    /// Filler up to the anchor, and the bytes of the anchor.
    Rest {
        filler: u64,
        anchor: u64,
    },
    /// The bytes after the last checkpoint of a chunk of another writer.
    Tail {
        remaining: u64,
    },
    /// The rest of a chunk, which is buffered up to its end.
    Unverified(Box<Unverified>),
    /// No header where one should be; true if that was reported.
    Search {
        reported: bool,
    },
}

/// A chunk that grows in the sink.
#[derive(Debug)]
struct Inside {
    /// The header as received.
    header: ChunkHeader,
    /// Bytes of the chunk that were passed on.
    written: u64,
    /// Bytes at the front of the buffer that are complete events.
    scanned: usize,
    types: Option<Arc<Types>>,
    /// Id of the type of segment events.
    segment: Option<u64>,
    /// Offset in the chunk at which the present segment begins.
    began: u64,
    /// The last checkpoint, and its time.
    checkpoint: ChunkOffset,
    tick: i64,
    /// Events that have not been passed on.
    events: u64,
    /// Ranges in the buffer of metadata and checkpoints that have not been passed on.
    fresh: Vec<Range<usize>>,
    /// All metadata and checkpoints that have been passed on.
    constants: BytesMut,
}

/// Bytes of which only a part may be events.
#[derive(Debug)]
struct Unverified {
    /// Bytes to the end of the chunk, if none are missing.
    remaining: u64,
    /// No header begins before this position.
    searched: usize,
    /// The first bytes of a chunk made of the rest; empty if the rest has a header.
    before: BytesMut,
    /// The chunk is not damaged, but it is not one that can grow.
    sound: bool,
}

/// Result of a step.
enum Step {
    Again,
    NeedsMore,
}

impl Collector {
    /// Returns the statistics so far.
    pub fn report(&self) -> &Collected {
        &self.report
    }

    /// Processes the next bytes of the stream.
    ///
    /// # Errors
    /// Those of `place`.
    pub fn push(&mut self, bytes: &[u8], place: &mut dyn ChunkSink) -> io::Result<()> {
        self.report.bytes += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        while let Step::Again = self.step(false, place)? {}
        Ok(())
    }

    /// Ends the stream. Another one may follow, which begins with a chunk.
    ///
    /// # Errors
    /// Those of `place`.
    pub fn cut(&mut self, place: &mut dyn ChunkSink) -> io::Result<()> {
        let inside = match &mut self.state {
            State::Inside(inside) => {
                let (segment, behind) = (inside.segment, self.buffer.len() - inside.scanned);
                let complete = segment.is_some() && inside.events == 0 && inside.fresh.is_empty();
                if behind == 0 && complete {
                    self.commit(None, place)?;
                } else if !self.buffer.is_empty() {
                    self.hold();
                }
                true
            }
            State::Rest { .. } | State::Tail { .. } | State::Unverified(_) => true,
            State::Header => !self.buffer.is_empty(),
            State::Search { .. } => false,
        };
        if inside {
            self.report.cut += 1;
        }
        while let Step::Again = self.step(true, place)? {}
        self.report.lost_bytes += if matches!(self.state, State::Rest { .. } | State::Tail { .. }) {
            0
        } else {
            self.buffer.len() as u64
        };
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        self.state = State::Header;
        self.next = None;
        Ok(())
    }

    /// Ends the last stream like [`cut`](Self::cut), and marks the last chunk as the last.
    ///
    /// # Errors
    /// Those of `place`.
    pub fn end(&mut self, place: &mut dyn ChunkSink) -> io::Result<()> {
        self.cut(place)?;
        self.close(true, place)
    }

    fn close(&mut self, last: bool, place: &mut dyn ChunkSink) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |header| place.end(&header, last))
    }

    fn step(&mut self, over: bool, place: &mut dyn ChunkSink) -> io::Result<Step> {
        match &mut self.state {
            State::Header => Ok(self.header()),
            State::Inside(_) => self.event(place),
            State::Rest { filler, anchor } => {
                let there = (*filler).min(self.buffer.len() as u64) as usize;
                // If bytes are missing, the next chunk's bytes must not be counted as filler.
                let zeros = self.buffer.iter().take(there).position(|&byte| byte != 0);
                let passed = zeros.unwrap_or(there);
                *filler -= passed as u64;
                let (filler, anchor) = (*filler, *anchor);
                self.pass(passed);
                if zeros.is_some() {
                    self.report.damaged(self.offset, "the chunk does not end as its header says");
                    self.state = State::Search { reported: true };
                    return Ok(Step::Again);
                }
                if filler > 0 {
                    return Ok(Step::NeedsMore);
                }
                Ok(self.anchor(anchor))
            }
            State::Tail { remaining } => {
                let passed = (*remaining).min(self.buffer.len() as u64);
                *remaining -= passed;
                let over = *remaining == 0;
                self.pass(passed as usize);
                if !over {
                    return Ok(Step::NeedsMore);
                }
                self.state = State::Header;
                Ok(Step::Again)
            }
            State::Unverified(_) => self.check_unverified(over, place),
            State::Search { reported } => {
                let before = std::mem::replace(reported, true);
                if !before {
                    self.report.damaged(self.offset, "no chunk begins here");
                }
                let found = resync::find_header(&self.buffer);
                let passed = found.unwrap_or(self.buffer.len().saturating_sub(LEN - 1));
                self.report.lost_bytes += passed as u64;
                self.pass(passed);
                if found.is_none() {
                    return Ok(Step::NeedsMore);
                }
                self.state = State::Header;
                Ok(Step::Again)
            }
        }
    }

    fn pass(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
        self.offset += bytes as u64;
    }

    fn header(&mut self) -> Step {
        if self.buffer.len() < LEN {
            return Step::NeedsMore;
        }
        let header = ChunkHeader::decode(&self.buffer).ok().filter(|_| resync::is_header(&self.buffer));
        let Some(header) = header else {
            self.state = State::Search { reported: false };
            return Step::Again;
        };
        let finished = trusted_end(&header, 0).is_some();
        if !finished || header.size > MAX_CHUNK {
            let what = if finished {
                "a chunk longer than 256 MiB"
            } else {
                "a chunk without its end in the header"
            };
            self.report.damaged(self.offset, what);
            // A later chunk header ends the search.
            self.report.lost_bytes += 1;
            self.pass(1);
            self.state = State::Search { reported: true };
            return Step::Again;
        }
        if header.metadata.0 != LEN as u64 || header.checkpoint.0 == 0 {
            let unverified =
                Unverified { remaining: header.size, searched: 1, before: BytesMut::new(), sound: true };
            self.state = State::Unverified(Box::new(unverified));
            return Step::Again;
        }
        self.state = State::Inside(Box::new(Inside {
            header,
            written: 0,
            scanned: LEN,
            types: None,
            segment: None,
            began: 0,
            checkpoint: ChunkOffset(0),
            tick: header.start_ticks.0,
            events: 0,
            fresh: Vec::new(),
            constants: BytesMut::new(),
        }));
        Step::Again
    }

    /// Processes the next event.
    fn event(&mut self, place: &mut dyn ChunkSink) -> io::Result<Step> {
        let State::Inside(inside) = &mut self.state else { return Ok(Step::Again) };
        let at = inside.written + inside.scanned as u64;
        let end = inside.header.size;
        if at == end {
            return self.over(State::Header, place);
        }
        let mut cursor = Cursor::at(&self.buffer, inside.scanned);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else {
            if self.buffer.len() - inside.scanned < 2 * crate::varint::MAX_LEN {
                return Ok(Step::NeedsMore);
            }
            return Ok(self.damage("not an event"));
        };
        let head = cursor.pos() - inside.scanned;
        if size < head as u64 || size > end - at {
            return Ok(self.damage("an event of an impossible size"));
        }
        let anchor = inside.header.checkpoint.0;
        if type_id == u64::from(METADATA_EVENT.0) && at != LEN as u64 && at + size == anchor {
            let rest = State::Rest { filler: size - head as u64, anchor: end - anchor };
            self.over(rest, place)?;
            if matches!(self.state, State::Rest { .. }) {
                self.pass(head);
            }
            return Ok(Step::Again);
        }
        let whole = inside.scanned..inside.scanned + size as usize;
        let Some(bytes) = self.buffer.get(whole.clone()) else { return Ok(Step::NeedsMore) };
        let payload = bytes.get(head..).unwrap_or_default();
        let mut boundary = None;
        match u16::try_from(type_id) {
            Ok(0) if at == LEN as u64 => {
                let Some(types) = parse_types(payload) else {
                    return Ok(self.damage("metadata that cannot be read"));
                };
                inside.segment = types.by_name(Segment::NAME).map(|(_, class)| class.id);
                inside.types = Some(Arc::new(types));
                inside.fresh.push(whole.clone());
            }
            Ok(1) => {
                let (head, tick) = match checkpoint(inside, at, payload) {
                    Ok(found) => found,
                    Err(what) => return Ok(self.damage(what)),
                };
                (inside.checkpoint, inside.tick) = (ChunkOffset(at), tick);
                inside.fresh.push(whole.clone());
                if head.flags & CHECKPOINT_FLUSH != 0 && inside.segment.is_none() {
                    boundary = Some(whole.end);
                }
            }
            _ if Some(type_id) == inside.segment => {
                let types = inside.types.as_deref();
                let segment = types.and_then(|types| Segment::read(types, types.by_id(type_id)?, payload));
                let begin = (inside.began - inside.written) as usize;
                let covered = self.buffer.get(begin..whole.start).unwrap_or_default();
                match segment {
                    Some(segment) if segment.is_right(inside.began, covered, is_as_sent(&inside.header)) => {
                        self.report.segments += 1;
                        let missed = self.next.and_then(|next| segment.sequence.checked_sub(next));
                        self.report.segments_missing += missed.unwrap_or(0);
                        self.next = segment.sequence.checked_add(1);
                        inside.began = at + size;
                        // The event itself goes with the next segment, so that the bytes that are passed on
                        // begin with an event, not with constants.
                        boundary = Some(whole.start);
                    }
                    _ => {
                        self.report.segments_wrong += 1;
                        return Ok(self.damage("a segment whose checksum does not match"));
                    }
                }
            }
            _ if at == LEN as u64 => return Ok(self.damage("a chunk that does not begin with its types")),
            // Filler between events.
            Ok(0) if payload.iter().all(|byte| *byte == 0) => {}
            Ok(0) => return Ok(self.damage("types that are declared twice")),
            _ => {
                let types = inside.types.as_deref();
                if types.and_then(|types| fills(types, type_id, payload)) != Some(true) {
                    return Ok(self.damage("an event that cannot be read"));
                }
                inside.events += 1;
            }
        }
        inside.scanned = whole.end;
        if boundary.is_some() {
            self.commit(boundary, place)?;
        }
        Ok(Step::Again)
    }

    /// Ends the chunk in the sink and discards the rest of it.
    fn over(&mut self, next: State, place: &mut dyn ChunkSink) -> io::Result<Step> {
        self.commit(None, place)?;
        if !matches!(self.state, State::Unverified(_)) {
            self.state = next;
        }
        Ok(Step::Again)
    }

    /// Passes on the buffer up to `boundary`, or up to the scan position.
    fn commit(&mut self, boundary: Option<usize>, place: &mut dyn ChunkSink) -> io::Result<()> {
        let State::Inside(inside) = &mut self.state else { return Ok(()) };
        let bytes = boundary.unwrap_or(inside.scanned);
        if bytes == 0 {
            return Ok(());
        }
        if inside.checkpoint.0 == 0 {
            self.damage("a chunk without constants");
            return Ok(());
        }
        let first = inside.written == 0;
        let header = ChunkHeader {
            size: inside.written + bytes as u64,
            checkpoint: inside.checkpoint,
            duration_nanos: span(&inside.header, inside.tick),
            ..inside.header
        };
        for range in inside.fresh.drain(..) {
            inside.constants.extend_from_slice(self.buffer.get(range).unwrap_or_default());
        }
        let events = std::mem::take(&mut inside.events);
        inside.written = header.size;
        inside.scanned -= bytes;
        let most = inside.header.size;
        if first {
            self.close(false, place)?;
            place.begin(most)?;
            self.report.chunks += 1;
        }
        let handed = self.buffer.get(..bytes).unwrap_or_default();
        place.grow(handed, &header)?;
        self.open = Some(header);
        self.report.written += bytes as u64;
        self.report.events += events;
        self.pass(bytes);
        Ok(())
    }

    /// Handles bytes at the scan position that cannot be an event.
    fn damage(&mut self, what: &'static str) -> Step {
        let scanned = if let State::Inside(inside) = &self.state { inside.scanned } else { 0 };
        self.report.damaged(self.offset + scanned as u64, what);
        self.hold();
        Step::Again
    }

    /// Buffers the chunk from here on, up to its end.
    fn hold(&mut self) {
        let State::Inside(inside) = &self.state else { return };
        let remaining = inside.header.size - inside.written;
        let before = if inside.written > 0 { salvage::before(inside) } else { BytesMut::new() };
        self.state = State::Unverified(Box::new(Unverified { remaining, searched: 1, before, sound: false }));
    }

    /// Handles the last bytes of a chunk: an empty checkpoint and a filler.
    fn anchor(&mut self, len: u64) -> Step {
        // Other writers may have more bytes there.
        let looked = usize::try_from(len).unwrap_or(usize::MAX).min(ANCHOR);
        let Some(bytes) = self.buffer.get(..looked) else { return Step::NeedsMore };
        let framed = |at: usize| {
            let mut cursor = Cursor::at(bytes, at);
            Some((at + usize::try_from(cursor.varint().ok()?).ok()?, cursor.varint().ok()?))
        };
        let checkpoint = framed(0).filter(|event| event.1 == u64::from(CHECKPOINT_EVENT.0));
        let filler = checkpoint.and_then(|event| framed(event.0)).filter(|event| event.1 == 0);
        let ends = checkpoint.is_some_and(|event| event.0 as u64 == len)
            || filler.is_some_and(|event| event.0 as u64 == len);
        if !ends && looked as u64 == len {
            self.report.damaged(self.offset, "the chunk does not end as its header says");
            self.state = State::Search { reported: true };
            return Step::Again;
        }
        self.pass(looked);
        let rest = len - looked as u64;
        self.state = if rest == 0 { State::Header } else { State::Tail { remaining: rest } };
        Step::Again
    }
}

/// Reads the checkpoint event at `at` of its chunk. Returns its head and tick, or its damage.
fn checkpoint(inside: &Inside, at: u64, payload: &[u8]) -> Result<(CheckpointHead, i64), &'static str> {
    const UNREADABLE: &str = "constants that cannot be read";
    let types = inside.types.as_deref().ok_or(UNREADABLE)?;
    let tick = Cursor::new(payload).varint().map_err(|_| UNREADABLE)?;
    sound_checkpoint(types, payload)?;
    let head = CheckpointHead::read(&mut Cursor::new(payload)).map_err(|_| UNREADABLE)?;
    let before = if inside.checkpoint.0 == 0 { at } else { inside.checkpoint.0 };
    // Readers find the constants by these distances.
    if head.delta != before.wrapping_sub(at) as i64 {
        return Err("constants that do not follow those before them");
    }
    Ok((head, tick as i64))
}

/// Returns true if a header belongs to a stream, not to a file in which a stream was collected.
fn is_as_sent(header: &ChunkHeader) -> bool {
    header.duration_nanos == 0 && header.size - header.checkpoint.0 == ANCHOR as u64
}

/// Returns the nanoseconds from the start of a chunk to a tick.
fn span(header: &ChunkHeader, tick: i64) -> i64 {
    let ticks = i128::from(tick) - i128::from(header.start_ticks.0);
    let nanos = ticks * 1_000_000_000 / i128::from(header.frequency());
    if (0..LONGEST).contains(&nanos) { nanos as i64 } else { 0 }
}
