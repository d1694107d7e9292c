//! Ends of a stream of chunks of fixed size that one of its readers does not get all of.
//!
//! A reader that is behind is cut off at the end of a segment. The chunk it is in is completed for it alone: what it lost as
//! events, filler, an anchor that points to the last checkpoint that it got. Where the chunk has no room for these events they
//! are told in a small chunk of their own.

use super::checkpoint::statics;
use super::{ClockLine, buffer, fixed};
use crate::constants::{CHECKPOINT_STATICS, FLAG_COMPRESSED, STATE_FINISHED};
use crate::header::{self, ChunkHeader};
use crate::ids::{ChunkOffset, Ticks};
use crate::schema;
use crate::types::Types;
use bytes::{Bytes, BytesMut};

/// Some bytes of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment {
    /// As they are.
    Bytes(Bytes),
    /// So many zeros.
    Zeros(usize),
}

impl Fragment {
    /// Bytes in the stream.
    pub fn len(&self) -> usize {
        match self {
            Fragment::Bytes(bytes) => bytes.len(),
            Fragment::Zeros(len) => *len,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub fn held(&self) -> usize {
        match self {
            Fragment::Bytes(bytes) => bytes.len(),
            Fragment::Zeros(_) => 0,
        }
    }
}

/// Events of one type that a reader did not get: a `flightline.StreamLoss`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss<'a> {
    /// Why.
    pub cause: &'a str,
    /// Name of their type.
    pub event_type: &'a str,
    /// How many.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Where in a chunk a reader was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the chunk, as its header says.
    pub size: u32,
    /// Bytes of it that the reader got.
    pub at: ChunkOffset,
    /// The last checkpoint among them.
    pub checkpoint: ChunkOffset,
}

impl Cut {
    /// Where a chunk of this size can be completed: there is room for the anchor, which is where its header looks for it.
    pub fn new(header: &ChunkHeader, at: ChunkOffset, checkpoint: ChunkOffset) -> Option<Cut> {
        let size = u32::try_from(header.size).ok().filter(|size| *size <= fixed::MAX_SIZE)?;
        let room = header.size.checked_sub(at.0 + (fixed::MIN_FILLER + fixed::ANCHOR) as u64);
        (room.is_some() && header.checkpoint == fixed::anchor_at(size)).then_some(Cut {
            size,
            at,
            checkpoint,
        })
    }
}

/// Whether events that tell of losses can be written where these types are declared: with our ids and our fields.
pub fn declares_loss_events(types: &Types) -> bool {
    [schema::STREAM_LOSS, schema::DATA_LOSS].iter().all(|id| {
        let (Some(ours), Some(class)) = (schema::get(*id), types.by_id(u64::from(id.0))) else {
            return false;
        };
        let fields = ours.fields.iter().map(|field| field.name);
        *class.name == *ours.name && class.fields.iter().map(|field| &*field.name).eq(fields)
    })
}

/// What completes a chunk that a reader was cut off in: the losses as events, if there is room for all of them, filler and
/// anchor. `amount` and `total` are bytes lost now and ever. Says whether the losses were told.
pub fn complete(cut: Cut, now: Ticks, losses: &[Loss<'_>], amount: u64, total: u64) -> (Vec<Fragment>, bool) {
    let mut events = put_losses(now, losses, amount, total);
    let room = fixed::anchor_at(cut.size).0.saturating_sub(cut.at.0 + fixed::MIN_FILLER as u64);
    let told = events.len() as u64 <= room;
    if !told {
        events.clear();
    }
    let at = ChunkOffset(cut.at.0 + events.len() as u64);
    let mut pieces = vec![Fragment::Bytes(events.freeze())];
    pieces.extend(fixed::end(cut.size, at, Some(cut.checkpoint), now));
    pieces.retain(|piece| !piece.is_empty());
    (pieces, told)
}

/// A chunk that only tells of losses, between two others of a stream. `like` is the header of one of them, `metadata` its
/// metadata event.
pub fn loss_chunk(
    like: &ChunkHeader,
    metadata: &[u8],
    now: Ticks,
    losses: &[Loss<'_>],
    amount: u64,
    total: u64,
) -> Vec<Fragment> {
    let line = ClockLine {
        start_ticks: like.start_ticks,
        start_epoch_ns: like.start_nanos,
        ticks_per_second: like.frequency(),
    };
    let mut content = BytesMut::from(metadata);
    let checkpoint = ChunkOffset((header::LEN + content.len()) as u64);
    statics().put(&mut content, checkpoint, None, now, CHECKPOINT_STATICS);
    content.extend_from_slice(&put_losses(now, losses, amount, total));
    let at = header::LEN + content.len();
    let size = u32::try_from(at + fixed::MIN_FILLER + fixed::ANCHOR).unwrap_or(fixed::MAX_SIZE);
    let header = ChunkHeader {
        size: u64::from(size),
        checkpoint: fixed::anchor_at(size),
        metadata: ChunkOffset(header::LEN as u64),
        start_nanos: line.epoch_nanos(now),
        start_ticks: now,
        duration_nanos: 0,
        state: STATE_FINISHED,
        flags: FLAG_COMPRESSED,
        ..*like
    };
    let mut bytes = BytesMut::from(&header.encode()[..]);
    bytes.unsplit(content);
    let mut pieces = vec![Fragment::Bytes(bytes.freeze())];
    pieces.extend(fixed::end(size, ChunkOffset(at as u64), Some(checkpoint), now));
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn put_losses(now: Ticks, losses: &[Loss<'_>], amount: u64, total: u64) -> BytesMut {
    let mut out = BytesMut::new();
    let (Some(loss), Some(data)) = (schema::get(schema::STREAM_LOSS), schema::get(schema::DATA_LOSS)) else {
        return out;
    };
    for told in losses {
        let put = buffer::put_event(&mut out, loss, usize::MAX, |e| {
            e.ticks(now).string(told.cause).string(told.event_type);
            e.long(told.events as i64).long(told.bytes as i64);
        });
        debug_assert_eq!(put, Ok(()));
    }
    if amount > 0 {
        let put = buffer::put_event(&mut out, data, usize::MAX, |e| {
            e.ticks(now).long(amount as i64).long(total as i64);
        });
        debug_assert_eq!(put, Ok(()));
    }
    out
}
