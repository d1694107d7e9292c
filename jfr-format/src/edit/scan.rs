//! Finds the contents of a chunk, whatever its header says.
//!
//! A damaged size must not hide other events. The fields of each event are therefore compared with its size.
//! If they differ, events are searched inside the event, and its size is used only if sound events follow it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::source::Source;
use crate::constants::*;
use crate::cursor::Cursor;
use crate::header::{ChunkHeader, LEN};
use crate::ids::ChunkOffset;
use crate::metadata::is_filler;
use crate::pool::{CheckpointHead, Pools, walk_pools};
use crate::read::push::{MAX_EVENT, UNSIZED, trusted_end};
use crate::read::resync;
use crate::types::{Types, layout, metadata_len};

/// The cost so far of searching for events after damage, and of reading events that may be cut short, in one
/// input. The allowed cost grows with the part of the input that has been reached. So the total is linear,
/// and a damaged chunk leaves enough for those after it.
#[derive(Debug, Default)]
pub(super) struct Effort {
    spent: u64,
}

impl Effort {
    /// Runs `work` with the number of steps that it may take in a chunk up to `limit`; `work` subtracts the
    /// steps that it uses.
    fn spend<T>(&mut self, limit: usize, work: impl FnOnce(&mut u64) -> T) -> T {
        let allowed = (limit as u64).saturating_mul(resync::STEPS_PER_BYTE).saturating_sub(self.spent);
        let mut left = allowed;
        let done = work(&mut left);
        self.spent += allowed - left;
        done
    }
}

/// An event's type and range.
#[derive(Clone, Copy)]
pub(super) struct Framed {
    pub(super) type_id: u64,
    pub(super) start: usize,
    /// After size and type.
    pub(super) payload: usize,
    pub(super) end: usize,
}

/// Returns the event at `at`, if it is complete and ends by `end`.
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
    /// Offset of the event.
    pub(super) at: usize,
    /// Its bytes after the type id.
    pub(super) payload: Range<usize>,
}

/// The contents of one chunk. Positions are those of the input.
#[derive(Debug)]
pub(super) struct ScannedChunk {
    pub(super) start: usize,
    /// Start of the next chunk or of unreadable bytes.
    pub(super) end: usize,
    pub(super) header: ChunkHeader,
    pub(super) types: Arc<Types>,
    /// The readable metadata events, after their type ids, and their offsets.
    pub(super) metadata: Vec<(usize, Range<usize>)>,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Runs of consecutive complete events, including metadata and checkpoints.
    pub(super) runs: Vec<Range<usize>>,
    /// Bytes that could not be read.
    pub(super) unread: Vec<Range<usize>>,
    /// The search after damage reached its limit ([`Effort`]): sizes were trusted from there on.
    pub(super) gave_up: bool,
    /// The header's own end was reached, and every byte up to it was part of an event.
    pub(super) whole: bool,
    /// The chunk contains a metadata event that could not be read and is not a filler, or that declares types
    /// which constants before it needed.
    pub(super) bad_metadata: bool,
}

impl ScannedChunk {
    fn new(start: usize, header: ChunkHeader) -> Self {
        Self {
            start,
            end: start + LEN,
            header,
            types: Arc::default(),
            metadata: Vec::new(),
            checkpoints: Vec::new(),
            runs: Vec::new(),
            unread: Vec::new(),
            gave_up: false,
            whole: false,
            bad_metadata: false,
        }
    }

    /// Iterates over the complete events, releasing the pages that have been read.
    pub(super) fn events<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = Framed> + 'a {
        let mut behind = source.behind(self.start);
        let mut runs = self.runs.iter();
        let mut run = 0..0;
        std::iter::from_fn(move || {
            while run.is_empty() {
                run = runs.next()?.clone();
            }
            let event = framed(source.bytes(), run.start, run.end)?;
            if behind.at(event.start) {
                source.report_progress(self.start + (self.end - self.start + event.start - self.start) / 2);
            }
            run.start = event.end;
            Some(event)
        })
    }

    /// The constants of the chunk.
    pub(super) fn pools(&self, source: &Source) -> Pools {
        let mut pools = Pools::default();
        let bytes = source.bytes();
        let mut behind = source.behind(self.start);
        for checkpoint in &self.checkpoints {
            behind.at(checkpoint.at);
            // The readable constants of a damaged checkpoint are retained.
            let _ = pools.add(&self.types, &bytes.slice(checkpoint.payload.clone()), 0);
        }
        pools
    }

    /// Returns the position in the input of an offset in the header, which may be any number.
    pub(super) fn place(&self, offset: ChunkOffset) -> u64 {
        (self.start as u64).saturating_add(offset.0)
    }

    /// Returns the metadata to use: the one that the header points to, else the one that declares most types.
    pub(super) fn preferred_metadata(&self, bytes: &Bytes) -> Option<(usize, Range<usize>)> {
        let pointed = self.place(self.header.metadata);
        if let Some(found) = self.metadata.iter().find(|(at, _)| *at as u64 == pointed) {
            return Some(found.clone());
        }
        let count =
            |range: &Range<usize>| parse_types(&bytes[range.clone()]).map_or(0, |t| t.classes().len());
        match &self.metadata[..] {
            [] => None,
            [only] => Some(only.clone()),
            several => several.iter().max_by_key(|(_, range)| count(range)).cloned(),
        }
    }
}

/// Parses the types of one metadata event.
pub(super) fn parse_types(payload: &[u8]) -> Option<Types> {
    let mut types = Types::default();
    types.add(payload).ok()?;
    Some(types)
}

/// Returns the position of the next chunk header from `at` on.
pub(super) fn next_header(bytes: &[u8], at: usize) -> Option<usize> {
    resync::find_header(bytes.get(at..)?).map(|found| at + found)
}

/// Returns the header that starts at `at`, if there is one. At the start of the input the check is less
/// strict.
pub(super) fn header_at(bytes: &[u8], at: usize) -> Option<ChunkHeader> {
    let rest = bytes.get(at..)?;
    if at == 0 || resync::is_header(rest) { ChunkHeader::decode(rest).ok() } else { None }
}

/// Finds the contents of the chunk whose header is at `start`. `fallback`: types for a chunk without
/// metadata.
pub(super) fn scan(
    source: &Source,
    effort: &mut Effort,
    start: usize,
    header: ChunkHeader,
    fallback: Option<&Arc<Types>>,
) -> ScannedChunk {
    let bytes = source.bytes();
    let promised = trusted_end(&header, start as u64).and_then(|end| usize::try_from(end).ok());
    let promised = promised.filter(|&end| end <= bytes.len());
    let scan = |effort: &mut Effort, ahead: Option<Arc<Types>>| {
        let mut scanned = ScannedChunk::new(start, header);
        let checking = Checking { ahead, unchecked: false };
        let mut scan = Scan {
            source,
            bytes,
            effort,
            scanned: &mut scanned,
            fallback,
            checking,
            promised,
            linked: 0,
            next_header: None,
            checked: 0,
        };
        scan.run();
        let unchecked = scan.checking.unchecked;
        (scanned, unchecked)
    };
    let ahead = pointed_metadata(bytes, effort, start, &header);
    let (mut scanned, unchecked) = scan(effort, ahead);
    // The metadata lies after events whose sizes could not be checked yet, or in another chunk.
    let own = (!scanned.metadata.is_empty()).then(|| scanned.types.clone());
    if let (true, Some(types)) = (unchecked, own.or_else(|| fallback.cloned())) {
        scanned = scan(effort, Some(types)).0;
    }
    if let (true, Some(types)) = (scanned.metadata.is_empty(), fallback) {
        scanned.types = types.clone();
    }
    scanned
}

/// Returns the types of the metadata that the header points to, if it can be read.
fn pointed_metadata(
    bytes: &Bytes,
    effort: &mut Effort,
    start: usize,
    header: &ChunkHeader,
) -> Option<Arc<Types>> {
    let at = start.checked_add(usize::try_from(header.metadata.0).ok()?).filter(|&at| at >= start + LEN)?;
    let event = framed(bytes, at, bytes.len()).filter(|e| e.type_id == u64::from(METADATA_EVENT.0))?;
    let content = &bytes[event.payload..event.end];
    effort.spend(event.end, |steps| {
        let cost = content.len() as u64;
        let affordable = *steps >= cost;
        *steps = steps.saturating_sub(cost);
        affordable.then(|| parse_types(content).map(Arc::new))?
    })
}

struct Scan<'a> {
    source: &'a Source,
    bytes: &'a Bytes,
    effort: &'a mut Effort,
    scanned: &'a mut ScannedChunk,
    fallback: Option<&'a Arc<Types>>,
    checking: Checking,
    promised: Option<usize>,
    /// Size of the metadata read so far.
    linked: u64,
    /// Position of the next header, once it has been searched for; the end of the input if there is none.
    next_header: Option<usize>,
    /// Number of checkpoints read with the types before a later metadata event.
    checked: usize,
}

/// Checks of events before the chunk's metadata has been reached.
struct Checking {
    /// The chunk's types, known before its metadata is reached.
    ahead: Option<Arc<Types>>,
    /// The size of an event was trusted because no types were known.
    unchecked: bool,
}

/// How an event's content compares with its size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The content ends at the declared size.
    Exact,
    /// The content does not end there, or the type is not declared.
    Wrong,
    /// No types are known yet, or the search after damage reached its limit.
    Unknown,
}

impl Scan<'_> {
    fn run(&mut self) {
        let len = self.bytes.len();
        let limit = self.promised.unwrap_or(len);
        let mut at = self.scanned.start + LEN;
        let mut run = at;
        let mut behind = self.source.behind(self.scanned.start);
        let end = loop {
            if behind.at(at) {
                self.source.report_progress(self.scanned.start + (at - self.scanned.start) / 2);
            }
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
            let event = framed(self.bytes, at, limit);
            let fit = event.as_ref().map(|event| self.fit(event));
            if let (Some(event), Some(Fit::Exact | Fit::Unknown)) = (event, fit) {
                self.event(event);
                at = event.end;
                continue;
            }
            let next = self.go_on(at, limit);
            if let Some(event) = event.filter(|event| self.is_confirmed(event, next, limit)) {
                self.event(event);
                at = event.end;
                continue;
            }
            self.close(run, at);
            self.torn_checkpoint(at, limit, next.unwrap_or(limit));
            match next {
                Some(next) => {
                    self.scanned.unread.push(at..next);
                    at = next;
                    run = next;
                    if resync::is_header(&self.bytes[at..]) {
                        break at;
                    }
                }
                None => {
                    self.scanned.unread.push(at..limit);
                    run = limit;
                    break limit;
                }
            }
        };
        self.close(run, end);
        self.scanned.end = end;
        self.scanned.whole = self.scanned.unread.is_empty() && self.promised == Some(end);
    }

    fn close(&mut self, from: usize, to: usize) {
        if to > from {
            self.scanned.runs.push(from..to);
        }
    }

    fn event(&mut self, event: Framed) {
        let payload = event.payload..event.end;
        if event.type_id == u64::from(METADATA_EVENT.0) {
            self.check_before();
            let content = &self.bytes[payload.clone()];
            // Each metadata event links all types again.
            self.linked += content.len() as u64;
            let known = if self.scanned.metadata.is_empty() { 0 } else { self.linked };
            let affordable = self.effort.spend(event.end, |steps| {
                let enough = *steps >= known;
                *steps = steps.saturating_sub(known);
                enough
            });
            if !affordable {
                self.scanned.bad_metadata = true;
            } else if Arc::make_mut(&mut self.scanned.types).add(content).is_ok() {
                self.scanned.metadata.push((event.start, payload));
            } else if !is_filler(content) {
                self.scanned.bad_metadata = true;
            }
        } else if event.type_id == u64::from(CHECKPOINT_EVENT.0) {
            self.scanned.checkpoints.push(Checkpoint { at: event.start, payload });
        }
    }

    /// Checks the checkpoints so far: streaming readers decode constants with the types declared before them.
    fn check_before(&mut self) {
        let new = self.scanned.checkpoints.get(self.checked..).unwrap_or_default();
        if !self.scanned.metadata.is_empty() {
            let unread = |c: &Checkpoint| {
                walk_pools(&self.scanned.types, &self.bytes[c.payload.clone()], |_, _, _| {}, |_| {}).is_err()
            };
            self.scanned.bad_metadata |= new.iter().any(unread);
            self.checked = self.scanned.checkpoints.len();
        }
    }

    fn types(&self) -> Option<&Arc<Types>> {
        if self.scanned.metadata.is_empty() {
            self.checking.ahead.as_ref().or(self.fallback)
        } else {
            Some(&self.scanned.types)
        }
    }

    /// Compares the content of an event with its size. A damaged size would hide all events that it spans.
    fn fit(&mut self, event: &Framed) -> Fit {
        let payload = &self.bytes[event.payload..event.end];
        if event.type_id == u64::from(METADATA_EVENT.0) && is_filler(payload) {
            return Fit::Exact;
        }
        let own = (!self.scanned.metadata.is_empty()).then(|| self.scanned.types.clone());
        let known = [own, self.checking.ahead.clone()];
        if known.iter().all(Option::is_none) {
            self.checking.unchecked = true;
            return Fit::Unknown;
        }
        let fit = self.effort.spend(event.end, |steps| {
            for types in known.iter().flatten() {
                if *steps <= payload.len() as u64 {
                    return Fit::Unknown;
                }
                let (exact, read) = exact(types, event.type_id, payload);
                *steps -= 1 + read as u64;
                if exact {
                    return Fit::Exact;
                }
            }
            Fit::Wrong
        });
        self.scanned.gave_up |= fit == Fit::Unknown;
        fit
    }

    /// Returns true if an event whose content does not fit its size ends there nevertheless: `next`, the next
    /// sound event, is at its end or after it, and its end is followed by a sound event or the end of the
    /// chunk.
    fn is_confirmed(&mut self, event: &Framed, next: Option<usize>, limit: usize) -> bool {
        let end = event.end;
        if next.is_none() && self.scanned.gave_up {
            return true;
        }
        if next.is_some_and(|next| next <= end) || end == limit {
            return next.is_none_or(|next| next >= end);
        }
        framed(self.bytes, end, limit).is_some_and(|behind| self.fit(&behind) != Fit::Wrong)
    }

    /// Returns the end of a checkpoint whose size was never filled in: the end of its content.
    fn unsized_checkpoint(&mut self, at: usize) -> Option<usize> {
        let from = at + UNSIZED.len();
        let types = self.types()?.clone();
        let rest = &self.bytes[from..];
        let (_, len) = self.effort.spend(self.bytes.len(), |steps| {
            let reach = rest.len().min(usize::try_from(*steps).unwrap_or(usize::MAX));
            let mut read = 0;
            let walked = walk_pools(&types, &rest[..reach], |_, _, value| read = value.end, |_| {});
            *steps -= read as u64;
            walked.ok()
        })?;
        self.scanned.checkpoints.push(Checkpoint { at, payload: from..from + len });
        Some(from + len)
    }

    /// Reads the constants at the start of a checkpoint that is cut off or damaged. The content at `next`,
    /// where reading continues, does not belong to it.
    fn torn_checkpoint(&mut self, at: usize, limit: usize, next: usize) {
        let mut cursor = Cursor::at(&self.bytes[..limit], at);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else { return };
        let from = cursor.pos();
        let torn = size <= MAX_EVENT && type_id == u64::from(CHECKPOINT_EVENT.0) && from < next;
        if torn && CheckpointHead::read(&mut cursor).is_ok() {
            self.scanned.checkpoints.push(Checkpoint { at, payload: from..next });
        }
    }

    /// Returns the position at which reading can continue after the damage at `at`.
    fn go_on(&mut self, at: usize, limit: usize) -> Option<usize> {
        let next = if self.promised.is_none() { self.header_behind(at) } else { None };
        let rest = &self.bytes[at..next.unwrap_or(limit)];
        let (within, types) = ((at - self.scanned.start) as u64, self.types().cloned());
        // If the header does not contain the chunk's end, its offsets cannot be used either.
        let header = self.promised.map(|_| self.scanned.header);
        let (found, exhausted) = self.effort.spend(limit, |steps| {
            let found = resync::go_on(rest, within, header.as_ref(), types.as_deref(), true, steps);
            (found, *steps == 0)
        });
        self.scanned.gave_up |= exhausted;
        found.map(|skip| at + skip).or(next)
    }

    /// Returns the position of the next header after `at`. Calls come in ascending order, so each byte is
    /// examined once.
    fn header_behind(&mut self, at: usize) -> Option<usize> {
        let next = match self.next_header {
            Some(next) if next > at => next,
            _ => next_header(self.bytes, at + 1).unwrap_or(self.bytes.len()),
        };
        self.next_header = Some(next);
        (next < self.bytes.len()).then_some(next)
    }
}

/// Returns true if the content of an event, metadata and checkpoints included, ends exactly with `payload`;
/// and the number of bytes read for this.
fn exact(types: &Types, type_id: u64, payload: &[u8]) -> (bool, usize) {
    if type_id == u64::from(METADATA_EVENT.0) {
        return (metadata_len(payload) == Ok(payload.len()), payload.len());
    }
    if type_id == u64::from(CHECKPOINT_EVENT.0) {
        let mut read = 0;
        let walked = walk_pools(types, payload, |_, _, value| read = value.end, |_| {});
        return (matches!(walked, Ok((_, end)) if end == payload.len()), read);
    }
    let Some(class) = types.by_id(type_id) else { return (false, 0) };
    let mut cursor = Cursor::new(payload);
    let read = layout::skip(types.classes(), &class.layout, &mut cursor, 0);
    (read.is_ok() && cursor.left() == 0, cursor.pos())
}

/// Returns true if the fields of an event are all there, `None` if its type is not declared. More bytes may
/// follow them.
pub(super) fn decodes(bytes: &[u8], types: &Types, event: &Framed) -> Option<bool> {
    left(types, event.type_id, &bytes[event.payload..event.end]).map(|left| left.is_some())
}

/// Returns true if the fields of an event end exactly with `payload`, `None` if the type is not declared.
pub(super) fn fills(types: &Types, type_id: u64, payload: &[u8]) -> Option<bool> {
    left(types, type_id, payload).map(|left| left == Some(0))
}

/// Returns the number of bytes of `payload` after an event's fields; the inner `None` means that fields are
/// missing.
fn left(types: &Types, type_id: u64, payload: &[u8]) -> Option<Option<usize>> {
    let class = types.by_id(type_id)?;
    let mut cursor = Cursor::new(payload);
    let read = layout::skip(types.classes(), &class.layout, &mut cursor, 0);
    Some(read.ok().map(|()| cursor.left()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cases/");

    /// Scans all chunks. Returns the number of steps, and the size of the checkpoints that were read.
    fn steps(bytes: Vec<u8>) -> (u64, u64) {
        let source = Source::from(bytes);
        let mut effort = Effort::default();
        let (mut at, mut checkpoints) = (0, 0);
        while at < source.bytes().len() {
            let Some(header) = header_at(source.bytes(), at) else {
                at = next_header(source.bytes(), at + 1).unwrap_or(source.bytes().len());
                continue;
            };
            let scanned = scan(&source, &mut effort, at, header, None);
            checkpoints += scanned.checkpoints.iter().map(|c| c.payload.len() as u64).sum::<u64>();
            at = scanned.end;
        }
        (effort.spent, checkpoints)
    }

    /// A sound chunk without its end and without a size, then `n` times `piece`.
    fn hostile(n: usize, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::fs::read(format!("{CASES}01_defs_before.jfr")).unwrap();
        bytes[8..16].fill(0);
        bytes[64] = 1;
        bytes.extend(piece.iter().copied().cycle().take(n * piece.len()));
        bytes
    }

    #[test]
    fn effort_is_linear_in_the_input() {
        let sound = std::fs::read(format!("{CASES}01_defs_before.jfr")).unwrap();
        let source = Source::from(sound.clone());
        let scanned = scan(&source, &mut Effort::default(), 0, ChunkHeader::decode(&sound).unwrap(), None);
        let types = &scanned.types;
        let event =
            types.classes().iter().filter(|class| class.is_event()).map(|class| class.id).max().unwrap();
        let event = u8::try_from(event).unwrap_or(101);
        let header = &sound[..LEN];
        let unsized_ = [&UNSIZED[..], &[0, 0, 0, 0, 1, 20, 200]].concat();
        let pieces: [(&str, Vec<u8>); 9] = [
            ("zeros", vec![0]),
            ("ones", vec![0xff]),
            ("events that never fit", vec![0x90, 0x80, 0x04, event]),
            ("short events of a declared type", vec![3, event, 0x80]),
            ("checkpoints that promise much", vec![0xff, 0xff, 0x7f, 1, 0, 0, 0, 0, 100, 20, 100, 7, 0]),
            ("checkpoints without sizes", unsized_),
            ("headers", header.to_vec()),
            ("metadata that promises much", vec![0xff, 0xff, 0x1f, 0, 1, 1, 1, 40, 3, 1, 97]),
            ("events that hide others", vec![60, event, 3, event, 0x80, 4, event, 1, 1]),
        ];
        for (what, piece) in pieces {
            for n in [1 << 10, 1 << 13] {
                let bytes = hostile(n, &piece);
                let len = bytes.len() as u64;
                let (steps, checkpoints) = steps(bytes);
                assert!(checkpoints <= len, "{what}: {checkpoints} bytes of checkpoints of {len}");
                assert!(steps <= len * resync::STEPS_PER_BYTE, "{what}: {steps} steps for {len} bytes");
            }
        }
    }
}
