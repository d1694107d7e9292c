//! Decodes several chunks of one recording in parallel, with results in order.
//!
//! A complete recording is split at the ends of finished chunks, according to their headers, where either the
//! input ends or another header begins. Each piece has its own decoder. If a piece turns out not to be
//! exactly that chunk (damage that hides or invents headers), its result is discarded, and everything from
//! its start on is decoded by one decoder. So the items are those of one [`Decoder`] over the whole input,
//! for any number of threads.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::thread;

use bytes::Bytes;

use super::map::Mapped;
use super::push::{Decoder, Delivery, Pages, SharedTypes, trusted_end};
use super::resync;
use crate::error::{Error, Result};
use crate::header::{ChunkHeader, LEN};
use crate::ids::ChunkIndex;

/// Number of results per thread that may wait for the previous one.
const AHEAD: usize = 2;

/// A complete recording.
///
/// ```no_run
/// use jfr_format::error::Error;
/// use jfr_format::read::{Delivery, Item, Recording, default_jobs};
///
/// # fn main() -> Result<(), Error> {
/// let recording = Recording::open("run.jfr".as_ref())?;
/// let mut events = 0;
/// recording.run(
///     Delivery::KeysOnly,
///     default_jobs(),
///     |decoder| {
///         let mut events = 0;
///         while let Some(item) = decoder.next() {
///             if let Item::Events(batch) = item {
///                 events += batch.events().count();
///             }
///         }
///         events
///     },
///     |of_chunk| {
///         events += of_chunk;
///         Ok::<(), Error>(())
///     },
/// )?;
/// println!("{events} events");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Recording {
    bytes: Bytes,
    mapped: Option<Mapped>,
}

/// Number of bytes that justify another thread with its start and memory, measured with `summary` and `fold`.
const JOB: usize = 16 << 20;

/// Consecutive bytes of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    start: usize,
    end: usize,
    /// Index of the first chunk in it.
    first: ChunkIndex,
    /// Expected number of chunks, if known.
    chunks: Option<u32>,
}

impl Recording {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        Self::file(&File::open(path).map_err(|e| Error::io(e, 0))?)
    }

    /// Maps an open regular file.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub fn file(file: &File) -> Result<Self> {
        let mapped = Mapped::file(file).map_err(|e| Error::io(e, 0))?;
        Ok(Self { bytes: mapped.bytes(), mapped: Some(mapped) })
    }

    /// Reads a recording in memory.
    pub fn bytes(bytes: Bytes) -> Self {
        Self { bytes, mapped: None }
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns all its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Releases the pages of a range.
    pub(super) fn release(&self, range: Range<u64>) {
        if let Some(mapped) = &self.mapped {
            mapped.release(range);
        }
    }

    /// Returns the default number of threads for this recording: [`default_jobs`], but one for each 16 MiB at
    /// most.
    pub fn jobs(&self) -> usize {
        default_jobs().min(self.bytes.len() / JOB).max(1)
    }

    /// Returns the number of pieces for threads: chunks, as far as they can be distinguished.
    pub fn pieces(&self) -> usize {
        self.split().len()
    }

    /// Runs `decode` on the decoders of all chunks, on up to `jobs` threads, and passes its results to `take`
    /// in the order of the recording. `take` runs on the calling thread; an error from it ends the run. At
    /// most 2 × `jobs` results wait for it at any time. With one job there is one decoder, and one result.
    ///
    /// `decode` must take items until there are none. It may run for a piece whose result is not used.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn run<T: Send, E>(
        &self,
        delivery: Delivery,
        jobs: usize,
        decode: impl Fn(&mut Decoder) -> T + Sync,
        take: impl FnMut(T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.run_pieces(&self.split(), delivery, jobs, decode, take)
    }

    /// Runs `decode` with fewer results: one decoder processes many chunks, fewer towards the end. For
    /// results whose size does not grow with the number of events, and that `take` combines. Types and
    /// constants that chunks have in common are processed once for all chunks of a decoder.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn run_grouped<T: Send, E>(
        &self,
        delivery: Delivery,
        jobs: usize,
        decode: impl Fn(&mut Decoder) -> T + Sync,
        take: impl FnMut(T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.run_pieces(&grouped(&self.split(), jobs), delivery, jobs, decode, take)
    }

    fn run_pieces<T: Send, E>(
        &self,
        pieces: &[Section],
        delivery: Delivery,
        jobs: usize,
        decode: impl Fn(&mut Decoder) -> T + Sync,
        mut take: impl FnMut(T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let types = SharedTypes::default();
        let jobs = jobs.clamp(1, pieces.len().max(1));
        if jobs == 1 {
            // One decoder for all chunks shares the data that they have in common.
            let whole = Section { start: 0, end: self.bytes.len(), first: ChunkIndex(0), chunks: None };
            return take(decode(&mut self.decoder(delivery, whole, &types)));
        }
        let next = AtomicUsize::new(0);
        let turn = Turn::default();
        let (sender, receiver) = mpsc::channel();
        let outcome = thread::scope(|scope| {
            for _ in 0..jobs {
                let (sender, next, turn, decode, types) = (sender.clone(), &next, &turn, &decode, &types);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&piece) = pieces.get(at) else { return };
                        if !turn.wait_until(at, AHEAD * jobs) {
                            return;
                        }
                        let mut decoder = self.decoder(delivery, piece, types);
                        let result = decode(&mut decoder);
                        let as_cut = piece
                            .chunks
                            .is_none_or(|chunks| decoder.was_chunks(piece.first, chunks, piece.end as u64));
                        if sender.send((at, result, as_cut)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let outcome = in_order(&receiver, &turn, &mut take);
            turn.stop();
            outcome
        });
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(wrong)) => {
                let Some(piece) = pieces.get(wrong) else { return Ok(()) };
                take(decode(&mut self.decoder(delivery, piece.rest(&self.bytes), &types)))
            }
            Err(error) => Err(error),
        }
    }

    /// Splits the recording at the ends of its finished chunks. The last piece is the rest that could not be
    /// split.
    fn split(&self) -> Vec<Section> {
        let bytes = &self.bytes;
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut first = ChunkIndex(0);
        while start < bytes.len() {
            let end = chunk_end(bytes, start);
            pieces.push(Section { start, end: end.unwrap_or(bytes.len()), first, chunks: end.map(|_| 1) });
            if let Some(mapped) = &self.mapped {
                // Reading a header may have mapped megabytes.
                mapped.release(start as u64..end.unwrap_or(bytes.len()) as u64);
            }
            let Some(end) = end else { break };
            start = end;
            first = ChunkIndex(first.0.saturating_add(1));
        }
        pieces
    }

    fn decoder(&self, delivery: Delivery, piece: Section, types: &SharedTypes) -> Decoder {
        let bytes = self.bytes.slice(piece.start..piece.end);
        let mut decoder = Decoder::piece(delivery, bytes, piece.start as u64, piece.first, types.clone());
        if let Some(mapped) = self.mapped.clone() {
            decoder.on_passed(Pages::new(mapped));
        }
        decoder
    }
}

impl Section {
    /// Returns the section from here to the end of the recording.
    fn rest(self, bytes: &Bytes) -> Self {
        Self { end: bytes.len(), chunks: None, ..self }
    }
}

/// Receives results and passes them on in order. Returns the first piece that was not as expected.
fn in_order<T, E>(
    receiver: &mpsc::Receiver<(usize, T, bool)>,
    turn: &Turn,
    take: &mut impl FnMut(T) -> std::result::Result<(), E>,
) -> std::result::Result<Option<usize>, E> {
    let mut waiting = BTreeMap::new();
    let mut at = 0;
    for (piece, result, as_cut) in receiver {
        waiting.insert(piece, (result, as_cut));
        while let Some((result, as_cut)) = waiting.remove(&at) {
            if !as_cut {
                return Ok(Some(at));
            }
            take(result)?;
            at += 1;
            turn.advance(at);
        }
    }
    Ok(None)
}

/// Prevents that threads run too far ahead of the results that have been delivered.
#[derive(Debug, Default)]
struct Turn {
    /// Number of results taken, and whether the run has stopped.
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    results: usize,
    stopped: bool,
}

impl Turn {
    /// Waits until piece `at` is less than `ahead` results in front of those delivered. Returns false if no more
    /// results are needed.
    fn wait_until(&self, at: usize, ahead: usize) -> bool {
        let Ok(state) = self.state.lock() else { return false };
        let waited = self.changed.wait_while(state, |state| !state.stopped && at >= state.results + ahead);
        waited.is_ok_and(|state| !state.stopped)
    }

    fn advance(&self, results: usize) {
        if let Ok(mut state) = self.state.lock() {
            state.results = results;
        }
        self.changed.notify_all();
    }

    fn stop(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.stopped = true;
        }
        self.changed.notify_all();
    }
}

/// Groups neighbours: each group is a share of the rest, so that all threads end at about the same time.
fn grouped(pieces: &[Section], jobs: usize) -> Vec<Section> {
    let mut groups: Vec<Section> = Vec::new();
    let end = pieces.last().map_or(0, |last| last.end);
    let mut room = 0;
    for &piece in pieces {
        let size = piece.end - piece.start;
        match (groups.last_mut(), piece.chunks) {
            (Some(Section { end, chunks: Some(sum), .. }), Some(chunks)) if size <= room => {
                *end = piece.end;
                *sum = sum.saturating_add(chunks);
                room -= size;
            }
            _ => {
                room = ((end - piece.start) / (2 * jobs.max(1))).saturating_sub(size);
                groups.push(piece);
            }
        }
    }
    groups
}

fn chunk_end(bytes: &Bytes, start: usize) -> Option<usize> {
    let header = ChunkHeader::decode(bytes.get(start..)?).ok()?;
    let end = usize::try_from(trusted_end(&header, start as u64)?).ok()?;
    let rest = bytes.get(end..)?;
    (end >= start + LEN && (rest.is_empty() || resync::is_header(rest))).then_some(end)
}

/// Returns a useful number of threads: more than four share one memory bus.
pub fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get().min(4))
}
