//! Builds chunks around the bytes of the fuzzer.

#![allow(dead_code)] // each target takes what it needs

use jfr_format::header::{ChunkHeader, LEN};
use jfr_format::ids::{ChunkOffset, Ticks};
use jfr_format::varint;

/// Real metadata of this project's writer, cut out of a small recording.
const SOUND: &[u8] = include_bytes!("../../fixtures/cases/62_many_types.jfr");

fn header() -> Vec<u8> {
    let header = ChunkHeader {
        major: 2,
        minor: 1,
        size: LEN as u64,
        checkpoint: ChunkOffset(0),
        metadata: ChunkOffset(0),
        start_nanos: 1,
        duration_nanos: 0,
        start_ticks: Ticks(0),
        ticks_per_second: 1_000_000_000,
        state: 1,
        flags: 1,
    };
    header.encode().to_vec()
}

fn event(out: &mut Vec<u8>, type_id: u64, payload: &[u8]) {
    let size = 4 + varint::len(type_id) + payload.len();
    if let Some(head) = varint::padded(u32::try_from(size).unwrap_or(u32::MAX)) {
        out.extend(head);
        varint::put(out, type_id);
        out.extend_from_slice(payload);
    }
}

pub fn with_metadata(payload: &[u8]) -> Vec<u8> {
    let mut chunk = header();
    event(&mut chunk, 0, payload);
    for type_id in 2..40 {
        event(&mut chunk, type_id, payload.get(..64).unwrap_or(payload));
    }
    chunk
}

pub fn with_events(data: &[u8]) -> Vec<u8> {
    let mut chunk = header();
    let at = LEN;
    let mut end = at;
    let size = varint::get(SOUND, &mut end).unwrap_or(0) as usize;
    chunk.extend_from_slice(SOUND.get(at..at + size).unwrap_or_default());
    let mut rest = data;
    while let Some((&[len, type_id], behind)) = rest.split_first_chunk::<2>() {
        let (payload, behind) = behind.split_at(usize::from(len).min(behind.len()));
        // Every third piece is a checkpoint.
        event(&mut chunk, if type_id % 3 == 0 { 1 } else { u64::from(type_id) }, payload);
        rest = behind;
    }
    chunk
}
