//! Internal to the command `flightline`, no stable API.
//!
//! Programs that record themselves use the crate `flightline` (`recorder/flightline`), which has the few items
//! that they need.
//!
//! The part of the recorder outside the recorded program: it provides the shared memory for samples, reads
//! it, resolves symbols, and writes JFR to a file or a pipe. A program records itself with
//! [`Recorder::builder`].
//!
//! The path of a sample:
//! ```text
//! session.rs        a directory of shared memory, whose path programs get in FLIGHTLINE_SESSION
//! shared_memory/    a program's file, mapped and not trusted; unwind tables for handlers; the journal of data that is not in the output yet
//! process/          the ring of a process → samples; its threads and their CPU time; wall/ the wall clock
//! from_outside/     attach/ CPU time and waits, off_cpu/ switches, wake-ups and system calls of processes without the recorder in them
//! remote_unwinder/  their stacks                           perf_events/  the kernel's events: names, attributes, rings
//! names/            address → frame with a name, stack → key
//! recording/        samples → chunks; events/ one file for each engine except CPU time; info_events.rs  everything else
//! output/           sink/ file and stream, repository/, dump/, exposition/       recover.rs  completes the output of a killed drain
//! ```
//! Around it:
//! ```text
//! drain.rs          the loop; metrics/ of processes and machine      cost/  the cost of recording, and its budget
//! control/          pause, resume, stop, dump, status, join          run/   command, running processes, own process, service
//! settings/         all options                                      os/    clocks, memory, processes, control groups
//! ```
//! Memory is bounded:
//!
//! * per process: its ring (128 KiB to 16 MiB) and up to 16 MiB of cached stacks, 64 MiB for all processes,
//! * per output: 32 MiB of dictionary, which is then cleared at a chunk boundary, and 8 MiB of queue for a
//!   slow reader,
//! * symbols as long as their module is used, 16 bytes each.
//!
//! `os/memory.rs` makes the allocator return freed memory.

pub mod control;
mod cost;
mod drain;
mod error;
mod from_outside;
mod info_events;
mod loss;
mod names;
mod os;
mod output;
mod perf_events;
mod process;
pub mod program;
mod recording;
pub mod recover;
mod remote_unwinder;
mod run;
pub mod session;
pub mod settings;
mod shared_memory;

pub use drain::Drain;
pub use error::Error;
/// Units of work with labels: [`Recorder::scope`].
pub use flightline_context::{ActiveScope, InScope, Scope};
pub use loss::{Report, engine_name};
pub use names::symbolize::{Declaration, SourceFrame, Symbolizer};
pub use os::sigbus::survive as survive_shrinking_files;
pub use output::sink::{RepositorySink, Target, path_for_process, stream};
pub use output::{dump, repository};
pub use run::drain_options::drain_options;
pub use run::guard::{Builder, Recorder, Recording};
pub use run::preload::find as find_preload_library;
pub use run::service::Service;
pub use run::{command, engines, helper};
pub use settings::{Engine, Settings};
#[cfg(feature = "fuzzing")]
pub use shared_memory::journal;
pub use shared_memory::rows::build as build_unwind_rows;
