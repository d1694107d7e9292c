//! The side of a recorder that is not in the recorded program: it gives programs shared memory to put samples in,
//! empties it, resolves symbols, and writes JFR to a file or a pipe. And the way to record the own process:
//! [`Recorder::builder`].
//!
//! The way of a sample:
//! ```text
//! session.rs    directory of shared memory, told to programs by FLIGHTLINE_SESSION
//! process/      one program's file, mapped and mistrusted; ring → samples; who its threads are, how much CPU time they took
//! events/       one file for each engine beside CPU time           wall/     the wall clock
//! names/        address → frame with a name, stack → key           rows.rs   unwind rows for the handlers
//! recording/    samples → chunks     tell.rs  everything else      sink/     file, stream
//! attach/       processes that are recorded from outside           outside.rs  their stacks, walked from here
//! control/      asked from outside: pause, resume, stop, dump, status, join     schedule.rs  when it begins and ends
//! cost/         what all that costs, and the budget it is kept under
//! drain.rs      the loop around all that                           command.rs, helper.rs, guard.rs, service.rs   who runs it
//! ```
//! Memory is bounded: per process its ring (128 KiB to 16 MiB) and up to 16 MiB of remembered stacks, 64 MiB for all of them; per
//! output 32 MiB of dictionary, then forgotten at a chunk boundary, and 8 MiB of queue for a slow reader; symbols as long as their
//! module is used, 16 bytes each. `memory.rs` has the allocator give back what was let go.

mod allocators;
#[cfg(test)]
mod alone;
mod attach;
pub mod black_box;
mod clock;
pub mod command;
pub mod control;
mod cost;
pub mod drain;
pub mod dump;
pub mod engines;
mod error;
mod events;
pub mod exposition;
mod guard;
pub mod helper;
pub mod labels;
mod left_behind;
pub mod loss;
mod memory;
mod metrics;
pub mod names;
mod off_cpu;
mod outside;
pub mod perf_events;
pub mod preload;
mod process;
pub mod program;
mod recording;
pub mod repository;
pub mod rows;
pub mod running;
pub mod schedule;
mod service;
pub mod session;
pub mod settings;
mod sigbus;
pub mod sink;
mod system;
mod tell;
mod wall;

pub use drain::Drain;
pub use error::Error;
/// Units of work with labels: [`Recorder::scope`].
pub use flightline_context::{ActiveScope, InScope, Scope};
pub use guard::{Builder, Recorder, Recording};
pub use loss::Report;
pub use service::Service;
pub use settings::{Engine, Settings};
pub use sigbus::survive as survive_shrinking_files;
pub use sink::Target;
