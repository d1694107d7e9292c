//! A recording with some of its events, and the constants that those need.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use bytes::Bytes;

use super::rebuild::{self, Kept, Key, rebuild};
use super::references;
use super::repair::{Ids, header, times};
use super::scan::{self, Found, Framed};
use crate::constants::CHECKPOINT_EVENT;
use crate::event::EventRef;
use crate::header::ChunkHeader;
use crate::ids::{FileOffset, Ticks};
use crate::pool::Pools;
use crate::read::cursor::Cursor;
use crate::read::{Chunk, ChunkIndex, Types};

const NANOS: i64 = 1_000_000_000;

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// It stays if anything else of its chunk does.
    Context,
    /// It goes.
    Drop,
}

/// What else to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// Keep all constants, not only those that the remaining events need.
    pub all_constants: bool,
    /// The interval, in nanoseconds since 1970, that the headers shall say; chunks without events in it are dropped.
    pub range: Option<(i64, i64)>,
}

/// How much of a type stayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Events there were.
    pub all: u64,
    /// Events dropped.
    pub dropped: u64,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Filtered {
    /// Chunks read.
    pub chunks: u64,
    /// Chunks written.
    pub written: u64,
    /// Bytes written.
    pub output: u64,
    /// Events by type.
    pub types: BTreeMap<String, Share>,
    /// Bytes that could not be read.
    pub unread: u64,
}

/// Writes what `decide` wants of a recording, chunk by chunk, each written anew.
///
/// # Errors
/// Those of `out`.
pub fn filter(
    bytes: &Bytes,
    scope: Scope,
    decide: &mut dyn FnMut(&EventRef<'_>) -> Decision,
    out: &mut dyn Write,
) -> io::Result<Filtered> {
    let mut report = Filtered::default();
    let mut ids = Ids::default();
    each_chunk(bytes, &mut report.unread, |found, unread| {
        let index = ChunkIndex(u32::try_from(report.chunks).unwrap_or(u32::MAX));
        report.chunks += 1;
        *unread += found.unread.iter().map(|range| range.len() as u64).sum::<u64>();
        let Some((_, metadata)) = found.metadata_of_choice(bytes) else {
            *unread += (found.end - found.start) as u64;
            return Ok(());
        };
        let content = bytes.slice(metadata);
        if found.metadata.len() > 1 {
            let Some(types) = scan::types_of(&content) else { return Ok(()) };
            found.types = types.into();
        }
        let chunk = Chunk {
            index,
            offset: FileOffset(found.start as u64),
            header: found.header,
            types: found.types.clone(),
            pools: found.pools(bytes),
        };
        let picked = pick(bytes, found, &chunk, scope, decide, &mut report.types);
        if scope.range.is_some() && !picked.any {
            return Ok(());
        }
        let mut header = header(&found.header, found, picked.last);
        if let Some((from, to)) = scope.range {
            narrow(&mut header, from, to);
        }
        let id = ids.other(&content);
        let content = rebuild::metadata(&content, &found.types, id);
        let rebuilt = rebuild(bytes, found, header, &content, picked.kept, picked.used.as_ref());
        report.written += 1;
        report.output += rebuilt.size();
        rebuilt.write(bytes, out)
    })?;
    Ok(report)
}

fn each_chunk(
    bytes: &Bytes,
    unread: &mut u64,
    mut take: impl FnMut(&mut Found, &mut u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let Some(header) = scan::header_at(bytes, at) else {
            let next = scan::next_header(bytes, at + 1).unwrap_or(bytes.len());
            *unread += (next - at) as u64;
            at = next;
            continue;
        };
        let mut found = scan::scan(bytes, at, header, None);
        at = found.end;
        take(&mut found, unread)?;
    }
    Ok(())
}

struct Picked {
    kept: Kept,
    used: Option<HashSet<Key>>,
    /// Something stays for its own sake.
    any: bool,
    last: Option<i64>,
}

fn pick(
    bytes: &Bytes,
    found: &Found,
    chunk: &Chunk,
    scope: Scope,
    decide: &mut dyn FnMut(&EventRef<'_>) -> Decision,
    shares: &mut BTreeMap<String, Share>,
) -> Picked {
    let mut picked = Picked { kept: Kept::default(), used: None, any: false, last: None };
    let mut marks = Marks::default();
    for event in found.events(bytes) {
        if event.type_id <= u64::from(CHECKPOINT_EVENT.0) {
            continue;
        }
        let Some(index) = chunk.types.index_of(event.type_id) else { continue };
        let Some(class) = chunk.types.class(index) else { continue };
        let payload = &bytes[event.payload..event.end];
        let of_event = EventRef {
            chunk,
            class,
            index,
            payload,
            tail: payload,
            offset: event.start as u64,
            size: (event.end - event.start) as u32,
        };
        let sound = scan::decodes(bytes, &chunk.types, &event) == Some(true);
        let decision = if sound { decide(&of_event) } else { Decision::Drop };
        if !shares.contains_key(&*class.name) {
            shares.insert(class.name.to_string(), Share::default());
        }
        if let Some(share) = shares.get_mut(&*class.name) {
            share.all += 1;
            share.dropped += u64::from(decision == Decision::Drop);
        }
        if sound {
            let (start, duration) = times(bytes, &chunk.types, &event);
            picked.last = picked.last.max(Some(start.saturating_add(duration.max(0))));
        }
        if decision == Decision::Drop {
            continue;
        }
        picked.any |= decision == Decision::Keep;
        picked.kept.push(&event);
        if !scope.all_constants {
            marks.event(bytes, &chunk.types, index, &event);
        }
    }
    if !scope.all_constants {
        picked.used = Some(marks.complete(&chunk.types, &chunk.pools));
    }
    picked
}

/// Constants that are needed.
#[derive(Default)]
struct Marks {
    used: HashSet<Key>,
    todo: Vec<Key>,
}

impl Marks {
    fn event(&mut self, bytes: &Bytes, types: &Types, class: crate::read::ClassIndex, event: &Framed) {
        let mut cursor = Cursor::new(&bytes[event.payload..event.end]);
        self.value(types, class, &mut cursor);
    }

    fn value(&mut self, types: &Types, class: crate::read::ClassIndex, cursor: &mut Cursor<'_>) {
        let mut refer = |class, key| {
            if self.used.insert((class, key)) {
                self.todo.push((class, key));
            }
        };
        // What cannot be read refers to nothing.
        let _ = references::each(types, class, cursor, &mut refer);
    }

    fn complete(mut self, types: &Types, pools: &Pools) -> HashSet<Key> {
        while let Some((class, key)) = self.todo.pop() {
            if let Some(raw) = pools.get(class, key) {
                self.value(types, class, &mut Cursor::new(raw.bytes));
            }
        }
        self.used
    }
}

/// Makes a header say the part of its interval that lies in `from..to`. Start and ticks stay on the same line: the
/// JDK applies the first chunk's to all.
fn narrow(header: &mut ChunkHeader, from: i64, to: i64) {
    let end = header.start_nanos.saturating_add(header.duration_nanos);
    let frequency = header.frequency();
    // The smallest span that is whole ticks and whole nanoseconds; a second at most.
    let gcd = gcd(frequency, NANOS);
    let (step_ticks, step_nanos) = (frequency / gcd, NANOS / gcd);
    if from > header.start_nanos {
        let steps = from.saturating_sub(header.start_nanos) / step_nanos;
        let ticks = i128::from(steps) * i128::from(step_ticks) + i128::from(header.start_ticks.0);
        if let Ok(ticks) = i64::try_from(ticks) {
            header.start_ticks = Ticks(ticks);
            header.start_nanos += steps * step_nanos;
        }
    }
    header.duration_nanos = end.min(to).saturating_sub(header.start_nanos).max(0);
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// First and last nanosecond since 1970 of a recording, by its headers; by the events where a header was never
/// completed. `None` without a chunk.
pub fn time_range(bytes: &Bytes) -> Option<(i64, i64)> {
    let mut range: Option<(i64, i64)> = None;
    let mut add = |header: &ChunkHeader| {
        let end = header.start_nanos.saturating_add(header.duration_nanos.max(0));
        let (from, to) = range.unwrap_or((i64::MAX, i64::MIN));
        range = Some((from.min(header.start_nanos), to.max(end)));
    };
    let mut at = 0;
    while at < bytes.len() {
        let Some(head) = scan::header_at(bytes, at) else {
            at = scan::next_header(bytes, at + 1).unwrap_or(bytes.len());
            continue;
        };
        let end = crate::read::push::trusted_end(&head, at as u64).and_then(|end| usize::try_from(end).ok());
        if let (Some(end), true) = (end.filter(|&end| end <= bytes.len()), head.duration_nanos > 0) {
            add(&head);
            at = end;
            continue;
        }
        let found = scan::scan(bytes, at, head, None);
        let ends = found
            .events(bytes)
            .filter(|e| e.type_id > 1)
            .filter(|e| scan::decodes(bytes, &found.types, e) == Some(true));
        let last = ends
            .map(|event| {
                let (start, duration) = times(bytes, &found.types, &event);
                start.saturating_add(duration.max(0))
            })
            .max();
        add(&header(&head, &found, last));
        at = found.end;
    }
    range
}
