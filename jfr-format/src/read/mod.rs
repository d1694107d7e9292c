//! Reading recordings, in levels that borrow: input → chunk → event → field.
//!
//! One decoder without I/O ([`Decoder`]) does all the work; [`Input`] drives it from a mapped file or a stream.
//! Everything goes by the metadata of the file itself. Damage never ends the reading: it is told as
//! [`Item::Warning`] and decoding goes on at the next place that can be trusted.
//!
//! ```no_run
//! use jfr_format::read::{Input, Item};
//!
//! # fn main() -> Result<(), jfr_format::error::Error> {
//! let mut input = Input::open("run.jfr".as_ref())?;
//! while let Some(item) = input.next()? {
//!     match item {
//!         Item::Events(batch) => {
//!             for event in batch.events() {
//!                 println!("{} at {:?} ns", event.class().name, event.start_nanos());
//!             }
//!         }
//!         Item::Warning(warning) => eprintln!("{warning}"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```

//!
//! The fields of an event can be had in four ways, each quicker than the one before: by name
//! ([`EventRef::field`](crate::event::EventRef::field)), by iterating
//! ([`fields`](crate::event::EventRef::fields)), by a closure ([`visit`](crate::event::EventRef::visit)), by a
//! [`Visitor`](crate::event::Visitor) with a method per kind of value ([`accept`](crate::event::EventRef::accept)).
//! Who wants the same few fields of one type declares them ([`view`]) or binds them ([`Binding`]).

mod batch;
mod binding;
mod conformance;
mod follow;
mod framer;
mod input;
pub(crate) mod map;
mod parallel;
pub(crate) mod push;
mod references;
pub(crate) mod resync;
mod stacks;
mod validate;
pub mod view;

pub use crate::chunk::Chunk;
pub use crate::ids::ChunkIndex;
pub use crate::types::{Annotation, Class, ClassIndex, Field, Kind, Region, Setting, Types};
pub use batch::{Batch, Events, Filter, Frame, Frames, Run, TypeCount, TypeCounts};
pub use binding::Binding;
pub use follow::{Follow, Progress};
pub use framer::{ChunkHead, EventCount, FrameError, FrameFault, Framer, Part};
pub use input::Input;
pub use parallel::{Recording, default_jobs};
pub use push::{ChunkEnd, Decoder, Delivery, Item, Pages};
pub use stacks::{StackFrame, StackReader};
pub use validate::{ValidatedEvent, ValidationSummary};
pub use view::Views;
