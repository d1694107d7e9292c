//! Splits a stream of chunks of known sizes into parts that can be forwarded: complete records, up to
//! positions where a reader can be disconnected.
//!
//! It uses the sizes of records only, and holds at most one segment. The recorder uses it for its own
//! streams, and `flightline relay` for those that it reads.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use crate::constants::{CHECKPOINT_EVENT, METADATA_EVENT, STATE_FINISHED};
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::header::{self, ChunkHeader};
use crate::ids::{ChunkOffset, FileOffset, Ticks};
use crate::types::Types;
use crate::write::{Cut, Fragment, declares_loss_events};

/// The type of the event that ends a segment.
const SEGMENT: &str = "flightline.Segment";
/// Maximum number of event types in a part that are counted by name.
const MOST_TYPES: usize = 1 << 12;

/// The start of a chunk.
#[derive(Debug)]
pub struct ChunkHead {
    /// Its header.
    pub header: ChunkHeader,
    /// Its first metadata event, size included; empty if it is not at the offset in the header.
    pub metadata: Bytes,
    /// Whether it declares the events that report a loss.
    pub declares_loss_events: bool,
}

/// Events of one type in a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// Name of the type.
    pub name: Arc<str>,
    /// Number of events.
    pub events: u64,
    /// Size of the events in bytes.
    pub bytes: u64,
}

/// Complete records of one chunk, up to the end of a segment or of the chunk.
#[derive(Debug)]
pub struct Part {
    /// The bytes.
    pub pieces: Vec<Fragment>,
    /// The head of the chunk, if these are its first bytes.
    pub begins: Option<Arc<ChunkHead>>,
    /// These are the last bytes of their chunk.
    pub ends: bool,
    /// The position after it at which a reader can be disconnected.
    pub cut: Option<Cut>,
    /// Time of the last checkpoint so far.
    pub now: Ticks,
    /// Events in it, without those about the stream itself.
    pub counts: Vec<EventCount>,
}

impl Part {
    /// Returns the number of bytes of the stream.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Fragment::len).sum()
    }

    /// Returns true if it contains no bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.pieces.iter().map(Fragment::held).sum()
    }
}

/// Reason why a stream cannot be forwarded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameError {
    /// Offset in the stream.
    pub at: FileOffset,
    /// The kind of error.
    pub what: FrameFault,
}

/// See [`FrameError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameFault {
    /// The offset is not the start of a chunk.
    NoChunk,
    /// The header does not contain the size of the chunk: a file that is being written.
    Unfinished,
    /// A record is longer than its chunk, or shorter than its own head.
    Record,
    /// More bytes than the limit lie between two positions where a reader can be disconnected.
    TooLong,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.what {
            FrameFault::NoChunk => "no JFR chunk begins here",
            FrameFault::Unfinished => {
                "a chunk whose size is not known yet: not a stream but a file that is being written"
            }
            FrameFault::Record => "an event that does not fit into its chunk",
            FrameFault::TooLong => "a segment that is too long to be passed on",
        };
        write!(f, "offset {}: {what}", self.at.0)
    }
}

impl std::error::Error for FrameError {}

/// Takes the bytes of a stream in pieces of any size and returns them in parts.
#[derive(Debug)]
pub struct Framer {
    /// Received bytes that are not in a part yet.
    buffer: BytesMut,
    /// Number of its bytes that are complete records.
    whole: usize,
    /// Pieces of the next part that are no longer in the buffer.
    pieces: Vec<Fragment>,
    memory_bytes: usize,
    most: usize,
    /// Number of bytes of the stream before the buffer.
    before: u64,
    chunk: Option<Current>,
    begins: bool,
    counts: Vec<(u64, u64, u64)>,
}

#[derive(Debug)]
struct Current {
    head: Arc<ChunkHead>,
    types: Types,
    segment: Option<u64>,
    /// Offset of the first incomplete record.
    at: u64,
    checkpoint: ChunkOffset,
    now: Ticks,
    /// Number of zeros of a filler that are still to come.
    filler: u64,
}

impl Framer {
    /// Creates a framer that stores at most about `most` bytes.
    pub fn new(most: usize) -> Framer {
        Framer {
            buffer: BytesMut::new(),
            whole: 0,
            pieces: Vec::new(),
            memory_bytes: 0,
            most,
            before: 0,
            chunk: None,
            begins: false,
            counts: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Appends `len` zeros, which are stored as a number if they are filler.
    pub fn push_zeros(&mut self, len: usize) {
        // After the filler's head has been read, all bytes before it are in parts.
        match &mut self.chunk {
            Some(chunk) if self.buffer.is_empty() && chunk.filler >= len as u64 => {
                chunk.filler -= len as u64;
                chunk.at += len as u64;
                self.before += len as u64;
                put_zeros(&mut self.pieces, len);
            }
            _ => self.buffer.resize(self.buffer.len() + len, 0),
        }
    }

    /// Returns true if the stream may end here: between two chunks.
    pub fn is_between_chunks(&self) -> bool {
        self.chunk.is_none() && self.buffer.is_empty()
    }

    /// Returns the next part, if it is complete.
    ///
    /// # Errors
    /// The stream cannot be forwarded any further.
    pub fn next_part(&mut self) -> Result<Option<Part>, FrameError> {
        loop {
            if self.chunk.is_none() && !self.begin()? {
                return Ok(None);
            }
            match self.record()? {
                Step::On => {}
                Step::More if self.memory_bytes + self.buffer.len() > self.most => {
                    return Err(self.error(FrameFault::TooLong));
                }
                Step::More => return Ok(None),
                Step::Boundary(ends) => return Ok(self.part(ends)),
            }
        }
    }

    fn error(&self, what: FrameFault) -> FrameError {
        FrameError { at: FileOffset(self.before + self.whole as u64), what }
    }

    /// Reads the start of a chunk. Returns false if there are too few bytes for a header.
    fn begin(&mut self) -> Result<bool, FrameError> {
        if self.buffer.len() < header::LEN {
            let magic = &crate::constants::MAGIC;
            let seen = self.buffer.len().min(magic.len());
            return match self.buffer[..seen] == magic[..seen] {
                true => Ok(false),
                false => Err(self.error(FrameFault::NoChunk)),
            };
        }
        let header = ChunkHeader::decode(&self.buffer).map_err(|_| self.error(FrameFault::NoChunk))?;
        if header.state != STATE_FINISHED || header.size < header::LEN as u64 {
            return Err(self.error(FrameFault::Unfinished));
        }
        self.whole = header::LEN;
        self.begins = true;
        self.chunk = Some(Current {
            head: Arc::new(ChunkHead { header, metadata: Bytes::new(), declares_loss_events: false }),
            types: Types::default(),
            segment: None,
            at: header::LEN as u64,
            checkpoint: ChunkOffset(0),
            now: header.start_ticks,
            filler: 0,
        });
        Ok(true)
    }

    fn record(&mut self) -> Result<Step, FrameError> {
        let error = FrameError { at: FileOffset(self.before + self.whole as u64), what: FrameFault::Record };
        let Some(chunk) = &mut self.chunk else { return Ok(Step::More) };
        if chunk.filler > 0 {
            return Ok(self.filler());
        }
        let left = chunk.head.header.size - chunk.at;
        if left == 0 {
            return Ok(Step::Boundary(true));
        }
        let rest = &self.buffer[self.whole..];
        let mut cursor = Cursor::new(rest);
        let heads = cursor.varint().and_then(|size| Ok((size, cursor.varint()?)));
        let (size, type_id) = match heads {
            Ok(heads) => heads,
            // At most nine bytes each.
            Err(Malformed::End) if rest.len() < 18 && (rest.len() as u64) < left => return Ok(Step::More),
            Err(_) => return Err(error),
        };
        let head = cursor.pos();
        if size > left || size < head as u64 {
            return Err(error);
        }
        let metadata = type_id == u64::from(METADATA_EVENT.0);
        if metadata
            && chunk.at != chunk.head.header.metadata.0
            && rest[head..].iter().take(3).all(|b| *b == 0)
        {
            // A filler: its head is stored, its zeros are counted.
            self.whole += head;
            chunk.at += head as u64;
            chunk.filler = size - head as u64;
            self.settle();
            return Ok(Step::On);
        }
        let Ok(len) = usize::try_from(size) else { return Err(error) };
        let Some(record) = rest.get(..len) else { return Ok(Step::More) };
        if metadata {
            // Metadata that cannot be read is forwarded as it is, and its types are unknown here.
            let _ = chunk.types.add(&record[head..]);
            let segment = chunk.types.by_name(SEGMENT).map(|(_, class)| class.id);
            chunk.segment = segment;
            if chunk.at == chunk.head.header.metadata.0 {
                let head = ChunkHead {
                    header: chunk.head.header,
                    metadata: Bytes::copy_from_slice(record),
                    declares_loss_events: declares_loss_events(&chunk.types),
                };
                chunk.head = Arc::new(head);
            }
        } else if type_id == u64::from(CHECKPOINT_EVENT.0) {
            chunk.checkpoint = ChunkOffset(chunk.at);
            chunk.now = cursor.varint().map_or(chunk.now, |ticks| Ticks(ticks as i64));
        } else if chunk.segment != Some(type_id) {
            match self.counts.iter().position(|(id, ..)| *id == type_id) {
                Some(at) => {
                    let (_, events, bytes) = &mut self.counts[at];
                    (*events, *bytes) = (*events + 1, *bytes + size);
                }
                None if self.counts.len() < MOST_TYPES => self.counts.push((type_id, 1, size)),
                None => {}
            }
        }
        chunk.at += size;
        self.whole += len;
        let boundary = chunk.segment == Some(type_id);
        Ok(if boundary { Step::Boundary(chunk.at == chunk.head.header.size) } else { Step::On })
    }

    /// Counts the zeros of a filler.
    fn filler(&mut self) -> Step {
        let Some(chunk) = &mut self.chunk else { return Step::More };
        let there =
            &self.buffer[..self.buffer.len().min(usize::try_from(chunk.filler).unwrap_or(usize::MAX))];
        if there.is_empty() {
            return Step::More;
        }
        let len = there.len();
        // Other bytes in the filler are retained.
        let zeros = there.iter().position(|b| *b != 0).unwrap_or(len);
        if zeros > 0 {
            put_zeros(&mut self.pieces, zeros);
        }
        self.buffer.advance(zeros);
        if zeros < len {
            self.memory_bytes += len - zeros;
            self.pieces.push(Fragment::Bytes(self.buffer.split_to(len - zeros).freeze()));
        }
        chunk.filler -= len as u64;
        chunk.at += len as u64;
        self.before += len as u64;
        Step::On
    }

    /// Moves complete records from the buffer to the pieces.
    fn settle(&mut self) {
        if self.whole > 0 {
            self.before += self.whole as u64;
            self.memory_bytes += self.whole;
            // A slice would keep the buffer's memory alive, so the piece gets a copy.
            self.pieces.push(Fragment::Bytes(Bytes::copy_from_slice(&self.buffer[..self.whole])));
            self.buffer.advance(self.whole);
            self.whole = 0;
        }
    }

    fn part(&mut self, ends: bool) -> Option<Part> {
        self.settle();
        let chunk = self.chunk.as_ref()?;
        let name = |id: u64| match chunk.types.by_id(id) {
            Some(class) => class.name.clone(),
            None => Arc::from(format!("type {id}")),
        };
        let counts = self.counts.drain(..);
        let counts = counts.map(|(id, events, bytes)| EventCount { name: name(id), events, bytes }).collect();
        let part = Part {
            pieces: std::mem::take(&mut self.pieces),
            begins: std::mem::take(&mut self.begins).then(|| chunk.head.clone()),
            ends,
            cut: if ends {
                None
            } else {
                Cut::new(&chunk.head.header, ChunkOffset(chunk.at), chunk.checkpoint)
            },
            now: chunk.now,
            counts,
        };
        self.memory_bytes = 0;
        if ends {
            self.chunk = None;
        }
        Some(part)
    }
}

enum Step {
    /// Another record may be available.
    On,
    /// More bytes are needed.
    More,
    /// A part is complete; true if its chunk is.
    Boundary(bool),
}

fn put_zeros(pieces: &mut Vec<Fragment>, len: usize) {
    match pieces.last_mut() {
        Some(Fragment::Zeros(zeros)) => *zeros += len,
        _ => pieces.push(Fragment::Zeros(len)),
    }
}
