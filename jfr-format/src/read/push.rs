//! The decoder: bytes in, events out, no I/O.
//!
//! ```text
//!   push(bytes) ─► Header ─► Events ─┬─ type 0 ─► types      ┐
//!                    ▲               ├─ type 1 ─► pools      ├─► Item::Events when their constants are known
//!                    └── chunk end ◄─┴─ others ─► held back  ┘
//! ```
//! Inside a chunk order does not matter: definitions may follow their use. So events are held until the
//! constants that they refer to are known, at the latest until the chunk ends. All checkpoints are used,
//! chained or not.

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

/// Larger events are treated as damage; the four-byte padded size that writers use cannot express more.
pub(crate) const MAX_EVENT: u64 = 1 << 28;

/// Returns the filter of a type.
pub(crate) struct FilterFn(Box<dyn Fn(&Class) -> Filter + Send>);

impl std::fmt::Debug for FilterFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FilterFn")
    }
}

/// When events are returned.
///
/// Except with [`Streaming`](Self::Streaming), the metadata that the header of a finished chunk points to is
/// read before the events that precede it, as by other readers. It is used even if damage hides it, or if it
/// lies inside another event. With [`KeysOnly`](Self::KeysOnly), types that only later metadata declares are
/// known from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All events of a chunk at its end: for complete input.
    WholeChunks,
    /// As soon as their constants are known: for streams. In a chunk that is still being written (state byte
    /// not 0), a checkpoint with the FLUSH bit releases all events before it.
    Streaming,
    /// While the chunk is decoded, in batches that fit a processor's cache: for complete input, and consumers
    /// that aggregate events by their keys. Constants can be looked up at [`Item::ChunkEnd`], not before.
    KeysOnly,
}

/// An item of the decoder's output.
#[derive(Debug)]
pub enum Item<'a> {
    /// A header was read; types and constants are not known yet.
    ChunkStart(&'a Chunk),
    /// Some events of the chunk.
    Events(Batch<'a>),
    /// The chunk has ended.
    ChunkEnd(ChunkEnd<'a>),
    /// Bytes could not be read; decoding continues. It may be returned before events that precede it in the
    /// file.
    Warning(Error),
}

/// The end of a chunk.
#[derive(Debug)]
pub struct ChunkEnd<'a> {
    /// The chunk with all its types and constants.
    pub chunk: &'a Chunk,
    /// Bytes from the header to the end.
    pub size: u64,
    /// No part of it was skipped or is missing.
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
    /// The event at the scan position is damaged; looking for a position in the same chunk from which to
    /// continue.
    Recover,
    /// Drop bytes up to this offset, then expect a header.
    Skip {
        until: u64,
    },
    /// Look for the next header. `from` is where reading stopped; `reported` if that has been reported.
    Search {
        from: u64,
        reported: bool,
    },
    Done,
}

/// The push decoder. Feed it with [`push`](Self::push) and [`close`](Self::close), take items with
/// [`next`](Self::next) until it needs more input.
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

/// Checks that the chunks end where their headers say: [`Recording`](super::Recording) relied on that when it
/// split the input.
#[derive(Debug, Default)]
struct SectionCheck {
    /// End of the last chunk that did so.
    ended: Option<u64>,
    /// Whether events were searched for after damage.
    strayed: bool,
}

/// The state of the chunk being read, except the data that its events need.
#[derive(Debug, Default)]
struct Current {
    /// End of the chunk, if its header can be trusted.
    end: Option<u64>,
    damaged: bool,
    /// Constants that are defined twice have been reported.
    redefined: bool,
    /// Number of steps left for the search for events after damage.
    resync_steps: Option<u64>,
    has_types: bool,
    /// By type, once the types are known; `None` if no filter is set.
    filters: Option<TypeFilters>,
    /// Positions in the scanned bytes of the events that the filters select.
    picked: Vec<u32>,
    /// Checkpoints that were not read because no event needed constants.
    skipped_checkpoints: Vec<Region>,
    /// An event came whose filter is [`Filter::Constants`].
    needs_constants: bool,
    /// Position of metadata that has already been read.
    read_ahead: Option<u64>,
    counts: TypeCounts,
    landmarks: Landmarks,
    deferred: VecDeque<Region>,
    /// Checkpoints before the metadata.
    early: Vec<Region>,
    complete: CompleteConstants,
}

/// Result of one step.
enum Next {
    Again,
    NeedsMore,
}

impl Decoder {
    /// Creates an empty decoder.
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

    /// Creates a decoder of complete chunks from the middle of an input: `bytes` start at `offset` with chunk
    /// `first`.
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

    /// Returns true if the input consisted of `chunks` chunks from `first` on, the last of which ends where
    /// its header says.
    pub(crate) fn was_chunks(&self, first: ChunkIndex, chunks: u32, end: u64) -> bool {
        self.chunks == first.0.saturating_add(chunks)
            && self.section.ended == Some(end)
            && !self.section.strayed
    }

    /// Appends input. The first push is not copied.
    pub fn push(&mut self, bytes: Bytes) {
        self.input.push(bytes);
    }

    /// Declares that no input will follow.
    pub fn close(&mut self) {
        self.input.closed = true;
    }

    /// Declares that the live chunk being read has been finished: it ends with the pushed bytes, all of which
    /// have been decoded, and this is its final header.
    pub(crate) fn end_chunk(&mut self, header: ChunkHeader) {
        if self.state == State::Events && self.current.end.is_none() {
            self.current.end = Some(self.input.end());
            if let Some(chunk) = &mut self.chunk {
                chunk.header = header;
            }
        }
    }

    /// Returns the number of input bytes processed so far.
    pub fn consumed(&self) -> u64 {
        self.input.position()
    }

    /// Returns the chunk of the last item.
    pub fn chunk(&self) -> Option<&Chunk> {
        self.chunk.as_ref()
    }

    /// Returns the number of chunks started so far.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Decodes until an item is available. Returns false if more input is needed or, after
    /// [`close`](Self::close), nothing is left.
    pub fn ready(&mut self) -> bool {
        while self.queue.is_empty() {
            if let Next::NeedsMore = self.step() {
                return !self.queue.is_empty();
            }
        }
        true
    }

    /// Returns the next item; `None` if more input is needed or, after [`close`](Self::close), nothing is
    /// left.
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

/// Returns the end of the chunk, if its header has been completed.
pub(crate) fn trusted_end(header: &ChunkHeader, offset: u64) -> Option<u64> {
    let inside = |at: u64| at >= LEN as u64 && at < header.size;
    let good = header.state == STATE_FINISHED
        && inside(header.metadata.0)
        && (header.checkpoint.0 == 0 || inside(header.checkpoint.0));
    if good { offset.checked_add(header.size) } else { None }
}
