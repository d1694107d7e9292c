//! Whatever is left of a recording as a standard file.
//!
//! Sound chunks are copied byte for byte. In a rebuilt chunk, the bytes of events and constants are unchanged
//! unless `rewrite.rs` replaces text, type ids or ticks. The reader has no warnings about the result, and
//! repairing it again changes nothing; the fuzz target `edit` checks both.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::metadata::{Ids, TypeIds, metadata};
use super::rebuild::{Change, Plan, Rebuilt, RetainedEvents, rebuild};
use super::references;
use super::scan::{self, Effort, Framed, ScannedChunk, parse_types};
use super::source::Source;
use super::validation_error::validation_error;
use crate::constants::*;
use crate::cursor::Cursor;
use crate::header::ChunkHeader;
pub use crate::read::resync::STEPS_PER_BYTE;
use crate::types::{ClassIndex, Types};

/// Longest chunk believed when its duration is told by its events alone: ten years.
const LONGEST: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// How to repair.
#[derive(Debug, Default)]
pub struct Options {
    /// Another recording of the same producer, for its metadata where the input has none.
    pub metadata_from: Option<Source>,
    /// Leave out events that refer to constants which never came.
    pub drop_unresolved: bool,
}

/// Why bytes are not in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// In front of the first chunk or between chunks: no chunk header.
    NoChunk,
    /// Damage, or only the start of an event. The number of events that were there is not known.
    Unreadable,
    /// A chunk without metadata, here or elsewhere.
    NoMetadata,
    /// An event whose fields do not end at its size.
    BadEvent,
    /// An event of a type that nobody declared.
    UnknownType,
    /// An event that refers to constants which never came.
    Unresolved,
}

impl Cause {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoChunk => "outside any chunk",
            Self::Unreadable => "damaged or torn, number of events unknown",
            Self::NoMetadata => "chunk without metadata",
            Self::BadEvent => "event whose fields do not end at its size",
            Self::UnknownType => "event of an undeclared type",
            Self::Unresolved => "event without its constants",
        }
    }
}

/// What was dropped for one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes in all.
    pub bytes: u64,
    /// Events in all, where they could be told.
    pub events: u64,
    /// The first ranges of the input, joined.
    pub ranges: Vec<Range<u64>>,
}

/// Ranges kept in a report.
const RANGES: usize = 100;
/// Chunks that get metadata from elsewhere whatever its size; more do as long as all of it is shorter than the input. A
/// file of bare headers would become a huge one.
const BORROWERS: u64 = 4;

/// What repair did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Bytes of the input.
    pub input: u64,
    /// Bytes of the result.
    pub output: u64,
    /// Chunks that were sound and were copied as they are.
    pub copied: u64,
    /// Chunks written anew: where they start and why.
    pub rebuilt: Vec<(u64, &'static str)>,
    /// Events in rebuilt chunks.
    pub events: u64,
    /// Constants left out of rebuilt chunks: defined twice, or referring to what never came.
    pub constants: u64,
    /// Chunks that took their metadata from elsewhere.
    pub borrowed: u64,
    /// What is not in the result.
    pub lost: BTreeMap<Cause, Lost>,
    /// Constants that events of rebuilt chunks refer to and that are not in the result, by the name of their type.
    pub missing: BTreeMap<String, Missing>,
    /// The search for events behind damage reached its limit, [`STEPS_PER_BYTE`] steps for each byte of input. From there
    /// on, sizes of events were believed.
    pub gave_up: bool,
}

/// Constants of one type that events refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Events that refer to a constant which is not in the result.
    pub events: u64,
    /// Events that refer to a constant of this type.
    pub of: u64,
}

impl Repaired {
    /// Whether the result is the input, byte for byte.
    pub fn unchanged(&self) -> bool {
        self.rebuilt.is_empty() && self.lost.is_empty()
    }

    fn lose(&mut self, cause: Cause, range: Range<usize>, events: u64) {
        let lost = self.lost.entry(cause).or_default();
        lost.bytes += range.len() as u64;
        lost.events += events;
        let range = range.start as u64..range.end as u64;
        let room = lost.ranges.len() < RANGES;
        match lost.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if room => lost.ranges.push(range),
            _ => {}
        }
    }
}

/// Writes the longest standard recording that the input holds. Sound chunks are copied as they are; others are written
/// anew with all their whole events and constants. No chunk at all leaves `out` empty.
///
/// # Errors
/// Those of `out`.
pub fn repair(source: &Source, options: &Options, out: &mut dyn Write) -> io::Result<Repaired> {
    let bytes = source.bytes();
    let mut effort = Effort::default();
    let mut report = Repaired { input: bytes.len() as u64, ..Repaired::default() };
    let mut sources = Sources::new(options);
    let mut at = 0;
    while at < bytes.len() {
        let Some(header) = scan::header_at(bytes, at) else {
            let next = scan::next_header(bytes, at + 1).unwrap_or(bytes.len());
            report.lose(Cause::NoChunk, at..next, 0);
            at = next;
            continue;
        };
        let types = sources.fallback.as_ref().map(|known| known.types.clone());
        let mut found = scan::scan(source, &mut effort, at, header, types.as_ref());
        chunk(source, &mut found, options, &mut sources, &mut report, out)?;
        source.release(at..found.end);
        at = found.end;
        source.report_progress(at);
    }
    Ok(report)
}

/// Metadata to fall back to, and the ids given to metadata so far.
struct Sources {
    fallback: Option<Metadata>,
    ids: Ids,
    /// Chunks that got the fallback's metadata, and its bytes in all.
    borrowers: u64,
    borrowed: u64,
}

/// Metadata and what it declares.
#[derive(Clone)]
struct Metadata {
    content: Bytes,
    types: Arc<Types>,
}

impl Sources {
    fn new(options: &Options) -> Self {
        let fallback = options.metadata_from.as_ref().and_then(|source| {
            let bytes = source.bytes();
            let found = scan::scan(source, &mut Effort::default(), 0, scan::header_at(bytes, 0)?, None);
            let (_, range) = found.preferred_metadata(bytes)?;
            let content = bytes.slice(range);
            source.release(0..bytes.len());
            Some(Metadata { types: Arc::new(parse_types(&content)?), content })
        });
        Self { fallback, ids: Ids::default(), borrowers: 0, borrowed: 0 }
    }

    /// The fallback, as long as not too much has been made of it.
    fn borrow(&mut self, input: usize) -> Option<Metadata> {
        let known = self.fallback.clone()?;
        let borrowed = self.borrowed + known.content.len() as u64;
        if self.borrowers >= BORROWERS && borrowed > input as u64 {
            return None;
        }
        (self.borrowers, self.borrowed) = (self.borrowers + 1, borrowed);
        Some(known)
    }
}

fn chunk(
    source: &Source,
    found: &mut ScannedChunk,
    options: &Options,
    sources: &mut Sources,
    report: &mut Repaired,
    out: &mut dyn Write,
) -> io::Result<()> {
    let bytes = source.bytes();
    let own = found.preferred_metadata(bytes).and_then(|(_, range)| {
        let content = bytes.slice(range);
        let types =
            if found.metadata.len() == 1 { found.types.clone() } else { Arc::new(parse_types(&content)?) };
        Some(Metadata { content, types })
    });
    let lent = if own.is_none() { sources.borrow(bytes.len()) } else { None };
    let Some(known) = own.clone().or(lent) else {
        let events = found.events(source).filter(|e| e.type_id > 1).count() as u64;
        report.lose(Cause::NoMetadata, found.start..found.end, events);
        return Ok(());
    };
    let id = sources.ids.other(&known.content);
    let why = validation_error(source, found)
        .or(id.map(|_| "other types under the metadata id of an earlier chunk"));
    if own.is_some() {
        sources.fallback = Some(known.clone());
    }
    let Some(why) = why else {
        report.copied += 1;
        report.output += (found.end - found.start) as u64;
        return source.copy(found.start..found.end, out);
    };
    // Constants of types that another metadata event declared alone would have no type.
    found.types = known.types.clone();
    report.borrowed += u64::from(own.is_none());
    report.rebuilt.push((found.start as u64, why));
    for range in &found.unread {
        report.lose(Cause::Unreadable, range.clone(), 0);
    }
    let (kept, last) = retained_events(source, found, options, report);
    let header = header(&found.header, found, last);
    let content = metadata(&known.content, &known.types, id, &TypeIds::new());
    let plan = Plan { header, metadata: &content, kept, used: None, change: &Change::default() };
    let rebuilt = rebuild(source, found, plan);
    report.gave_up |= found.gave_up;
    count_missing(source, found, &rebuilt, report);
    report.output += rebuilt.size();
    report.constants += rebuilt.dropped_constants;
    rebuilt.write(out)
}

/// Counts the constants that events of a rebuilt chunk refer to and that are not in it.
fn count_missing(source: &Source, found: &ScannedChunk, rebuilt: &Rebuilt<'_>, report: &mut Repaired) {
    let (bytes, types) = (source.bytes(), &*found.types);
    let mut counts: BTreeMap<ClassIndex, Missing> = BTreeMap::new();
    let mut references: Vec<(ClassIndex, bool)> = Vec::new();
    for event in rebuilt.retained_events() {
        let Some(class) = types.class_index(event.type_id) else { continue };
        let payload = &bytes[event.payload..event.end];
        references.clear();
        let mut refer = |class, key| {
            if key == 0 {
                return;
            }
            let missing = !rebuilt.has_constant((class, key));
            match references.iter_mut().find(|(known, _)| *known == class) {
                Some((_, any)) => *any |= missing,
                None => references.push((class, missing)),
            }
        };
        // The event's fields have been read already.
        let _ = references::each(types, class, &mut Cursor::new(payload), &mut refer);
        for (class, missing) in &references {
            let count = counts.entry(*class).or_default();
            count.of += 1;
            count.events += u64::from(*missing);
        }
    }
    for (class, count) in counts {
        let name = types.class(class).map_or("", |class| &class.name);
        let sum = report.missing.entry(name.to_owned()).or_default();
        sum.of += count.of;
        sum.events += count.events;
    }
}

/// The events that stay, and the last tick that any of them tells of.
fn retained_events(
    source: &Source,
    found: &ScannedChunk,
    options: &Options,
    report: &mut Repaired,
) -> (RetainedEvents, Option<i64>) {
    let (bytes, types) = (source.bytes(), &*found.types);
    let mut kept = RetainedEvents::default();
    let mut last = None;
    let pools = options.drop_unresolved.then(|| found.pools(source));
    for event in found.events(source) {
        if event.type_id <= u64::from(CHECKPOINT_EVENT.0) {
            kept.push(None);
            continue;
        }
        let bad = match scan::fills(types, event.type_id, &bytes[event.payload..event.end]) {
            None => Some(Cause::UnknownType),
            Some(false) => Some(Cause::BadEvent),
            Some(true) => None,
        };
        let unresolved = || {
            let pools = pools.as_ref()?;
            let class = types.class_index(event.type_id)?;
            let mut missing = false;
            let mut refer = |class, key| missing |= key != 0 && pools.get(class, key).is_none();
            let payload = &bytes[event.payload..event.end];
            let _ = references::each(types, class, &mut Cursor::new(payload), &mut refer);
            missing.then_some(Cause::Unresolved)
        };
        match bad.or_else(unresolved) {
            Some(cause) => {
                kept.push(None);
                report.lose(cause, event.start..event.end, 1);
            }
            None => {
                let (start, duration) = times(bytes, types, &event);
                let end = start.saturating_add(duration.max(0));
                last = last.max(Some(end));
                report.events += 1;
                kept.push(Some(event.end - event.start));
            }
        }
    }
    (kept, last)
}

/// Start and duration of an event in ticks; 0 if it has none.
pub(super) fn times(bytes: &[u8], types: &Types, event: &Framed) -> (i64, i64) {
    let mut cursor = Cursor::new(&bytes[event.payload..event.end]);
    let start = cursor.varint().unwrap_or(0) as i64;
    let second = types.by_id(event.type_id).and_then(|class| class.fields.get(1));
    let duration = match second {
        Some(field) if &*field.name == "duration" => cursor.varint().unwrap_or(0) as i64,
        _ => 0,
    };
    (start, duration)
}

/// The old header; where it was never completed its duration is told by the events.
pub(super) fn header(header: &ChunkHeader, found: &ScannedChunk, last: Option<i64>) -> ChunkHeader {
    let mut header = *header;
    let complete = found.whole && header.state == STATE_FINISHED && header.duration_nanos > 0;
    if let (false, Some(last)) = (complete, last) {
        let ticks = i128::from(last) - i128::from(header.start_ticks.0);
        let per_second = i128::from(header.frequency());
        let nanos = i64::try_from(ticks * 1_000_000_000 / per_second).unwrap_or(0);
        if (1..LONGEST).contains(&nanos) {
            header.duration_nanos = header.duration_nanos.max(nanos);
        }
    }
    header
}
