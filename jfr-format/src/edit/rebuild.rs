//! Rebuilds a chunk: header, metadata, chained checkpoints, then the retained events.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

use super::keys::{self, Shift};
use super::metadata::TypeIds;
use super::references;
use super::rewrite::{Rewrite, put_event, put_event_head};
use super::scan::{Framed, ScannedChunk};
use super::source::Source;
use crate::constants::*;
use crate::cursor::Cursor;
use crate::header::{ChunkHeader, LEN};
use crate::ids::ChunkOffset;
use crate::pool::{CheckpointHead, walk_pools};
use crate::read::push::MAX_EVENT;
use crate::types::{ClassIndex, Types};
use crate::varint;

/// The pool of header copies that HotSpot writes; a copy of the old header would be wrong in the new chunk.
const CHUNK_HEADER_TYPE: &str = "jdk.types.ChunkHeader";
/// Maximum bytes of events written at once.
const RUN: usize = 1 << 20;

/// A constant: its type and key.
pub(super) type Key = (ClassIndex, u64);

/// Further changes to the bytes of retained events and constants.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Texts that are replaced.
    pub(super) rewrite: Rewrite,
    /// Other ids of types.
    pub(super) type_ids: TypeIds,
    /// Larger keys of constants.
    pub(super) keys: Shift,
    /// Constants with other content: their bytes after the key.
    pub(super) replaced: HashMap<Key, Vec<u8>>,
    /// Additional constants: id of their type, number, bytes with keys.
    pub(super) added: Vec<(u64, (u64, Vec<u8>))>,
}

impl Change {
    fn id(&self, old: u64) -> u64 {
        self.type_ids.get(&old).copied().unwrap_or(old)
    }

    /// Appends the event if it changes. Returns true if it does.
    pub(super) fn event(&self, types: &Types, bytes: &[u8], event: &Framed, out: &mut Vec<u8>) -> bool {
        let from = out.len();
        let class = types.class_index(event.type_id).filter(|&class| self.rewrite.touches(class));
        let type_id = self.id(event.type_id);
        match class {
            Some(class) => {
                let renamed = Framed { type_id, ..*event };
                if self.rewrite.event(types, class, bytes, &renamed, out).is_err() {
                    out.truncate(from);
                }
                true
            }
            None if type_id != event.type_id => {
                put_event(out, type_id, &bytes[event.payload..event.end]);
                true
            }
            None => false,
        }
    }
}

/// A chunk that is ready to be written.
pub(super) struct Rebuilt<'a> {
    source: &'a Source,
    scanned: &'a ScannedChunk,
    change: &'a Change,
    header: ChunkHeader,
    pieces: Vec<OutputPart>,
    retained: RetainedEvents,
    /// The retained constants.
    constants: HashSet<Key>,
    /// Number of constants dropped because they were already defined, belong to no type or refer to a missing
    /// constant.
    pub(super) dropped_constants: u64,
}

/// A part of the result.
enum OutputPart {
    Made(Vec<u8>),
    Input(Range<usize>),
}

impl Rebuilt<'_> {
    /// Writes the chunk.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let bytes = self.source.bytes();
        out.write_all(&self.header.encode())?;
        let mut behind = self.source.behind(self.scanned.start);
        for piece in &self.pieces {
            match piece {
                OutputPart::Made(made) => out.write_all(made)?,
                OutputPart::Input(range) => {
                    out.write_all(&bytes[range.clone()])?;
                    behind.at(range.start);
                }
            }
        }
        let mut run = 0..0;
        let mut made = Vec::new();
        for (i, event) in self.scanned.events(self.source).enumerate() {
            if !self.retained.has(i) {
                continue;
            }
            made.clear();
            let changed = self.change.event(&self.scanned.types, bytes, &event, &mut made);
            if changed || event.start != run.end || run.len() > RUN {
                out.write_all(&bytes[run])?;
                run = event.start..event.start;
            }
            if changed {
                out.write_all(&made)?;
                run = event.end..event.end;
            } else {
                run.end = event.end;
            }
        }
        out.write_all(&bytes[run])
    }

    /// Iterates over the retained events.
    pub(super) fn retained_events(&self) -> impl Iterator<Item = Framed> + '_ {
        let events = self.scanned.events(self.source).enumerate();
        events.filter(|(i, _)| self.retained.has(*i)).map(|(_, event)| event)
    }

    /// Returns true if the constant is in the chunk.
    pub(super) fn has_constant(&self, key: Key) -> bool {
        self.constants.contains(&key)
    }

    /// Returns the size of the chunk in bytes.
    pub(super) fn size(&self) -> u64 {
        self.header.size
    }
}

/// The retained events: a bit for each, in the order of [`ScannedChunk::events`], and the size that they will
/// take in bytes.
#[derive(Default)]
pub(super) struct RetainedEvents {
    bits: Vec<u64>,
    len: usize,
    bytes: u64,
}

impl RetainedEvents {
    /// Adds the decision on the next event: its size if it is retained.
    pub(super) fn push(&mut self, size: Option<usize>) {
        if self.len.is_multiple_of(64) {
            self.bits.push(0);
        }
        if let (Some(size), Some(last)) = (size, self.bits.last_mut()) {
            *last |= 1 << (self.len % 64);
            self.bytes += size as u64;
        }
        self.len += 1;
    }

    fn has(&self, i: usize) -> bool {
        self.bits.get(i / 64).is_some_and(|bits| bits >> (i % 64) & 1 == 1)
    }
}

/// The parts from which a chunk is rebuilt.
pub(super) struct Plan<'a> {
    /// The header with the clock, the start and the duration.
    pub(super) header: ChunkHeader,
    /// The content of a metadata event after its type id.
    pub(super) metadata: &'a [u8],
    pub(super) retained: RetainedEvents,
    /// The constants to retain; all if `None`.
    pub(super) used: Option<&'a HashSet<Key>>,
    pub(super) change: &'a Change,
}

/// Rebuilds a chunk.
pub(super) fn rebuild<'a>(source: &'a Source, scanned: &'a ScannedChunk, plan: Plan<'a>) -> Rebuilt<'a> {
    let types = &scanned.types;
    let mut out = Pieces { size: LEN as u64, pieces: Vec::new() };
    let metadata_at = out.size;
    out.made(|made| put_event(made, u64::from(METADATA_EVENT.0), plan.metadata));
    let constants = RetainedConstants::new(source, scanned, plan.used);
    let mut seen = HashSet::new();
    let mut dropped = 0;
    let mut last = 0u64;
    let mut behind = source.behind(scanned.start);
    for checkpoint in &scanned.checkpoints {
        behind.at(checkpoint.at);
        let pools = retained_pools(source, types, plan.change, checkpoint.payload.clone(), &mut |key| {
            let keep = constants.keeps(key) && seen.insert(key);
            dropped += u64::from(!keep && plan.used.is_none());
            keep
        });
        let Some((head, pools)) = pools.filter(|(_, pools)| !pools.is_empty()) else { continue };
        for pools in in_parts(pools) {
            let at = out.size;
            out.checkpoint(&head, if last == 0 { 0 } else { last as i64 - at as i64 }, pools);
            last = at;
        }
    }
    for (type_id, (count, bytes)) in plan.change.added.iter().filter(|(_, (count, _))| *count > 0) {
        let at = out.size;
        let (size, entries) = (bytes.len(), vec![OutputPart::Made(bytes.clone())]);
        let pool = Pool { type_id: *type_id, count: *count, size, entries };
        let head = Head { start: plan.header.start_ticks.0 as u64, duration: 0, flags: 0 };
        out.checkpoint(&head, if last == 0 { 0 } else { last as i64 - at as i64 }, vec![pool]);
        last = at;
    }
    if last == 0 {
        last = out.size;
        out.checkpoint(&Head { start: 0, duration: 0, flags: 0 }, 0, Vec::new());
    }
    let header = plan.header;
    let header = ChunkHeader {
        major: MAJOR,
        minor: header.minor.min(MINOR),
        size: out.size + plan.retained.bytes,
        checkpoint: ChunkOffset(last),
        metadata: ChunkOffset(metadata_at),
        duration_nanos: header.duration_nanos.max(0),
        start_nanos: header.start_nanos.max(0),
        ticks_per_second: header.frequency(),
        state: STATE_FINISHED,
        flags: header.flags & FLAG_FINAL | FLAG_COMPRESSED,
        ..header
    };
    Rebuilt {
        source,
        scanned,
        change: plan.change,
        header,
        pieces: out.pieces,
        retained: plan.retained,
        constants: seen,
        dropped_constants: dropped,
    }
}

/// The constants to retain.
struct RetainedConstants<'a> {
    used: Option<&'a HashSet<Key>>,
    bad: HashSet<Key>,
    headers: Option<ClassIndex>,
}

impl<'a> RetainedConstants<'a> {
    fn new(source: &Source, scanned: &ScannedChunk, used: Option<&'a HashSet<Key>>) -> Self {
        let headers = scanned.types.by_name(CHUNK_HEADER_TYPE).map(|(index, _)| index);
        Self { used, bad: incomplete(source, scanned), headers }
    }

    fn keeps(&self, key: Key) -> bool {
        Some(key.0) != self.headers
            && !self.bad.contains(&key)
            && self.used.is_none_or(|used| used.contains(&key))
    }
}

/// Types whose constants are useless without the constants that they refer to: readers fail at a frame without
/// its method, a method or loader without its class or a class without its name, but not at an event without
/// its stack.
const NEEDY: [&str; 4] =
    ["java.lang.Class", "jdk.types.ClassLoader", "jdk.types.Method", "jdk.types.StackTrace"];

/// Returns constants that refer to missing ones, in a chunk that lost data.
fn incomplete(source: &Source, scanned: &ScannedChunk) -> HashSet<Key> {
    let (types, bytes) = (&scanned.types, source.bytes());
    let mut bad = HashSet::new();
    if scanned.whole {
        return bad;
    }
    let mut defined = HashSet::new();
    let mut behind = source.behind(scanned.start);
    for checkpoint in &scanned.checkpoints {
        behind.at(checkpoint.at);
        let note = |class, key, _: Range<usize>| {
            defined.insert((class, key));
        };
        // Constants that cannot be read count as not defined.
        let _ = walk_pools(types, &bytes[checkpoint.payload.clone()], note, |_| {});
    }
    let optional = ["java.lang.Package", "jdk.types.Package", "jdk.types.ClassLoader"];
    let optional = optional.map(|name| types.by_name(name).map(|(index, _)| index));
    // Each type needs the one before.
    for needy in NEEDY {
        let Some((needy, _)) = types.by_name(needy) else { continue };
        let mut behind = source.behind(scanned.start);
        for checkpoint in &scanned.checkpoints {
            behind.at(checkpoint.at);
            let payload = &bytes[checkpoint.payload.clone()];
            let check = |class, key, value: Range<usize>| {
                if class != needy {
                    return;
                }
                let mut whole = true;
                let mut refer = |to, key| {
                    let there = defined.contains(&(to, key)) && !bad.contains(&(to, key));
                    whole &= key == 0 || there || optional.contains(&Some(to));
                };
                let read = references::each(types, class, &mut Cursor::new(&payload[value]), &mut refer);
                if read.is_err() || !whole {
                    bad.insert((class, key));
                }
            };
            let _ = walk_pools(types, payload, check, |_| {});
        }
    }
    bad
}

struct Head {
    start: u64,
    duration: u64,
    flags: u8,
}

/// One pool of a checkpoint with its constants, keys included.
struct Pool {
    type_id: u64,
    count: u64,
    size: usize,
    entries: Vec<OutputPart>,
}

/// Returns the pools of a checkpoint with the constants that `keep` selects, as far as they can be read.
fn retained_pools(
    source: &Source,
    types: &Types,
    change: &Change,
    range: Range<usize>,
    keep: &mut impl FnMut(Key) -> bool,
) -> Option<(Head, Vec<Pool>)> {
    let payload = &source.bytes()[range.clone()];
    let mut cursor = Cursor::new(payload);
    let (start, duration) = (cursor.varint().ok()?, cursor.varint().ok()?);
    let CheckpointHead { flags, .. } = CheckpointHead::read(&mut Cursor::new(payload)).ok()?;
    let mut pools: Vec<Pool> = Vec::new();
    let mut current: Option<ClassIndex> = None;
    let entry = |class: ClassIndex, key: u64, value: Range<usize>| {
        if !keep((class, key)) {
            return;
        }
        if current != Some(class) {
            current = Some(class);
            let type_id = change.id(types.class(class).map_or(0, |c| c.id));
            pools.push(Pool { type_id, count: 0, size: 0, entries: Vec::new() });
        }
        let Some(pool) = pools.last_mut() else { return };
        pool.count += 1;
        let replaced = change.replaced.get(&(class, key));
        let new = keys::moved(key, types.class(class).map_or(0, |class| change.keys.offset(&class.name)));
        if replaced.is_some() || new != key || change.rewrite.touches(class) {
            let mut made = Vec::with_capacity(varint::len(new) + value.len());
            varint::put(&mut made, new);
            match replaced {
                Some(bytes) => made.extend_from_slice(bytes),
                // The constant has been read once already, so this cannot fail.
                None => drop(change.rewrite.value(types, class, &payload[value], &mut made)),
            }
            pool.size += made.len();
            match pool.entries.last_mut() {
                Some(OutputPart::Made(last)) => last.append(&mut made),
                _ => pool.entries.push(OutputPart::Made(made)),
            }
            return;
        }
        let from = value.start - key_len(payload, value.start, key);
        pool.size += value.end - from;
        let (from, to) = (range.start + from, range.start + value.end);
        match pool.entries.last_mut() {
            Some(OutputPart::Input(last)) if last.end == from => last.end = to,
            _ => pool.entries.push(OutputPart::Input(from..to)),
        }
    };
    let _ = walk_pools(types, payload, entry, |_| {});
    let flags = flags & !(CHECKPOINT_HEADER | CHECKPOINT_FLUSH);
    let clock = change.rewrite.clock;
    let start = clock.map_or(start, |clock| clock.stamp(start as i64) as u64);
    let duration = clock.map_or(duration, |clock| clock.span(duration as i64) as u64);
    Some((Head { start, duration, flags }, pools))
}

/// Returns the length of the key before `end`; padded keys are longer than necessary.
fn key_len(payload: &[u8], end: usize, key: u64) -> usize {
    let shortest = varint::len(key);
    (shortest..=varint::MAX_LEN.min(end))
        .find(|len| {
            let mut cursor = Cursor::at(&payload[..end], end - len);
            cursor.varint() == Ok(key) && cursor.pos() == end
        })
        .unwrap_or(shortest)
}

/// Groups pools so that each group fits into one event.
fn in_parts(pools: Vec<Pool>) -> Vec<Vec<Pool>> {
    let mut parts: Vec<Vec<Pool>> = vec![Vec::new()];
    let mut size = 0;
    for pool in pools {
        let more = pool.size + 2 * varint::MAX_LEN;
        let full = size > 0 && size + more > MAX_EVENT as usize - 64;
        size = if full { more } else { size + more };
        match parts.last_mut() {
            Some(last) if !full => last.push(pool),
            _ => parts.push(vec![pool]),
        }
    }
    parts
}

/// The parts of a chunk before its events.
struct Pieces {
    size: u64,
    pieces: Vec<OutputPart>,
}

impl Pieces {
    fn made(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.pieces.last(), Some(OutputPart::Made(_))) {
            self.pieces.push(OutputPart::Made(Vec::new()));
        }
        if let Some(OutputPart::Made(made)) = self.pieces.last_mut() {
            let before = made.len();
            make(made);
            self.size += (made.len() - before) as u64;
        }
    }

    fn checkpoint(&mut self, head: &Head, delta: i64, pools: Vec<Pool>) {
        let mut front = Vec::with_capacity(64);
        varint::put(&mut front, head.start);
        varint::put(&mut front, head.duration);
        varint::put(&mut front, delta as u64);
        front.push(head.flags);
        varint::put(&mut front, pools.len() as u64);
        let of_pool = |pool: &Pool| varint::len(pool.type_id) + varint::len(pool.count) + pool.size;
        let size = front.len() + pools.iter().map(of_pool).sum::<usize>();
        self.made(|made| {
            put_event_head(made, u64::from(CHECKPOINT_EVENT.0), size);
            made.extend_from_slice(&front);
        });
        for pool in pools {
            self.made(|made| {
                varint::put(made, pool.type_id);
                varint::put(made, pool.count);
            });
            for entry in pool.entries {
                match entry {
                    OutputPart::Made(bytes) => self.made(|made| made.extend_from_slice(&bytes)),
                    OutputPart::Input(range) => {
                        self.size += range.len() as u64;
                        self.pieces.push(OutputPart::Input(range));
                    }
                }
            }
        }
    }
}
