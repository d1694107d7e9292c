//! The walk from event to event.

use super::checkpoints::UNSIZED;
use super::delivery::STRIDE;
use super::{Current, Decoder, Delivery, MAX_EVENT, Next, State};
use crate::constants::{CHECKPOINT_EVENT, MAGIC, METADATA_EVENT};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Malformed};
use crate::header::LEN;
use crate::read::batch::{Filter, Usual};
use crate::read::resync;

/// Bytes of events handed out at a time with [`Delivery::KeysOnly`].
pub(super) const CACHED: usize = 256 * 1024;

impl Decoder {
    /// Walks whole events from the scan position on.
    pub(super) fn events(&mut self) -> Next {
        let portion = if self.delivery == Delivery::KeysOnly { CACHED } else { STRIDE };
        loop {
            let at = self.input.position();
            if self.input.scanned >= portion {
                self.portion();
                if !self.queue.is_empty() {
                    return Next::Again;
                }
            }
            if self.current.end == Some(at) {
                self.section.ended = Some(at);
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
                    self.section.strayed = true;
                    self.state = State::Recover;
                    return Next::Again;
                }
            };
            if let Some(filters) = &self.current.filters {
                match filters.get(head.type_id) {
                    Filter::Skip => {}
                    // A portion is hardly larger than the largest event, so this fits.
                    Filter::Plain => self.current.picked.push(self.input.scanned as u32),
                    Filter::Constants => {
                        self.current.needs_constants = true;
                        self.current.picked.push(self.input.scanned as u32);
                    }
                }
            }
            self.input.scanned += head.size as usize;
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
        let bytes = self.input.bytes();
        let end =
            self.current.end.and_then(|end| usize::try_from(end.saturating_sub(self.input.offset)).ok());
        let bytes = end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
        let Current { filters, picked, counts, needs_constants, .. } = &mut self.current;
        let usual = Usual { bytes, from: self.input.scanned, portion };
        let before = self.input.scanned;
        self.input.scanned = match filters {
            Some(filters) => usual.walk(counts, |at, type_id| match filters.get(type_id) {
                Filter::Skip => {}
                // A portion is hardly larger than the largest event, so this fits.
                Filter::Plain => picked.push(at as u32),
                Filter::Constants => {
                    *needs_constants = true;
                    picked.push(at as u32);
                }
            }),
            None => usual.walk(counts, |_, _| {}),
        };
        self.input.scanned > before
    }

    /// Size and type of the event at the scan position, if it is there as a whole.
    fn head(&self, at: u64) -> Head {
        let rest = self.input.bytes().get(self.input.scanned..).unwrap_or_default();
        if rest.first() == Some(&MAGIC[0]) && rest.starts_with(&MAGIC[..rest.len().min(MAGIC.len())]) {
            if rest.len() < LEN && !self.input.closed {
                return Head::Short;
            }
            if resync::is_header(rest) {
                return Head::NextChunk;
            }
            if self.current.end.is_none() && rest.starts_with(&UNSIZED) {
                return if self.input.closed { Head::Unsized } else { Head::Short };
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
        if !self.input.closed {
            self.deliver(false);
            return if self.queue.is_empty() { Next::NeedsMore } else { Next::Again };
        }
        let end = self.input.end();
        let missing = self.current.end.map_or(0, |promised| promised.saturating_sub(end));
        if missing == 0 && at == end {
            return self.finish(true, State::Done);
        }
        let index = self.chunk.as_ref().map(|c| c.index);
        self.warn(Error::new(ErrorKind::Truncated { missing }, end, index, "events"));
        // A damaged size may have hidden the next chunk.
        self.finish(false, State::Search { from: at, reported: true })
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
pub(super) struct EventHead {
    pub(super) size: u32,
    pub(super) type_id: u64,
    /// Bytes of size and type.
    pub(super) head: u32,
}
