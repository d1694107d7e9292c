//! One stream with many readers. Each reader has its own queue of the shared bytes, so readers do not affect
//! each other.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use jfr_format::{
    ids::Ticks,
    read::{ChunkHead, FrameError, Framer, Part},
    write::Cut,
};

use super::{
    link::Link,
    losses::{QueuedPart, Shared},
    reader::{Reader, State},
};

/// Limit of connected readers.
pub const MOST_READERS: usize = 64;
/// Limit of a part of a stream, bytes. A larger one is an error.
const MOST_PART: usize = 80 << 20;
/// A chunk end with no more than this many bytes is not worth cutting off.
const SMALL: usize = 1 << 10;

/// A reader that disconnected.
#[derive(Debug)]
pub struct Gone {
    /// Its origin, for messages.
    pub name: String,
    /// The reason.
    pub error: io::Error,
}

/// The bytes and events that the readers of a stream got.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Number of connected readers.
    pub readers: usize,
    /// Number of readers since the start.
    pub ever: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Sum of the bytes written to all readers.
    pub accepted_bytes: u64,
    /// Sum of the bytes and events that readers did not get because they were behind.
    pub lost: (u64, u64),
    /// Bytes and events that no reader got, and that are recorded for no reader.
    pub nobody: (u64, u64),
}

/// The readers of a stream.
pub struct Broadcast {
    readers: Vec<Reader>,
    framer: Framer,
    /// The current chunk, or the last one.
    head: Option<Arc<ChunkHead>>,
    /// The current chunk is not complete.
    inside: bool,
    /// The position at which a reader can be cut off now.
    cut: Option<Cut>,
    now: Ticks,
    shared: Arc<Shared>,
    /// Limit of one reader's queue, bytes.
    queue_bytes: usize,
    /// The writer of the stream continues when all readers are behind.
    relays: bool,
    full: bool,
    status: Status,
}

impl Broadcast {
    /// Returns a broadcast without readers. Each may have `queue_bytes` in its queue, and all together about
    /// four times that.
    pub fn new(queue_bytes: usize) -> Broadcast {
        Broadcast {
            readers: Vec::new(),
            framer: Framer::new(MOST_PART),
            head: None,
            inside: false,
            cut: None,
            now: Ticks(0),
            shared: Arc::default(),
            queue_bytes,
            relays: false,
            full: true,
            status: Status::default(),
        }
    }

    /// Returns a broadcast for a stream that continues when all readers are behind: they are cut off as if
    /// others had room.
    pub fn relaying(queue_bytes: usize) -> Broadcast {
        Broadcast { relays: true, ..Broadcast::new(queue_bytes) }
    }

    /// Adds a reader. It gets the stream from the next chunk on.
    ///
    /// # Errors
    /// There are too many readers.
    pub fn add(&mut self, link: Link, name: String) -> io::Result<()> {
        if self.readers.len() >= MOST_READERS {
            return Err(io::Error::other(format!("{MOST_READERS} readers are already connected")));
        }
        self.readers.push(Reader::new(link, name));
        self.status.ever += 1;
        Ok(())
    }

    /// Moves the readers to another broadcast, before any bytes were written.
    pub(super) fn hand_over(&mut self, to: &mut Broadcast) {
        to.status.ever += self.readers.len() as u64;
        to.readers.append(&mut self.readers);
    }

    /// Returns the connected readers.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Returns true if no connected reader would get bytes that are written now.
    pub fn full(&self) -> bool {
        self.full
    }

    /// Returns true if no reader is connected, or all of them still wait for a chunk boundary.
    pub fn has_no_reader(&self) -> bool {
        !self.readers.iter().any(|r| r.state == State::Following)
    }

    /// Returns true if a reader waits for the next chunk and has read everything before it.
    pub fn wants_chunk(&self) -> bool {
        self.inside && self.readers.iter().any(|r| r.state != State::Following && r.waiting() == 0)
    }

    /// Returns the length of the longest queue, bytes.
    pub fn waiting(&self) -> usize {
        self.readers.iter().map(Reader::waiting).max().unwrap_or(0)
    }

    /// Returns the bytes of the stream so far.
    pub fn bytes(&self) -> u64 {
        self.status.bytes
    }

    /// Returns true if the written bytes end with a complete chunk.
    pub fn is_at_chunk_end(&self) -> bool {
        self.framer.is_between_chunks()
    }

    /// Returns the totals so far.
    pub fn status(&self) -> Status {
        let nobody = self.shared.nobody.lock().map(|n| (n.bytes, n.events())).unwrap_or_default();
        let mut status = Status { readers: self.readers.len(), nobody, ..self.status.clone() };
        for reader in &self.readers {
            status.accepted_bytes += reader.accepted_bytes;
            status.lost.0 += reader.total_lost.0 + reader.lost.bytes;
            status.lost.1 += reader.total_lost.1 + reader.lost.events();
        }
        status
    }

    /// Writes the next bytes of the stream.
    ///
    /// # Errors
    /// The bytes are not a stream of chunks of known size.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.status.bytes += bytes.len() as u64;
        self.framer.push(bytes);
        self.parts()
    }

    /// Writes `len` zeros.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub fn fill(&mut self, len: usize) -> Result<(), FrameError> {
        self.status.bytes += len as u64;
        self.framer.push_zeros(len);
        self.parts()
    }

    fn parts(&mut self) -> Result<(), FrameError> {
        while let Some(part) = self.framer.next_part()? {
            self.part(&part);
        }
        self.look();
        Ok(())
    }

    /// Returns true if a reader has reached its limit, or its share of the common limit while that is exceeded.
    fn behind(&self, reader: &Reader) -> bool {
        let all = 2 * self.queue_bytes;
        reader.memory_bytes() >= self.queue_bytes
            || self.shared.memory_bytes.load(Ordering::Relaxed) >= all
                && reader.memory_bytes() > all / MOST_READERS
    }

    fn part(&mut self, part: &Part) {
        let entry = QueuedPart::new(part, &self.shared);
        let last = self.head.clone();
        if let Some(head) = &part.begins {
            self.head = Some(head.clone());
        }
        let begins = part.begins.is_some();
        // A reader with more in its queue would be behind again at once.
        let ready = |r: &Reader| begins && r.memory_bytes() <= self.queue_bytes / 2;
        let behind: Vec<bool> = self.readers.iter().map(|r| self.behind(r)).collect();
        let mut others = self.readers.iter().zip(&behind);
        // A reader is not cut off if no other reader has room: the writer of the stream checks this and
        // pauses.
        let others = self.relays
            || others.any(|(r, behind)| match r.state {
                State::Following => !behind,
                _ => ready(r),
            });
        let small = part.ends && part.memory_bytes() < SMALL;
        let ready: Vec<bool> = self.readers.iter().map(ready).collect();
        for ((reader, behind), ready) in self.readers.iter_mut().zip(behind).zip(ready) {
            match reader.state {
                State::Following if !(behind && others) || small => reader.give(part, &entry),
                // It cannot be cut off here, so it will be later.
                State::Following if !begins && self.cut.is_none() => reader.give(part, &entry),
                State::Following => {
                    reader.state = match self.cut {
                        Some(cut) if !begins => State::Cut(cut),
                        _ => State::Left,
                    };
                    reader.lose(&entry);
                }
                State::New if !ready => {}
                _ if !ready => reader.lose(&entry),
                state => {
                    if state == State::New
                        && let Ok(mut nobody) = self.shared.nobody.lock()
                    {
                        // Report these losses to the first reader that connects.
                        reader.lost.merge(std::mem::take(&mut *nobody));
                    }
                    if state != State::New || !reader.lost.is_empty() {
                        let now = self.head.as_ref().map_or(part.now, |head| head.header.start_ticks);
                        reader.settle(last.as_deref(), self.head.as_deref(), now);
                    }
                    reader.state = State::Following;
                    reader.give(part, &entry);
                }
            }
        }
        self.inside = !part.ends;
        self.cut = part.cut;
        self.now = part.now;
    }

    /// Writes to all readers as much as they accept; returns the readers that disconnected.
    pub fn push(&mut self) -> Vec<Gone> {
        let mut gone = Vec::new();
        let status = &mut self.status;
        self.readers.retain_mut(|reader| {
            let error = match reader.push() {
                Err(error) => error,
                Ok(_) if reader.link().gone() => io::ErrorKind::BrokenPipe.into(),
                Ok(_) => return true,
            };
            status.accepted_bytes += reader.accepted_bytes;
            status.lost.0 += reader.total_lost.0 + reader.lost.bytes;
            status.lost.1 += reader.total_lost.1 + reader.lost.events();
            gone.push(Gone { name: std::mem::take(&mut reader.name), error });
            false
        });
        self.look();
        gone
    }

    /// Ends the stream: readers that were cut off get a record of their losses, and an unfinished chunk is
    /// completed.
    pub fn finish(&mut self) {
        let (head, cut, now) = (self.head.clone(), self.cut, self.now);
        for reader in &mut self.readers {
            match (reader.state, cut) {
                (State::Following, Some(cut)) if self.inside => {
                    reader.state = State::Cut(cut);
                    reader.settle(head.as_deref(), None, now);
                }
                (State::Cut(_), _) => reader.settle(head.as_deref(), None, now),
                (State::Left, _) if !reader.lost.is_empty() => reader.settle(None, head.as_deref(), now),
                _ => {}
            }
        }
        self.inside = false;
        self.full = true;
    }

    fn look(&mut self) {
        self.full = !self.readers.iter().any(|r| r.state == State::Following && !self.behind(r));
    }
}
