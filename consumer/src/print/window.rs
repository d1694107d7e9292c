//! Copies of events, sorted by end.

use std::ops::Range;

use jfr_format::event::EventRef;
use jfr_format::read::Chunk;

/// Sort key: the end of an event in ticks, then the offset of its fields in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) end: i64,
    pub(super) offset: u64,
}

/// The position of an event's copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPosition {
    key: Key,
    at: u32,
    len: u32,
}

/// Copied events of one chunk.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// For each event, the id of its type and the bytes of its fields.
    bytes: Vec<u8>,
    places: Vec<EventPosition>,
}

const TYPE_ID: usize = size_of::<u64>();

/// Maximum size up to which events may be added.
pub(super) const LARGEST: usize = 1 << 30;

impl Window {
    /// Copies an event of type `type_id` whose fields are `payload`.
    pub(super) fn push(&mut self, key: Key, type_id: u64, payload: &[u8]) {
        // An event has at most 256 MiB, and the window had at most `LARGEST`.
        let (at, len) = (self.bytes.len() as u32, (TYPE_ID + payload.len()) as u32);
        self.bytes.extend_from_slice(&type_id.to_le_bytes());
        self.bytes.extend_from_slice(payload);
        self.places.push(EventPosition { key, at, len });
    }

    /// Returns the memory that the events use, in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<EventPosition>()
    }

    pub(super) fn places(&self) -> &[EventPosition] {
        &self.places
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Sorts the events; returns the key of the last one.
    pub(super) fn sort(&mut self) -> Option<Key> {
        self.places.sort_unstable_by_key(|place| place.key);
        self.places.last().map(|place| place.key)
    }

    /// Discards the events with the latest ends until the rest uses at most `size` bytes or is one event.
    /// Returns the key of the first discarded event.
    pub(super) fn keep_first(&mut self, size: usize) -> Option<Key> {
        self.sort();
        let mut sum = 0;
        let keep = self.places.iter().position(|place| {
            sum += size_of::<EventPosition>() + place.len as usize;
            sum > size
        });
        let keep = keep?.max(1);
        let first = self.places.get(keep)?.key;
        self.places.truncate(keep);
        self.places.sort_unstable_by_key(|place| place.at);
        let mut end = 0;
        for place in &mut self.places {
            self.bytes.copy_within(place.span(), end);
            place.at = end as u32;
            end += place.len as usize;
        }
        self.bytes.truncate(end);
        Some(first)
    }

    /// Returns the event at a position.
    pub(super) fn event<'a>(&'a self, chunk: &'a Chunk, place: &EventPosition) -> Option<EventRef<'a>> {
        let (type_id, payload) = self.bytes.get(place.span())?.split_first_chunk()?;
        chunk.event(u64::from_le_bytes(*type_id), payload, place.key.offset)
    }
}

impl EventPosition {
    fn span(&self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_events_by_end_time_are_retained() {
        let mut window = Window::default();
        // Ends in random order, each with its end as payload.
        for n in 0..1000u64 {
            let key = Key { end: (n * 389 % 1000).cast_signed(), offset: n };
            window.push(key, 7, &vec![key.end as u8; n as usize % 50]);
        }
        let bytes = 100 * (size_of::<EventPosition>() + TYPE_ID + 25);
        let first = window.keep_first(bytes).unwrap();
        assert!(window.size() <= bytes);
        let count = first.end as usize;
        assert!((90..110).contains(&count), "{count}");
        assert_eq!(window.sort().unwrap().end, first.end - 1);
        for (at, place) in window.places().iter().enumerate() {
            assert_eq!(place.key.end, at as i64);
            let payload = &window.bytes[place.span()][TYPE_ID..];
            assert_eq!(payload, vec![at as u8; place.key.offset as usize % 50]);
        }
        assert_eq!(window.keep_first(usize::MAX), None);
        // One event always remains.
        assert_eq!(window.keep_first(0).unwrap().end, 1);
        assert_eq!(window.places().len(), 1);
    }
}
