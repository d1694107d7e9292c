//! Runs of whole events, and how many there were of each type.

use std::collections::HashMap;

use bytes::Bytes;

use super::chunk::Chunk;
use super::cursor::Cursor;
use crate::constants::CHECKPOINT_EVENT;
use crate::event::EventRef;

/// Consecutive whole events, metadata and checkpoints among them.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) bytes: Bytes,
    /// Offset of the first byte in the input.
    pub(crate) offset: u64,
}

/// Some events of one chunk, ready to be decoded.
#[derive(Debug)]
pub struct Batch<'a> {
    pub(crate) chunk: &'a Chunk,
    pub(crate) regions: Vec<Region>,
}

impl<'a> Batch<'a> {
    /// The chunk they belong to.
    pub fn chunk(&self) -> &'a Chunk {
        self.chunk
    }

    /// The events in file order; metadata, checkpoints and events of undeclared types are left out.
    pub fn events(&self) -> Events<'_> {
        Events { chunk: self.chunk, regions: self.regions.iter(), current: Walk::default() }
    }
}

/// Steps over framed events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    pub(crate) pos: usize,
    offset: u64,
}

/// A framed event.
pub(crate) struct Framed<'a> {
    pub(crate) type_id: u64,
    pub(crate) payload: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(region: &'a Region) -> Self {
        Self { bytes: &region.bytes, pos: 0, offset: region.offset }
    }

    /// The next event; `None` at the end. The decoder has checked the framing.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Framed<'a>> {
        let mut cursor = Cursor::at(self.bytes, self.pos);
        let size = u32::try_from(cursor.varint().ok()?).ok()?;
        let type_id = cursor.varint().ok()?;
        let end = self.pos.checked_add(size as usize)?;
        let payload = self.bytes.get(cursor.pos()..end)?;
        let offset = self.offset + self.pos as u64;
        self.pos = end;
        Some(Framed { type_id, payload, offset, size })
    }
}

/// Iterates over the events of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    chunk: &'a Chunk,
    regions: std::slice::Iter<'a, Region>,
    current: Walk<'a>,
}

impl<'a> Iterator for Events<'a> {
    type Item = EventRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<EventRef<'a>> {
        loop {
            let Some(event) = self.current.next() else {
                self.current = Walk::new(self.regions.next()?);
                continue;
            };
            if event.type_id <= u64::from(CHECKPOINT_EVENT.0) {
                continue;
            }
            let Some(index) = self.chunk.types.index_of(event.type_id) else { continue };
            let Some(class) = self.chunk.types.class(index) else { continue };
            return Some(EventRef {
                chunk: self.chunk,
                class,
                index,
                payload: event.payload,
                offset: event.offset,
                size: event.size,
            });
        }
    }
}

/// Events and bytes of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeCount {
    /// Number of events.
    pub events: u64,
    /// Their bytes, heads included.
    pub bytes: u64,
}

/// Largest id counted by array.
const DENSE_LIMIT: u64 = 1 << 12;

/// Events and bytes by type id.
#[derive(Clone, Debug, Default)]
pub struct TypeCounts {
    dense: Vec<TypeCount>,
    sparse: HashMap<u64, TypeCount>,
}

impl TypeCounts {
    #[inline]
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

    /// Type ids met, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TypeCount)> + '_ {
        let mut sparse: Vec<(u64, TypeCount)> = self.sparse.iter().map(|(&id, &count)| (id, count)).collect();
        sparse.sort_unstable_by_key(|&(id, _)| id);
        let dense = self.dense.iter().enumerate().map(|(id, &count)| (id as u64, count));
        dense.filter(|(_, count)| count.events > 0).chain(sparse)
    }

    /// All events other than metadata and checkpoints.
    pub fn events(&self) -> u64 {
        let reserved = u64::from(CHECKPOINT_EVENT.0);
        self.iter().filter(|&(id, _)| id > reserved).map(|(_, count)| count.events).sum()
    }
}
