//! Checks whether every reader accepts a chunk.

use super::scan::{ScannedChunk, fills, parse_types};
use super::source::Source;
use crate::constants::*;
use crate::cursor::Cursor;
use crate::pool::{CheckpointHead, walk_pools};
use crate::types::Types;

/// Returns why some readers refuse a chunk; `None` if all accept it.
pub(super) fn validation_error(source: &Source, found: &ScannedChunk) -> Option<&'static str> {
    let bytes = source.bytes();
    let header = &found.header;
    if header.state != STATE_FINISHED {
        return Some("the chunk was never finished");
    }
    if !found.whole {
        return Some("the header's size or offsets are wrong, or events cannot be read");
    }
    if header.flags & FLAG_COMPRESSED == 0 {
        return Some("the header does not say that integers are compressed");
    }
    if header.ticks_per_second <= 0 {
        return Some("the header has no clock");
    }
    let pointed = found.place(header.metadata);
    if !found.metadata.iter().any(|(start, _)| *start as u64 == pointed) || found.bad_metadata {
        return Some("no readable metadata where the header says");
    }
    if found.types.region.is_none() {
        return Some("the metadata has no region");
    }
    let several = found.metadata.len() > 1;
    let chosen = if several { found.preferred_metadata(bytes) } else { None };
    let alone = chosen.and_then(|(_, range)| parse_types(&bytes[range]));
    chain(source, found, alone.as_ref().unwrap_or(&found.types)).or_else(|| undecodable(source, found))
}

fn chain(source: &Source, found: &ScannedChunk, types: &Types) -> Option<&'static str> {
    let bytes = source.bytes();
    let position = |at: u64| found.checkpoints.binary_search_by_key(&at, |c| c.at as u64).ok();
    let mut linked = vec![false; found.checkpoints.len()];
    let mut next = found.place(found.header.checkpoint);
    loop {
        let Some(index) = position(next).filter(|&i| !linked[i]) else {
            return Some("the chain of checkpoints is broken");
        };
        linked[index] = true;
        let payload = &bytes[found.checkpoints[index].payload.clone()];
        let Ok(head) = CheckpointHead::read(&mut Cursor::new(payload)) else {
            return Some("a checkpoint cannot be read");
        };
        if head.delta == 0 {
            break;
        }
        match next.checked_add_signed(head.delta) {
            Some(previous) => next = previous,
            None => return Some("the chain of checkpoints is broken"),
        }
    }
    let mut behind = source.behind(found.start);
    for (checkpoint, linked) in found.checkpoints.iter().zip(linked) {
        behind.at(checkpoint.at);
        match sound_checkpoint(types, &bytes[checkpoint.payload.clone()]) {
            Ok(pools) if linked || pools == 0 => {}
            Ok(_) => return Some("a checkpoint is not chained"),
            Err(why) => return Some(why),
        }
    }
    None
}

/// Returns the number of pools of a checkpoint, or why the JDK would refuse it: an empty pool, or more bytes than its pools have.
pub(super) fn sound_checkpoint(types: &Types, payload: &[u8]) -> Result<usize, &'static str> {
    let (mut pools, mut empty) = (0, false);
    let outcome = walk_pools(
        types,
        payload,
        |_, _, _| {},
        |count| {
            pools += 1;
            empty |= count == 0;
        },
    );
    match outcome {
        Ok((_, end)) if end != payload.len() => Err("a checkpoint cannot be read"),
        Ok(_) if empty => Err("a checkpoint has an empty pool"),
        Ok(_) => Ok(pools),
        Err(_) => Err("a checkpoint cannot be read"),
    }
}

fn undecodable(source: &Source, found: &ScannedChunk) -> Option<&'static str> {
    let bytes = source.bytes();
    let bad = found.events(source).any(|event| {
        let payload = &bytes[event.payload..event.end];
        event.type_id > u64::from(CHECKPOINT_EVENT.0)
            && !fills(&found.types, event.type_id, payload).unwrap_or(true)
    });
    bad.then_some("an event's fields do not end at its size")
}
