//! Recordings one behind the other in one file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;

use super::repair::{Ids, id_place, in_bytes};
use super::scan::{self, Found, flaw, walk_pools};
use crate::header::ChunkHeader;

/// Clocks further apart than this are not the same: two readings of the clocks of one JVM differ by microseconds.
const SAME_CLOCK: i64 = 10_000_000;
/// A chunk that starts this near to the end of the one before, by the same clock, goes on with its recording.
const SAME_RECORDING: i128 = 100_000_000;
/// Clashes told one by one.
const TOLD: usize = 20;

/// One recording.
#[derive(Clone, Debug)]
pub struct Part {
    /// What to call it in reports.
    pub name: String,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The chunks of a recording: where they are and their headers, as far as the headers' sizes lead.
pub fn chunks(bytes: &Bytes) -> Vec<(Range<usize>, ChunkHeader)> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(|rest| ChunkHeader::decode(rest).ok()) {
        let end = usize::try_from(header.size).ok().and_then(|size| at.checked_add(size));
        let Some(end) = end.filter(|&end| end <= bytes.len() && end >= at + crate::header::LEN) else {
            break;
        };
        out.push((at..end, header));
        at = end;
    }
    out
}

/// A constant that has another value under the same key in the part before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Type of the constants.
    pub type_name: String,
    /// Their key.
    pub key: u64,
    /// The part with the second value.
    pub part: String,
}

/// What readers will get wrong in the joined file, or would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Parts of chunks whose ticks are on another line than the first chunk's, and by how many nanoseconds: the JDK
    /// applies the first chunk's line to all.
    pub clocks: Vec<(String, i64)>,
    /// How many constants clash between one part and the next: the JDK shows the former's values.
    pub clashes: u64,
    /// The first of them.
    pub examples: Vec<Clash>,
    /// Metadata ids changed, because the same id stood for other types: the JDK would have lost events.
    pub metadata_ids: u64,
    /// Parts that are not sound, and why: repair them first.
    pub unsound: Vec<(String, &'static str)>,
}

impl Conflicts {
    /// Whether all readers will read the result alike.
    pub fn none(&self) -> bool {
        self.clocks.is_empty() && self.clashes == 0 && self.unsound.is_empty()
    }
}

/// Writes the parts one behind the other, in the order given. Every byte stays, but for metadata ids that stand for
/// different types.
///
/// # Errors
/// Those of `out`.
pub fn assemble(parts: &[Part], out: &mut dyn Write) -> io::Result<Conflicts> {
    let mut conflicts = Conflicts::default();
    let mut ids = Ids::default();
    let mut first: Option<ChunkHeader> = None;
    let mut before = Constants::default();
    let mut end: Option<i64> = None;
    let hash = RandomState::new();
    for part in parts {
        let mut all = Constants::default();
        let mut at = 0;
        // One program numbers its constants anew in each chunk and readers know; another's numbers mean others.
        let mut continues = false;
        while let Some(header) = scan::header_at(&part.bytes, at) {
            let found = scan::scan(&part.bytes, at, header, None);
            if let Some(why) = flaw(&part.bytes, &found) {
                conflicts.unsound.push((part.name.clone(), why));
            }
            let line = first.get_or_insert(header);
            let off = off(line, &header);
            if off.abs() > SAME_CLOCK && conflicts.clocks.last().is_none_or(|(name, _)| *name != part.name) {
                conflicts.clocks.push((part.name.clone(), off));
            }
            if at == 0 {
                let gap = end.map(|end| i128::from(header.start_nanos) - i128::from(end));
                continues = off.abs() <= SAME_CLOCK && gap.is_some_and(|gap| gap.abs() <= SAME_RECORDING);
            }
            end = Some(header.start_nanos.saturating_add(header.duration_nanos.max(0)));
            all.note(&part.bytes, &found, &hash);
            conflicts.metadata_ids += copy(&part.bytes, &found, &mut ids, out)?;
            at = found.end;
        }
        out.write_all(&part.bytes[at..])?;
        if !continues {
            before.clashes(&all, &part.name, &mut conflicts);
        }
        before = all;
    }
    Ok(conflicts)
}

/// How far the first chunk's line is off at the start of another chunk.
fn off(first: &ChunkHeader, header: &ChunkHeader) -> i64 {
    if first.ticks_per_second != header.ticks_per_second {
        return i64::MAX;
    }
    let ticks = i128::from(header.start_ticks.0) - i128::from(first.start_ticks.0);
    let nanos = ticks * 1_000_000_000 / i128::from(first.frequency());
    let off = i128::from(first.start_nanos) + nanos - i128::from(header.start_nanos);
    off.clamp(i128::from(-i64::MAX), i128::from(i64::MAX)) as i64
}

/// Copies a chunk; gives how many metadata ids were changed.
fn copy(bytes: &Bytes, found: &Found, ids: &mut Ids, out: &mut dyn Write) -> io::Result<u64> {
    let mut at = found.start;
    let mut changed = 0;
    if let Some((_, range)) = found.metadata_of_choice(bytes) {
        let content = bytes.slice(range.clone());
        let new = ids.other(&content).zip(id_place(&content));
        let new = new.and_then(|(id, place)| Some((in_bytes(id, place.len())?, place)));
        if let Some((id, place)) = new {
            out.write_all(&bytes[at..range.start + place.start])?;
            out.write_all(&id)?;
            at = range.start + place.end;
            changed = 1;
        }
    }
    out.write_all(&bytes[at..found.end])?;
    Ok(changed)
}

/// Hashes of the values of all constants of a part, by type name and key.
#[derive(Default)]
struct Constants(HashMap<String, HashMap<u64, u64>>);

impl Constants {
    fn note(&mut self, bytes: &Bytes, found: &Found, hash: &RandomState) {
        for checkpoint in &found.checkpoints {
            let payload = &bytes[checkpoint.payload.clone()];
            let note = |class: crate::read::ClassIndex, key, value: Range<usize>| {
                let Some(class) = found.types.class(class) else { return };
                // Copies of the header are no constants.
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
            // What cannot be read has been told as a flaw.
            let _ = walk_pools(&found.types, payload, note, |_| {});
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
