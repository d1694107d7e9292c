//! Writes chunks, to a file that can be patched or to a pipe that cannot.
//!
//! ```text
//! header │ metadata │ statics │ segment │ segment │ …          one segment per flush
//! segment = checkpoint with the new constants │ events │ empty checkpoint with the FLUSH bit
//! ```
//!
//! Constants precede the events that use them, so a reader of the growing file or stream can resolve every
//! event at once. The closing checkpoint indicates to such readers, and to the JDK's live streams, that the
//! segment is complete. Every checkpoint points to the previous one.
//!
//! A flush appends its segment in one write. Then
//! * [`Geometry::Patched`]: the header is updated in the order on which the JDK's live readers rely: state
//!   0xff, the fields, the next generation. [`ChunkWriter::finish`] sets state 0.
//! * [`Geometry::Fixed`]: no update. The header is complete from the start, because the chunk's size is known
//!   in advance: the last 64 bytes contain an *anchor*, an empty checkpoint that points to the last real one,
//!   and the rest before it is filled with an event of type 0, which all readers skip.
//!
//! In a stream a `flightline.Segment` follows the closing checkpoint ([`ChunkWriter::enable_segments`]): with
//! it, a reader can check the segment before it, and detect missing ones.
//!
//! There is no copy of the header among the events (`jdk.types.ChunkHeader`), unlike in JDKs, which write one
//! at each flush: no reader needs it, and it would cost 95 bytes per flush.
//!
//! Events of the [schema](crate::schema) are written field by field, and checked while they are written. Event types of the
//! caller's own are declared with [`EventTypes`] and checked then; see [`Event`].
//!
//! Duties of the caller
//! * Keys, unless they come from [`Constants`]: below 2³¹, not 0, and within one *file* never reused for another value; the JDK shows the value of an earlier chunk.
//! * Constants used in a chunk must be written in that chunk (again), before or in the flush that carries their first use.
//! * All chunks of a file share one [`ClockLine`].
//!
//! ```
//! use jfr_format::ids::{FileOffset, Ticks};
//! use jfr_format::schema::{self, frame_type, thread_state};
//! use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pipe = StreamOutput::new(Vec::new());
//! let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 1_700_000_000_000_000_000, ticks_per_second: 1_000_000 };
//! let mut chunk = ChunkWriter::begin(Geometry::Fixed { size: 64 << 10 }, &line, FileOffset(0), Ticks(0))?;
//! chunk.constant(schema::THREAD, 4711, |t| {
//!     t.string("worker").long(4711).null().long(0).key(0);
//! })?;
//! chunk.constant(schema::SYMBOL, 1, |s| {
//!     s.string("main");
//! })?;
//! // … class, descriptor, method 1 …
//! # chunk.constant(schema::SYMBOL, 2, |s| { s.string("()L;"); })?;
//! # chunk.constant(schema::CLASS, 1, |c| { c.key(0).key(1).key(0).int(0).boolean(false); })?;
//! # chunk.constant(schema::METHOD, 1, |m| { m.key(1).key(1).key(2).int(0).boolean(false); })?;
//! chunk.constant(schema::STACK_TRACE, 1, |s| {
//!     s.boolean(false).array(1).key(1).int(0).int(0).key(frame_type::CPP);
//! })?;
//! chunk.event(schema::EXECUTION_SAMPLE, |e| {
//!     e.ticks(Ticks(1234)).key(4711).key(1).key(thread_state::DEFAULT);
//! })?;
//! chunk.finish(Ticks(2000), true, &mut pipe)?;
//! assert_eq!(pipe.into_inner().len(), 64 << 10);
//! # Ok(())
//! # }
//! ```

mod buffer;
mod checkpoint;
mod chunk;
mod clock;
mod constants;
mod cut;
mod event_type;
mod field_value;
mod fields;
mod fixed;
mod output;
mod queue;
mod segment;

pub use chunk::{ChunkWriter, Geometry};
pub use clock::ClockLine;
pub use constants::{Constants, Frame};
pub use cut::{Cut, Fragment, Loss, complete, declares_loss_events, loss_chunk};
pub use event_type::{DeclareError, DeclareErrorKind, Event, EventType, EventTypes, FieldOptions, Fields};
pub use field_value::{ClassKey, FieldValue, StackTraceKey, StringKey, ThreadKey};
pub use fields::FieldWriter;
pub(crate) use fixed::ANCHOR;
pub use fixed::min_size as min_fixed_size;
pub use output::{FileOutput, Output, StreamOutput};

use crate::ids::TypeId;
use std::fmt;

/// Reason why an event or constant was not queued. The writer is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// It does not fit into this chunk: flush; if that does not help, finish the chunk and begin another one.
    Full {
        /// Its size in bytes.
        need: usize,
        /// Available room in bytes.
        room: usize,
    },
    /// The fields do not match the declaration in the schema.
    Fields {
        /// Name of the type.
        of: &'static str,
        /// Name of the first field that was omitted or got a value of another kind; empty if there was one
        /// too many.
        field: &'static str,
    },
    /// The schema has no event of this type.
    NotAnEvent(TypeId),
    /// The schema has no constants of this type.
    NotAPool(TypeId),
    /// This chunk does not declare the type; a later chunk can.
    Undeclared(&'static str),
    /// A pool key that some reader would truncate, or that means null: not in 1 .. 2³¹ (as reference: 0 ..
    /// 2³¹).
    Key(u64),
    /// A fixed chunk that is too small for its frame, or has 2²⁸ bytes or more.
    Size {
        /// The requested size.
        size: u32,
        /// The minimum size.
        least: u32,
    },
    /// Not a positive number of ticks per second.
    TicksPerSecond(i64),
    /// The chunk is finished.
    Finished,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WriteError::Full { need, room } => {
                write!(f, "chunk is full: {need} bytes needed, {room} left")
            }
            WriteError::Fields { of, field: "" } => {
                write!(f, "{of}: more fields written than declared")
            }
            WriteError::Fields { of, field } => {
                write!(f, "{of}: field {field} missing or of another kind")
            }
            WriteError::NotAnEvent(id) => write!(f, "type {id} is not an event of the schema"),
            WriteError::NotAPool(id) => write!(f, "type {id} is not a constant pool of the schema"),
            WriteError::Undeclared(name) => write!(f, "the chunk does not declare {name}"),
            WriteError::Key(key) => write!(f, "pool key {key} is out of range"),
            WriteError::Size { size, least } => {
                write!(f, "chunk size {size}: must be from {least} to {}", fixed::MAX_SIZE)
            }
            WriteError::TicksPerSecond(ticks) => {
                write!(f, "{ticks} ticks per second: must be positive")
            }
            WriteError::Finished => write!(f, "the chunk is finished"),
        }
    }
}

impl std::error::Error for WriteError {}
