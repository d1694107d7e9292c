//! What can be found of a chunk, whatever its header says.
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

/// What looking for events behind damage, and reading what may be cut short, have cost so far in one input. What it may
/// cost grows with what has been reached of the input, so the whole stays linear, and a damaged chunk leaves enough for
/// those behind it.
#[derive(Debug, Default)]
pub(super) struct Effort {
    spent: u64,
}

impl Effort {
    /// Steps that `work` may take in a chunk that reaches up to `limit`; it takes what it uses off the number.
    fn spend<T>(&mut self, limit: usize, work: impl FnOnce(&mut u64) -> T) -> T {
        let allowed = (limit as u64).saturating_mul(resync::STEPS_PER_BYTE).saturating_sub(self.spent);
        let mut left = allowed;
        let done = work(&mut left);
        self.spent += allowed - left;
        done
    }
}

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
pub(super) struct ScannedChunk {
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
    /// The search behind damage reached its limit ([`Effort`]): sizes were believed from there on.
    pub(super) gave_up: bool,
    /// The header's own end was reached, and every byte up to it was part of an event.
    pub(super) whole: bool,
    /// A metadata event was there that could not be read and is no filler, or that declares what constants in front of
    /// it needed.
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

    /// Steps over the whole events, letting go of the pages behind.
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
            // What can be read of a damaged one stays.
            let _ = pools.add(&self.types, &bytes.slice(checkpoint.payload.clone()), 0);
        }
        pools
    }

    /// Where an offset that the header tells is in the input; it may be any number.
    pub(super) fn place(&self, offset: ChunkOffset) -> u64 {
        (self.start as u64).saturating_add(offset.0)
    }

    /// The metadata to go by: what the header points to, else what declares most.
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

/// The types of one metadata event.
pub(super) fn parse_types(payload: &[u8]) -> Option<Types> {
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
        let mut found = ScannedChunk::new(start, header);
        let checking = Checking { ahead, unchecked: false };
        let mut scan = Scan {
            source,
            bytes,
            effort,
            found: &mut found,
            fallback,
            checking,
            promised,
            linked: 0,
            next_header: None,
            checked: 0,
        };
        scan.run();
        let unchecked = scan.checking.unchecked;
        (found, unchecked)
    };
    let ahead = pointed_metadata(bytes, effort, start, &header);
    let (mut found, unchecked) = scan(effort, ahead);
    // The metadata lies behind events whose sizes could not be checked yet, or in another chunk.
    let own = (!found.metadata.is_empty()).then(|| found.types.clone());
    if let (true, Some(types)) = (unchecked, own.or_else(|| fallback.cloned())) {
        found = scan(effort, Some(types)).0;
    }
    if let (true, Some(types)) = (found.metadata.is_empty(), fallback) {
        found.types = types.clone();
    }
    found
}

/// The types of the metadata that the header points at, if it can be read.
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
    found: &'a mut ScannedChunk,
    fallback: Option<&'a Arc<Types>>,
    checking: Checking,
    promised: Option<usize>,
    /// Bytes of metadata so far.
    linked: u64,
    /// Where the next header is, once it has been looked for: the end of the input if there is none.
    next_header: Option<usize>,
    /// Checkpoints that have been read by the types in front of later metadata.
    checked: usize,
}

/// Checks of events before the chunk's metadata has been reached.
struct Checking {
    /// The chunk's types, known before its metadata is reached.
    ahead: Option<Arc<Types>>,
    /// The size of an event was believed because no types were known.
    unchecked: bool,
}

/// How an event's content compares with its size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The content ends where the size says.
    Exact,
    /// It does not, or the type is not declared.
    Wrong,
    /// No types are known yet, or the search behind damage reached its limit.
    Unknown,
}

impl Scan<'_> {
    fn run(&mut self) {
        let len = self.bytes.len();
        let limit = self.promised.unwrap_or(len);
        let mut at = self.found.start + LEN;
        let mut run = at;
        let mut behind = self.source.behind(self.found.start);
        let end = loop {
            if behind.at(at) {
                self.source.report_progress(self.found.start + (at - self.found.start) / 2);
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
            // All types are linked again for each.
            self.linked += content.len() as u64;
            let known = if self.found.metadata.is_empty() { 0 } else { self.linked };
            let affordable = self.effort.spend(event.end, |steps| {
                let enough = *steps >= known;
                *steps = steps.saturating_sub(known);
                enough
            });
            if !affordable {
                self.found.bad_metadata = true;
            } else if Arc::make_mut(&mut self.found.types).add(content).is_ok() {
                self.found.metadata.push((event.start, payload));
            } else if !is_filler(content) {
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
        if self.found.metadata.is_empty() {
            self.checking.ahead.as_ref().or(self.fallback)
        } else {
            Some(&self.found.types)
        }
    }

    /// Compares the content of an event with its size. A damaged size would hide all events that it spans.
    fn fit(&mut self, event: &Framed) -> Fit {
        let payload = &self.bytes[event.payload..event.end];
        if event.type_id == u64::from(METADATA_EVENT.0) && is_filler(payload) {
            return Fit::Exact;
        }
        let own = (!self.found.metadata.is_empty()).then(|| self.found.types.clone());
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
        self.found.gave_up |= fit == Fit::Unknown;
        fit
    }

    /// Returns true if an event whose content does not fit its size ends there nevertheless: `next`, where events were
    /// found to go on, is its end or lies behind it, and its end is followed by a sound event or the end of the chunk.
    fn is_confirmed(&mut self, event: &Framed, next: Option<usize>, limit: usize) -> bool {
        let end = event.end;
        if next.is_none() && self.found.gave_up {
            return true;
        }
        if next.is_some_and(|next| next <= end) || end == limit {
            return next.is_none_or(|next| next >= end);
        }
        framed(self.bytes, end, limit).is_some_and(|behind| self.fit(&behind) != Fit::Wrong)
    }

    /// A checkpoint whose size was never filled in ends where its content does.
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
        self.found.checkpoints.push(Checkpoint { at, payload: from..from + len });
        Some(from + len)
    }

    /// The constants at the start of a checkpoint that the input ends in, or that is damaged: what reading goes on with,
    /// at `next`, is none of it.
    fn torn_checkpoint(&mut self, at: usize, limit: usize, next: usize) {
        let mut cursor = Cursor::at(&self.bytes[..limit], at);
        let (Ok(size), Ok(type_id)) = (cursor.varint(), cursor.varint()) else { return };
        let from = cursor.pos();
        let torn = size <= MAX_EVENT && type_id == u64::from(CHECKPOINT_EVENT.0) && from < next;
        if torn && CheckpointHead::read(&mut cursor).is_ok() {
            self.found.checkpoints.push(Checkpoint { at, payload: from..next });
        }
    }

    /// Where reading can go on behind the damage at `at`.
    fn go_on(&mut self, at: usize, limit: usize) -> Option<usize> {
        let next = if self.promised.is_none() { self.header_behind(at) } else { None };
        let rest = &self.bytes[at..next.unwrap_or(limit)];
        let (within, types) = ((at - self.found.start) as u64, self.types().cloned());
        // Without its end the header's offsets are nothing to go by.
        let header = self.promised.map(|_| self.found.header);
        let (found, exhausted) = self.effort.spend(limit, |steps| {
            let found = resync::go_on(rest, within, header.as_ref(), types.as_deref(), true, steps);
            (found, *steps == 0)
        });
        self.found.gave_up |= exhausted;
        found.map(|skip| at + skip).or(next)
    }

    /// Where the next header behind `at` is. Places come in ascending order, so each byte is looked at once.
    fn header_behind(&mut self, at: usize) -> Option<usize> {
        let next = match self.next_header {
            Some(next) if next > at => next,
            _ => next_header(self.bytes, at + 1).unwrap_or(self.bytes.len()),
        };
        self.next_header = Some(next);
        (next < self.bytes.len()).then_some(next)
    }
}

/// Returns true if the content of an event, metadata and checkpoints included, ends exactly with `payload`; and the
/// bytes that were read to find out.
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

/// Returns true if the fields of an event are all there, `None` if its type is not declared. There may be bytes behind
/// them.
pub(super) fn decodes(bytes: &[u8], types: &Types, event: &Framed) -> Option<bool> {
    left(types, event.type_id, &bytes[event.payload..event.end]).map(|left| left.is_some())
}

/// Returns true if the fields of an event end exactly with `payload`, `None` if the type is not declared.
pub(super) fn fills(types: &Types, type_id: u64, payload: &[u8]) -> Option<bool> {
    left(types, type_id, payload).map(|left| left == Some(0))
}

/// The bytes of `payload` behind an event's fields; inside, `None` if they are not all there.
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

    /// Reads all chunks; gives the steps it took, and the bytes of checkpoints to be read.
    fn steps(bytes: Vec<u8>) -> (u64, u64) {
        let source = Source::from(bytes);
        let mut effort = Effort::default();
        let (mut at, mut checkpoints) = (0, 0);
        while at < source.bytes().len() {
            let Some(header) = header_at(source.bytes(), at) else {
                at = next_header(source.bytes(), at + 1).unwrap_or(source.bytes().len());
                continue;
            };
            let found = scan(&source, &mut effort, at, header, None);
            checkpoints += found.checkpoints.iter().map(|c| c.payload.len() as u64).sum::<u64>();
            at = found.end;
        }
        (effort.spent, checkpoints)
    }

    /// A sound chunk without its end and whose size is not told, then `n` times `piece`.
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
        let found = scan(&source, &mut Effort::default(), 0, ChunkHeader::decode(&sound).unwrap(), None);
        let types = &found.types;
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
