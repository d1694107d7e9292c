//! Appends complete events to a buffer, sizes included.

use super::WriteError;
use super::fields::FieldWriter;
use crate::ids::TypeId;
use crate::schema::Type;
use crate::varint;
use bytes::{BufMut, BytesMut};

/// Maximum memory that a buffer retains from one flush to the next.
const KEPT: usize = 1 << 20;

/// Empties a buffer. Its memory is retained, except after an exceptionally large flush.
pub(super) fn reuse(buffer: &mut BytesMut) {
    if buffer.capacity() > KEPT {
        *buffer = BytesMut::new();
    }
    buffer.clear();
}

/// Appends an event of type `of`. Appends nothing on error, or if the event takes more than `room` bytes.
#[inline]
pub(super) fn put_event(
    out: &mut BytesMut,
    of: &'static Type,
    room: usize,
    fields: impl FnOnce(&mut FieldWriter<'_>),
) -> Result<(), WriteError> {
    put_fields(out, of.id, room, |out| {
        let mut writer = FieldWriter::new(out, of);
        fields(&mut writer);
        writer.end()
    })
}

/// Appends an event whose fields `fields` appends. Appends nothing on error, or if the event takes more than
/// `room` bytes.
#[inline]
pub(super) fn put_fields(
    out: &mut BytesMut,
    id: TypeId,
    room: usize,
    fields: impl FnOnce(&mut BytesMut) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let start = out.len();
    out.put_u8(0); // the size: nearly always one byte
    varint::put(out, u64::from(id.0));
    let mut result = fields(out);
    if result.is_ok() {
        put_size(out, start);
        let need = out.len() - start;
        if need > room {
            result = Err(WriteError::Full { need, room });
        }
    }
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Fills in the size of the event at `start`, which has one byte for its size, and widens it if necessary.
#[inline]
fn put_size(out: &mut BytesMut, start: usize) {
    let size = out.len() - start;
    if size < 0x80 {
        out[start] = size as u8;
    } else {
        widen_size(out, start, size);
    }
}

#[cold]
fn widen_size(out: &mut BytesMut, start: usize, size: usize) {
    let rest = size - 1;
    // The size includes its own bytes.
    let mut width = varint::len(size as u64);
    if varint::len((rest + width) as u64) > width {
        width += 1;
    }
    let (bytes, len) = varint::encode((rest + width) as u64);
    debug_assert_eq!(len, width);
    let end = out.len();
    out.put_bytes(0, width - 1);
    out.copy_within(start + 1..end, start + width);
    out[start..start + width].copy_from_slice(&bytes[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ticks;
    use crate::schema;

    #[test]
    fn event_size_includes_its_own_bytes() {
        let notice = schema::get(schema::NOTICE).unwrap();
        for len in (0..400).chain(16_300..16_450) {
            let text = "x".repeat(len);
            let mut out = BytesMut::from(&b"before"[..]);
            put_event(&mut out, notice, usize::MAX, |e| {
                e.ticks(Ticks(5)).string(&text);
            })
            .unwrap();
            let event = &out[6..];
            let mut at = 0;
            assert_eq!(varint::get(event, &mut at), Ok(event.len() as u64), "text of {len}");
            assert_eq!(event[at..at + 2], [schema::NOTICE.0 as u8, 5]);
            assert!(event.ends_with(text.as_bytes()));
        }
    }

    #[test]
    fn event_that_does_not_fit_is_removed() {
        let notice = schema::get(schema::NOTICE).unwrap();
        let mut out = BytesMut::from(&b"before"[..]);
        let mut put = |room| {
            put_event(&mut out, notice, room, |e| {
                e.ticks(Ticks(5)).string("xyz");
            })
        };
        assert_eq!(put(7), Err(WriteError::Full { need: 8, room: 7 }));
        assert_eq!(put(8), Ok(()));
        assert_eq!(&out[..], b"before\x08\x7c\x05\x03\x03xyz");
    }
}
