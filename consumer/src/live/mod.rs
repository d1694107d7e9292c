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
//! [`Stream`] is read in three ways, which can be mixed; each item comes once:
//! * as an iterator, which waits for the next item,
//! * by [`Stream::poll`], which never waits; its descriptor ([`AsFd`](std::os::fd::AsFd)) can be given to poll(2) or epoll,
//! * as `live::Async`, a `futures_core::Stream` (feature `tokio`).
//!
//! It is [`Send`]: threads that are to share one put it into a `Mutex`, and each item is given to one of them. Programs that
//! receive bytes themselves use [`Feed`].
//!
//! Items come in the order of the stream, which is not that of time: threads are written one after the other, and an event
//! that waited for symbols comes late. How a program gets its own samples at once is told at [`Stream::wait_for`].
//!
//! Streams of Flightline are checked as they come: an event is handed out when the checksum of its segment was right. Where it was
//! not, a warning says where, the rest of its chunk is left out, and a [`Loss`] says how many events that were. Any other
//! JFR stream is read as well, without that. The format is told in `consumer/docs/stream.md`.

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
pub(crate) use plan::COLLECTOR;
pub use stream::{Stream, monotonic_nanos};
pub(crate) use value::field;
pub use value::{Fields, Value};

/// What is wanted of a stream.
#[derive(Clone, Debug)]
pub struct Options {
    /// Samples of these event types only, by name or as `cpu`, `wall`, `alloc`, `lock`, `io`, …; empty: all.
    pub samples: Vec<String>,
    /// Whether events that are neither samples nor losses are wanted.
    pub others: bool,
    /// Whether events that last are wanted whatever `samples` and `others` say: where spans were active, contextual events, waits for locks, input
    /// and output, pauses of the collector.
    pub lasting: bool,
    /// Time that a sample of a type represents, in ns, where the chunk has not stated it yet.
    pub periods: BTreeMap<Arc<str>, u64>,
    /// Bytes of one chunk that may have to be kept, because its events come before their constants; a chunk that needs more
    /// is left out. Chunks of a stream of Flightline need little more than a segment.
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

/// What a stream has given so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes received.
    pub bytes: u64,
    /// Chunks begun.
    pub chunks: u64,
    /// Events looked at, handed out or not.
    pub events: u64,
    /// Samples handed out.
    pub samples: u64,
    /// Losses handed out.
    pub losses: u64,
    /// Warnings handed out.
    pub warnings: u64,
    /// Segments whose checksum was right.
    pub segments: u64,
    /// Segments whose checksum was not.
    pub segments_damaged: u64,
    /// Segments that did not come, by their numbers: the reader was behind, or bytes were lost.
    pub segments_missing: u64,
    /// Moments of a thread of which a span was told, but no sample came.
    pub contexts_unused: u64,
    /// Keys of threads, stacks and the like that stood for nothing.
    pub unresolved: u64,
    /// Stacks looked up; a stack that occurs again in its chunk is not.
    pub stack_lookups: u64,
    /// Frames looked up; a frame that occurs again in its chunk is not.
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

/// The text, at most 4 KiB of it.
fn cut(text: &str) -> Arc<str> {
    crate::load::names::cut(text).as_ref().into()
}
