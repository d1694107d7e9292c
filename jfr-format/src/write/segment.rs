//! The event at the end of a segment, by which a reader of the stream checks it.

use super::buffer;
use crate::ids::Ticks;
use crate::schema;
use crate::varint;
use bytes::BytesMut;

/// Maximum size of the event: size, type, six fields of which three are below 2^35.
pub(super) const MAX: usize = 1 + 1 + 3 * varint::MAX_LEN + 3 * 5;

/// Appends the event for `segment`, which has the sequence number `number` in the stream and begins at
/// `offset` of its chunk.
pub(super) fn put(segment: &mut BytesMut, now: Ticks, number: u64, offset: usize, events: u64) {
    let Some(of) = schema::get(schema::SEGMENT) else { return };
    let size = segment.len();
    let crc = crc32fast::hash(segment);
    let put = buffer::put_event(segment, of, MAX, |e| {
        e.ticks(now).long(number as i64).long(offset as i64).long(size as i64);
        e.long(i64::from(crc)).long(events as i64);
    });
    debug_assert_eq!(put, Ok(()));
}
