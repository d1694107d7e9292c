//! Validates a recording: finished chunks from the first byte to the last, in which each event and each
//! constant can be read. This takes one pass, and the memory of one chunk's types.
//!
//! The decoder can read every recording that passes this check completely. The profiling service checks
//! uploads with it.

use std::collections::HashSet;
use std::sync::Arc;

use super::parallel::Recording;
use super::push::MAX_EVENT;
use crate::chunk::Chunk;
use crate::constants::{CHECKPOINT_EVENT, MAGIC, METADATA_EVENT, STATE_FINISHED};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Malformed, Nonconformance, Result};
use crate::header::{ChunkHeader, LEN};
use crate::ids::{ChunkIndex, FileOffset};
use crate::metadata::is_filler;
use crate::pool::{Pools, walk_pools};
use crate::types::layout;
use crate::types::{Class, Kind, Types};

/// Maximum size of a chunk's metadata: that of a JDK with all of its types takes 200 KB. It is written again
/// when types are added.
const MOST_METADATA: usize = 16 << 20;
const MOST_TIMES: u32 = 256;
/// Maximum number of constants and checkpoints of a chunk, so that a small file cannot make its readers
/// allocate a large index.
const MOST_CONSTANTS: u64 = 1 << 24;
const MOST_CHECKPOINTS: u64 = 1 << 20;
/// Maximum number of undeclared event types; other readers skip them too.
const MOST_UNDECLARED: usize = 1000;
/// Distance after which pages are released.
const STRIDE: u64 = 4 << 20;

/// Totals of a valid recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValidationSummary {
    /// Number of chunks.
    pub chunks: u32,
    /// Number of events, without metadata and constants.
    pub events: u64,
    /// Start of the earliest chunk, in ns since 1970.
    pub start_nanos: i64,
    /// End of the latest chunk according to the headers.
    pub end_nanos: i64,
}

/// An event of a recording that is being validated.
#[derive(Clone, Copy, Debug)]
pub struct ValidatedEvent<'a> {
    /// Its chunk, which contains no constants.
    pub chunk: &'a Chunk,
    /// Its type.
    pub class: &'a Class,
    /// The bytes of its fields.
    pub payload: &'a [u8],
    /// Its start and end, in ns since 1970, if its type has a start.
    pub time: Option<(i64, i64)>,
}

impl Recording {
    /// Validates the whole recording in one pass, and calls `each` with its events. The memory is bounded for
    /// any input.
    ///
    /// # Errors
    /// The first violation, with its offset.
    pub fn validate(&self, mut each: impl FnMut(ValidatedEvent<'_>)) -> Result<ValidationSummary> {
        let bytes = self.as_bytes();
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::Empty, 0, None, "the first chunk header"));
        }
        let mut whole =
            ValidationSummary { start_nanos: i64::MAX, end_nanos: i64::MIN, ..ValidationSummary::default() };
        let mut last = None;
        let mut at = 0;
        while at < bytes.len() as u64 {
            let index = ChunkIndex(whole.chunks);
            let header = header(bytes, at, index)?;
            let end = at + header.size;
            let inner = usize::try_from(at).ok().zip(usize::try_from(end).ok());
            let inner = inner.and_then(|(at, end)| bytes.get(at..end)).unwrap_or_default();
            let mut validator = ChunkValidator::new(self, inner, at, index, header, &mut last)?;
            validator.run(&mut each)?;
            whole.events += validator.events;
            whole.chunks = whole.chunks.saturating_add(1);
            whole.start_nanos = whole.start_nanos.min(header.start_nanos);
            let ends = header.start_nanos.saturating_add(header.duration_nanos.max(0));
            whole.end_nanos = whole.end_nanos.max(ends);
            self.release(at..end);
            at = end;
        }
        Ok(whole)
    }
}

/// Returns the header at `at`, if it belongs to a finished chunk that ends within the input.
fn header(bytes: &[u8], at: u64, index: ChunkIndex) -> Result<ChunkHeader> {
    let fault = |kind| Error::new(kind, at, Some(index), "the chunk header");
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let header = match ChunkHeader::decode(rest) {
        Ok(header) => header,
        Err(_) if rest.len() < LEN && at > 0 => {
            return Err(fault(ErrorKind::Truncated { missing: (LEN - rest.len()) as u64 }));
        }
        Err(_) if rest.len() < LEN && rest.starts_with(&MAGIC) => {
            return Err(fault(ErrorKind::HeaderCut { bytes: rest.len() as u64 }));
        }
        Err(_) => return Err(fault(ErrorKind::NotJfr)),
    };
    if header.state != STATE_FINISHED {
        return Err(fault(ErrorKind::Unfinished));
    }
    if header.size > rest.len() as u64 {
        return Err(fault(ErrorKind::Truncated { missing: header.size - rest.len() as u64 }));
    }
    if header.size < LEN as u64 || header.start_nanos < 0 {
        return Err(fault(ErrorKind::Malformed(Malformed::EventSize)));
    }
    Ok(header)
}

/// Validates one chunk.
struct ChunkValidator<'a> {
    recording: &'a Recording,
    bytes: &'a [u8],
    chunk: Chunk,
    events: u64,
    constants: u64,
    checkpoints: u64,
    /// Size of the metadata, and how often metadata was read.
    metadata: (usize, u32),
    /// True if the checkpoint in the header was found.
    header_checkpoint_found: bool,
    undeclared: HashSet<u64>,
}

impl<'a> ChunkValidator<'a> {
    fn new(
        recording: &'a Recording,
        bytes: &'a [u8],
        at: u64,
        index: ChunkIndex,
        header: ChunkHeader,
        last: &mut Option<LastTypes<'a>>,
    ) -> Result<Self> {
        let types = types(bytes, at, index, &header, last)?;
        let pools = Pools::default();
        Ok(Self {
            recording,
            bytes,
            chunk: Chunk { index, offset: FileOffset(at), header, types, pools },
            metadata: (0, 0),
            events: 0,
            constants: 0,
            checkpoints: 0,
            header_checkpoint_found: false,
            undeclared: HashSet::new(),
        })
    }

    fn fault(&self, what: Malformed, at: usize, within: &str) -> Error {
        self.chunk.malformed(what, self.chunk.offset.0 + at as u64, within)
    }

    fn run(&mut self, each: &mut impl FnMut(ValidatedEvent<'_>)) -> Result<()> {
        let (mut at, mut let_go) = (LEN, 0);
        while at < self.bytes.len() {
            let (type_id, payload, end) =
                record(self.bytes, at).map_err(|e| self.fault(e, at, "an event"))?;
            match type_id {
                id if id == u64::from(METADATA_EVENT.0) => self.metadata(at, payload)?,
                id if id == u64::from(CHECKPOINT_EVENT.0) => self.checkpoint(at, payload)?,
                id => self.event(id, at, payload, each)?,
            }
            at = end;
            if at as u64 - let_go >= 2 * STRIDE {
                let start = self.chunk.offset.0;
                // The bytes that were just read may lie in the same page.
                self.recording.release(start + let_go..start + at as u64 - STRIDE);
                let_go = at as u64 - STRIDE;
            }
        }
        let named = self.chunk.header.checkpoint.0;
        if !self.header_checkpoint_found && (named != 0 || self.checkpoints > 0) {
            let kind = ErrorKind::Nonconformance(Nonconformance::CheckpointOffset(named));
            let at = self.chunk.offset.0;
            return Err(Error::new(kind, at, Some(self.chunk.index), "the chunk header"));
        }
        Ok(())
    }

    /// Checks metadata other than the event that the header points to. Streams contain fillers that look like
    /// metadata.
    fn metadata(&mut self, at: usize, payload: &[u8]) -> Result<()> {
        if at as u64 == self.chunk.header.metadata.0 || is_filler(payload) {
            return Ok(());
        }
        let (bytes, times) = &mut self.metadata;
        *bytes = bytes.saturating_add(payload.len());
        *times += 1;
        if *bytes > MOST_METADATA || *times > MOST_TIMES {
            return Err(self.fault(Malformed::EventSize, at, "metadata"));
        }
        let added = Arc::make_mut(&mut self.chunk.types).add(payload);
        added.map_err(|(what, pos)| self.fault(what, at + pos, "metadata"))
    }

    fn checkpoint(&mut self, at: usize, payload: &[u8]) -> Result<()> {
        self.checkpoints += 1;
        self.header_checkpoint_found |= at as u64 == self.chunk.header.checkpoint.0;
        let mut constants = 0;
        let walked = walk_pools(&self.chunk.types, payload, |_, _, _| constants += 1, |_| {});
        self.constants += constants;
        let sound = match walked {
            Ok(_) if self.constants > MOST_CONSTANTS || self.checkpoints > MOST_CHECKPOINTS => {
                Err(Malformed::Count)
            }
            // No reader reads bytes after the pools, but there should not be any.
            Ok((_, end)) if end != payload.len() => Err(Malformed::EventSize),
            Ok(_) => Ok(()),
            Err(fault) => Err(fault),
        };
        sound.map_err(|what| self.fault(what, at, "constant pools"))
    }

    fn event(
        &mut self,
        id: u64,
        at: usize,
        payload: &[u8],
        each: &mut impl FnMut(ValidatedEvent<'_>),
    ) -> Result<()> {
        self.events += 1;
        let types = self.chunk.types.clone();
        let Some(class) = types.by_id(id) else {
            if self.undeclared.len() >= MOST_UNDECLARED && !self.undeclared.contains(&id) {
                return Err(self.fault(Malformed::UnknownType, at, "an event"));
            }
            self.undeclared.insert(id);
            return Ok(());
        };
        let mut cursor = Cursor::new(payload);
        let time = times(&self.chunk, class, payload);
        layout::skip(types.classes(), &class.layout, &mut cursor, 0)
            .map_err(|what| self.fault(what, at, &format!("an event of {}", class.name)))?;
        each(ValidatedEvent { chunk: &self.chunk, class, payload, time });
        Ok(())
    }
}

/// Returns type, payload and end of the record at `at`.
fn record(bytes: &[u8], at: usize) -> std::result::Result<(u64, &[u8], usize), Malformed> {
    let mut cursor = Cursor::at(bytes, at);
    let size = cursor.varint()?;
    let type_id = cursor.varint()?;
    let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size));
    let end = end.filter(|&end| size <= MAX_EVENT && end >= cursor.pos()).ok_or(Malformed::EventSize)?;
    let payload = bytes.get(cursor.pos()..end).ok_or(Malformed::EventSize)?;
    Ok((type_id, payload, end))
}

/// The types of a chunk, and the bytes that declare them: most chunks of one recording declare the same
/// types.
type LastTypes<'a> = (&'a [u8], Arc<Types>);

/// Returns the types of the metadata that the header points to.
fn types<'a>(
    bytes: &'a [u8],
    at: u64,
    index: ChunkIndex,
    header: &ChunkHeader,
    last: &mut Option<LastTypes<'a>>,
) -> Result<Arc<Types>> {
    let missing = || Error::new(ErrorKind::NoMetadata, at, Some(index), "metadata");
    let place = usize::try_from(header.metadata.0).ok().filter(|&place| place >= LEN).ok_or_else(missing)?;
    let (id, payload, end) = record(bytes, place).map_err(|_| missing())?;
    if id != u64::from(METADATA_EVENT.0) {
        return Err(missing());
    }
    let fault = |what, behind: usize| Error::malformed(what, at + (place + behind) as u64, index, "metadata");
    if payload.len() > MOST_METADATA {
        return Err(fault(Malformed::EventSize, 0));
    }
    let mut cursor = Cursor::new(payload);
    let head = cursor.skip_varints(3).map_or(0, |()| cursor.pos()); // start, duration, id
    let tree = payload.get(head..).unwrap_or_default();
    if let Some((_, types)) = last.as_ref().filter(|(before, _)| *before == tree) {
        return Ok(types.clone());
    }
    let mut types = Types::default();
    types.add(payload).map_err(|(what, pos)| fault(what, end - place - payload.len() + pos))?;
    let types = Arc::new(types);
    *last = Some((tree, types.clone()));
    Ok(types)
}

/// Returns the start and end of an event.
fn times(chunk: &Chunk, class: &Class, payload: &[u8]) -> Option<(i64, i64)> {
    let long = |at: usize, name: &str| {
        let field =
            class.fields.get(at).filter(|field| &*field.name == name && !field.pooled && !field.array);
        let of = field.and_then(|field| chunk.types.class(field.class?));
        of.is_some_and(|of| of.kind == Kind::Long)
    };
    if !long(0, "startTime") {
        return None;
    }
    let mut cursor = Cursor::new(payload);
    let ticks = cursor.varint().ok()?.cast_signed();
    let start = chunk.epoch_nanos(ticks);
    let lasts = if long(1, "duration") { cursor.varint().ok()?.cast_signed() } else { 0 };
    Some((start, start.saturating_add(chunk.span_nanos(lasts.max(0)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventRef;
    use crate::read::{Input, Item};

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/");

    fn check(bytes: &[u8]) -> Result<ValidationSummary> {
        Recording::bytes(bytes.to_vec().into()).validate(|_| {})
    }

    fn read(name: &str) -> Vec<u8> {
        std::fs::read(format!("{FIXTURES}{name}")).unwrap()
    }

    #[test]
    fn complete_recordings_are_valid_and_others_invalid() {
        let mut whole = 0;
        for entry in std::fs::read_dir(format!("{FIXTURES}recordings")).unwrap() {
            let path = entry.unwrap().path();
            let cut = ["killed", "fifo"].iter().any(|word| path.to_str().unwrap().contains(word));
            let bytes = std::fs::read(&path).unwrap();
            let mut passed = 0;
            match Recording::bytes(bytes.into()).validate(|_| passed += 1) {
                Ok(found) => {
                    assert!(!cut, "{path:?} is not whole");
                    assert!(found.chunks > 0 && passed == found.events, "{path:?}: {found:?}, {passed}");
                    assert!(found.start_nanos < found.end_nanos, "{path:?}: {found:?}");
                    whole += 1;
                }
                Err(error) => assert!(cut, "{path:?}: {error}"),
            }
        }
        assert!(whole > 20, "{whole}");
    }

    #[test]
    fn validation_errors_have_offsets() {
        let sound = read("cases/40_two_chunks_same_ids_same_vals.jfr");
        let first = usize::try_from(ChunkHeader::decode(&sound).unwrap().size).unwrap();
        assert_eq!(check(&sound).unwrap().chunks, 2);
        let at = |bytes: &[u8]| check(bytes).unwrap_err().at();
        assert_eq!(check(&sound[..first]).unwrap().chunks, 1, "whole chunks are a whole recording");
        assert_eq!(at(&sound[..first + 30]), first as u64);
        let mut other = sound.clone();
        other[first + 64] = 1;
        let error = check(&other).unwrap_err();
        assert_eq!(error.at(), first as u64);
        assert!(matches!(error.kind(), ErrorKind::Unfinished), "{error}");
        let mut other = sound.clone();
        other.push(0);
        assert_eq!(at(&other), sound.len() as u64);
        for name in ["11_unknown_pool_type", "31_truncated_tail", "32_trailing_garbage", "25_full_but_state1"]
        {
            assert!(check(&read(&format!("cases/{name}.jfr"))).is_err(), "{name}");
        }
        assert!(matches!(check(&[]).unwrap_err().kind(), ErrorKind::Empty));
        assert!(matches!(check(b"PK").unwrap_err().kind(), ErrorKind::NotJfr));
        let cut = check(&sound[..50]).unwrap_err();
        assert!(matches!(cut.kind(), ErrorKind::HeaderCut { bytes: 50 }), "{cut}");
    }

    #[test]
    fn truncation_is_rejected_and_altered_bytes_do_not_panic() {
        let sound = read("cases/40_two_chunks_same_ids_same_vals.jfr");
        let first = usize::try_from(ChunkHeader::decode(&sound).unwrap().size).unwrap();
        for len in 0..sound.len() {
            match check(&sound[..len]) {
                Ok(_) => assert_eq!(len, first),
                Err(error) => assert!(error.at() <= len as u64, "{len}: {error}"),
            }
        }
        for at in 0..sound.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut other = sound.clone();
                other[at] ^= flip;
                let _ = check(&other);
            }
        }
    }

    /// Returns the damage that the decoder reports.
    fn damage(bytes: &[u8]) -> Vec<String> {
        let mut input = Input::bytes(bytes.to_vec().into());
        let mut said = Vec::new();
        while let Some(item) = input.next().unwrap() {
            match item {
                Item::Warning(error) => match error.kind() {
                    ErrorKind::UnknownEvents { .. }
                    | ErrorKind::UnknownTypes { .. }
                    | ErrorKind::Nonconformance(_) => {}
                    _ => said.push(error.to_string()),
                },
                // Errors within an event are reported when its fields are read.
                Item::Events(batch) => {
                    let read = |event: EventRef<'_>| event.fields().iter().find_map(Result::err);
                    said.extend(batch.events().filter_map(read).map(|error| error.to_string()));
                }
                _ => {}
            }
        }
        said
    }

    #[test]
    fn decoder_reads_valid_recordings_completely() {
        let mut whole = 0;
        for (name, step) in
            [("recordings/flightline.jfr", 7), ("cases/40_two_chunks_same_ids_same_vals.jfr", 2)]
        {
            let sound = read(name);
            assert!(damage(&sound).is_empty(), "{:?}", damage(&sound));
            for at in (0..sound.len()).step_by(step) {
                for flip in [0x01, 0x80, 0xff] {
                    let mut other = sound.clone();
                    other[at] ^= flip;
                    if check(&other).is_ok() {
                        whole += 1;
                        let damage = damage(&other);
                        assert!(damage.is_empty(), "{name}: byte {at} by {flip:x}: {damage:?}");
                    }
                }
            }
        }
        assert!(whole > 300, "{whole}");
    }

    #[test]
    fn excessive_undeclared_types_are_rejected() {
        let mut bytes = read("cases/01_defs_before.jfr");
        let begin = bytes.len();
        for id in 0..2 * MOST_UNDECLARED as u64 {
            crate::varint::put(&mut bytes, 5 + crate::varint::len(1 << 30 | id) as u64);
            crate::varint::put(&mut bytes, 1 << 30 | id);
            bytes.extend([0; 4]);
        }
        let size = bytes.len() as u64;
        bytes[8..16].copy_from_slice(&size.to_be_bytes());
        let error = check(&bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Malformed(Malformed::UnknownType)), "{error}");
        assert_eq!(error.at(), (begin + 10 * MOST_UNDECLARED) as u64);
    }
}
