//! The decoder: bytes in, events out, no I/O.
//!
//! ```text
//!   push(bytes) ─► Header ─► Events ─┬─ type 0 ─► types      ┐
//!                    ▲               ├─ type 1 ─► pools      ├─► Item::Events when their constants are known
//!                    └── chunk end ◄─┴─ others ─► held back  ┘
//! ```
//! Inside a chunk order does not matter: definitions may follow their use. So events are held until what they refer
//! to is known, at the latest until the chunk ends. All checkpoints met are used, chained or not.

mod buffer;
mod checkpoints;
mod damage;
mod delivery;
mod events;
mod metadata;
mod page_release;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::batch::{Batch, Filter, Region, TypeCounts, TypeFilters};
use super::conformance;
use super::conformance::Landmarks;
use super::references::CompleteConstants;
use crate::chunk::Chunk;
use crate::constants::{MAGIC, STATE_FINISHED};
use crate::error::{Error, ErrorKind, Malformed};
use crate::header::{ChunkHeader, LEN};
use crate::ids::{ChunkIndex, FileOffset};
use crate::pool::Pools;
use crate::types::Class;
use buffer::Window;
pub(crate) use checkpoints::UNSIZED;
pub(crate) use metadata::SharedTypes;
use page_release::PageRelease;
pub(crate) use page_release::Paged;
pub use page_release::Pages;

/// Larger events are taken for damage; the four-byte padded size that writers use cannot say more.
pub(crate) const MAX_EVENT: u64 = 1 << 28;

/// Returns the filter of a type.
pub(crate) struct FilterFn(Box<dyn Fn(&Class) -> Filter + Send>);

impl std::fmt::Debug for FilterFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FilterFn")
    }
}

/// When events are handed out.
///
/// But for [`Streaming`](Self::Streaming), the metadata that the header of a finished chunk points at is read before the
/// events in front of it, as other readers do; it counts even where damage hides it, or inside another event. Types
/// that only later metadata declares are known from there on with [`KeysOnly`](Self::KeysOnly).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All events of a chunk at its end: for input that is at hand as a whole.
    WholeChunks,
    /// As soon as the constants they refer to are known: for streams. In a chunk that is still being written
    /// (state byte not 0) everything before a checkpoint with the FLUSH bit is handed out with it.
    Streaming,
    /// While the chunk is walked, in batches that fit a processor's cache: for input that is at hand as a whole, and
    /// consumers that add events up by their keys. Constants can be looked up at [`Item::ChunkEnd`], not before.
    KeysOnly,
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
    /// Something could not be read; decoding goes on. It may come before events that stand before it in the file.
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
    /// Look for the next header. `from` is where reading stopped; `reported` if that was reported already.
    Search {
        from: u64,
        reported: bool,
    },
    Done,
}

/// The push decoder. Feed it with [`push`](Self::push) and [`close`](Self::close), take items with
/// [`next`](Self::next) until it wants more.
#[derive(Debug)]
pub struct Decoder {
    delivery: Delivery,
    input: Window,
    state: State,
    queue: VecDeque<Queued>,
    chunk: Option<Chunk>,
    chunks: u32,
    current: Current,
    last_types: SharedTypes,
    filter: Option<FilterFn>,
    pages: PageRelease,
    section: SectionCheck,
}

/// Whether the chunks end where their headers say: [`Recording`](super::Recording) relied on that when it split the input.
#[derive(Debug, Default)]
struct SectionCheck {
    /// Where the last chunk ended that did so.
    ended: Option<u64>,
    /// Whether events were searched for behind damage.
    strayed: bool,
}

/// What belongs to the chunk being read, beside what its events need.
#[derive(Debug, Default)]
struct Current {
    /// Where it ends, if its header can be trusted.
    end: Option<u64>,
    damaged: bool,
    /// Constants that are defined twice have been reported.
    redefined: bool,
    /// What looking for events behind damage may still cost.
    resync_steps: Option<u64>,
    has_types: bool,
    /// By type, once the types are known; `None` if no filter is set.
    filters: Option<TypeFilters>,
    /// Positions in the scanned bytes of the events that the filters let through.
    picked: Vec<u32>,
    /// Checkpoints that were not read because no event needed constants.
    skipped_checkpoints: Vec<Region>,
    /// An event came whose filter is [`Filter::Constants`].
    needs_constants: bool,
    /// Where the metadata lies that has been read already.
    read_ahead: Option<u64>,
    counts: TypeCounts,
    landmarks: Landmarks,
    held: VecDeque<Region>,
    /// Checkpoints met before the metadata.
    early: Vec<Region>,
    known: CompleteConstants,
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
            input: Window::default(),
            state: State::Header,
            queue: VecDeque::new(),
            chunk: None,
            chunks: 0,
            current: Current::default(),
            last_types: SharedTypes::default(),
            filter: None,
            pages: PageRelease::default(),
            section: SectionCheck::default(),
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
        decoder.input.offset = offset;
        decoder.pages.passed_to = offset;
        decoder.chunks = first.0;
        decoder.push(bytes);
        decoder.close();
        decoder
    }

    /// Returns only events of the types that `filter` selects, from the next chunk on. The others are counted, which
    /// costs a few nanoseconds each. With [`Delivery::KeysOnly`], the constants of a chunk are read only if it has
    /// events of a type with [`Filter::Constants`]; damage in constants that are not read is not reported.
    pub fn set_filter(&mut self, filter: impl Fn(&Class) -> Filter + Send + 'static) {
        self.filter = Some(FilterFn(Box::new(filter)));
    }

    /// Whether the input turned out to be `chunks` chunks from `first` on, the last of which ends where its header says.
    pub(crate) fn was_chunks(&self, first: ChunkIndex, chunks: u32, end: u64) -> bool {
        self.chunks == first.0.saturating_add(chunks)
            && self.section.ended == Some(end)
            && !self.section.strayed
    }

    /// Appends input. The first push is not copied.
    pub fn push(&mut self, bytes: Bytes) {
        self.input.push(bytes);
    }

    /// Says that no input will follow.
    pub fn close(&mut self) {
        self.input.closed = true;
    }

    /// Says that the live chunk being read has been finished: it ends with what was pushed, all of it has been taken,
    /// and this is its header now.
    pub(crate) fn end_chunk(&mut self, header: ChunkHeader) {
        if self.state == State::Events && self.current.end.is_none() {
            self.current.end = Some(self.input.end());
            if let Some(chunk) = &mut self.chunk {
                chunk.header = header;
            }
        }
    }

    /// Bytes of input dealt with so far.
    pub fn consumed(&self) -> u64 {
        self.input.position()
    }

    /// The chunk that the item taken last belongs to.
    pub fn chunk(&self) -> Option<&Chunk> {
        self.chunk.as_ref()
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
        if let Some(lent) = self.pages.lent.take() {
            self.pass_again(lent);
        }
        if let Some(Queued::Events(regions)) = self.queue.front()
            && let (Some(first), Some(last)) = (regions.first(), regions.last())
            && self.pages.pages.any()
            && self.delivery != Delivery::KeysOnly
        {
            self.pages.lent = Some(first.offset..last.offset + last.bytes.len() as u64);
        }
        match (self.queue.pop_front()?, &self.chunk) {
            (Queued::Warning(error), _) => Some(Item::Warning(error)),
            (Queued::ChunkStart, Some(chunk)) => Some(Item::ChunkStart(chunk)),
            (Queued::Events(regions), Some(chunk)) => {
                let (filters, pages) = (self.current.filters.as_ref(), &self.pages.pages);
                Some(Item::Events(Batch { chunk, regions, filters, pages }))
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
            State::Search { from, reported } => self.search(from, reported),
            State::Done => {
                self.redefined();
                Next::NeedsMore
            }
        }
    }

    fn warn(&mut self, error: Error) {
        self.queue.push_back(Queued::Warning(error));
    }

    fn header(&mut self) -> Next {
        let bytes = self.input.bytes();
        if bytes.len() < LEN && !self.input.closed {
            return Next::NeedsMore;
        }
        if bytes.is_empty() {
            self.redefined();
            self.pass_chunk();
            if self.chunks == 0 {
                self.warn(Error::new(ErrorKind::Empty, 0, None, "the first chunk header"));
            }
            self.state = State::Done;
            return Next::Again;
        }
        let Ok(header) = ChunkHeader::decode(bytes) else {
            let cut = self.chunks == 0 && bytes.len() < LEN && bytes.starts_with(&MAGIC);
            let (from, bytes) = (self.input.offset, bytes.len() as u64);
            if cut {
                self.warn(Error::new(ErrorKind::HeaderCut { bytes }, from, None, "the first chunk header"));
            }
            self.state = State::Search { from, reported: cut };
            return Next::Again;
        };
        let offset = self.input.offset;
        let ahead = self.delivery != Delivery::Streaming && trusted_end(&header, offset).is_some();
        if ahead && self.metadata_is_to_come(&header) {
            return Next::NeedsMore;
        }
        self.redefined();
        self.pass_chunk();
        self.input.discard(LEN);
        let index = ChunkIndex(self.chunks);
        self.chunks = self.chunks.saturating_add(1);
        let pools = self.chunk.take().map_or_else(Pools::default, |chunk| chunk.pools.emptied());
        self.chunk = Some(Chunk { index, offset: FileOffset(offset), header, types: Arc::default(), pools });
        self.current = Current { end: trusted_end(&header, offset), ..Current::default() };
        self.prepare(offset);
        self.queue.push_back(Queued::ChunkStart);
        self.report(conformance::check_header(&header));
        self.state = State::Events;
        if ahead {
            self.read_ahead(&header, offset);
        }
        Next::Again
    }

    fn fault(&self, what: Malformed, at: u64, within: &str) -> Error {
        let index = self.chunk.as_ref().map(|c| c.index);
        Error::new(ErrorKind::Malformed(what), at, index, within)
    }
}

/// Where the chunk ends, if its header has been completed.
pub(crate) fn trusted_end(header: &ChunkHeader, offset: u64) -> Option<u64> {
    let inside = |at: u64| at >= LEN as u64 && at < header.size;
    let good = header.state == STATE_FINISHED
        && inside(header.metadata.0)
        && (header.checkpoint.0 == 0 || inside(header.checkpoint.0));
    if good { offset.checked_add(header.size) } else { None }
}
