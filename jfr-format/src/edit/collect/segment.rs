//! `flightline.Segment`: what a stream tells of the bytes before it.

use crate::cursor::Cursor;
use crate::types::{Class, Kind, Types};

/// What the event says.
pub(super) struct Segment {
    pub sequence: u64,
    offset: u64,
    size: u64,
    crc32: u64,
}

impl Segment {
    /// Its type.
    pub const NAME: &str = "flightline.Segment";

    /// Reads it by the metadata of its chunk; `None` if it has not all of its fields, or others than numbers before them.
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

    /// Whether it tells of `bytes`, which begin at `offset` of the chunk. Of a chunk's first segment only the place can be checked
    /// if the header is not `as_sent`: it is part of the sum.
    pub fn is_right(&self, offset: u64, bytes: &[u8], as_sent: bool) -> bool {
        let unknown = offset == 0 && !as_sent;
        self.offset == offset
            && self.size == bytes.len() as u64
            && (unknown || self.crc32 == u64::from(crc32fast::hash(bytes)))
    }
}
