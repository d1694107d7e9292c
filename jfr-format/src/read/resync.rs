//! Finding the way again behind damage.
//!
//! This is the only search of that kind, for reading and for editing. The number of its steps is linear in
//! the size of the input.

use super::push::MAX_EVENT;
use crate::constants::{CHECKPOINT_EVENT, MAGIC};
use crate::cursor::Cursor;
use crate::header::{ChunkHeader, LEN};
use crate::pool::CheckpointHead;
use crate::types::Types;
use crate::types::layout;

/// Fastest clock a header may claim, in ticks per second.
const MAX_FREQUENCY: i64 = 1_000_000_000_000;
/// Largest minor version taken for a header where none was expected.
const MAX_MINOR: u16 = 16;

/// Whether a whole, plausible chunk header starts here. Stricter than decoding one where it is expected: these
/// bytes might be an event.
pub(crate) fn is_header(bytes: &[u8]) -> bool {
    ChunkHeader::decode(bytes).is_ok_and(|header| {
        header.minor <= MAX_MINOR
            && (1..=MAX_FREQUENCY).contains(&header.ticks_per_second)
            && header.start_nanos >= 0
            && header.duration_nanos >= 0
    })
}

/// Position of the next plausible header.
pub(crate) fn find_header(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = bytes.get(from..)?.iter().position(|&b| b == MAGIC[0]) {
        let at = from + found;
        if is_header(&bytes[at..]) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Where reading can go on behind damage, as a distance from it: at the next event that can be told from noise, else where
/// header or checkpoint chain say that one is. `bytes` start at the damage, which is `at` bytes into the chunk, and end
/// where the chunk does if they are `whole`. Without a `header` its offsets are not trusted, without `types` events are not
/// known. `steps` says how much may be tried still.
pub(crate) fn go_on(
    bytes: &[u8],
    at: u64,
    header: Option<&ChunkHeader>,
    types: Option<&Types>,
    whole: bool,
    steps: &mut u64,
) -> Option<usize> {
    let known = header.and_then(|header| next_boundary(bytes, at, header, steps));
    let between = &bytes[..known.unwrap_or(bytes.len())];
    let found = types.and_then(|types| next_run(between, types, whole || known.is_some(), steps));
    found.or(known)
}

/// The first event boundary behind `at` that the header or its checkpoint chain tells of, as a distance from `at`.
/// `bytes` start at `at`, which like the header's offsets is counted from the chunk's start.
fn next_boundary(bytes: &[u8], at: u64, header: &ChunkHeader, steps: &mut u64) -> Option<usize> {
    let mut best = (header.metadata.0 > at).then_some(header.metadata.0);
    let mut checkpoint = header.checkpoint.0;
    while checkpoint > at {
        let Some(delta) = checkpoint_delta(bytes, checkpoint - at) else { break };
        best = Some(best.map_or(checkpoint, |b| b.min(checkpoint)));
        match checkpoint.checked_add_signed(delta) {
            // Backward chains only: each step is nearer to `at`, so this ends.
            Some(previous) if delta < 0 && *steps > 0 => {
                *steps -= 1;
                checkpoint = previous;
            }
            _ => break,
        }
    }
    usize::try_from(best? - at).ok().filter(|&skip| skip < bytes.len())
}

/// Events in a row, each of a declared type, that are taken for the real ones.
const RUN: usize = 24;
/// The same of events whose fields are all there and fill them exactly.
const SOUND_RUN: usize = 4;
/// Largest event whose fields are looked at for that.
const SOUND_EVENT: u64 = 1 << 16;
/// The limit of the search for events behind damage, in steps per byte of input: the cost of damage stays linear in the
/// input. A step is an event's head or a byte of its fields.
pub const STEPS_PER_BYTE: u64 = 32;

/// The first place behind the start of `bytes` where events go on: [`RUN`] events of declared types, or [`SOUND_RUN`]
/// whose fields end at their sizes, or fewer up to exactly the end of `bytes` if an event is known to end there. The first
/// of them must have fields that end at its size.
fn next_run(bytes: &[u8], types: &Types, whole: bool, steps: &mut u64) -> Option<usize> {
    for from in 1..bytes.len() {
        if *steps == 0 {
            return None;
        }
        if is_run(bytes, from, types, whole, steps) {
            return Some(from);
        }
    }
    None
}

fn is_run(bytes: &[u8], from: usize, types: &Types, whole: bool, steps: &mut u64) -> bool {
    let mut at = from;
    let mut sound = 0;
    for seen in 0..RUN {
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        let mut cursor = Cursor::at(bytes, at);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else { return false };
        let head = (cursor.pos() - at) as u64;
        // An event without content may be two bytes of another.
        let empty = seen == 0 && size == head;
        if empty || size < head || size > bytes.len().saturating_sub(at) as u64 {
            return false;
        }
        let end = at + size as usize;
        if type_id > u64::from(CHECKPOINT_EVENT.0) {
            let Some(class) = types.by_id(type_id).filter(|class| class.is_event()) else { return false };
            if sound == seen && size <= SOUND_EVENT {
                let mut fields = Cursor::new(&bytes[cursor.pos()..end]);
                let read = layout::skip(types.classes(), &class.layout, &mut fields, 0).is_ok();
                *steps = steps.saturating_sub(fields.pos() as u64);
                let exact = read && fields.left() == 0;
                if seen == 0 && !exact {
                    return false;
                }
                sound += usize::from(exact);
            }
        }
        if sound == SOUND_RUN {
            return true;
        }
        at = end;
        if at == bytes.len() {
            return whole;
        }
    }
    true
}

fn checkpoint_delta(bytes: &[u8], at: u64) -> Option<i64> {
    let mut cursor = Cursor::new(bytes.get(usize::try_from(at).ok()?..)?);
    let size = cursor.varint().ok()?;
    let type_id = cursor.varint().ok()?;
    if size > MAX_EVENT || type_id != u64::from(CHECKPOINT_EVENT.0) {
        return None;
    }
    CheckpointHead::read(&mut cursor).ok().map(|head| head.delta)
}

const _: () = assert!(LEN > MAGIC.len());
