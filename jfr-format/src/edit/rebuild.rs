//! A chunk written anew: header, metadata, checkpoints chained one to the next, then the events that stay.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;

use super::references;
use super::scan::{Found, Framed, walk_pools};
use crate::constants::*;
use crate::header::{ChunkHeader, LEN};
use crate::ids::ChunkOffset;
use crate::pool::CheckpointHead;
use crate::read::cursor::Cursor;
use crate::read::push::MAX_EVENT;
use crate::read::{ClassIndex, Types};
use crate::{strings, varint};

/// The pool of header copies that HotSpot writes; a copy of the old header would be wrong in the new chunk.
const CHUNK_HEADER_TYPE: &str = "jdk.types.ChunkHeader";

/// A constant: its type and key.
pub(super) type Key = (ClassIndex, u64);

/// A chunk ready to be written.
pub(super) struct Rebuilt {
    head: Vec<u8>,
    runs: Vec<Range<usize>>,
    /// Constants left out because they were defined already, belong to no type or refer to what never came.
    pub(super) dropped_constants: u64,
}

impl Rebuilt {
    /// Writes it; `bytes` are the input.
    pub(super) fn write(&self, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.head)?;
        self.runs.iter().try_for_each(|run| out.write_all(&bytes[run.clone()]))
    }

    /// Bytes it takes.
    pub(super) fn size(&self) -> u64 {
        self.head.len() as u64 + self.runs.iter().map(|r| r.len() as u64).sum::<u64>()
    }
}

/// Events that stay, joined to runs.
#[derive(Default)]
pub(super) struct Kept(pub(super) Vec<Range<usize>>);

impl Kept {
    pub(super) fn push(&mut self, event: &Framed) {
        match self.0.last_mut() {
            Some(last) if last.end == event.start => last.end = event.end,
            _ => self.0.push(event.start..event.end),
        }
    }
}

/// Puts a chunk together. `header` says the clock, the start and the duration; `metadata` is the content of a metadata
/// event behind its type id; `used`: the constants to keep, all if none.
pub(super) fn rebuild(
    bytes: &Bytes,
    found: &Found,
    header: ChunkHeader,
    metadata: &[u8],
    kept: Kept,
    used: Option<&HashSet<Key>>,
) -> Rebuilt {
    let types = &found.types;
    let mut out = vec![0; LEN];
    let metadata_at = out.len() as u64;
    event(&mut out, METADATA_EVENT.0, metadata);
    let wanted = Wanted::new(bytes, found, used);
    let mut seen = HashSet::new();
    let mut dropped = 0;
    let mut last = 0u64;
    for checkpoint in &found.checkpoints {
        let payload = &bytes[checkpoint.payload.clone()];
        let pools = pools_of(types, payload, &mut |key, _| {
            let keep = wanted.keeps(key) && seen.insert(key);
            dropped += u64::from(!keep && used.is_none());
            keep
        });
        let Some((head, pools)) = pools.filter(|(_, pools)| !pools.is_empty()) else { continue };
        for pools in in_parts(&pools) {
            let at = out.len() as u64;
            put_checkpoint(
                &mut out,
                &head,
                if last == 0 { 0 } else { last as i64 - at as i64 },
                payload,
                pools,
            );
            last = at;
        }
    }
    if last == 0 {
        last = out.len() as u64;
        let head = Head { start: 0, duration: 0, flags: 0 };
        put_checkpoint(&mut out, &head, 0, &[], &[]);
    }
    let mut rebuilt = Rebuilt { head: out, runs: kept.0, dropped_constants: dropped };
    let header = ChunkHeader {
        major: MAJOR,
        minor: header.minor.min(MINOR),
        size: rebuilt.size(),
        checkpoint: ChunkOffset(last),
        metadata: ChunkOffset(metadata_at),
        duration_nanos: header.duration_nanos.max(0),
        start_nanos: header.start_nanos.max(0),
        ticks_per_second: header.frequency(),
        state: STATE_FINISHED,
        flags: header.flags & FLAG_FINAL | FLAG_COMPRESSED,
        ..header
    };
    rebuilt.head[..LEN].copy_from_slice(&header.encode());
    rebuilt
}

/// Which constants stay.
struct Wanted<'a> {
    used: Option<&'a HashSet<Key>>,
    bad: HashSet<Key>,
    headers: Option<ClassIndex>,
}

impl<'a> Wanted<'a> {
    fn new(bytes: &Bytes, found: &Found, used: Option<&'a HashSet<Key>>) -> Self {
        let headers = found.types.by_name(CHUNK_HEADER_TYPE).map(|(index, _)| index);
        Self { used, bad: incomplete(bytes, found), headers }
    }

    fn keeps(&self, key: Key) -> bool {
        Some(key.0) != self.headers
            && !self.bad.contains(&key)
            && self.used.is_none_or(|used| used.contains(&key))
    }
}

/// Types whose constants are of no use without what they refer to: readers fail at a frame without its method, a method
/// or loader without its class or a class without its name, but not at an event without its stack.
const NEEDY: [&str; 4] =
    ["java.lang.Class", "jdk.types.ClassLoader", "jdk.types.Method", "jdk.types.StackTrace"];

/// Constants that refer to what never came, in a chunk that lost something.
fn incomplete(bytes: &Bytes, found: &Found) -> HashSet<Key> {
    let types = &found.types;
    let mut bad = HashSet::new();
    if found.whole {
        return bad;
    }
    let mut defined = HashSet::new();
    for checkpoint in &found.checkpoints {
        let note = |class, key, _: Range<usize>| {
            defined.insert((class, key));
        };
        // What cannot be read is not defined.
        let _ = walk_pools(types, &bytes[checkpoint.payload.clone()], note, |_| {});
    }
    let optional = ["java.lang.Package", "jdk.types.Package", "jdk.types.ClassLoader"];
    let optional = optional.map(|name| types.by_name(name).map(|(index, _)| index));
    // Each needs the one before.
    for needy in NEEDY {
        let Some((needy, _)) = types.by_name(needy) else { continue };
        for checkpoint in &found.checkpoints {
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

/// One pool of a checkpoint and where its constants, keys included, are in the payload.
struct Pool {
    type_id: u64,
    count: u64,
    size: usize,
    entries: Vec<Range<usize>>,
}

/// The pools of a checkpoint with the constants that `keep` wants, as far as it can be read.
fn pools_of(
    types: &Types,
    payload: &[u8],
    keep: &mut impl FnMut(Key, Range<usize>) -> bool,
) -> Option<(Head, Vec<Pool>)> {
    let mut cursor = Cursor::new(payload);
    let (start, duration) = (cursor.varint().ok()?, cursor.varint().ok()?);
    let CheckpointHead { flags, .. } = CheckpointHead::read(&mut Cursor::new(payload)).ok()?;
    let mut pools: Vec<Pool> = Vec::new();
    let mut current: Option<ClassIndex> = None;
    let entry = |class: ClassIndex, key: u64, value: Range<usize>| {
        if !keep((class, key), value.clone()) {
            return;
        }
        let from = value.start - key_len(payload, value.start, key);
        let type_id = types.class(class).map_or(0, |c| c.id);
        if current != Some(class) {
            current = Some(class);
            pools.push(Pool { type_id, count: 0, size: 0, entries: Vec::new() });
        }
        if let Some(pool) = pools.last_mut() {
            pool.count += 1;
            pool.size += value.end - from;
            match pool.entries.last_mut() {
                Some(last) if last.end == from => last.end = value.end,
                _ => pool.entries.push(from..value.end),
            }
        }
    };
    let _ = walk_pools(types, payload, entry, |_| {});
    let flags = flags & !(CHECKPOINT_HEADER | CHECKPOINT_FLUSH);
    Some((Head { start, duration, flags }, pools))
}

/// Bytes that the key in front of `end` takes; padded keys are longer than they need be.
fn key_len(payload: &[u8], end: usize, key: u64) -> usize {
    let shortest = varint::len(key);
    (shortest..=varint::MAX_LEN.min(end))
        .find(|len| {
            let mut cursor = Cursor::at(&payload[..end], end - len);
            cursor.varint() == Ok(key) && cursor.pos() == end
        })
        .unwrap_or(shortest)
}

/// Pools in groups that each fit one event.
fn in_parts(pools: &[Pool]) -> Vec<&[Pool]> {
    let mut parts = Vec::new();
    let (mut from, mut size) = (0, 0);
    for (i, pool) in pools.iter().enumerate() {
        let more = pool.size + 2 * varint::MAX_LEN;
        if i > from && size + more > MAX_EVENT as usize - 64 {
            parts.push(&pools[from..i]);
            (from, size) = (i, 0);
        }
        size += more;
    }
    parts.push(&pools[from..]);
    parts
}

fn put_checkpoint(out: &mut Vec<u8>, head: &Head, delta: i64, payload: &[u8], pools: &[Pool]) {
    let size: usize = pools.iter().map(|p| p.size + 2 * varint::MAX_LEN).sum();
    let mut body = Vec::with_capacity(size + 32);
    varint::put(&mut body, head.start);
    varint::put(&mut body, head.duration);
    varint::put(&mut body, delta as u64);
    body.push(head.flags);
    varint::put(&mut body, pools.len() as u64);
    for pool in pools {
        varint::put(&mut body, pool.type_id);
        varint::put(&mut body, pool.count);
        for entries in &pool.entries {
            body.extend_from_slice(&payload[entries.clone()]);
        }
    }
    event(out, CHECKPOINT_EVENT.0, &body);
}

/// Appends an event: four bytes of size where they suffice, as every reader takes them.
fn event(out: &mut Vec<u8>, type_id: u32, body: &[u8]) {
    let rest = varint::len(u64::from(type_id)) + body.len();
    match u32::try_from(rest + 4).ok().and_then(varint::padded) {
        Some(size) => out.extend_from_slice(&size),
        None => varint::put(out, (rest + 5) as u64),
    }
    varint::put(out, u64::from(type_id));
    out.extend_from_slice(body);
}

/// The content of a metadata event with a region, which the JDK insists on, if it has none; and with another id.
pub(super) fn metadata(content: &[u8], types: &Types, id: Option<u64>) -> Vec<u8> {
    let edited = edit(content, types.region.is_none(), id);
    edited.unwrap_or_else(|| content.to_vec())
}

fn edit(content: &[u8], region: bool, id: Option<u64>) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(content);
    let mut out = Vec::with_capacity(content.len() + 64);
    varint::put(&mut out, cursor.varint().ok()?);
    varint::put(&mut out, cursor.varint().ok()?);
    let old = cursor.varint().ok()?;
    varint::put(&mut out, id.unwrap_or(old));
    if !region {
        out.extend_from_slice(&content[cursor.pos()..]);
        return Some(out);
    }
    let count = cursor.count().ok()?;
    let table = cursor.pos();
    (0..count).try_for_each(|_| cursor.skip_string()).ok()?;
    let new = ["region", "locale", "en_US", "gmtOffset", "0"];
    varint::put(&mut out, (count + new.len()) as u64);
    out.extend_from_slice(&content[table..cursor.pos()]);
    new.iter().for_each(|s| strings::put(&mut out, s));
    let root = cursor.pos();
    cursor.varint().ok()?;
    let attributes = cursor.varint().ok()?;
    cursor.skip_varints(attributes.checked_mul(2)?).ok()?;
    out.extend_from_slice(&content[root..cursor.pos()]);
    let children = cursor.varint().ok()?;
    let first = cursor.pos();
    let mut left = children;
    // Elements still to come; each takes a byte at least, so this ends.
    while left > 0 {
        cursor.varint().ok()?;
        let attributes = cursor.varint().ok()?;
        cursor.skip_varints(attributes.checked_mul(2)?).ok()?;
        left = (left - 1).checked_add(cursor.varint().ok()?)?;
    }
    varint::put(&mut out, children + 1);
    out.extend_from_slice(&content[first..cursor.pos()]);
    let at = count as u64;
    for value in [at, 2, at + 1, at + 2, at + 3, at + 4, 0] {
        varint::put(&mut out, value);
    }
    Some(out)
}
