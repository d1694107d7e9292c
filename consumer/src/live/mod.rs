//! Following a recording live, from a pipe, a socket or anything else that can be read.
//!
//! ```no_run
//! use flightline_consumer::live::{self, Item, Options};
//!
//! # fn main() -> std::io::Result<()> {
//! // Also: "tcp:127.0.0.1:4040", "fd:3", "-" (standard input), a FIFO or file.
//! for item in live::open("unix:/run/app.sock", Options::default())? {
//!     match item? {
//!         Item::Sample(sample) => {
//!             let function = sample.stack.as_ref().and_then(|stack| stack.innermost()).map(|f| &*f.function);
//!             println!("{} {} {function:?}", sample.time.epoch_nanos, sample.kind.name());
//!         }
//!         Item::Loss(loss) => eprintln!("lost {:?} events: {}", loss.events, loss.cause),
//!         Item::Warning(warning) => eprintln!("{warning}"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! There are three ways to read a [`Stream`]. They can be mixed; each item is returned once:
//! * as an iterator, which waits for the next item,
//! * by [`Stream::poll`], which never waits; its descriptor ([`AsFd`](std::os::fd::AsFd)) can be passed
//!   to poll(2) or epoll,
//! * as `live::Async`, a `futures_core::Stream` (feature `tokio`).
//!
//! It is [`Send`]. Threads can share one in a `Mutex`; each item is then returned to one of them.
//! Programs that receive bytes themselves use [`Feed`].
//!
//! Items have the order of the stream, which is not the order of time: threads are written one after the
//! other, and an event that waited for symbols is late. [`Stream::wait_for`] describes how a program gets
//! its own samples immediately.
//!
//! Streams of Flightline are verified: an event is returned only after the checksum of its segment was
//! found correct. If it is wrong, a warning has the offset, the rest of the chunk is skipped, and a
//! [`Loss`] has the number of skipped events. Any other JFR stream can be read too, without verification.
//! `docs/guide/tasks/follow-recordings.md` describes the format.

#[cfg(feature = "tokio")]
mod asynchronous;
mod cache;
mod choice;
mod clock;
mod contexts;
mod covered;
mod events;
mod feed;
mod item;
pub mod keyed;
mod open;
mod plan;
mod segments;
mod source;
mod stored_events;
mod stream;
mod value;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "tokio")]
pub use asynchronous::Async;
pub use choice::Choice;
pub use covered::Covering;
pub use feed::Feed;
pub use item::{
    ChunkStart, DAMAGE, Event, Frame, Item, Kind, Loss, Sample, Segment, Stack, Time, Warning, Weight,
};
pub use open::{TOKEN, open, open_with_token};
pub(crate) use plan::{COLLECTOR, may_last};
pub(crate) use stored_events::StoredEvents;
pub use stream::{Stream, monotonic_nanos};
pub(crate) use value::field;
pub use value::{Fields, Value};

/// Selects the items of a stream.
#[derive(Clone, Debug)]
pub struct Options {
    /// Event types of samples, by name or as `cpu`, `wall`, `alloc`, `lock`, `io`, …; all types if empty.
    pub samples: Vec<String>,
    /// Include events that are neither samples nor losses.
    pub others: bool,
    /// Include duration events regardless of `samples` and `others`: activations of spans, contextual
    /// events, waits for locks, I/O, and pauses of the garbage collector.
    pub lasting: bool,
    /// Time that a sample of a type represents, in ns, where the chunk has not stated it yet.
    pub periods: BTreeMap<Arc<str>, u64>,
    /// Limit in bytes for the part of one chunk that must be buffered because its events precede their
    /// constants. A chunk that needs more is skipped. Chunks of a Flightline stream need little more than
    /// a segment.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            samples: Vec::new(),
            others: true,
            lasting: false,
            periods: BTreeMap::new(),
            memory: 512 << 20,
        }
    }
}

/// Statistics of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes received.
    pub bytes: u64,
    /// Chunks begun.
    pub chunks: u64,
    /// Events examined, whether returned or not.
    pub events: u64,
    /// Samples returned.
    pub samples: u64,
    /// Losses returned.
    pub losses: u64,
    /// Warnings returned.
    pub warnings: u64,
    /// Segments with a correct checksum.
    pub segments: u64,
    /// Segments with a wrong checksum.
    pub segments_damaged: u64,
    /// Segments that did not arrive, by their sequence numbers: the reader was too slow, or bytes were
    /// lost.
    pub segments_missing: u64,
    /// Contexts of threads and times for which no sample arrived.
    pub contexts_unused: u64,
    /// Keys of threads, stacks and so on without a constant.
    pub unresolved: u64,
    /// Stacks that were resolved. A stack that recurs in its chunk is counted once.
    pub stack_lookups: u64,
    /// Frames that were resolved. A frame that recurs in its chunk is counted once.
    pub frame_lookups: u64,
}

impl Stats {
    fn count(&mut self, item: &Item) {
        match item {
            Item::ChunkStart(_) => self.chunks += 1,
            Item::Sample(_) => self.samples += 1,
            Item::Loss(_) => self.losses += 1,
            Item::Warning(_) => self.warnings += 1,
            Item::Other(_) | Item::Segment(_) => {}
        }
    }
}

/// Returns the text, cut to 4 KiB.
fn cut(text: &str) -> Arc<str> {
    crate::decode::names::cut(text).as_ref().into()
}
