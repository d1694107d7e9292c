//! One reader of a stream: its queue and its losses.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::Arc,
};

use jfr_format::{
    ids::Ticks,
    read::{ChunkHead, Part},
    write::{Cut, Fragment, complete, loss_chunk},
};

use super::{
    link::Link,
    losses::{Losses, QueuedPart},
};

/// Limit of pieces written with one call.
const AT_ONCE: usize = 16;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The position of a reader in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for its first chunk.
    New,
    /// It gets all data.
    Following,
    /// It gets no more of the chunk that was cut off.
    Cut(Cut),
    /// It gets nothing now; the chunks that it has are complete.
    Left,
}

struct Queued {
    piece: Fragment,
    /// The part, if this is its last piece.
    last_of: Option<Arc<QueuedPart>>,
}

/// A reader and its queue.
pub struct Reader {
    link: Link,
    /// Its origin, for messages.
    pub name: String,
    /// Its position in the stream.
    pub state: State,
    queue: VecDeque<Queued>,
    /// Bytes of the first piece that have been written.
    written: usize,
    /// Bytes of the queue: in the stream, and in memory.
    waiting: usize,
    memory_bytes: usize,
    /// Losses that have not been recorded yet.
    pub lost: Losses,
    /// Total of lost bytes and events.
    pub total_lost: (u64, u64),
    /// Bytes that the kernel accepted.
    pub accepted_bytes: u64,
}

impl Reader {
    /// Returns the reader of a new connection.
    pub fn new(link: Link, name: String) -> Reader {
        Reader {
            link,
            name,
            state: State::New,
            queue: VecDeque::new(),
            written: 0,
            waiting: 0,
            memory_bytes: 0,
            lost: Losses::default(),
            total_lost: (0, 0),
            accepted_bytes: 0,
        }
    }

    /// Returns the bytes of the stream in its queue.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the memory that its queue uses, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns its connection.
    pub fn link(&self) -> &Link {
        &self.link
    }

    fn enqueue(&mut self, piece: Fragment, last_of: Option<Arc<QueuedPart>>) {
        self.waiting += piece.len();
        self.memory_bytes += piece.held();
        self.queue.push_back(Queued { piece, last_of });
    }

    /// Queues a part.
    pub fn give(&mut self, part: &Part, entry: &Arc<QueuedPart>) {
        let last = part.pieces.len().saturating_sub(1);
        for (number, piece) in part.pieces.iter().enumerate() {
            self.enqueue(piece.clone(), (number == last).then(|| entry.clone()));
        }
    }

    /// Counts a part that it does not get as lost.
    pub fn lose(&mut self, part: &QueuedPart) {
        part.lose(&mut self.lost);
    }

    /// Completes the chunk in which it was cut off, and records its losses. After that, it can start chunk
    /// `next`, or end.
    pub fn settle(&mut self, cut_in: Option<&ChunkHead>, next: Option<&ChunkHead>, now: Ticks) {
        let (amount, events) = (self.lost.bytes, self.lost.events());
        let total = self.total_lost.0 + amount;
        let mut recorded = self.lost.is_empty();
        if let State::Cut(cut) = self.state {
            let declares_loss = cut_in.is_some_and(|head| head.declares_loss_events);
            let losses = if declares_loss { self.lost.entries() } else { Vec::new() };
            let (pieces, all) = complete(cut, now, &losses, if declares_loss { amount } else { 0 }, total);
            recorded |= all && declares_loss;
            pieces.into_iter().for_each(|piece| self.enqueue(piece, None));
        }
        if !recorded && let Some(head) = next.or(cut_in).filter(|head| head.declares_loss_events) {
            let losses = self.lost.entries();
            // No two chunks may start in the same nanosecond, because JMC treats them as one.
            let follows = next.is_some_and(|next| next.header.start_ticks == now);
            let earlier = if follows { head.header.frequency() / 1_000_000_000 + 1 } else { 0 };
            let at = Ticks(now.0.saturating_sub(earlier));
            let pieces = loss_chunk(&head.header, &head.metadata, at, &losses, amount, total);
            pieces.into_iter().for_each(|piece| self.enqueue(piece, None));
        }
        self.total_lost = (total, self.total_lost.1 + events);
        self.lost = Losses::default();
        self.state = State::Left;
    }

    /// Writes as many bytes as the reader accepts. Returns true if any were written.
    ///
    /// # Errors
    /// The reader has disconnected.
    pub fn push(&mut self) -> io::Result<bool> {
        let before = self.accepted_bytes;
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); AT_ONCE];
            let mut count = 0;
            let mut skip = self.written;
            'pieces: for queued in &self.queue {
                match &queued.piece {
                    Fragment::Bytes(bytes) => {
                        slices[count] = IoSlice::new(&bytes[skip..]);
                        count += 1;
                    }
                    Fragment::Zeros(len) => {
                        let mut left = len - skip;
                        while left > 0 && count < AT_ONCE {
                            let some = left.min(ZEROS.len());
                            slices[count] = IoSlice::new(&ZEROS[..some]);
                            (count, left) = (count + 1, left - some);
                        }
                        if left > 0 {
                            break 'pieces;
                        }
                    }
                }
                skip = 0;
                if count == AT_ONCE {
                    break;
                }
            }
            match self.link.write(&slices[..count]) {
                Ok(wrote) => self.advance(wrote),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(64);
        }
        Ok(self.accepted_bytes > before)
    }

    fn advance(&mut self, wrote: usize) {
        self.accepted_bytes += wrote as u64;
        self.waiting -= wrote;
        self.written += wrote;
        while let Some(front) = self.queue.front().filter(|front| front.piece.len() <= self.written) {
            self.written -= front.piece.len();
            self.memory_bytes -= front.piece.held();
            if let Some(entry) = self.queue.pop_front().and_then(|front| front.last_of) {
                entry.take();
            }
        }
    }
}
