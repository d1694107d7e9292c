//! Reading and writing JDK Flight Recorder files (format 2.x). Knows nothing of profiling or processes.
//!
//! ```text
//! file  = chunk, chunk, …                       nothing between or after them
//! chunk = header (68 bytes, big-endian)         size, offsets of metadata and last checkpoint, clock, state
//!         event, event, …                       each begins with its size and type id, as varints
//!           type 0: metadata                    declares all types and events, their fields and annotations
//!           type 1: checkpoint                  constants: symbols, methods, stacks, threads; points to the one before
//!           others: what happened               startTime, then the fields; most refer to constants by key
//! ```
//!
//! Each structure has one file with both directions ([`varint`], [`strings`], [`header`], [`metadata`]); [`write`](mod@write)
//! and [`read`] drive them. The writer knows the types of the [`schema`] only; the reader uses the metadata of the recording, and reads
//! recordings of JDKs and async-profiler as well.
//!
//! A module uses only those before it: [`ids`], [`constants`], [`error`], [`varint`], [`strings`] → `cursor` → [`types`], [`schema`] →
//! [`header`], [`metadata`], [`pool`] → [`chunk`] → [`event`], [`write`](mod@write) → [`read`] → [`edit`].
//!
//! What is written and read back:
//! ```
//! use jfr_format::ids::{FileOffset, Ticks};
//! use jfr_format::read::{Input, Item};
//! use jfr_format::schema;
//! use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 1_700_000_000_000_000_000, ticks_per_second: 1_000_000 };
//! let mut pipe = StreamOutput::new(Vec::new());
//! let mut chunk = ChunkWriter::begin(Geometry::Fixed { size: 32 << 10 }, &line, FileOffset(0), Ticks(0))?;
//! chunk.event(schema::NOTICE, |e| {
//!     e.ticks(Ticks(2_500_000)).string("hello");
//! })?;
//! chunk.finish(Ticks(3_000_000), true, &mut pipe)?;
//!
//! let mut input = Input::bytes(pipe.into_inner().into());
//! let mut seen = Vec::new();
//! while let Some(item) = input.next()? {
//!     if let Item::Events(batch) = item {
//!         for event in batch.events() {
//!             let message = event.field("message")?.map(|value| value.text()).transpose()?.flatten();
//!             seen.push((event.start_nanos(), message.map(String::from)));
//!         }
//!     }
//! }
//! assert_eq!(seen, [(Some(1_700_000_002_500_000_000), Some("hello".to_owned()))]);
//! # Ok(()) }
//! ```

#![deny(unsafe_code)] // except in read/map.rs and varint/simd.rs

pub mod chunk;
pub mod constants;
mod cursor;
pub mod edit;
pub mod error;
pub mod event;
pub mod header;
pub mod ids;
pub mod metadata;
pub mod pool;
pub mod read;
pub mod schema;
pub mod strings;
pub mod types;
pub mod varint;
pub mod write;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
