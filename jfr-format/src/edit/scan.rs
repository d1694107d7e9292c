//! What can be found of a chunk, whatever its header says.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::constants::*;
use crate::error::Malformed;
use crate::header::{ChunkHeader, LEN};
use crate::pool::{CheckpointHead, Pools};
use crate::read::Types;
use crate::read::cursor::Cursor;
use crate::read::push::{MAX_EVENT, UNSIZED, trusted_end};
use crate::read::{layout, resync};

/// Events in a row that must be sound where reading goes on behind damage.
const ROW: usize = 4;
/// Largest event that such a row may begin with.
const ROW_EVENT: u64 = 1 << 16;
/// Bytes looked at per byte of input while looking for such a row.
const SEARCH_COST: u64 = 32;

/// A framed event.
#[derive(Clone, Copy)]
pub(super) struct Framed {
    pub(super) type_id: u64,
    pub(super) start: usize,
    /// Behind size and type.
    pub(super) payload: usize,
    pub(super) end: usize,
}

/// The event at `at`, if it is whole and ends by `end`.
pub(super) fn framed(bytes: &[u8], at: usize, end: usize) -> Option<Framed> {
    let mut cursor = Cursor::at(bytes.get(..end)?, at);
    let size = cursor.varint().ok()?;
    if size > MAX_EVENT || size > (end - at) as u64 {
        return None;
    }
    let end = at + size as usize;
    let mut cursor = Cursor::at(bytes.get(..end)?, cursor.pos());
    let type_id = cursor.varint().ok()?;
    (cursor.pos() <= end).then_some(Framed { type_id, start: at, payload: cursor.pos(), end })
}

/// A checkpoint event.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    /// Where the event starts.
    pub(super) at: usize,
    /// Its bytes behind the type id.
    pub(super) payload: Range<usize>,
}

/// What has been found of one chunk. Positions are those of the input.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) start: usize,
    /// Where the next chunk or something unreadable begins.
    pub(super) end: usize,
    pub(super) header: ChunkHeader,
    pub(super) types: Arc<Types>,
    /// The metadata events that could be read, behind their type ids, and where they start.
    pub(super) metadata: Vec<(usize, Range<usize>)>,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Whole events, one behind the other; metadata and checkpoints among them.
    pub(super) runs: Vec<Range<usize>>,
    /// Bytes that could not be read.
    pub(super) unread: Vec<Range<usize>>,
    /// The header's own end was reached, and every byte up to it was part of an event.
    pub(super) whole: bool,
    /// A metadata event was there that could not be read and is no filler, or that declares what constants in front of
    /// it needed.
    pub(super) bad_metadata: bool,
}

impl Found {
    /// Steps over the whole events.
    pub(super) fn events<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Framed> + 'a {
        self.runs.iter().flat_map(move |run| {
            let mut at = run.start;
            std::iter::from_fn(move || {
                let event = framed(bytes, at, run.end)?;
                at = event.end;
                Some(event)
            })
        })
    }

    /// The constants of the chunk.
    pub(super) fn pools(&self, bytes: &Bytes) -> Pools {
        let mut pools = Pools::default();
        for checkpoint in &self.checkpoints {
            // What can be read of a damaged one stays.
            let _ = pools.add(&self.types, &bytes.slice(checkpoint.payload.clone()), 0);
        }
        pools
    }

    /// The metadata to go by: what the header points to, else what declares most.
    pub(super) fn metadata_of_choice(&self, bytes: &Bytes) -> Option<(usize, Range<usize>)> {
        let pointed = self.start as u64 + self.header.metadata.0;
        if let Some(found) = self.metadata.iter().find(|(at, _)| *at as u64 == pointed) {
            return Some(found.clone());
        }
        let count = |range: &Range<usize>| types_of(&bytes[range.clone()]).map_or(0, |t| t.classes().len());
        match &self.metadata[..] {
            [] => None,
            [only] => Some(only.clone()),
            several => several.iter().max_by_key(|(_, range)| count(range)).cloned(),
        }
    }
}

/// The types of one metadata event.
pub(super) fn types_of(payload: &[u8]) -> Option<Types> {
    let mut types = Types::default();
    types.add(payload).ok()?;
    Some(types)
}

/// Where the next chunk header is, from `at` on.
pub(super) fn next_header(bytes: &[u8], at: usize) -> Option<usize> {
    resync::find_header(bytes.get(at..)?).map(|found| at + found)
}

/// Whether a header starts at `at`. At the start of the input less is asked.
pub(super) fn header_at(bytes: &[u8], at: usize) -> Option<ChunkHeader> {
    let rest = bytes.get(at..)?;
    if at == 0 || resync::is_header(rest) { ChunkHeader::decode(rest).ok() } else { None }
}

/// Finds what there is of the chunk whose header is at `start`. `fallback`: types to go by where the chunk has none.
pub(super) fn scan(bytes: &Bytes, start: usize, header: ChunkHeader, fallback: Option<&Arc<Types>>) -> Found {
    let promised = trusted_end(&header, start as u64).and_then(|end| usize::try_from(end).ok());
    let promised = promised.filter(|&end| end <= bytes.len());
    let mut found = Found {
        start,
        end: start + LEN,
        header,
        types: Arc::default(),
        metadata: Vec::new(),
        checkpoints: Vec::new(),
        runs: Vec::new(),
        unread: Vec::new(),
        whole: false,
        bad_metadata: false,
    };
    let mut scan = Scan {
        bytes,
        found: &mut found,
        fallback,
        promised,
        budget: bytes.len() as u64 * SEARCH_COST,
        checked: 0,
    };
    scan.run();
    if let (true, Some(types)) = (found.metadata.is_empty(), fallback) {
        found.types = types.clone();
    }
    found
}

struct Scan<'a> {
    bytes: &'a Bytes,
    found: &'a mut Found,
    fallback: Option<&'a Arc<Types>>,
    promised: Option<usize>,
    budget: u64,
    /// Checkpoints that have been read by the types in front of later metadata.
    checked: usize,
}

impl Scan<'_> {
    fn run(&mut self) {
        let len = self.bytes.len();
        let limit = self.promised.unwrap_or(len);
        let mut at = self.found.start + LEN;
        let mut run = at;
        let end = loop {
            if at == limit {
                break at;
            }
            let rest = &self.bytes[at..];
            if rest[0] == MAGIC[0] && resync::is_header(rest) {
                break at;
            }
            if rest.starts_with(&UNSIZED) && self.promised.is_none() {
                self.close(run, at);
                run = at;
                if let Some(end) = self.unsized_checkpoint(at) {
                    at = end;
                    run = end;
                    continue;
                }
            }
            if let Some(event) = framed(self.bytes, at, limit) {
                self.event(event);
                at = event.end;
                continue;
            }
            self.close(run, at);
            self.torn_checkpoint(at, limit);
            match self.go_on(at, limit) {
                Some(next) => {
                    self.found.unread.push(at..next);
                    at = next;
                    run = next;
                    if resync::is_header(&self.bytes[at..]) {
                        break at;
                    }
                }
                None => {
                    self.found.unread.push(at..limit);
                    run = limit;
                    break limit;
                }
            }
        };
        self.close(run, end);
        self.found.end = end;
        self.found.whole = self.found.unread.is_empty() && self.promised == Some(end);
    }

    fn close(&mut self, from: usize, to: usize) {
        if to > from {
            self.found.runs.push(from..to);
        }
    }

    fn event(&mut self, event: Framed) {
        let payload = event.payload..event.end;
        if event.type_id == u64::from(METADATA_EVENT.0) {
            self.check_before();
            let content = &self.bytes[payload.clone()];
            if Arc::make_mut(&mut self.found.types).add(content).is_ok() {
                self.found.metadata.push((event.start, payload));
            } else if content.iter().any(|&b| b != 0) {
                self.found.bad_metadata = true;
            }
        } else if event.type_id == u64::from(CHECKPOINT_EVENT.0) {
            self.found.checkpoints.push(Checkpoint { at: event.start, payload });
        }
    }

    /// Streaming readers take constants by the types declared so far.
    fn check_before(&mut self) {
        let new = self.found.checkpoints.get(self.checked..).unwrap_or_default();
        if !self.found.metadata.is_empty() {
            let unread = |c: &Checkpoint| {
                walk_pools(&self.found.types, &self.bytes[c.payload.clone()], |_, _, _| {}, |_| {}).is_err()
            };
            self.found.bad_metadata |= new.iter().any(unread);
            self.checked = self.found.checkpoints.len();
        }
    }

    fn types(&self) -> Option<&Arc<Types>> {
        if self.found.metadata.is_empty() { self.fallback } else { Some(&self.found.types) }
    }

    /// A checkpoint whose size was never filled in ends where its content does.
    fn unsized_checkpoint(&mut self, at: usize) -> Option<usize> {
        let from = at + UNSIZED.len();
        let mut pools = Pools::default();
        let (_, len) = pools.add(self.types()?, &self.bytes.slice(from..), 0).ok()?;
        let payload = from..from + len;
        self.found.checkpoints.push(Checkpoint { at, payload: payload.clone() });
        Some(payload.end)
    }

    /// The constants at the start of a checkpoint that the input ends in.
    fn torn_checkpoint(&mut self, at: usize, limit: usize) {
        let mut cursor = Cursor::at(&self.bytes[..limit], at);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else { return };
        let from = cursor.pos();
        let torn = size <= MAX_EVENT && type_id == u64::from(CHECKPOINT_EVENT.0);
        if torn && CheckpointHead::read(&mut cursor).is_ok() {
            self.found.checkpoints.push(Checkpoint { at, payload: from..limit });
        }
    }

    /// Where reading can go on behind the damage at `at`.
    fn go_on(&mut self, at: usize, limit: usize) -> Option<usize> {
        let rest = &self.bytes[at..limit];
        let start = self.found.start;
        let known = self
            .promised
            .and_then(|_| {
                resync::next_boundary(rest, (at - start) as u64, &self.found.header, &mut { u64::MAX })
            })
            .map(|skip| at + skip);
        let header = if self.promised.is_none() { next_header(self.bytes, at + 1) } else { None };
        let until = known.or(header).unwrap_or(limit);
        self.row(at + 1, until).or(known).or(header)
    }

    /// The first place in front of `until` where sound events of declared types follow each other.
    fn row(&mut self, from: usize, until: usize) -> Option<usize> {
        let types = self.types()?.clone();
        for at in from..until {
            if self.budget == 0 {
                return None;
            }
            self.budget = self.budget.saturating_sub(1);
            if self.is_row(&types, at, until) {
                return Some(at);
            }
        }
        None
    }

    fn is_row(&mut self, types: &Types, from: usize, until: usize) -> bool {
        let mut at = from;
        for seen in 0..ROW {
            if at == until {
                return seen > 0;
            }
            let Some(event) = framed(self.bytes, at, until) else { return false };
            if event.end - at > ROW_EVENT as usize {
                return false;
            }
            let Some(class) = types.by_id(event.type_id).filter(|class| class.is_event()) else {
                // Checkpoints and metadata end a row: their own reading judges them.
                return seen > 1 && event.type_id <= 1;
            };
            let mut cursor = Cursor::new(&self.bytes[event.payload..event.end]);
            let sound = layout::skip(types.classes(), &class.layout, &mut cursor, 0).is_ok();
            self.budget = self.budget.saturating_sub(cursor.pos() as u64);
            if !sound || cursor.left() > 0 {
                return false;
            }
            at = event.end;
        }
        true
    }
}

/// Why a chunk is not what every reader takes.
pub(super) fn flaw(bytes: &Bytes, found: &Found) -> Option<&'static str> {
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
    let at = |offset: u64| found.start as u64 + offset;
    if !found.metadata.iter().any(|(start, _)| *start as u64 == at(header.metadata.0)) || found.bad_metadata {
        return Some("no readable metadata where the header says");
    }
    if found.types.region.is_none() {
        return Some("the metadata has no region");
    }
    let several = found.metadata.len() > 1;
    let chosen = if several { found.metadata_of_choice(bytes) } else { None };
    let alone = chosen.and_then(|(_, range)| types_of(&bytes[range]));
    chain(bytes, found, alone.as_ref().unwrap_or(&found.types)).or_else(|| undecodable(bytes, found))
}

fn chain(bytes: &Bytes, found: &Found, types: &Types) -> Option<&'static str> {
    let position = |at: u64| found.checkpoints.binary_search_by_key(&at, |c| c.at as u64).ok();
    let mut linked = vec![false; found.checkpoints.len()];
    let mut next = found.start as u64 + found.header.checkpoint.0;
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
    for (checkpoint, linked) in found.checkpoints.iter().zip(linked) {
        match sound_checkpoint(types, &bytes[checkpoint.payload.clone()]) {
            Ok(pools) if linked || pools == 0 => {}
            Ok(_) => return Some("a checkpoint is not chained"),
            Err(why) => return Some(why),
        }
    }
    None
}

/// How many pools there are; an empty one counts as damage, as the JDK has it.
fn sound_checkpoint(types: &Types, payload: &[u8]) -> Result<usize, &'static str> {
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

fn undecodable(bytes: &Bytes, found: &Found) -> Option<&'static str> {
    let bad = found.events(bytes).any(|event| {
        event.type_id > u64::from(CHECKPOINT_EVENT.0) && !decodes(bytes, &found.types, &event).unwrap_or(true)
    });
    bad.then_some("an event cannot be read")
}

/// Whether the fields of an event are all there; `None` if its type is not declared.
pub(super) fn decodes(bytes: &[u8], types: &Types, event: &Framed) -> Option<bool> {
    let class = types.by_id(event.type_id)?;
    let mut cursor = Cursor::new(&bytes[event.payload..event.end]);
    Some(layout::skip(types.classes(), &class.layout, &mut cursor, 0).is_ok())
}

/// Walks the pools of a checkpoint: `entry(class, key, value)` for each constant, `pool(count)` behind each pool.
/// Gives the head and where the content ends.
pub(super) fn walk_pools(
    types: &Types,
    payload: &[u8],
    mut entry: impl FnMut(crate::read::ClassIndex, u64, Range<usize>),
    mut pool: impl FnMut(usize),
) -> Result<(CheckpointHead, usize), Malformed> {
    let mut cursor = Cursor::new(payload);
    let head = CheckpointHead::read(&mut cursor)?;
    for _ in 0..head.pools {
        let class = types.index_of(cursor.varint()?).ok_or(Malformed::UnknownType)?;
        let count = cursor.count()?;
        for _ in 0..count {
            let key = cursor.varint()?;
            let from = cursor.pos();
            layout::skip_value(types.classes(), class, &mut cursor)?;
            entry(class, key, from..cursor.pos());
        }
        pool(count);
    }
    Ok((head, cursor.pos()))
}
