//! Events of type 0: what the chunk declares.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::events::EventHead;
use super::{Decoder, FilterFn, MAX_EVENT};
use crate::constants::METADATA_EVENT;
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::header::{ChunkHeader, LEN};
use crate::metadata::is_filler;
use crate::read::batch::TypeFilters;
use crate::types::Types;

/// Of the chunk that was read last by any of the decoders of a recording.
pub(crate) type SharedTypes = Arc<Mutex<Option<Arc<LastTypes>>>>;

/// The first metadata of a chunk: chunks of one recording mostly declare the same.
#[derive(Debug)]
pub(crate) struct LastTypes {
    /// From the string table on.
    tree: Box<[u8]>,
    types: Arc<Types>,
}

impl Decoder {
    /// Whether more input may bring the metadata of the chunk whose header is at the front of the buffer.
    pub(super) fn metadata_is_to_come(&self, header: &ChunkHeader) -> bool {
        let rest = usize::try_from(header.metadata.0).ok().and_then(|at| self.input.bytes().get(at..));
        let mut cursor = Cursor::new(rest.unwrap_or_default());
        let there = match (cursor.varint(), cursor.varint()) {
            (Ok(size), Ok(type_id)) => {
                type_id != u64::from(METADATA_EVENT.0)
                    || size.min(MAX_EVENT) <= rest.map_or(0, <[u8]>::len) as u64
            }
            _ => false,
        };
        !there && !self.input.closed
    }

    /// Reads the metadata that the header points at, if it can be: what is wrong with it is told where it is met.
    pub(super) fn read_ahead(&mut self, header: &ChunkHeader, offset: u64) {
        let Ok(distance) = usize::try_from(header.metadata.0 - LEN as u64) else { return };
        let rest = self.input.bytes().get(distance..).unwrap_or_default();
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

    pub(super) fn metadata(&mut self, event: EventHead, at: u64) {
        if let Some(chunk) = &self.chunk {
            self.current.landmarks.metadata(at - chunk.offset.0);
        }
        if self.current.read_ahead == Some(at) {
            return;
        }
        let start = self.input.scanned - (event.size - event.head) as usize;
        let payload = start..self.input.scanned;
        match self.declare(payload.clone()) {
            Ok(()) => {}
            // Filler of fixed-size chunks.
            Err(_) if self.input.bytes().get(payload).is_some_and(is_filler) => {}
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
        let payload = self.input.bytes().get(payload).unwrap_or_default();
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
        if self.input.scanned > 0 {
            // What was scanned before has not been picked from.
            self.current.picked.clear();
            self.hold_unpicked();
        }
        if let (Some(FilterFn(filter)), Some(chunk)) = (&self.filter, &self.chunk) {
            self.current.filters = Some(TypeFilters::new(&chunk.types, filter));
        }
        for region in std::mem::take(&mut self.current.early) {
            self.constants(&region);
        }
        Ok(())
    }
}
