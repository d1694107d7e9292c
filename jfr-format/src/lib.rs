//! Reads and writes JDK Flight Recorder files (format 2.x). Independent of profiling and processes.
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
//! and [`read`] drive them. The writer knows the types of the [`schema`], and those that a program declares itself; the reader uses the metadata of the recording, and reads
//! recordings of JDKs and async-profiler as well.
//!
//! A module uses only those before it: [`ids`], [`constants`], [`error`], [`varint`], [`strings`] → `cursor` → [`types`], [`schema`] →
//! [`header`], [`metadata`], [`pool`] → [`chunk`] → [`event`], [`write`](mod@write) → [`read`] → [`edit`].
//!
//! # Writing
//!
//! An event that is written and read back:
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
//!
//! # Writing your own event types
//!
//! 1. Implement [`Event`](write::Event) for a struct: the name of the type, and its fields.
//! 2. Declare it with [`EventTypes`](write::EventTypes), which checks names and units.
//! 3. Write values of the struct with [`ChunkWriter::write`](write::ChunkWriter::write).
//!
//! A value of another type than declared does not compile. [`FieldValue`](write::FieldValue) lists the types of
//! fields. [`Constants`](write::Constants) gives threads, stack traces and shared strings their keys.
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use jfr_format::ids::{FileOffset, Ticks};
//! use jfr_format::read::{Input, Item};
//! use jfr_format::schema::Unit;
//! use jfr_format::write::{
//!     ChunkWriter, ClockLine, Constants, Event, EventTypes, Fields, Frame, Geometry, StackTraceKey, ThreadKey,
//! };
//!
//! struct Request<'a> {
//!     took: Ticks,
//!     thread: ThreadKey,
//!     stack_trace: Option<StackTraceKey>,
//!     path: &'a str,
//!     status: u16,
//!     size: u64,
//! }
//!
//! impl Event for Request<'_> {
//!     const NAME: &'static str = "com.example.Request";
//!     const LABEL: &'static str = "HTTP Request";
//!     const CATEGORY: &'static [&'static str] = &["Example", "HTTP"];
//!
//!     fn fields(fields: &mut Fields<'_, Self>) {
//!         fields.duration(|request| request.took);
//!         fields.event_thread(|request| request.thread);
//!         fields.stack_trace(|request| request.stack_trace);
//!         fields.field("path", |request| request.path).label("Path");
//!         fields.field("status", |request| request.status).label("Status");
//!         fields.field("size", |request| request.size).label("Response Size").unit(Unit::Bytes);
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut types = EventTypes::new();
//! let requests = types.declare::<Request>()?;
//!
//! // Ticks are nanoseconds since now.
//! let clock = ClockLine::nanoseconds_since(SystemTime::now());
//! let mut out = Vec::new(); // or a `FileOutput`
//! let mut chunk =
//!     ChunkWriter::declaring(&types.declared([]), Geometry::Patched, &clock, FileOffset(0), Ticks(0))?;
//! let mut constants = Constants::new();
//! let request = Request {
//!     took: clock.ticks(Duration::from_micros(1500)),
//!     thread: constants.thread(&mut chunk, 4711, "worker-1")?,
//!     stack_trace: Some(constants.stack_trace(&mut chunk, &[Frame::new("server", "main")], false)?),
//!     path: "/index.html",
//!     status: 200,
//!     size: 4096,
//! };
//! chunk.write(&requests, Ticks(1_000_000), &request)?;
//! chunk.finish(Ticks(5_000_000), true, &mut out)?;
//!
//! let mut input = Input::bytes(out.into());
//! let mut sizes = Vec::new();
//! while let Some(item) = input.next()? {
//!     if let Item::Events(batch) = item {
//!         for event in batch.events() {
//!             sizes.extend(event.field("size")?.and_then(|size| size.as_i64()));
//!         }
//!     }
//! }
//! assert_eq!(sizes, [4096]);
//! # Ok(()) }
//! ```
//! The example `write_own_event` writes a file of two chunks, with a flush every ten events.
//!
//! # Which way of reading
//!
//! Choose an entry point by where the bytes are. All of them return the same [`Item`](read::Item)s.
//!
//! | the recording is | use | events come |
//! |---|---|---|
//! | a whole file, or bytes in memory | [`read::Input::open`], [`open_for`](read::Input::open_for), [`bytes`](read::Input::bytes) | chunk by chunk |
//! | a whole file, on several threads | [`read::Recording`] | chunk by chunk, a decoder per thread, results in file order |
//! | a stream: a pipe, a socket | [`read::Input::stream`] | as soon as their constants are known |
//! | a stream whose I/O is yours, such as async I/O | [`read::Decoder`] | after each push |
//! | a file or a repository that still grows | [`read::Follow`] | with each flush of the writer |
//!
//! Choose a level of access by how many events and fields you read:
//!
//! | level | use | cost |
//! |---|---|---|
//! | by name | [`EventRef::field`](event::EventRef::field) | the names are compared for each event; for rare events and tools |
//! | bound | [`jfr_view!`] for a struct, [`read::Binding`] for integers and keys | the names are looked up once per chunk |
//! | visitor | [`EventRef::accept`](event::EventRef::accept) with a [`Visitor`](event::Visitor) | no lookup and no values in memory; for all fields of all events |
//!
//! All levels use the same [`Value`](event::Value). It is `Copy` and borrows from the chunk; a text in it is a
//! [`TextRef`](event::TextRef), which [`to_str`](event::TextRef::to_str) decodes.
//! [`Value::text`](event::Value::text) and [`record`](event::Value::record) also follow references.
//!
//! Two settings of the decoder apply to every level: [`Delivery`](read::Delivery) says when events are returned, and
//! [`Decoder::set_filter`](read::Decoder::set_filter) skips types. Skipped events cost a few nanoseconds.
//!
//! ## A whole recording
//! Samples by thread, by name:
//! ```
//! use std::collections::BTreeMap;
//!
//! use jfr_format::event::Value;
//! use jfr_format::read::{Input, Item};
//!
//! # fn main() -> Result<(), jfr_format::error::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/flightline.jfr").as_ref();
//! let mut samples = BTreeMap::new();
//! let mut input = Input::open(path)?;
//! while let Some(item) = input.next()? {
//!     match item {
//!         Item::Events(batch) => {
//!             for event in batch.events().filter(|event| &*event.class().name == "jdk.ExecutionSample") {
//!                 let Some(thread) = event.field("sampledThread")? else { continue };
//!                 let Some(thread) = thread.record()? else { continue };
//!                 let name = thread.field("osName")?.map(Value::text).transpose()?.flatten();
//!                 *samples.entry(name.unwrap_or_default().into_owned()).or_insert(0) += 1;
//!             }
//!         }
//!         // Damage does not end the reading.
//!         Item::Warning(warning) => eprintln!("{warning}"),
//!         _ => {}
//!     }
//! }
//! assert!(samples.values().sum::<u32>() > 0);
//! # Ok(()) }
//! ```
//! On several threads, with bound fields. Keys are unique within a chunk, so they are resolved when it ends:
//! ```
//! use std::collections::HashMap;
//!
//! use jfr_format::error::Error;
//! use jfr_format::event::{Value, constant};
//! use jfr_format::read::{Binding, Decoder, Delivery, Filter, Item, Recording};
//!
//! /// Samples by thread, as far as the decoder goes.
//! fn count(decoder: &mut Decoder) -> Result<HashMap<String, u32>, Error> {
//!     decoder.set_filter(|class| match &*class.name {
//!         "jdk.ExecutionSample" => Filter::Constants,
//!         _ => Filter::Skip,
//!     });
//!     let (mut by_key, mut by_name) = (HashMap::new(), HashMap::new());
//!     while let Some(item) = decoder.next() {
//!         match item {
//!             Item::Events(batch) => {
//!                 let chunk = batch.chunk();
//!                 let Some((_, class)) = chunk.types.by_name("jdk.ExecutionSample") else { continue };
//!                 let binding = Binding::new(chunk, class, &["sampledThread"]);
//!                 for frame in batch.frames() {
//!                     if let Ok([thread]) = binding.values_in(chunk, &frame) {
//!                         *by_key.entry(thread).or_insert(0) += 1;
//!                     }
//!                 }
//!             }
//!             Item::ChunkEnd(end) => {
//!                 let Some((threads, _)) = end.chunk.types.by_name("java.lang.Thread") else { continue };
//!                 for (key, samples) in by_key.drain() {
//!                     let thread = constant(end.chunk, threads, key, 0)?;
//!                     let Some(Value::Struct(thread)) = thread else { continue };
//!                     let name = thread.field("osName")?.map(Value::text).transpose()?.flatten();
//!                     *by_name.entry(name.unwrap_or_default().into_owned()).or_insert(0) += samples;
//!                 }
//!             }
//!             _ => {}
//!         }
//!     }
//!     Ok(by_name)
//! }
//!
//! # fn main() -> Result<(), Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/flightline.jfr").as_ref();
//! let mut samples = 0;
//! let recording = Recording::open(path)?;
//! recording.run_grouped(Delivery::KeysOnly, recording.jobs(), count, |part| {
//!     samples += part?.values().sum::<u32>();
//!     Ok::<(), Error>(())
//! })?;
//! assert!(samples > 0);
//! # Ok(()) }
//! ```
//!
//! ## A stream
//! The decoder does no I/O: push what was received, in pieces of any size. [`read::Input::stream`] does that for a
//! reader. Here a struct is bound to the fields:
//! ```
//! use jfr_format::event::Reference;
//! use jfr_format::ids::Ticks;
//! use jfr_format::jfr_view;
//! use jfr_format::read::{Decoder, Delivery, Item, Views};
//!
//! jfr_view! {
//!     struct Sample<'a>: "jdk.ExecutionSample" {
//!         start: Ticks = "startTime",
//!         thread: Option<Reference<'a>> = "sampledThread",
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/flightline.jfr");
//! # let received = std::fs::read(path)?;
//! let (mut decoder, mut views) = (Decoder::new(Delivery::Streaming), Views::default());
//! let (mut samples, mut with_thread) = (0, 0);
//! for bytes in received.chunks(4096) {
//!     decoder.push(bytes.to_vec().into());
//!     while let Some(item) = decoder.next() {
//!         let Item::Events(batch) = item else { continue };
//!         for event in batch.events() {
//!             // `None`: an event of another type.
//!             let Some(sample) = views.read::<Sample>(&event)? else { continue };
//!             samples += u32::from(sample.start > Ticks(0));
//!             with_thread += u32::from(sample.thread.is_some());
//!         }
//!     }
//! }
//! // At the end of the stream, `decoder.close()` makes the rest of an unfinished chunk available.
//! assert!(samples > 0 && with_thread > 0);
//! # Ok(()) }
//! ```
//!
//! ## All fields
//! A visitor has a method per kind of value; `other` gets the kinds without one:
//! ```
//! use jfr_format::event::{TextRef, Value, Visitor};
//! use jfr_format::read::{Field, Input, Item};
//!
//! #[derive(Default)]
//! struct Count {
//!     integers: u64,
//!     texts: u64,
//!     others: u64,
//! }
//!
//! impl<'a> Visitor<'a> for Count {
//!     #[inline]
//!     fn integer(&mut self, _: &'a Field, _: i64) {
//!         self.integers += 1;
//!     }
//!
//!     #[inline]
//!     fn text(&mut self, _: &'a Field, _: TextRef<'a>) {
//!         self.texts += 1;
//!     }
//!
//!     #[inline]
//!     fn other(&mut self, _: &'a Field, _: Value<'a>) {
//!         self.others += 1;
//!     }
//! }
//!
//! # fn main() -> Result<(), jfr_format::error::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/flightline.jfr").as_ref();
//! let mut count = Count::default();
//! let mut input = Input::open(path)?;
//! while let Some(item) = input.next()? {
//!     let Item::Events(batch) = item else { continue };
//!     for event in batch.events() {
//!         event.accept(&mut count)?;
//!     }
//! }
//! assert!(count.integers > 0 && count.texts > 0);
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
