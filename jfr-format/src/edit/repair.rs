//! Writes the readable rest of a recording as a standard file.
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

/// Maximum plausible duration of a chunk if only its events indicate it: ten years.
const LONGEST: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Options of a repair.
#[derive(Debug, Default)]
pub struct Options {
    /// Another recording of the same producer, for its metadata if the input has none.
    pub metadata_from: Option<Source>,
    /// Drop events that refer to missing constants.
    pub drop_unresolved: bool,
}

/// Reason why bytes are not in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Before the first chunk or between chunks: no chunk header.
    NoChunk,
    /// Damage, or only the start of an event. The number of lost events is unknown.
    Unreadable,
    /// A chunk without metadata, and no metadata from another source.
    NoMetadata,
    /// An event whose fields do not end at its size.
    BadEvent,
    /// An event of an undeclared type.
    UnknownType,
    /// An event that refers to missing constants.
    Unresolved,
}

impl Cause {
    /// Returns a description.
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

/// The data dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of events, as far as it is known.
    pub events: u64,
    /// The first ranges of the input, merged.
    pub ranges: Vec<Range<u64>>,
}

/// Maximum number of ranges in a report.
const RANGES: usize = 100;
/// Number of chunks that get metadata from another source regardless of its size. More do as long as all of
/// it is smaller than the input. Otherwise a file of bare headers would become a huge one.
const BORROWERS: u64 = 4;

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Size of the input in bytes.
    pub input: u64,
    /// Size of the result in bytes.
    pub output: u64,
    /// Number of sound chunks, which were copied unchanged.
    pub copied: u64,
    /// Rebuilt chunks: their offset and the reason.
    pub rebuilt: Vec<(u64, &'static str)>,
    /// Number of events in rebuilt chunks.
    pub events: u64,
    /// Number of constants dropped from rebuilt chunks: defined twice, or referring to missing constants.
    pub constants: u64,
    /// Number of chunks with metadata from another source.
    pub borrowed: u64,
    /// The data that is not in the result.
    pub lost: BTreeMap<Cause, Lost>,
    /// Constants that events of rebuilt chunks refer to and that are missing in the result, by the name of
    /// their type.
    pub missing: BTreeMap<String, Missing>,
    /// The search for events after damage reached its limit, [`STEPS_PER_BYTE`] steps for each byte of input.
    /// From there on, sizes of events were trusted.
    pub gave_up: bool,
}

/// Constants of one type that events refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Number of events that refer to a missing constant of the type.
    pub events: u64,
    /// Number of events that refer to any constant of the type.
    pub of: u64,
}

impl Repaired {
    /// Returns true if the result equals the input, byte for byte.
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

/// Writes the longest standard recording that the input contains. Sound chunks are copied unchanged; others
/// are rebuilt with all their complete events and constants. Without any chunk, `out` stays empty.
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
        let mut scanned = scan::scan(source, &mut effort, at, header, types.as_ref());
        chunk(source, &mut scanned, options, &mut sources, &mut report, out)?;
        source.release(at..scanned.end);
        at = scanned.end;
        source.report_progress(at);
    }
    Ok(report)
}

/// Fallback metadata, and the metadata ids assigned so far.
struct Sources {
    fallback: Option<Metadata>,
    ids: Ids,
    /// Number of chunks that got the fallback metadata, and its total size.
    borrowers: u64,
    borrowed: u64,
}

/// Metadata and the types that it declares.
#[derive(Clone)]
struct Metadata {
    content: Bytes,
    types: Arc<Types>,
}

impl Sources {
    fn new(options: &Options) -> Self {
        let fallback = options.metadata_from.as_ref().and_then(|source| {
            let bytes = source.bytes();
            let scanned = scan::scan(source, &mut Effort::default(), 0, scan::header_at(bytes, 0)?, None);
            let (_, range) = scanned.preferred_metadata(bytes)?;
            let content = bytes.slice(range);
            source.release(0..bytes.len());
            Some(Metadata { types: Arc::new(parse_types(&content)?), content })
        });
        Self { fallback, ids: Ids::default(), borrowers: 0, borrowed: 0 }
    }

    /// Returns the fallback, as long as it has not been used too often.
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
    scanned: &mut ScannedChunk,
    options: &Options,
    sources: &mut Sources,
    report: &mut Repaired,
    out: &mut dyn Write,
) -> io::Result<()> {
    let bytes = source.bytes();
    let own = scanned.preferred_metadata(bytes).and_then(|(_, range)| {
        let content = bytes.slice(range);
        let types = if scanned.metadata.len() == 1 {
            scanned.types.clone()
        } else {
            Arc::new(parse_types(&content)?)
        };
        Some(Metadata { content, types })
    });
    let lent = if own.is_none() { sources.borrow(bytes.len()) } else { None };
    let Some(known) = own.clone().or(lent) else {
        let events = scanned.events(source).filter(|e| e.type_id > 1).count() as u64;
        report.lose(Cause::NoMetadata, scanned.start..scanned.end, events);
        return Ok(());
    };
    let id = sources.ids.other(&known.content);
    let why = validation_error(source, scanned)
        .or(id.map(|_| "other types under the metadata id of an earlier chunk"));
    if own.is_some() {
        sources.fallback = Some(known.clone());
    }
    let Some(why) = why else {
        report.copied += 1;
        report.output += (scanned.end - scanned.start) as u64;
        return source.copy(scanned.start..scanned.end, out);
    };
    // Constants of types that only another metadata event declared would have no type.
    scanned.types = known.types.clone();
    report.borrowed += u64::from(own.is_none());
    report.rebuilt.push((scanned.start as u64, why));
    for range in &scanned.unread {
        report.lose(Cause::Unreadable, range.clone(), 0);
    }
    let (retained, last) = retained_events(source, scanned, options, report);
    let header = header(&scanned.header, scanned, last);
    let content = metadata(&known.content, &known.types, id, &TypeIds::new());
    let plan = Plan { header, metadata: &content, retained, used: None, change: &Change::default() };
    let rebuilt = rebuild(source, scanned, plan);
    report.gave_up |= scanned.gave_up;
    count_missing(source, scanned, &rebuilt, report);
    report.output += rebuilt.size();
    report.constants += rebuilt.dropped_constants;
    rebuilt.write(out)
}

/// Counts the constants that events of a rebuilt chunk refer to and that are missing in it.
fn count_missing(source: &Source, scanned: &ScannedChunk, rebuilt: &Rebuilt<'_>, report: &mut Repaired) {
    let (bytes, types) = (source.bytes(), &*scanned.types);
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
        // The event's fields have been read before.
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

/// Returns the retained events, and the last tick that any of them contains.
fn retained_events(
    source: &Source,
    scanned: &ScannedChunk,
    options: &Options,
    report: &mut Repaired,
) -> (RetainedEvents, Option<i64>) {
    let (bytes, types) = (source.bytes(), &*scanned.types);
    let mut retained = RetainedEvents::default();
    let mut last = None;
    let pools = options.drop_unresolved.then(|| scanned.pools(source));
    for event in scanned.events(source) {
        if event.type_id <= u64::from(CHECKPOINT_EVENT.0) {
            retained.push(None);
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
                retained.push(None);
                report.lose(cause, event.start..event.end, 1);
            }
            None => {
                let (start, duration) = times(bytes, types, &event);
                let end = start.saturating_add(duration.max(0));
                last = last.max(Some(end));
                report.events += 1;
                retained.push(Some(event.end - event.start));
            }
        }
    }
    (retained, last)
}

/// Returns start and duration of an event in ticks; 0 if it has none.
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

/// Returns the old header. If it was never completed, the events determine its duration.
pub(super) fn header(header: &ChunkHeader, scanned: &ScannedChunk, last: Option<i64>) -> ChunkHeader {
    let mut header = *header;
    let complete = scanned.whole && header.state == STATE_FINISHED && header.duration_nanos > 0;
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
