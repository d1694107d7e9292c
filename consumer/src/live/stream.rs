//! Items of a descriptor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::feed::Feed;
use super::item::Item;
use super::source::{Got, Source};
use super::{Options, Stats};

/// Bytes per read.
const READ_SIZE: usize = 64 * 1024;
/// Reads per poll, so that a stream of padding does not block the caller.
const READS: usize = 64;

/// A recording that is followed live.
///
/// As an iterator, it waits for the next item and returns `None` at the end of the stream. If reading the
/// descriptor fails, it returns the error once and ends. Errors in the data are items: [`Item::Warning`].
pub struct Stream {
    source: Source,
    feed: Feed,
    buffer: Box<[u8]>,
    ended: bool,
}

impl Stream {
    /// Follows a readable `descriptor`: a pipe, a socket, a child's output, a file. Its blocking mode is
    /// not changed, so it may be shared.
    ///
    /// # Errors
    /// The descriptor is not open.
    pub fn new(descriptor: impl Into<OwnedFd>, options: Options) -> io::Result<Self> {
        let source = Source::new(descriptor.into())?;
        Ok(Self { source, feed: Feed::new(options), buffer: vec![0; READ_SIZE].into(), ended: false })
    }

    /// Returns the next available item without waiting; `Ready(None)` at the end of the stream. After
    /// `Pending`, wait until the descriptor is readable.
    pub fn poll(&mut self) -> Poll<Option<io::Result<Item>>> {
        for _ in 0..READS {
            if let Some(item) = self.feed.next() {
                return Poll::Ready(Some(Ok(item)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.source.read(&mut self.buffer) {
                Ok(Got::Bytes(n)) => self.feed.push(self.buffer.get(..n).unwrap_or_default()),
                Ok(Got::Nothing) => return Poll::Pending,
                Ok(Got::End) => self.end(),
                Err(error) => {
                    self.end();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Pending
    }

    /// Waits until [`poll`](Self::poll) may return something. Returns false after `limit`.
    ///
    /// # Errors
    /// Waiting for the descriptor failed.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        self.source.ready(limit)
    }

    /// Passes items to `each` until everything has arrived that the recorder had written at `mark`, a
    /// time in ns of `CLOCK_MONOTONIC` ([`monotonic_nanos`]). This is known when a segment arrives whose
    /// writing began later. Returns false if the stream ended before, or after `limit`.
    ///
    /// A program that needs its own samples immediately flushes the recorder first. The second flush
    /// writes the segment that ends the wait; without it, the wait ends with the next regular segment:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use flightline_consumer::live::{Stream, monotonic_nanos};
    /// # fn mine(stream: &mut Stream, recorder_flush: impl Fn()) -> std::io::Result<()> {
    /// recorder_flush(); // flightline_dump() in C, Recording::flush() in Rust
    /// let mark = monotonic_nanos();
    /// recorder_flush();
    /// let complete = stream.wait_for(mark, Duration::from_secs(5), |item| println!("{item:?}"))?;
    /// # let _ = complete; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub fn wait_for(&mut self, mark: i64, limit: Duration, mut each: impl FnMut(Item)) -> io::Result<bool> {
        let end = Instant::now() + limit;
        loop {
            match self.poll() {
                Poll::Ready(Some(item)) => {
                    let item = item?;
                    let complete = match &item {
                        // The segment's time is accurate to a tick.
                        Item::Segment(segment) => {
                            segment.time.monotonic_nanos.is_some_and(|time| time.saturating_sub(1_000) > mark)
                        }
                        _ => false,
                    };
                    each(item);
                    if complete {
                        return Ok(true);
                    }
                }
                Poll::Ready(None) => return Ok(false),
                Poll::Pending => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() || !self.wait(Some(left))? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Returns statistics of the stream so far.
    pub fn stats(&self) -> Stats {
        self.feed.stats()
    }

    fn end(&mut self) {
        self.ended = true;
        self.feed.close();
    }
}

impl Iterator for Stream {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        loop {
            match self.poll() {
                Poll::Ready(item) => return item,
                Poll::Pending => {
                    if let Err(error) = self.wait(None) {
                        self.end();
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, ended, .. } = self;
        let fields = [("source", source as &dyn fmt::Debug), ("ended", ended), ("stats", &self.stats())];
        fields.iter().fold(&mut f.debug_struct("Stream"), |s, (name, value)| s.field(name, value)).finish()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

/// Returns the current time of `CLOCK_MONOTONIC` in ns, like Java's `System.nanoTime()`.
pub fn monotonic_nanos() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
