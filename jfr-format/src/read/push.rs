//! The decoder: bytes in, events out, no I/O.
//!
//! ```text
//!   push(bytes) ─► Header ─► Events ─┬─ type 0 ─► types      ┐
//!                    ▲               ├─ type 1 ─► pools      ├─► Item::Events when their constants are known
//!                    └── chunk end ◄─┴─ others ─► held back  ┘
//! ```
//! Inside a chunk order does not matter: definitions may follow their use. So events are held until what they refer
//! to is known, at the latest until the chunk ends. All checkpoints met are used, chained or not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};

use super::batch::{Batch, Interest, Region, TypeCounts, Usual, Wanted};
use super::chunk::{Chunk, ChunkIndex};
use super::cursor::Cursor;
use super::doubts::{self, Doubt, Landmarks};
use super::references::Known;
use super::resync;
use super::types::{Class, Types};
use crate::constants::{CHECKPOINT_EVENT, CHECKPOINT_FLUSH, MAGIC, METADATA_EVENT, STATE_FINISHED};
use crate::error::{Error, ErrorKind, Malformed};
use crate::header::{ChunkHeader, LEN};
use crate::ids::FileOffset;
use crate::pool::{CheckpointHead, Pools};

/// Larger events are taken for damage; the four-byte padded size that writers use cannot say more.
pub(crate) const MAX_EVENT: u64 = 1 << 28;

/// Undeclared types of a chunk that are told one by one.
const UNDECLARED_TOLD: u64 = 16;

/// How async-profiler's checkpoint starts where it could not go back to fill in the size, as on a FIFO: five bytes
/// of its buffer, which held the chunk header, then the type.
pub(crate) const UNSIZED: [u8; 6] = *b"FLR\0\0\x01";

/// Bytes of events handed out at a time with [`Delivery::Unresolved`].
const CACHED: usize = 256 * 1024;
/// Bytes between two calls of a decoder's `passed` hook, and the largest batch otherwise.
const STRIDE: usize = 4 << 20;

/// Says what is wanted of a type.
pub(crate) struct Select(Box<dyn Fn(&Class) -> Interest + Send>);

impl std::fmt::Debug for Select {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Select")
    }
}

/// Told which bytes of the input are not looked at again soon.
pub(crate) struct Passed(pub(crate) Box<dyn Fn(Range<u64>) + Send>);

impl std::fmt::Debug for Passed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passed")
    }
}

/// When events are handed out.
///
/// But for [`Earliest`](Self::Earliest), the metadata that the header of a finished chunk points at is read before the
/// events in front of it, as other readers do; it counts even where damage hides it, or inside another event. Types
/// that only later metadata declares are known from there on with [`Unresolved`](Self::Unresolved).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All events of a chunk at its end: for input that is at hand as a whole.
    WholeChunks,
    /// As soon as the constants they refer to are known: for streams. In a chunk that is still being written
    /// (state byte not 0) everything before a checkpoint with the FLUSH bit is handed out with it.
    Earliest,
    /// While the chunk is walked, in batches that fit a processor's cache: for input that is at hand as a whole, and
    /// consumers that add events up by their keys. Constants can be looked up at [`Item::ChunkEnd`], not before.
    Unresolved,
}

/// What the decoder has found.
#[derive(Debug)]
pub enum Item<'a> {
    /// A header was read; types and constants are not known yet.
    ChunkStart(&'a Chunk),
    /// Some events of the chunk.
    Events(Batch<'a>),
    /// The chunk is over.
    ChunkEnd(ChunkEnd<'a>),
    /// Something could not be read; decoding goes on.
    Warning(Error),
}

/// The end of a chunk.
#[derive(Debug)]
pub struct ChunkEnd<'a> {
    /// The chunk with all its types and constants.
    pub chunk: &'a Chunk,
    /// Bytes from the header to the end.
    pub size: u64,
    /// Nothing of it was skipped or missing.
    pub complete: bool,
    /// Events and bytes by type id, metadata and checkpoints included.
    pub counts: &'a TypeCounts,
}

#[derive(Debug)]
enum Queued {
    ChunkStart,
    Events(Vec<Region>),
    ChunkEnd { size: u64, complete: bool },
    Warning(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    Events,
    /// The event at the scan position is damaged; looking for a place in the same chunk to go on from.
    Recover,
    /// Drop bytes up to this offset, then expect a header.
    Skip {
        until: u64,
    },
    /// Look for the next header. `from` is where reading stopped; `told` if that was reported already.
    Search {
        from: u64,
        told: bool,
    },
    Done,
}

#[derive(Debug)]
enum Buffer {
    Whole(Bytes),
    Growing(BytesMut),
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Growing(bytes) => bytes,
        }
    }

    fn take(&mut self, len: usize) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes.split_to(len),
            Self::Growing(bytes) => bytes.split_to(len).freeze(),
        }
    }

    fn push(&mut self, more: Bytes) {
        match self {
            Self::Growing(bytes) => bytes.extend_from_slice(&more),
            Self::Whole(bytes) if bytes.is_empty() => *bytes = more,
            Self::Whole(bytes) => {
                let mut grown = BytesMut::with_capacity(bytes.len() + more.len());
                grown.extend_from_slice(bytes);
                grown.extend_from_slice(&more);
                *self = Self::Growing(grown);
            }
        }
    }
}

/// The push decoder. Feed it with [`push`](Self::push) and [`close`](Self::close), take items with
/// [`next`](Self::next) until it wants more.
#[derive(Debug)]
pub struct Decoder {
    delivery: Delivery,
    buffer: Buffer,
    /// Offset in the input of the buffer's first byte.
    offset: u64,
    /// Bytes at the start of the buffer that are whole events, not yet taken out.
    scanned: usize,
    closed: bool,
    state: State,
    queue: VecDeque<Queued>,
    chunk: Option<Chunk>,
    chunks: u32,
    current: Current,
    last_types: SharedTypes,
    select: Option<Select>,
    passed: Option<Passed>,
    /// The input up to here has been told to `passed`.
    passed_to: u64,
    /// The batch that was handed out last.
    lent: Option<Range<u64>>,
    /// Where the last chunk that ended as its header says did so.
    ended: Option<u64>,
    /// Whether an event's place had to be guessed.
    strayed: bool,
}

/// Of the chunk that was read last by any of the decoders of a recording.
pub(crate) type SharedTypes = Arc<Mutex<Option<Arc<LastTypes>>>>;

/// The first metadata of a chunk: chunks of one recording mostly declare the same.
#[derive(Debug)]
pub(crate) struct LastTypes {
    /// From the string table on.
    tree: Box<[u8]>,
    types: Arc<Types>,
}

/// What belongs to the chunk being read, beside what its events need.
#[derive(Debug, Default)]
struct Current {
    /// Where it ends, if its header can be trusted.
    end: Option<u64>,
    damaged: bool,
    /// What was defined twice has been told.
    redefined: bool,
    /// What looking for events behind damage may still cost.
    resync_steps: Option<u64>,
    has_types: bool,
    /// By type, once the types are known; `None` if all is wanted.
    wanted: Option<Wanted>,
    /// Where in the scanned bytes the wanted events begin.
    picked: Vec<u32>,
    /// Checkpoints that nobody wanted yet.
    unwanted: Vec<Region>,
    /// An event came for which constants are wanted.
    constants_wanted: bool,
    /// Where the metadata lies that has been read already.
    read_ahead: Option<u64>,
    counts: TypeCounts,
    landmarks: Landmarks,
    held: VecDeque<Region>,
    /// Checkpoints met before the metadata.
    early: Vec<Region>,
    known: Known,
}

/// What one step led to.
enum Next {
    Again,
    NeedsMore,
}

impl Decoder {
    /// An empty decoder.
    pub fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            buffer: Buffer::Whole(Bytes::new()),
            offset: 0,
            scanned: 0,
            closed: false,
            state: State::Header,
            queue: VecDeque::new(),
            chunk: None,
            chunks: 0,
            current: Current::default(),
            last_types: SharedTypes::default(),
            select: None,
            passed: None,
            passed_to: 0,
            lent: None,
            ended: None,
            strayed: false,
        }
    }

    /// A decoder of whole chunks out of the middle of an input: `bytes` start at `offset` with chunk `first`.
    pub(crate) fn piece(
        delivery: Delivery,
        bytes: Bytes,
        offset: u64,
        first: ChunkIndex,
        last_types: SharedTypes,
    ) -> Self {
        let mut decoder = Self { last_types, ..Self::new(delivery) };
        decoder.offset = offset;
        decoder.passed_to = offset;
        decoder.chunks = first.0;
        decoder.push(bytes);
        decoder.close();
        decoder
    }

    /// Hands out events of the types only that `interest` says, from the next chunk on. The others are counted, which
    /// costs a few nanoseconds each. With [`Delivery::Unresolved`], the constants of a chunk are read only if it has
    /// events for which they are wanted; damage in constants that nobody wants is not told.
    pub fn select(&mut self, interest: impl Fn(&Class) -> Interest + Send + 'static) {
        self.select = Some(Select(Box::new(interest)));
    }

    /// Whether the input turned out to be `chunks` chunks from `first` on, the last of which ends where its header says.
    pub(crate) fn was_chunks(&self, first: ChunkIndex, chunks: u32, end: u64) -> bool {
        self.chunks == first.0.saturating_add(chunks) && self.ended == Some(end) && !self.strayed
    }

    /// Has `passed` told of the bytes that have been dealt with.
    pub(crate) fn on_passed(&mut self, passed: Passed) {
        self.passed = Some(passed);
    }

    /// Tells of the input up to `end`.
    fn pass(&mut self, end: u64) {
        if let Some(Passed(passed)) = &self.passed
            && end > self.passed_to
        {
            passed(self.passed_to..end);
        }
        self.passed_to = self.passed_to.max(end);
    }

    /// Tells of bytes that were looked at a second time.
    fn pass_again(&self, range: Range<u64>) {
        if let Some(Passed(passed)) = &self.passed {
            passed(range);
        }
    }

    /// Tells of the chunk that is over: constants were looked up all over it.
    fn pass_chunk(&self) {
        if let Some(chunk) = &self.chunk {
            self.pass_again(chunk.offset.0..self.offset);
        }
    }

    /// Appends input. The first push is not copied.
    pub fn push(&mut self, bytes: Bytes) {
        if !self.closed && !bytes.is_empty() {
            self.buffer.push(bytes);
        }
    }

    /// Says that no input will follow.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Says that the live chunk being read has been finished: it ends with what was pushed, all of it has been taken,
    /// and this is its header now.
    pub(crate) fn end_chunk(&mut self, header: ChunkHeader) {
        if self.state == State::Events && self.current.end.is_none() {
            self.current.end = Some(self.offset + self.buffer.bytes().len() as u64);
            if let Some(chunk) = &mut self.chunk {
                chunk.header = header;
            }
        }
    }

    /// Bytes of input dealt with so far.
    pub fn consumed(&self) -> u64 {
        self.offset + self.scanned as u64
    }

    /// Chunks started so far.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Decodes until an item can be taken; `false` if more input is needed or, after [`close`](Self::close),
    /// nothing is left.
    pub fn ready(&mut self) -> bool {
        while self.queue.is_empty() {
            if let Next::NeedsMore = self.step() {
                return !self.queue.is_empty();
            }
        }
        true
    }

    /// The next item; `None` if more input is needed or, after [`close`](Self::close), nothing is left.
    #[allow(clippy::should_implement_trait)] // the items borrow from the decoder
    pub fn next(&mut self) -> Option<Item<'_>> {
        if !self.ready() {
            return None;
        }
        if let Some(lent) = self.lent.take() {
            self.pass_again(lent);
        }
        if let Some(Queued::Events(regions)) = self.queue.front()
            && let (Some(first), Some(last)) = (regions.first(), regions.last())
            && self.passed.is_some()
            && self.delivery != Delivery::Unresolved
        {
            self.lent = Some(first.offset..last.offset + last.bytes.len() as u64);
        }
        match (self.queue.pop_front()?, &self.chunk) {
            (Queued::Warning(error), _) => Some(Item::Warning(error)),
            (Queued::ChunkStart, Some(chunk)) => Some(Item::ChunkStart(chunk)),
            (Queued::Events(regions), Some(chunk)) => {
                Some(Item::Events(Batch { chunk, regions, wanted: self.current.wanted.as_ref() }))
            }
            (Queued::ChunkEnd { size, complete }, Some(chunk)) => {
                Some(Item::ChunkEnd(ChunkEnd { chunk, size, complete, counts: &self.current.counts }))
            }
            // A chunk is replaced only when the queue is empty.
            (_, None) => None,
        }
    }

    fn step(&mut self) -> Next {
        match self.state {
            State::Header => self.header(),
            State::Events => self.events(),
            State::Recover => self.recover(),
            State::Skip { until } => self.skip(until),
            State::Search { from, told } => self.search(from, told),
            State::Done => {
                self.redefined();
                Next::NeedsMore
            }
        }
    }

    fn warn(&mut self, error: Error) {
        self.queue.push_back(Queued::Warning(error));
    }

    /// Tells doubts about the current chunk.
    fn doubt(&mut self, doubts: impl IntoIterator<Item = Doubt>) {
        let Some(chunk) = &self.chunk else { return };
        for (doubt, at) in doubts {
            let within = doubt.within();
            let error = Error::new(ErrorKind::Dubious(doubt), chunk.offset.0 + at, Some(chunk.index), within);
            self.queue.push_back(Queued::Warning(error));
        }
    }

    /// Tells constants that were defined twice. Only when the chunk is done with: no pool is indexed for this alone.
    fn redefined(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        if !std::mem::replace(&mut self.current.redefined, true) {
            let start = chunk.offset.0;
            let found = chunk.pools.redefined(&chunk.types);
            self.doubt(found.into_iter().map(|(doubt, at)| (doubt, at - start)));
        }
    }

    fn discard(&mut self, len: usize) {
        let len = len.min(self.buffer.bytes().len());
        self.buffer.take(len);
        self.offset += len as u64;
        self.scanned = 0;
    }

    fn header(&mut self) -> Next {
        let bytes = self.buffer.bytes();
        if bytes.len() < LEN && !self.closed {
            return Next::NeedsMore;
        }
        if bytes.is_empty() {
            self.pass_chunk();
            if self.chunks == 0 {
                self.warn(Error::new(ErrorKind::Empty, 0, None, "the first chunk header"));
            }
            self.state = State::Done;
            return Next::Again;
        }
        let Ok(header) = ChunkHeader::decode(bytes) else {
            self.state = State::Search { from: self.offset, told: false };
            return Next::Again;
        };
        let offset = self.offset;
        let ahead = self.delivery != Delivery::Earliest && trusted_end(&header, offset).is_some();
        if ahead && self.metadata_is_to_come(&header) {
            return Next::NeedsMore;
        }
        self.redefined();
        self.pass_chunk();
        self.discard(LEN);
        let index = ChunkIndex(self.chunks);
        self.chunks = self.chunks.saturating_add(1);
        let pools = self.chunk.take().map_or_else(Pools::default, |chunk| chunk.pools.emptied());
        self.chunk = Some(Chunk { index, offset: FileOffset(offset), header, types: Arc::default(), pools });
        self.current = Current { end: trusted_end(&header, offset), ..Current::default() };
        self.queue.push_back(Queued::ChunkStart);
        self.doubt(doubts::of_header(&header));
        self.state = State::Events;
        if ahead {
            self.read_ahead(&header, offset);
        }
        Next::Again
    }

    /// Whether more input may bring the metadata of the chunk whose header is at the front of the buffer.
    fn metadata_is_to_come(&self, header: &ChunkHeader) -> bool {
        let rest = usize::try_from(header.metadata.0).ok().and_then(|at| self.buffer.bytes().get(at..));
        let mut cursor = Cursor::new(rest.unwrap_or_default());
        let there = match (cursor.varint(), cursor.varint()) {
            (Ok(size), Ok(type_id)) => {
                type_id != u64::from(METADATA_EVENT.0)
                    || size.min(MAX_EVENT) <= rest.map_or(0, <[u8]>::len) as u64
            }
            _ => false,
        };
        !there && !self.closed
    }

    /// Reads the metadata that the header points at, if it can be: what is wrong with it is told where it is met.
    fn read_ahead(&mut self, header: &ChunkHeader, offset: u64) {
        let Ok(distance) = usize::try_from(header.metadata.0 - LEN as u64) else { return };
        let rest = self.buffer.bytes().get(distance..).unwrap_or_default();
        let mut cursor = Cursor::new(rest);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else { return };
        let sound = type_id == u64::from(METADATA_EVENT.0) && size <= MAX_EVENT.min(rest.len() as u64);
        if !sound || size <= cursor.pos() as u64 {
            return;
        }
        let payload = distance + cursor.pos()..distance + size as usize;
        if self.declare(payload).is_ok() {
            self.current.read_ahead = Some(offset + header.metadata.0);
        } else if let Some(chunk) = &mut self.chunk {
            chunk.types = Arc::default();
        }
    }

    /// Puts aside what has been scanned, and hands it out if its constants need not be known.
    fn portion(&mut self) {
        let start = self.offset;
        self.hold();
        if self.delivery == Delivery::Unresolved && self.current.has_types {
            self.queue.push_back(Queued::Events(self.current.held.drain(..).collect()));
            if start - self.passed_to >= STRIDE as u64 {
                self.pass(start);
            }
        } else {
            self.pass(self.offset);
        }
    }

    /// Walks whole events from the scan position on.
    fn events(&mut self) -> Next {
        let portion = if self.delivery == Delivery::Unresolved { CACHED } else { STRIDE };
        loop {
            let at = self.offset + self.scanned as u64;
            if self.scanned >= portion {
                self.portion();
                if !self.queue.is_empty() {
                    return Next::Again;
                }
            }
            if self.current.end == Some(at) {
                self.ended = Some(at);
                return self.finish(true, State::Header);
            }
            if self.usual(portion) {
                continue;
            }
            let head = match self.head(at) {
                Head::Event(head) => head,
                Head::Short => return self.input_exhausted(at),
                Head::NextChunk => {
                    // The header promised more than there is.
                    let complete = self.current.end.is_none();
                    return self.finish(complete, State::Header);
                }
                Head::Unsized if self.unsized_checkpoint(at) => continue,
                Head::Bad | Head::Unsized => {
                    self.current.damaged = true;
                    self.warn(self.fault(Malformed::EventSize, at, "an event's size and type"));
                    self.strayed = true;
                    self.state = State::Recover;
                    return Next::Again;
                }
            };
            if let Some(wanted) = &self.current.wanted {
                match wanted.of(head.type_id) {
                    Interest::None => {}
                    // A portion is hardly larger than the largest event, so this fits.
                    Interest::Plain => self.current.picked.push(self.scanned as u32),
                    Interest::Constants => {
                        self.current.constants_wanted = true;
                        self.current.picked.push(self.scanned as u32);
                    }
                }
            }
            self.scanned += head.size as usize;
            self.current.counts.add(head.type_id, u64::from(head.size));
            if head.type_id == u64::from(METADATA_EVENT.0) {
                self.metadata(head, at);
            } else if head.type_id == u64::from(CHECKPOINT_EVENT.0) {
                self.checkpoint(head, at);
                if !self.queue.is_empty() {
                    return Next::Again;
                }
            }
        }
    }

    /// Walks over events whose size takes one byte and whose type takes at most two: nearly all. Whether there were
    /// any.
    fn usual(&mut self, portion: usize) -> bool {
        let bytes = self.buffer.bytes();
        let end = self.current.end.and_then(|end| usize::try_from(end.saturating_sub(self.offset)).ok());
        let bytes = end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
        let Current { wanted, picked, counts, constants_wanted, .. } = &mut self.current;
        let usual = Usual { bytes, from: self.scanned, portion };
        let before = self.scanned;
        self.scanned = match wanted {
            Some(wanted) => usual.walk(counts, |at, type_id| match wanted.of(type_id) {
                Interest::None => {}
                // A portion is hardly larger than the largest event, so this fits.
                Interest::Plain => picked.push(at as u32),
                Interest::Constants => {
                    *constants_wanted = true;
                    picked.push(at as u32);
                }
            }),
            None => usual.walk(counts, |_, _| {}),
        };
        self.scanned > before
    }

    /// Size and type of the event at the scan position, if it is there as a whole.
    fn head(&self, at: u64) -> Head {
        let rest = self.buffer.bytes().get(self.scanned..).unwrap_or_default();
        if rest.first() == Some(&MAGIC[0]) && rest.starts_with(&MAGIC[..rest.len().min(MAGIC.len())]) {
            if rest.len() < LEN && !self.closed {
                return Head::Short;
            }
            if resync::is_header(rest) {
                return Head::NextChunk;
            }
            if self.current.end.is_none() && rest.starts_with(&UNSIZED) {
                return if self.closed { Head::Unsized } else { Head::Short };
            }
        }
        let mut cursor = Cursor::new(rest);
        let Ok(size) = cursor.varint() else { return Head::Short };
        let room = self.current.end.map_or(u64::MAX, |end| end.saturating_sub(at));
        if size <= cursor.pos() as u64 || size > MAX_EVENT || size > room {
            return Head::Bad;
        }
        let size = size as u32;
        let Some(event) = rest.get(..size as usize) else { return Head::Short };
        let mut cursor = Cursor::at(event, cursor.pos());
        match cursor.varint() {
            Ok(type_id) => Head::Event(EventHead { size, type_id, head: cursor.pos() as u32 }),
            Err(_) => Head::Bad,
        }
    }

    fn input_exhausted(&mut self, at: u64) -> Next {
        if !self.closed {
            self.deliver(false);
            return if self.queue.is_empty() { Next::NeedsMore } else { Next::Again };
        }
        let end = self.offset + self.buffer.bytes().len() as u64;
        let missing = self.current.end.map_or(0, |promised| promised.saturating_sub(end));
        if missing == 0 && at == end {
            return self.finish(true, State::Done);
        }
        let index = self.chunk.as_ref().map(|c| c.index);
        self.warn(Error::new(ErrorKind::Truncated { missing }, end, index, "events"));
        // A damaged size may have hidden the next chunk.
        self.finish(false, State::Search { from: at, told: true })
    }

    fn fault(&self, what: Malformed, at: u64, within: &str) -> Error {
        let index = self.chunk.as_ref().map(|c| c.index);
        Error::new(ErrorKind::Malformed(what), at, index, within)
    }

    fn metadata(&mut self, event: EventHead, at: u64) {
        if let Some(chunk) = &self.chunk {
            self.current.landmarks.metadata(at - chunk.offset.0);
        }
        if self.current.read_ahead == Some(at) {
            return;
        }
        let start = self.scanned - (event.size - event.head) as usize;
        let payload = start..self.scanned;
        match self.declare(payload.clone()) {
            Ok(()) => {}
            // Filler of fixed-size chunks.
            Err(_) if self.buffer.bytes().get(payload).is_some_and(|p| p.iter().all(|&b| b == 0)) => {}
            Err((fault, pos)) => {
                self.current.damaged = true;
                let at = at + u64::from(event.head) + pos as u64;
                self.warn(self.fault(fault, at, "metadata"));
            }
        }
    }

    /// Takes in the types of the metadata event whose content is at `payload` of the buffer.
    fn declare(&mut self, payload: Range<usize>) -> Result<(), (Malformed, usize)> {
        let Some(chunk) = &mut self.chunk else { return Ok(()) };
        let payload = self.buffer.bytes().get(payload).unwrap_or_default();
        let mut cursor = Cursor::new(payload);
        let head = cursor.skip_varints(3).map_or(0, |()| cursor.pos()); // start, duration, id
        let tree = payload.get(head..).unwrap_or_default();
        let first = !self.current.has_types;
        let last = self.last_types.lock().ok().and_then(|last| last.clone());
        let known = last.filter(|last| *last.tree == *tree);
        match known {
            Some(last) if first => chunk.types = last.types.clone(),
            known => {
                let known = known.is_some();
                Arc::make_mut(&mut chunk.types).add(payload)?;
                if first && !known {
                    let last = LastTypes { tree: tree.into(), types: chunk.types.clone() };
                    if let Ok(mut shared) = self.last_types.lock() {
                        *shared = Some(Arc::new(last));
                    }
                }
            }
        }
        self.current.has_types = true;
        if self.scanned > 0 {
            // What was scanned before has not been picked from.
            self.current.picked.clear();
            self.hold_unpicked();
        }
        if let (Some(Select(interest)), Some(chunk)) = (&self.select, &self.chunk) {
            self.current.wanted = Some(Wanted::new(&chunk.types, interest));
        }
        for region in std::mem::take(&mut self.current.early) {
            self.constants(&region);
        }
        Ok(())
    }

    fn checkpoint(&mut self, head: EventHead, at: u64) {
        let payload = (head.size - head.head) as usize;
        let region = match &self.buffer {
            // Shared, not copied.
            Buffer::Whole(bytes) => bytes.slice(self.scanned - payload..self.scanned),
            Buffer::Growing(_) => {
                self.hold();
                let last = self.current.held.back().map(|r| r.bytes.clone()).unwrap_or_default();
                last.slice(last.len() - payload..)
            }
        };
        let region = Region { bytes: region, offset: at + u64::from(head.head), picked: None };
        let delta = CheckpointHead::delta(&mut Cursor::new(&region.bytes)).unwrap_or(0);
        let start = self.chunk.as_ref().map_or(0, |chunk| chunk.offset.0);
        self.current.landmarks.checkpoint(at - start, delta);
        let lazily = self.delivery == Delivery::Unresolved && self.current.wanted.is_some();
        let flags = if lazily && !self.current.constants_wanted {
            self.current.unwanted.push(region);
            0
        } else if self.current.has_types {
            self.read_unwanted();
            self.constants(&region)
        } else {
            let flags = CheckpointHead::read(&mut Cursor::new(&region.bytes)).map_or(0, |head| head.flags);
            self.current.early.push(region);
            flags
        };
        self.deliver(flags & CHECKPOINT_FLUSH != 0);
    }

    /// Reads a checkpoint whose size was never filled in, by its content.
    fn unsized_checkpoint(&mut self, at: u64) -> bool {
        let Some(chunk) = &mut self.chunk else { return false };
        let start = self.scanned + UNSIZED.len();
        let payload = Bytes::copy_from_slice(self.buffer.bytes().get(start..).unwrap_or_default());
        match chunk.pools.add(&chunk.types, &payload, at + UNSIZED.len() as u64) {
            Ok((_, len)) => {
                let size = UNSIZED.len() + len;
                // In front of the payload the bytes are no event that could be walked over later.
                self.hold();
                self.discard(size);
                self.current.counts.add(u64::from(CHECKPOINT_EVENT.0), size as u64);
                true
            }
            Err(_) => false,
        }
    }

    fn constants(&mut self, region: &Region) -> u8 {
        let Some(chunk) = &mut self.chunk else { return 0 };
        match chunk.pools.add(&chunk.types, &region.bytes, region.offset) {
            Ok((head, _)) => head.flags,
            Err((fault, pos)) => {
                self.current.damaged = true;
                self.warn(self.fault(fault, region.offset + pos as u64, "constant pools"));
                0
            }
        }
    }

    /// Reads the checkpoints that were passed over, now that somebody wants constants.
    fn read_unwanted(&mut self) {
        for region in std::mem::take(&mut self.current.unwanted) {
            self.constants(&region);
        }
    }

    /// Takes what has been scanned out of the buffer.
    fn hold(&mut self) {
        let picked = self.current.wanted.is_some().then(|| std::mem::take(&mut self.current.picked));
        self.take_out(picked);
    }

    fn hold_unpicked(&mut self) {
        // Events of unknown types may want constants.
        self.current.constants_wanted = true;
        self.take_out(None);
    }

    fn take_out(&mut self, picked: Option<Vec<u32>>) {
        if self.scanned > 0 {
            let region = Region { bytes: self.buffer.take(self.scanned), offset: self.offset, picked };
            self.offset += self.scanned as u64;
            self.scanned = 0;
            self.current.held.push_back(region);
        }
    }

    /// Hands out the events whose constants are known; `flushed` says that a live writer has just written all of
    /// them, so that waiting for more is in vain.
    fn deliver(&mut self, flushed: bool) {
        if self.delivery != Delivery::Earliest || !self.current.has_types {
            return;
        }
        self.hold();
        let Some(chunk) = &self.chunk else { return };
        let all = flushed && chunk.header.state != STATE_FINISHED;
        let current = &mut self.current;
        let mut out = Vec::new();
        while let Some(region) = current.held.front_mut() {
            let good = if all { region.bytes.len() } else { current.known.prefix(chunk, region) };
            if good == region.bytes.len() {
                out.extend(current.held.pop_front());
                continue;
            }
            if good > 0 {
                out.push(region.split_to(good));
            }
            break;
        }
        if !out.is_empty() {
            self.queue.push_back(Queued::Events(out));
        }
    }

    fn finish(&mut self, complete: bool, then: State) -> Next {
        let at = self.offset + self.scanned as u64;
        if self.current.constants_wanted {
            self.read_unwanted();
        }
        self.hold();
        let Some(chunk) = &self.chunk else { return Next::Again };
        let held: Vec<Region> = self.current.held.drain(..).collect();
        let index = Some(chunk.index);
        let start = chunk.offset.0;
        if !held.is_empty() {
            if self.current.has_types {
                if self.passed.is_some() {
                    // One by one, so that what is behind can be let go.
                    self.queue.extend(held.into_iter().map(|region| Queued::Events(vec![region])));
                } else {
                    self.queue.push_back(Queued::Events(held));
                }
            } else if self.current.counts.events() > 0 {
                self.warn(Error::new(ErrorKind::NoMetadata, start, index, "metadata"));
                self.current.damaged = true;
            }
        }
        if let (true, Some(chunk)) = (self.current.has_types, &self.chunk) {
            let undeclared = |&(type_id, _): &(u64, _)| {
                type_id > u64::from(CHECKPOINT_EVENT.0) && chunk.types.index_of(type_id).is_none()
            };
            // A damaged chunk may hold any number of ids.
            let (mut types, mut events) = (0, 0);
            for (type_id, count) in self.current.counts.iter().filter(undeclared) {
                types += 1;
                if types <= UNDECLARED_TOLD {
                    let kind = ErrorKind::UnknownEvents { type_id, count: count.events };
                    self.queue.push_back(Queued::Warning(Error::new(kind, start, index, "events")));
                } else {
                    events += count.events;
                }
            }
            if types > UNDECLARED_TOLD {
                let kind = ErrorKind::UnknownTypes { types: types - UNDECLARED_TOLD, events };
                self.queue.push_back(Queued::Warning(Error::new(kind, start, index, "events")));
            }
        }
        let complete = complete && !self.current.damaged;
        if let (true, Some(chunk)) = (complete, &self.chunk) {
            self.doubt(self.current.landmarks.doubts(&chunk.header, &chunk.types, at - start));
        }
        self.queue.push_back(Queued::ChunkEnd { size: at - start, complete });
        self.state = then;
        Next::Again
    }

    /// Behind a damaged event the checkpoint chain of a finished chunk still tells where events start.
    fn recover(&mut self) -> Next {
        let at = self.offset + self.scanned as u64;
        let Some(end) = self.current.end else {
            return self.finish(false, State::Search { from: at, told: true });
        };
        let have = self.offset + self.buffer.bytes().len() as u64;
        if have < end && !self.closed {
            return Next::NeedsMore;
        }
        let Some(chunk) = &self.chunk else { return Next::Again };
        let start = chunk.offset.0;
        let inner = self.buffer.bytes().get(self.scanned..).unwrap_or_default();
        let inner = inner.get(..usize::try_from(end - at).unwrap_or(usize::MAX)).unwrap_or(inner);
        let steps = self.current.resync_steps.get_or_insert(inner.len() as u64 * resync::STEPS_PER_BYTE);
        let known = resync::next_boundary(inner, at - start, &chunk.header, steps);
        let found = if self.current.has_types {
            resync::next_run(inner, known.unwrap_or(inner.len()), &chunk.types, have >= end, steps)
        } else {
            None
        };
        match found.or(known) {
            Some(skipped) => {
                self.hold();
                self.discard(skipped);
                self.state = State::Events;
                Next::Again
            }
            None if have < end => self.finish(false, State::Search { from: at, told: true }),
            None => self.finish(false, State::Skip { until: end }),
        }
    }

    fn skip(&mut self, until: u64) -> Next {
        let want = until.saturating_sub(self.offset);
        self.discard(usize::try_from(want).unwrap_or(usize::MAX));
        if self.offset < until {
            if self.closed {
                self.state = State::Done;
            }
            return Next::NeedsMore;
        }
        self.state = State::Header;
        Next::Again
    }

    fn search(&mut self, from: u64, told: bool) -> Next {
        let bytes = self.buffer.bytes();
        // The byte at `from` itself has been tried as a header or an event.
        let tried = usize::from(self.offset == from);
        let found = resync::find_header(bytes.get(tried..).unwrap_or_default()).map(|at| at + tried);
        if let Some(found) = found {
            self.discard(found);
        } else {
            let keep = if self.closed { 0 } else { LEN - 1 };
            self.discard(self.buffer.bytes().len().saturating_sub(keep));
            if !self.closed {
                return Next::NeedsMore;
            }
        }
        if !told {
            self.skipped(from, found.is_some());
        }
        self.state = if found.is_some() { State::Header } else { State::Done };
        Next::Again
    }

    fn skipped(&mut self, from: u64, found: bool) {
        let error = if self.chunks == 0 && !found {
            Error::new(ErrorKind::NotJfr, from, None, "the first chunk header")
        } else {
            let bytes = self.offset - from;
            Error::new(ErrorKind::Skipped { bytes }, from, None, "a chunk header")
        };
        self.warn(error);
    }
}

enum Head {
    Event(EventHead),
    /// The bytes end before the event does.
    Short,
    NextChunk,
    /// A checkpoint without its size, see [`UNSIZED`].
    Unsized,
    Bad,
}

#[derive(Clone, Copy)]
struct EventHead {
    size: u32,
    type_id: u64,
    /// Bytes of size and type.
    head: u32,
}

/// Where the chunk ends, if its header has been completed.
pub(crate) fn trusted_end(header: &ChunkHeader, offset: u64) -> Option<u64> {
    let inside = |at: u64| at >= LEN as u64 && at < header.size;
    let good = header.state == STATE_FINISHED
        && inside(header.metadata.0)
        && (header.checkpoint.0 == 0 || inside(header.checkpoint.0));
    if good { offset.checked_add(header.size) } else { None }
}
