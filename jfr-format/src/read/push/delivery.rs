//! Returns events, and ends chunks.

use super::{Decoder, Delivery, Next, Queued, State};
use crate::constants::{CHECKPOINT_EVENT, STATE_FINISHED};
use crate::error::{Error, ErrorKind};
use crate::read::batch::Region;

/// Maximum number of undeclared types of a chunk that are reported individually.
const MAX_UNDECLARED_REPORTED: u64 = 16;

/// Bytes between two releases of pages with [`Delivery::KeysOnly`].
pub(super) const PASSED_AT_ONCE: u64 = 1 << 20;

/// Minimum bytes of deferred events per stored position.
const BYTES_PER_PICK: usize = 256;

/// Maximum size of a batch with other deliveries.
pub(super) const STRIDE: usize = 4 << 20;

impl Decoder {
    /// Holds the scanned events, and returns them if their constants need not be known.
    pub(super) fn portion(&mut self) {
        let start = self.input.offset;
        self.hold();
        if self.delivery == Delivery::KeysOnly && self.current.has_types {
            self.queue.push_back(Queued::Events(self.current.deferred.drain(..).collect()));
            if start - self.pages.passed_to >= PASSED_AT_ONCE {
                self.pass(start);
            }
        } else {
            self.pass(self.input.offset);
        }
    }

    /// Moves the scanned events from the buffer to the deferred ones.
    pub(super) fn hold(&mut self) {
        let picked = self.current.filters.is_some().then(|| std::mem::take(&mut self.current.picked));
        // With many positions, their memory costs more than walking over the events again.
        let few = |picked: &Vec<u32>| {
            self.delivery == Delivery::KeysOnly || picked.len() <= self.input.scanned / BYTES_PER_PICK
        };
        let picked = picked.filter(few);
        self.take_out(picked);
    }

    pub(super) fn hold_unpicked(&mut self) {
        // Events of unknown types may need constants.
        self.current.needs_constants = true;
        self.take_out(None);
    }

    fn take_out(&mut self, picked: Option<Vec<u32>>) {
        if self.input.scanned > 0 {
            let offset = self.input.offset;
            self.current.deferred.push_back(Region { bytes: self.input.take_scanned(), offset, picked });
        }
    }

    /// Returns the events whose constants are known. `flushed`: a live writer has just written all constants,
    /// so there is no point in waiting for more.
    pub(super) fn deliver(&mut self, flushed: bool) {
        if self.delivery != Delivery::Streaming || !self.current.has_types {
            return;
        }
        self.hold();
        let Some(chunk) = &self.chunk else { return };
        let all = flushed && chunk.header.state != STATE_FINISHED;
        let read = self.input.offset.saturating_sub(chunk.offset.0);
        let current = &mut self.current;
        let mut out = Vec::new();
        while let Some(region) = current.deferred.front_mut() {
            let good = if all { region.bytes.len() } else { current.complete.prefix(chunk, region, read) };
            if good == region.bytes.len() {
                out.extend(current.deferred.pop_front());
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

    pub(super) fn finish(&mut self, complete: bool, then: State) -> Next {
        let at = self.input.position();
        if self.current.needs_constants {
            self.read_skipped_checkpoints();
        }
        self.hold();
        let Some(chunk) = &self.chunk else { return Next::Again };
        let deferred: Vec<Region> = self.current.deferred.drain(..).collect();
        let index = Some(chunk.index);
        let start = chunk.offset.0;
        if !deferred.is_empty() {
            if self.current.has_types {
                if self.pages.pages.any() {
                    // One by one, so that the pages of earlier ones can be released.
                    self.queue.extend(deferred.into_iter().map(|region| Queued::Events(vec![region])));
                } else {
                    self.queue.push_back(Queued::Events(deferred));
                }
            } else if self.current.counts.events() > 0 {
                self.warn(Error::new(ErrorKind::NoMetadata, start, index, "metadata"));
                self.current.damaged = true;
            }
        }
        if let (true, Some(chunk)) = (self.current.has_types, &self.chunk) {
            let undeclared = |&(type_id, _): &(u64, _)| {
                type_id > u64::from(CHECKPOINT_EVENT.0) && chunk.types.class_index(type_id).is_none()
            };
            // A damaged chunk may contain any number of ids.
            let (mut types, mut events) = (0, 0);
            for (type_id, count) in self.current.counts.iter().filter(undeclared) {
                types += 1;
                if types <= MAX_UNDECLARED_REPORTED {
                    let kind = ErrorKind::UnknownEvents { type_id, count: count.events };
                    self.queue.push_back(Queued::Warning(Error::new(kind, start, index, "events")));
                } else {
                    events += count.events;
                }
            }
            if types > MAX_UNDECLARED_REPORTED {
                let kind = ErrorKind::UnknownTypes { types: types - MAX_UNDECLARED_REPORTED, events };
                self.queue.push_back(Queued::Warning(Error::new(kind, start, index, "events")));
            }
        }
        let complete = complete && !self.current.damaged;
        if let (true, Some(chunk)) = (complete, &self.chunk) {
            self.report(self.current.landmarks.check(&chunk.header, &chunk.types, at - start));
        }
        self.queue.push_back(Queued::ChunkEnd { size: at - start, complete });
        self.state = then;
        Next::Again
    }
}
