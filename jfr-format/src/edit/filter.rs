//! Writes a recording with some of its events, and the constants that they need.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

use super::metadata::{Ids, metadata};
use super::rebuild::{Change, Key, Plan, RetainedEvents, rebuild};
use super::references;
use super::repair::{header, times};
use super::rewrite::{Redaction, Rewrite};
use super::scan::{self, Effort, ScannedChunk};
use super::source::Source;
use super::unique_start_times::{UniqueStartTimes, step};
use crate::chunk::Chunk;
use crate::constants::CHECKPOINT_EVENT;
use crate::cursor::Cursor;
use crate::event::EventRef;
use crate::header::ChunkHeader;
use crate::ids::{ChunkIndex, FileOffset, Ticks};
use crate::pool::{Pools, walk_pools};
use crate::strings::StringRef;
use crate::types::{ClassIndex, Kind, Types};

/// The decision on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Retain the event.
    Keep,
    /// Retain the event if any other event of its chunk is retained. With a range, the last chunk before it
    /// that has events of such a type also contributes them, if the first retained chunk has none of that
    /// type.
    Context,
    /// Drop the event.
    Drop,
}

/// The settings of a filter run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Retain all constants, not only those that the remaining events need.
    pub all_constants: bool,
    /// The interval for the headers, in nanoseconds since 1970; chunks without events in it are dropped.
    pub range: Option<(i64, i64)>,
    /// The text to replace.
    pub redaction: Option<Redaction<'a>>,
}

/// Statistics of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of events before.
    pub all: u64,
    /// Number of events dropped.
    pub dropped: u64,
}

/// Statistics of a filter run.
#[derive(Clone, Debug, Default)]
pub struct Filtered {
    /// Number of chunks read.
    pub chunks: u64,
    /// Number of chunks written.
    pub written: u64,
    /// Number of bytes written.
    pub output: u64,
    /// Events by type.
    pub types: BTreeMap<String, Share>,
    /// Number of events from chunks before the range that were retained as context.
    pub context: u64,
    /// Number of texts of events that were replaced; texts of constants are not counted.
    pub redacted: u64,
    /// Number of bytes that could not be read.
    pub unread: u64,
}

/// Writes the events of a recording that `decide` selects. Each chunk is rebuilt.
///
/// # Errors
/// Those of `out`.
pub fn filter(
    source: &Source,
    scope: Scope<'_>,
    decide: &mut dyn FnMut(&EventRef<'_>) -> Decision,
    out: &mut dyn Write,
) -> io::Result<Filtered> {
    let mut filter = Filter {
        source,
        scope,
        decide,
        out,
        report: Filtered::default(),
        ids: Ids::default(),
        starts: UniqueStartTimes::default(),
        effort: Effort::default(),
        dropped_context: BTreeMap::new(),
    };
    let (bytes, mut at) = (source.bytes(), 0);
    while at < bytes.len() {
        let Some(header) = scan::header_at(bytes, at) else {
            let next = scan::next_header(bytes, at + 1).unwrap_or(bytes.len());
            filter.report.unread += (next - at) as u64;
            at = next;
            continue;
        };
        let end = filter.chunk(at, header)?;
        source.release(at..end);
        source.report_progress(end);
        at = end;
    }
    Ok(filter.report)
}

struct Filter<'a, 'd> {
    source: &'a Source,
    scope: Scope<'a>,
    decide: &'d mut dyn FnMut(&EventRef<'_>) -> Decision,
    out: &'d mut dyn Write,
    report: Filtered,
    ids: Ids,
    starts: UniqueStartTimes,
    effort: Effort,
    /// Context types of the chunks that were dropped so far, and the last chunk with each.
    dropped_context: BTreeMap<String, usize>,
}

/// Returns the pool of `java.lang.String`, to which texts of events may refer.
fn strings(source: &Source, scanned: &ScannedChunk) -> HashMap<u64, String> {
    let (types, bytes) = (&scanned.types, source.bytes());
    let mut strings = HashMap::new();
    for checkpoint in &scanned.checkpoints {
        let payload = &bytes[checkpoint.payload.clone()];
        let add = |class, key, value: Range<usize>| {
            let is_text = types.class(class).is_some_and(|class| class.kind == Kind::Text);
            if let (true, Ok(StringRef::Text(text))) = (is_text, Cursor::new(&payload[value]).string()) {
                strings.entry(key).or_insert_with(|| text.into_owned());
            }
        };
        // The readable constants of a damaged checkpoint are retained.
        let _ = walk_pools(types, payload, add, |_| {});
    }
    strings
}

/// A chunk whose types and constants are known.
struct Opened {
    scanned: ScannedChunk,
    chunk: Chunk,
    change: Change,
}

impl Filter<'_, '_> {
    /// Processes the chunk at `at`. Returns its end.
    fn chunk(&mut self, at: usize, header: ChunkHeader) -> io::Result<usize> {
        let opened = match self.open(at, header) {
            Ok(opened) => opened,
            Err(end) => {
                self.report.chunks += 1;
                self.report.unread += (end - at) as u64;
                return Ok(end);
            }
        };
        self.report.chunks += 1;
        self.report.unread += opened.scanned.unread.iter().map(|range| range.len() as u64).sum::<u64>();
        let end = opened.scanned.end;
        let picked = self.pick(&opened, None);
        let dropped = self.scope.range.is_some() && !picked.any;
        self.count(&opened.chunk.types, &picked.shares, dropped);
        if dropped {
            if self.report.written == 0 {
                let names = picked.context.iter().filter_map(|&index| opened.chunk.types.class(index));
                self.dropped_context.extend(names.map(|class| (class.name.to_string(), at)));
            }
            return Ok(end);
        }
        if self.report.written == 0 {
            self.context(&opened.chunk.types, &picked.context)?;
        }
        self.write(&opened, picked)?;
        Ok(end)
    }

    /// Opens the chunk at `at`. Returns its end as the error if it has no metadata.
    fn open(&mut self, at: usize, header: ChunkHeader) -> Result<Opened, usize> {
        let (source, bytes) = (self.source, self.source.bytes());
        let mut scanned = scan::scan(source, &mut self.effort, at, header, None);
        let Some((_, range)) = scanned.preferred_metadata(bytes) else { return Err(scanned.end) };
        if scanned.metadata.len() > 1 {
            scanned.types = scan::parse_types(&bytes[range]).ok_or(scanned.end)?.into();
        }
        let chunk = Chunk {
            index: ChunkIndex(u32::try_from(self.report.chunks).unwrap_or(u32::MAX)),
            offset: FileOffset(scanned.start as u64),
            header: scanned.header,
            types: scanned.types.clone(),
            pools: scanned.pools(source),
        };
        let pooled = || strings(source, &scanned);
        let redaction = self.scope.redaction.as_ref();
        let rewrite = redaction.map(|redaction| Rewrite::redact(&scanned.types, redaction, pooled));
        let change = Change { rewrite: rewrite.unwrap_or_default(), ..Change::default() };
        Ok(Opened { scanned, chunk, change })
    }

    fn count(&mut self, types: &Types, shares: &[Share], dropped: bool) {
        for (class, share) in types.classes().iter().zip(shares).filter(|(_, share)| share.all > 0) {
            let sum = self.report.types.entry(class.name.to_string()).or_default();
            sum.all += share.all;
            sum.dropped += if dropped { share.all } else { share.dropped };
        }
    }

    /// Writes the context that the first retained chunk lacks; `here` are the context types that it has.
    fn context(&mut self, types: &Types, here: &HashSet<ClassIndex>) -> io::Result<()> {
        let mut dropped_context = std::mem::take(&mut self.dropped_context);
        for class in here.iter().filter_map(|&index| types.class(index)) {
            dropped_context.remove(&*class.name);
        }
        let starts: BTreeSet<usize> = dropped_context.values().copied().collect();
        for at in starts {
            let Some(header) = scan::header_at(self.source.bytes(), at) else { continue };
            let Ok(opened) = self.open(at, header) else { continue };
            let only = dropped_context.iter().filter(|(_, start)| **start == at);
            let picked = self.pick(&opened, Some(&only.map(|(name, _)| &**name).collect()));
            for (class, share) in opened.chunk.types.classes().iter().zip(&picked.shares) {
                let retained = share.all - share.dropped;
                self.report.context += retained;
                if let Some(sum) = self.report.types.get_mut(&*class.name) {
                    sum.dropped = sum.dropped.saturating_sub(retained);
                }
            }
            self.write(&opened, picked)?;
            self.source.release(opened.scanned.start..opened.scanned.end);
        }
        Ok(())
    }

    fn write(&mut self, opened: &Opened, picked: Picked) -> io::Result<()> {
        let scanned = &opened.scanned;
        let bytes = self.source.bytes();
        let Some((_, range)) = scanned.preferred_metadata(bytes) else { return Ok(()) };
        let mut header = header(&scanned.header, scanned, picked.last);
        if let Some((from, to)) = self.scope.range {
            narrow(&mut header, from, to);
        }
        header = self.starts.moved(&header).unwrap_or(header);
        let content = bytes.slice(range);
        let id = self.ids.other(&content);
        let content = metadata(&content, &scanned.types, id, &opened.change.type_ids);
        let plan = Plan {
            header,
            metadata: &content,
            retained: picked.retained,
            used: picked.used.as_ref(),
            change: &opened.change,
        };
        let rebuilt = rebuild(self.source, scanned, plan);
        self.report.written += 1;
        self.report.output += rebuilt.size();
        self.report.redacted += picked.redacted;
        rebuilt.write(self.out)
    }

    /// Decides on every event. With `only`, only context events of these types are retained.
    fn pick(&mut self, opened: &Opened, only: Option<&HashSet<&str>>) -> Picked {
        let Opened { scanned, chunk, change } = opened;
        let (bytes, types) = (self.source.bytes(), &*chunk.types);
        let mut picked =
            Picked { shares: vec![Share::default(); types.classes().len()], ..Picked::default() };
        let mut marks = Marks { rewrite: &change.rewrite, used: HashSet::new(), todo: Vec::new() };
        let mut made = Vec::new();
        for event in scanned.events(self.source) {
            let index = types.class_index(event.type_id);
            let of_type = index.and_then(|index| Some((index, types.class(index)?)));
            let (Some((index, class)), true) = (of_type, event.type_id > u64::from(CHECKPOINT_EVENT.0))
            else {
                picked.retained.push(None);
                continue;
            };
            let payload = &bytes[event.payload..event.end];
            let size = (event.end - event.start) as u32;
            let offset = event.start as u64;
            let of_event = EventRef { chunk, class, index, payload, tail: payload, offset, size };
            let sound = scan::decodes(bytes, types, &event) == Some(true);
            let mut decision = if sound { (self.decide)(&of_event) } else { Decision::Drop };
            if only.is_some_and(|only| decision != Decision::Context || !only.contains(&*class.name)) {
                decision = Decision::Drop;
            }
            if let Some(share) = picked.shares.get_mut(index.index()) {
                share.all += 1;
                share.dropped += u64::from(decision == Decision::Drop);
            }
            if sound {
                let (start, duration) = times(bytes, types, &event);
                picked.last = picked.last.max(Some(start.saturating_add(duration.max(0))));
            }
            match decision {
                Decision::Keep => picked.any = true,
                Decision::Context => drop(picked.context.insert(index)),
                Decision::Drop => {
                    picked.retained.push(None);
                    continue;
                }
            }
            made.clear();
            if change.rewrite.touches(index) {
                picked.redacted +=
                    change.rewrite.event(types, index, bytes, &event, &mut made).unwrap_or_default();
                picked.retained.push(Some(made.len()));
            } else {
                picked.retained.push(Some(event.end - event.start));
            }
            if !self.scope.all_constants {
                marks.value(types, index, payload);
            }
        }
        if !self.scope.all_constants {
            picked.used = Some(marks.complete(types, &chunk.pools));
            self.source.release(scanned.start..scanned.end);
        }
        picked
    }
}

#[derive(Default)]
struct Picked {
    retained: RetainedEvents,
    used: Option<HashSet<Key>>,
    /// An event other than context is retained.
    any: bool,
    /// The types of retained context.
    context: HashSet<ClassIndex>,
    last: Option<i64>,
    /// Statistics by class.
    shares: Vec<Share>,
    redacted: u64,
}

/// The constants that are needed by the values that will be written.
struct Marks<'a> {
    rewrite: &'a Rewrite,
    used: HashSet<Key>,
    todo: Vec<Key>,
}

impl Marks<'_> {
    fn value(&mut self, types: &Types, class: ClassIndex, bytes: &[u8]) {
        let mut refer = |class, key| {
            if self.used.insert((class, key)) {
                self.todo.push((class, key));
            }
        };
        let mut made = Vec::new();
        let mut bytes = bytes;
        if self.rewrite.touches(class) {
            // Up to the end of the constant: the bytes after it do not belong to it.
            let mut cursor = Cursor::new(bytes);
            let whole = crate::types::layout::skip_value(types.classes(), class, &mut cursor).is_ok();
            let read = whole.then(|| self.rewrite.value(types, class, &bytes[..cursor.pos()], &mut made));
            if !matches!(read, Some(Ok(_))) {
                return;
            }
            bytes = &made;
        }
        // A value that cannot be read refers to no constant.
        let _ = references::each(types, class, &mut Cursor::new(bytes), &mut refer);
    }

    fn complete(mut self, types: &Types, pools: &Pools) -> HashSet<Key> {
        while let Some((class, key)) = self.todo.pop() {
            if let Some(raw) = pools.get(class, key) {
                self.value(types, class, raw.bytes);
            }
        }
        self.used
    }
}

/// Narrows the interval of a header to `from..to`. Start and ticks stay on the same line, because the JDK
/// applies the first chunk's line to all.
fn narrow(header: &mut ChunkHeader, from: i64, to: i64) {
    let end = header.start_nanos.saturating_add(header.duration_nanos);
    let (step_ticks, step_nanos) = step(header);
    // An event in the range may have been written in a chunk that began after it.
    let steps = match header.start_nanos {
        start if start < from => from.saturating_sub(start) / step_nanos,
        start if start >= to => -(start.saturating_sub(to) / step_nanos + 1),
        _ => 0,
    };
    let ticks = i128::from(steps) * i128::from(step_ticks) + i128::from(header.start_ticks.0);
    if let Ok(ticks) = i64::try_from(ticks) {
        header.start_ticks = Ticks(ticks);
        header.start_nanos += steps * step_nanos;
    }
    header.duration_nanos = end.min(to).saturating_sub(header.start_nanos).max(0);
}

/// Returns the first and last nanosecond since 1970 of a recording, by its headers; by the events if a header
/// was never completed. `None` without a chunk.
pub fn time_range(source: &Source) -> Option<(i64, i64)> {
    let bytes = source.bytes();
    let mut effort = Effort::default();
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
            source.release(at..end);
            at = end;
            continue;
        }
        let scanned = scan::scan(source, &mut effort, at, head, None);
        let ends = scanned
            .events(source)
            .filter(|e| e.type_id > 1)
            .filter(|e| scan::decodes(bytes, &scanned.types, e) == Some(true));
        let last = ends
            .map(|event| {
                let (start, duration) = times(bytes, &scanned.types, &event);
                start.saturating_add(duration.max(0))
            })
            .max();
        add(&header(&head, &scanned, last));
        source.release(at..scanned.end);
        at = scanned.end;
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ChunkOffset;

    fn narrowed(start: i64, from: i64, to: i64) -> [i64; 3] {
        let mut header = ChunkHeader {
            major: 2,
            minor: 1,
            size: 0,
            checkpoint: ChunkOffset(0),
            metadata: ChunkOffset(0),
            start_nanos: start,
            duration_nanos: 1_000,
            start_ticks: Ticks(10 * start),
            ticks_per_second: 10_000_000_000,
            state: 0,
            flags: 0,
        };
        narrow(&mut header, from, to);
        assert_eq!(header.start_ticks.0, 10 * header.start_nanos, "on one line");
        [header.start_nanos, header.duration_nanos, header.start_nanos + header.duration_nanos]
    }

    /// Also a chunk that began after the range and contains events of it: a duration of 0 would mean that it
    /// is unknown.
    #[test]
    fn narrowed_chunk_header_lies_within_range() {
        assert_eq!(narrowed(5_000, 4_000, 9_000), [5_000, 1_000, 6_000]);
        assert_eq!(narrowed(5_000, 5_400, 5_600), [5_400, 200, 5_600]);
        assert_eq!(narrowed(5_000, 3_000, 4_000), [3_999, 1, 4_000]);
        assert_eq!(narrowed(5_000, 3_000, 5_000), [4_999, 1, 5_000]);
    }
}
