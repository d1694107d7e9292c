//! `flightline.Segment`: the checksum and position of the bytes before it in a stream.

use crate::cursor::Cursor;
use crate::types::{Class, Kind, Types};

/// The fields of the event.
pub(super) struct Segment {
    pub sequence: u64,
    offset: u64,
    size: u64,
    crc32: u64,
}

impl Segment {
    /// Name of its type.
    pub const NAME: &str = "flightline.Segment";

    /// Reads the event by the metadata of its chunk. Returns `None` if fields are missing, or if fields
    /// before them are not numbers.
    pub fn read(types: &Types, class: &Class, payload: &[u8]) -> Option<Segment> {
        let mut cursor = Cursor::new(payload);
        let mut found = [None; 4];
        for field in &class.fields {
            let names = ["sequence", "offset", "size", "crc32"];
            let place = names.iter().position(|name| **name == *field.name);
            let kind = types.by_id(field.type_id).map(|class| class.kind);
            if !matches!(kind, Some(Kind::Long | Kind::Int | Kind::Short)) || field.pooled || field.array {
                break;
            }
            let value = cursor.varint().ok()?;
            if let Some(place) = place {
                found[place] = Some(value);
            }
        }
        let [sequence, offset, size, crc32] = found;
        Some(Segment { sequence: sequence?, offset: offset?, size: size?, crc32: crc32? })
    }

    /// Returns true if the event describes `bytes`, which begin at `offset` of the chunk. For a chunk's first
    /// segment, only the position can be checked if the header is not `as_sent`, because the header is part
    /// of the checksum.
    pub fn is_right(&self, offset: u64, bytes: &[u8], as_sent: bool) -> bool {
        let unknown = offset == 0 && !as_sent;
        self.offset == offset
            && self.size == bytes.len() as u64
            && (unknown || self.crc32 == u64::from(crc32fast::hash(bytes)))
    }
}
