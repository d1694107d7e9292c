//! Runs of complete events, and their number by type.

use std::collections::HashMap;
use std::num::NonZero;

use bytes::Bytes;

use super::push::Pages;
use crate::chunk::Chunk;
use crate::constants::{CHECKPOINT_EVENT, MAGIC};
use crate::cursor::Cursor;
use crate::event::EventRef;
use crate::types::{Class, Types};

/// Consecutive complete events, including metadata and checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) bytes: Bytes,
    /// Offset of the first byte in the input.
    pub(crate) offset: u64,
    /// Positions in it of the events that the filters select; `None` if they are not known yet.
    pub(crate) picked: Option<Vec<u32>>,
}

impl Region {
    /// Splits off the first `len` bytes, which are complete events.
    pub(crate) fn split_to(&mut self, len: usize) -> Self {
        let front = self.bytes.split_to(len);
        let offset = self.offset;
        self.offset += len as u64;
        let picked = self.picked.as_mut().map(|picked| {
            let here = picked.partition_point(|&at| (at as usize) < len);
            let behind = picked.split_off(here);
            let shifted = behind.into_iter().map(|at| at - len as u32).collect();
            std::mem::replace(picked, shifted)
        });
        Self { bytes: front, offset, picked }
    }
}

/// Some events of one chunk, ready to be decoded.
#[derive(Debug)]
pub struct Batch<'a> {
    pub(crate) chunk: &'a Chunk,
    pub(crate) regions: Vec<Region>,
    pub(crate) filters: Option<&'a TypeFilters>,
    pub(crate) pages: &'a Pages,
}

impl<'a> Batch<'a> {
    /// Returns the chunk of the events.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// Iterates over the frames of all events in file order, of any type, so that a caller can skip types by
    /// their ids. If the decoder has a filter, only selected events are returned.
    pub fn frames(&self) -> Frames<'_> {
        Frames { filters: self.filters, regions: self.regions.iter(), current: Walk::default(), picked: None }
    }

    /// Returns the event in a frame of this batch; `None` for metadata, checkpoints and undeclared types.
    pub fn event<'b>(&'b self, frame: &Frame<'b>) -> Option<EventRef<'b>> {
        frame.event(self.chunk)
    }

    /// Returns the bytes of the batch, with their offsets in the input, ascending; cloning them does not
    /// copy. A caller that stores them can get an event again by its offset: see [`Chunk::event`].
    pub fn runs(&self) -> impl Iterator<Item = (u64, &Bytes)> {
        self.regions.iter().map(|region| (region.offset, &region.bytes))
    }

    /// Returns the bytes of the batch, without a copy, to iterate over its events later.
    pub fn into_runs(self) -> impl Iterator<Item = Run> {
        self.regions.into_iter().map(|region| Run { bytes: region.bytes, offset: region.offset, pos: 0 })
    }

    /// Returns a handle that releases the pages of [`runs`](Self::runs). The decoder releases those of the
    /// batch itself; only a caller that reads earlier ones again needs it.
    pub fn pages(&self) -> Pages {
        self.pages.clone()
    }

    /// Iterates over the events in file order; metadata, checkpoints and events of undeclared types are
    /// skipped.
    pub fn events(&self) -> Events<'_> {
        Events { chunk: self.chunk, frames: self.frames() }
    }
}

/// Stored consecutive events of a batch. They belong to the decoder's chunk ([`Decoder::chunk`]) until the
/// next item is taken from the decoder.
///
/// [`Decoder::chunk`]: super::Decoder::chunk
#[derive(Clone, Debug)]
pub struct Run {
    bytes: Bytes,
    offset: u64,
    pos: usize,
}

impl Run {
    /// Returns the next event, of any type, metadata and checkpoints included.
    #[allow(clippy::should_implement_trait)] // the frames borrow from the run
    pub fn next(&mut self) -> Option<Frame<'_>> {
        let mut walk = Walk { bytes: &self.bytes, pos: self.pos, offset: self.offset };
        let frame = walk.next();
        self.pos = walk.pos;
        frame
    }

    /// Returns the offset in the input after the last of them.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Iterates over framed events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    pub(crate) pos: usize,
    offset: u64,
}

/// Events of a chunk that can be walked over by a fast path.
pub(crate) struct Usual<'a> {
    /// The bytes up to the end of the chunk, or of the available input.
    pub(crate) bytes: &'a [u8],
    pub(crate) from: usize,
    /// The position at which to stop.
    pub(crate) portion: usize,
}

impl Usual<'_> {
    /// Counts events and calls `each` with their positions and types, as long as their size takes one byte,
    /// their type at most two, and they cannot be the start of a chunk header. Metadata, checkpoints and the
    /// last bytes end the walk. Returns the position reached.
    #[inline(always)]
    pub(crate) fn walk(&self, counts: &mut TypeCounts, mut each: impl FnMut(usize, u64)) -> usize {
        let mut at = self.from;
        while at < self.portion
            && let Some(word) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>())
        {
            let word = u64::from(u32::from_le_bytes(*word));
            let size = word & 0x7f;
            let (low, high) = (word >> 8 & 0x7f, word >> 16 & 0x7f);
            // All ones if the type has a second byte. The lengths of types change from event to event, so a
            // branch would be mispredicted.
            let second = (word >> 15 & 1).wrapping_neg();
            let type_id = low | high << 7 & second;
            let long = word & 0x80 | word & 0x80_0000 & second;
            let after = at + size as usize;
            if long != 0
                || size <= 2 + (second & 1)
                || type_id <= u64::from(CHECKPOINT_EVENT.0)
                || word & 0xffff == HEADER_START
                || after > self.bytes.len()
            {
                break;
            }
            counts.add(type_id, size);
            each(at, type_id);
            at = after;
        }
        at
    }
}

/// The first two bytes of a chunk header.
const HEADER_START: u64 = MAGIC[0] as u64 | (MAGIC[1] as u64) << 8;

/// The position and type id of an event.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Declared id of its type.
    pub type_id: u64,
    /// The bytes of its fields.
    pub payload: &'a [u8],
    /// The payload and the bytes after it, so that whole words can be loaded from its last bytes.
    pub(crate) tail: &'a [u8],
    /// Offset of its first byte in the input.
    pub offset: u64,
    /// Its size in the input, head included, in bytes.
    pub size: u32,
}

impl<'a> Frame<'a> {
    /// Returns the frame of an event that was stored: the bytes of its fields and its offset in the input.
    pub fn from_payload(type_id: u64, payload: &'a [u8], offset: u64) -> Self {
        Self { type_id, payload, tail: payload, offset, size: payload.len() as u32 }
    }

    /// Returns the bytes after the first varint, the start time of an event, as one number together with
    /// their count. If two events of a type have the same number, all their fields except the first are
    /// equal. `None` if there are none or more than seven, and near the end of the input.
    #[inline(always)]
    pub fn short_bytes_behind_start(&self) -> Option<NonZero<u64>> {
        let mut cursor = Cursor::new(self.tail);
        cursor.skip_varint_branchless().ok()?;
        let word = u64::from_le_bytes(*self.tail.get(cursor.pos()..)?.first_chunk::<8>()?);
        let len = self.payload.len().checked_sub(cursor.pos()).filter(|&len| len < 8)?;
        NonZero::new(short(word, len))
    }

    #[inline(always)]
    fn event(&self, chunk: &'a Chunk) -> Option<EventRef<'a>> {
        if self.type_id <= u64::from(CHECKPOINT_EVENT.0) {
            return None;
        }
        let index = chunk.types.class_index(self.type_id)?;
        let class = chunk.types.class(index)?;
        let Self { payload, tail, offset, size, .. } = *self;
        Some(EventRef { chunk, class, index, payload, tail, offset, size })
    }
}

/// Iterates over the frames of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    filters: Option<&'a TypeFilters>,
    regions: std::slice::Iter<'a, Region>,
    current: Walk<'a>,
    picked: Option<std::slice::Iter<'a, u32>>,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'a>> {
        loop {
            let frame = match &mut self.picked {
                Some(picked) => match picked.next() {
                    Some(&at) => self.current.at(at as usize),
                    None => None,
                },
                None => self.current.next(),
            };
            let Some(frame) = frame else {
                let region = self.regions.next()?;
                self.current = Walk::new(region);
                self.picked = region.picked.as_ref().map(|picked| picked.iter());
                continue;
            };
            if self.picked.is_none() && self.filters.is_some_and(|w| w.get(frame.type_id) == Filter::Skip) {
                continue;
            }
            return Some(frame);
        }
    }
}

impl Frames<'_> {
    /// Skips the next events as long as they have the type `type_id`, at most seven bytes follow their start
    /// time, and `count` accepts these ([`Frame::short_bytes_behind_start`]). Events near the end of the
    /// available bytes are left for [`next`](Self::next).
    #[inline(always)]
    pub fn pass_alike(&mut self, type_id: u64, mut count: impl FnMut(NonZero<u64>) -> bool) {
        let bytes = self.current.bytes;
        match &mut self.picked {
            Some(picked) => {
                while let Some(&at) = picked.as_slice().first()
                    && let Some((alike, _)) = alike(bytes, at as usize, type_id)
                    && count(alike)
                {
                    picked.next();
                }
            }
            None => {
                let mut at = self.current.pos;
                while let Some((alike, size)) = alike(bytes, at, type_id)
                    && count(alike)
                {
                    at += size;
                }
                self.current.pos = at;
            }
        }
    }
}

/// Size and type in at most one and two bytes, a start time, seven bytes and one more.
const ALIKE: usize = 19;

/// Returns the bytes after the start time of the event at `at`, and its size, if it has this type and is
/// short.
#[inline(always)]
fn alike(bytes: &[u8], at: usize, type_id: u64) -> Option<(NonZero<u64>, usize)> {
    let event = bytes.get(at..)?.first_chunk::<ALIKE>()?;
    let word = |at: usize| event.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
    let size = usize::from(event[0]);
    let (encoded, head) = match event[1] < 0x80 {
        true => (u64::from(event[1]), 2),
        false => (u64::from(event[1] & 0x7f) | u64::from(event[2]) << 7, 3),
    };
    let ends = !word(head)? & 0x8080_8080_8080_8080;
    let start = head + ends.trailing_zeros() as usize / 8 + 1;
    let len = size.wrapping_sub(start);
    if encoded != type_id || size >= 0x80 || event[2] >= 0x80 && head == 3 || ends == 0 || len >= 8 {
        return None;
    }
    Some((NonZero::new(short(word(start)?, len))?, size))
}

/// Returns the first `len` bytes of `word`, at most seven, together with their count.
#[inline(always)]
fn short(word: u64, len: usize) -> u64 {
    word & ((1 << (8 * len)) - 1) | (len as u64) << 56
}

impl<'a> Walk<'a> {
    pub(crate) fn new(region: &'a Region) -> Self {
        Self { bytes: &region.bytes, pos: 0, offset: region.offset }
    }

    /// Returns the event at `pos`.
    #[inline]
    fn at(&mut self, pos: usize) -> Option<Frame<'a>> {
        self.pos = pos;
        self.next()
    }

    /// Returns the next event; `None` at the end. The decoder has checked the framing.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Frame<'a>> {
        let mut cursor = Cursor::at(self.bytes, self.pos);
        let size = u32::try_from(cursor.varint().ok()?).ok()?;
        let type_id = cursor.varint().ok()?;
        let end = self.pos.checked_add(size as usize)?;
        let tail = self.bytes.get(cursor.pos()..)?;
        let payload = tail.get(..end.checked_sub(cursor.pos())?)?;
        let offset = self.offset + self.pos as u64;
        self.pos = end;
        Some(Frame { type_id, payload, tail, offset, size })
    }
}

/// Iterates over the events of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    chunk: &'a Chunk,
    frames: Frames<'a>,
}

impl<'a> Iterator for Events<'a> {
    type Item = EventRef<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<EventRef<'a>> {
        loop {
            if let Some(event) = self.frames.next()?.event(self.chunk) {
                return Some(event);
            }
        }
    }
}

/// Whether events of a type are returned, with or without their constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// The events are only counted.
    #[default]
    Skip,
    /// The events are returned; the constants that they refer to are not read for them.
    Plain,
    /// The events are returned, and their constants are read.
    Constants,
}

/// The filter of each type of a chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeFilters {
    /// By type id, for small ids.
    dense: Vec<Filter>,
    sparse: HashMap<u64, Filter>,
}

impl TypeFilters {
    pub(crate) fn new(types: &Types, filter: impl Fn(&Class) -> Filter) -> Self {
        let mut filters = Self::default();
        for class in types.classes().iter().filter(|class| class.id > u64::from(CHECKPOINT_EVENT.0)) {
            let filter = filter(class);
            if class.id >= DENSE_LIMIT {
                filters.sparse.insert(class.id, filter);
                continue;
            }
            let at = class.id as usize;
            if at >= filters.dense.len() {
                filters.dense.resize(at + 1, Filter::Skip);
            }
            filters.dense[at] = filter;
        }
        filters
    }

    #[inline(always)]
    pub(crate) fn get(&self, type_id: u64) -> Filter {
        match self.dense.get(usize::try_from(type_id).unwrap_or(usize::MAX)) {
            Some(&filter) => filter,
            None if type_id < DENSE_LIMIT => Filter::Skip,
            None => self.sparse.get(&type_id).copied().unwrap_or_default(),
        }
    }
}

/// Events and bytes of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeCount {
    /// Number of events.
    pub events: u64,
    /// Size in bytes, heads included.
    pub bytes: u64,
}

/// Upper limit of ids that are counted in an array.
const DENSE_LIMIT: u64 = 1 << 12;

/// Events and bytes by type id.
#[derive(Clone, Debug, Default)]
pub struct TypeCounts {
    dense: Vec<TypeCount>,
    sparse: HashMap<u64, TypeCount>,
}

impl TypeCounts {
    #[inline(always)]
    pub(crate) fn add(&mut self, type_id: u64, bytes: u64) {
        let count = if type_id < DENSE_LIMIT {
            let at = type_id as usize;
            if at >= self.dense.len() {
                self.dense.resize(at + 1, TypeCount::default());
            }
            &mut self.dense[at]
        } else {
            self.sparse.entry(type_id).or_default()
        };
        count.events += 1;
        count.bytes += bytes;
    }

    /// Iterates over the type ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TypeCount)> + '_ {
        let mut sparse: Vec<(u64, TypeCount)> = self.sparse.iter().map(|(&id, &count)| (id, count)).collect();
        sparse.sort_unstable_by_key(|&(id, _)| id);
        let dense = self.dense.iter().enumerate().map(|(id, &count)| (id as u64, count));
        dense.filter(|(_, count)| count.events > 0).chain(sparse)
    }

    /// Returns the number of events other than metadata and checkpoints.
    pub fn events(&self) -> u64 {
        let reserved = u64::from(CHECKPOINT_EVENT.0);
        self.iter().filter(|&(id, _)| id > reserved).map(|(_, count)| count.events).sum()
    }
}
