//! Joins recordings, one after the other, in one file.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;

use super::clock::{Clock, Line};
use super::keys::KeySpace;
use super::metadata::{Ids, TypeSpace, id_and_tree, id_place, in_bytes, metadata};
use super::rebuild::{Change, Plan, RetainedEvents, rebuild};
use super::rewrite::Rewrite;
use super::scan::{self, Effort, ScannedChunk};
use super::source::Source;
use super::unique_start_times::UniqueStartTimes;
use super::validation_error::validation_error;
use crate::constants::CHECKPOINT_EVENT;
use crate::header::ChunkHeader;
use crate::pool::walk_pools;
use crate::types::ClassIndex;

/// Clocks that differ by more than this are different ones: two readings of the clocks of one JVM differ by
/// microseconds.
const SAME_CLOCK: i64 = 10_000_000;
/// A chunk that starts this close to the end of the previous one, by the same clock, continues its recording.
const SAME_RECORDING: i128 = 100_000_000;
/// Maximum number of clashes that are listed individually.
const TOLD: usize = 20;

/// One recording.
#[derive(Debug)]
pub struct Part {
    /// Its name in reports.
    pub name: String,
    /// Its bytes.
    pub source: Source,
}

/// Returns the chunks of a recording: their ranges and headers, as far as the headers' sizes lead.
pub fn chunks(source: &Source) -> Vec<(Range<usize>, ChunkHeader)> {
    let bytes = source.bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(|rest| ChunkHeader::decode(rest).ok()) {
        let end = usize::try_from(header.size).ok().and_then(|size| at.checked_add(size));
        let Some(end) = end.filter(|&end| end <= bytes.len() && end >= at + crate::header::LEN) else {
            break;
        };
        out.push((at..end, header));
        source.release(at..end);
        at = end;
    }
    out
}

/// A constant with another value under the same key in the previous part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Type of the constants.
    pub type_name: String,
    /// Their key.
    pub key: u64,
    /// The part with the second value.
    pub part: String,
}

/// Data that readers get wrong in the joined file, or would have got wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Chunks whose clock differs from the first chunk's: the name of the part, and the difference in
    /// nanoseconds. The JDK applies the first chunk's clock to all.
    pub clocks: Vec<(String, i64)>,
    /// Number of constants that clash between one part and the next: the JDK shows the values of the former.
    pub clashes: u64,
    /// The first clashes.
    pub examples: Vec<Clash>,
    /// Number of metadata ids changed, because the same id declared other types: the JDK would have lost
    /// events.
    pub metadata_ids: u64,
    /// Number of chunks that got their own type ids and the first part's clock, so that neither constants nor
    /// clocks of other recordings affect them.
    pub rebased: u64,
    /// Parts that are not sound, with the reason: repair them first.
    pub unsound: Vec<(String, &'static str)>,
}

impl Conflicts {
    /// Returns true if all readers read the result in the same way.
    pub fn none(&self) -> bool {
        self.clocks.is_empty() && self.clashes == 0 && self.unsound.is_empty()
    }
}

/// Returns true if a part continues the recording of the previous part: the same clock, and no gap. Then it
/// numbers its constants and types in the same way, as readers expect.
fn continues(before: &Part, part: &Part) -> bool {
    let (before, part) = (chunks(&before.source), chunks(&part.source));
    let (Some((_, first)), Some((_, last)), Some((_, next))) = (before.first(), before.last(), part.first())
    else {
        return false;
    };
    let end = last.start_nanos.saturating_add(last.duration_nanos.max(0));
    let gap = i128::from(next.start_nanos) - i128::from(end);
    off(first, next).abs() <= SAME_CLOCK && gap.abs() <= SAME_RECORDING
}

/// Writes the parts one after the other, in the given order. No byte changes, except metadata ids that
/// declare different types, and starts of chunks in the same nanosecond as another one.
///
/// With `rebase`, parts that do not continue the previous one get new ids: the metadata's, and those of all
/// types that have constants or whose id is used for another type. Their ticks are converted to the clock of
/// the first part, to the nanosecond if its resolution allows that. The JDK's readers also look up constants
/// by type id and key in the previous chunk, and apply the first chunk's clock to all chunks (JDK 25, for any
/// metadata id). With new ids and a common clock, chunks of different recordings are read correctly. Stacks
/// and methods get keys above those of the previous recordings, because Pyroscope identifies them by the keys
/// alone. No event, constant or time changes.
///
/// # Errors
/// Those of `out`.
pub fn assemble(parts: &[Part], rebase: bool, out: &mut dyn Write) -> io::Result<Conflicts> {
    let mut joined = Joined { rebase, ..Joined::default() };
    let follows: Vec<bool> = (0..parts.len()).map(|i| i > 0 && continues(&parts[i - 1], &parts[i])).collect();
    for (i, part) in parts.iter().enumerate() {
        let compare = !follows[i] || follows.get(i + 1) == Some(&false);
        joined.part(part, follows[i], compare, out)?;
    }
    Ok(joined.conflicts)
}

#[derive(Default)]
struct Joined {
    rebase: bool,
    conflicts: Conflicts,
    ids: Ids,
    /// Metadata of the current recording, and its new ids.
    new_ids: HashMap<(u64, Bytes), u64>,
    space: TypeSpace,
    keys: KeySpace,
    /// A recording precedes the current one.
    other: bool,
    /// The first chunk of the whole result, and of the current recording.
    first: Option<ChunkHeader>,
    recording: Option<ChunkHeader>,
    before: Constants,
    starts: UniqueStartTimes,
    hash: RandomState,
}

impl Joined {
    fn part(&mut self, part: &Part, follows: bool, compare: bool, out: &mut dyn Write) -> io::Result<()> {
        let (source, bytes) = (&part.source, part.source.bytes());
        if !follows {
            self.space.begin();
            self.keys.begin();
            self.new_ids.clear();
            self.recording = None;
        }
        let mut effort = Effort::default();
        let mut all = Constants::default();
        let mut at = 0;
        let mut unsound = false;
        while let Some(header) = scan::header_at(bytes, at) {
            let scanned = scan::scan(source, &mut effort, at, header, None);
            let flaw = validation_error(source, &scanned);
            if let Some(why) = flaw {
                self.conflicts.unsound.push((part.name.clone(), why));
                unsound = true;
            }
            let first = *self.first.get_or_insert(header);
            self.recording.get_or_insert(header);
            if self.rebase && flaw.is_none() {
                self.rebased(source, &scanned, out)?;
            } else {
                let off = off(&first, &header);
                let clocks = &mut self.conflicts.clocks;
                if off.abs() > SAME_CLOCK && clocks.last().is_none_or(|(name, _)| *name != part.name) {
                    clocks.push((part.name.clone(), off));
                }
                if compare {
                    all.note(source, &scanned, &self.hash);
                }
                let header = self.starts.moved(&header).filter(|_| flaw.is_none());
                self.conflicts.metadata_ids += copy(source, &scanned, header, &mut self.ids, out)?;
            }
            source.release(at..scanned.end);
            at = scanned.end;
            source.report_progress(at);
        }
        source.copy(at..bytes.len(), out)?;
        if !follows && (!self.rebase || unsound) {
            self.before.clashes(&all, &part.name, &mut self.conflicts);
        }
        self.before = all;
        self.other = true;
        Ok(())
    }

    /// Writes a sound chunk with its recording's own ids; the first recording does not change.
    fn rebased(&mut self, source: &Source, scanned: &ScannedChunk, out: &mut dyn Write) -> io::Result<()> {
        let Some((_, range)) = scanned.preferred_metadata(source.bytes()) else { return Ok(()) };
        let content = source.bytes().slice(range);
        let mut pooled = HashSet::new();
        for checkpoint in &scanned.checkpoints {
            let note = |class: ClassIndex, key, _: Range<usize>| {
                let Some(class) = scanned.types.class(class) else { return };
                pooled.insert(class.id);
                self.keys.note(&class.name, key);
            };
            // Constants that cannot be read have been reported as damage.
            let _ = walk_pools(&scanned.types, &source.bytes()[checkpoint.payload.clone()], note, |_| {});
        }
        let type_ids = self.space.enter(&scanned.types, &pooled);
        if !self.other {
            let header = self.starts.moved(&scanned.header);
            self.conflicts.metadata_ids += copy(source, scanned, header, &mut self.ids, out)?;
            return Ok(());
        }
        let known = id_and_tree(&content);
        let id = match known.as_ref().and_then(|known| self.new_ids.get(known)) {
            Some(&id) => Some(id),
            None => self.ids.unused(),
        };
        self.new_ids.extend(known.zip(id));
        let content = metadata(&content, &scanned.types, id, &type_ids);
        let clock = self.clock(&scanned.header);
        let header = clock.map_or(scanned.header, |clock| clock.header(&scanned.header));
        let header = self.starts.moved(&header).unwrap_or(header);
        let rewrite = Rewrite::renumber(&scanned.types, clock, &type_ids, self.keys.shift());
        let change = Change { rewrite, type_ids, keys: self.keys.shift(), ..Change::default() };
        let mut retained = RetainedEvents::default();
        let mut made = Vec::new();
        for event in scanned.events(source) {
            made.clear();
            let changed = change.event(&scanned.types, source.bytes(), &event, &mut made);
            let size = if changed { made.len() } else { event.end - event.start };
            retained.push((event.type_id > u64::from(CHECKPOINT_EVENT.0)).then_some(size));
        }
        let plan = Plan { header, metadata: &content, retained, used: None, change: &change };
        self.conflicts.rebased += 1;
        rebuild(source, scanned, plan).write(out)
    }
}

impl Joined {
    /// Conversion from the clock of the current recording, which the JDK applies to all its chunks, to that
    /// of the first recording.
    fn clock(&self, header: &ChunkHeader) -> Option<Clock> {
        let same = |other: &ChunkHeader| other.ticks_per_second == header.ticks_per_second;
        let own = self.recording.filter(same).unwrap_or(*header);
        Clock::new(Line::new(&own), Line::new(&self.first?))
    }
}

/// Returns the deviation of the first chunk's clock at the start of another chunk.
fn off(first: &ChunkHeader, header: &ChunkHeader) -> i64 {
    if first.ticks_per_second != header.ticks_per_second {
        return i64::MAX;
    }
    let ticks = i128::from(header.start_ticks.0) - i128::from(first.start_ticks.0);
    let nanos = ticks * 1_000_000_000 / i128::from(first.frequency());
    let off = i128::from(first.start_nanos) + nanos - i128::from(header.start_nanos);
    off.clamp(i128::from(-i64::MAX), i128::from(i64::MAX)) as i64
}

/// Copies a chunk, with another header if there is one. Returns the number of metadata ids that were changed.
fn copy(
    source: &Source,
    scanned: &ScannedChunk,
    header: Option<ChunkHeader>,
    ids: &mut Ids,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let bytes = source.bytes();
    let mut at = scanned.start;
    if let Some(header) = header {
        out.write_all(&header.encode())?;
        at += crate::header::LEN;
    }
    let mut changed = 0;
    if let Some((_, range)) = scanned.preferred_metadata(bytes) {
        let content = bytes.slice(range.clone());
        let new = ids.other(&content).zip(id_place(&content));
        let new = new.and_then(|(id, place)| Some((in_bytes(id, place.len())?, place)));
        if let Some((id, place)) = new {
            source.copy(at..range.start + place.start, out)?;
            out.write_all(&id)?;
            at = range.start + place.end;
            changed = 1;
        }
    }
    source.copy(at..scanned.end, out)?;
    Ok(changed)
}

/// Hashes of the values of all constants of a part, by type name and key.
#[derive(Default)]
struct Constants(HashMap<String, HashMap<u64, u64>>);

impl Constants {
    fn note(&mut self, source: &Source, scanned: &ScannedChunk, hash: &RandomState) {
        let mut behind = source.behind(scanned.start);
        for checkpoint in &scanned.checkpoints {
            behind.at(checkpoint.at);
            let payload = &source.bytes()[checkpoint.payload.clone()];
            let note = |class: ClassIndex, key, value: Range<usize>| {
                let Some(class) = scanned.types.class(class) else { return };
                // Copies of the header are not constants.
                if &*class.name == "jdk.types.ChunkHeader" {
                    return;
                }
                if !self.0.contains_key(&*class.name) {
                    self.0.insert(class.name.to_string(), HashMap::new());
                }
                if let Some(of_type) = self.0.get_mut(&*class.name) {
                    of_type.insert(key, hash.hash_one(&payload[value]));
                }
            };
            // Constants that cannot be read have been reported as damage.
            let _ = walk_pools(&scanned.types, payload, note, |_| {});
        }
    }

    fn clashes(&self, next: &Constants, part: &str, conflicts: &mut Conflicts) {
        let mut names: Vec<&String> = next.0.keys().collect();
        names.sort();
        for name in names {
            let (Some(before), Some(now)) = (self.0.get(name), next.0.get(name)) else { continue };
            let differ = |(key, value): &(&u64, &u64)| before.get(key).is_some_and(|old| old != *value);
            let mut keys: Vec<u64> = now.iter().filter(differ).map(|(key, _)| *key).collect();
            keys.sort_unstable();
            conflicts.clashes += keys.len() as u64;
            let room = TOLD - conflicts.examples.len();
            conflicts.examples.extend(keys.into_iter().take(room).map(|key| Clash {
                type_name: name.clone(),
                key,
                part: part.to_owned(),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::references;
    use super::*;
    use crate::cursor::Cursor;

    const OF_STACKS: [&str; 2] = ["jdk.types.StackTrace", "jdk.types.Method"];

    /// Returns, for each chunk, the keys of stacks and methods, and the number of references to keys that are
    /// missing.
    fn keys(bytes: Bytes) -> Vec<([HashSet<u64>; 2], usize)> {
        let source = Source::from(bytes);
        let (mut at, mut chunks) = (0, Vec::new());
        while let Some(header) = scan::header_at(source.bytes(), at) {
            let scanned = scan::scan(&source, &mut Effort::default(), at, header, None);
            let types = &scanned.types;
            let of =
                |class: ClassIndex| OF_STACKS.iter().position(|of| **of == *types.class(class).unwrap().name);
            let (mut there, mut referred) = (<[HashSet<u64>; 2]>::default(), Vec::new());
            let mut refer = |class, key| referred.extend(of(class).filter(|_| key != 0).map(|of| (of, key)));
            for checkpoint in &scanned.checkpoints {
                let payload = &source.bytes()[checkpoint.payload.clone()];
                let entry = |class, key, value: Range<usize>| {
                    if let Some(of) = of(class) {
                        there[of].insert(key);
                    }
                    references::each(types, class, &mut Cursor::new(&payload[value]), &mut refer).unwrap();
                };
                walk_pools(types, payload, entry, |_| {}).unwrap();
            }
            for event in scanned.events(&source) {
                let Some(class) = types.class_index(event.type_id) else { continue };
                let mut cursor = Cursor::new(&source.bytes()[event.payload..event.end]);
                references::each(types, class, &mut cursor, &mut refer).unwrap();
            }
            let missing = referred.iter().filter(|(of, key)| !there[*of].contains(key)).count();
            chunks.push((there, missing));
            at = scanned.end;
        }
        chunks
    }

    #[test]
    fn stacks_and_methods_from_two_recordings_share_no_key() {
        let files = ["flightline.jfr", "ap-java-multichunk.jfr", "jdk25.jfr", "flightline.jfr"];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/");
        let parts = files.map(|name| Bytes::from(std::fs::read(format!("{folder}{name}")).unwrap()));
        let before: Vec<_> = parts.iter().map(|part| keys(part.clone())).collect();
        let part = |(name, bytes): (&str, Bytes)| Part { name: name.to_owned(), source: bytes.into() };
        let named: Vec<Part> = files.into_iter().zip(parts).map(part).collect();
        let mut out = Vec::new();
        assemble(&named, true, &mut out).unwrap();
        let after = keys(out.into());
        assert_eq!(after.len(), before.iter().map(Vec::len).sum::<usize>());
        let mut taken = <[HashSet<u32>; 2]>::default();
        let mut chunks = after.into_iter();
        for (name, before) in files.iter().zip(before) {
            let mut own = <[HashSet<u32>; 2]>::default();
            for ((old, unresolved), (new, still)) in before.into_iter().zip(&mut chunks) {
                assert_eq!(new.each_ref().map(HashSet::len), old.map(|keys| keys.len()), "{name}");
                assert_eq!(still, unresolved, "{name}: what events and constants refer to");
                own.iter_mut().zip(new).for_each(|(own, new)| own.extend(new.iter().map(|&key| key as u32)));
            }
            for (own, taken) in own.into_iter().zip(&mut taken) {
                assert!(!own.is_empty() && own.is_disjoint(taken), "{name}");
                taken.extend(own);
            }
        }
    }
}
