//! The side of a recorder that is not in the recorded program: it gives programs shared memory to put samples in,
//! empties it, resolves symbols, and writes JFR to a file or a pipe. And the way to record the own process:
//! [`Recorder::builder`].
//!
//! The way of a sample:
//! ```text
//! session.rs    directory of shared memory, told to programs by FLIGHTLINE_SESSION
//! proc_file.rs  one program's file, mapped and mistrusted          threads.rs, ledger.rs  who, and how much CPU time
//! process.rs    ring → samples                                     modules.rs, images.rs, symbols.rs, rows.rs
//! intern.rs     stack → key, method → key                          tell.rs   everything that is no sample
//! recording.rs  samples → chunks                                   sink/     file, pipe
//! drain.rs      the loop around all that                           command.rs, helper.rs, guard.rs   who runs it
//! ```
//! Memory is bounded: per process its ring (256 KiB to 16 MiB) and 24 MiB of remembered stacks; per output 48 MiB of
//! dictionary, then forgotten at a chunk boundary, and 8 MiB of queue for a slow reader; symbols as long as their module is
//! used, 16 bytes each.

mod clock;
pub mod command;
mod demangle;
pub mod drain;
mod elf;
pub mod engines;
mod error;
mod guard;
pub mod helper;
mod images;
mod intern;
mod ledger;
pub mod loss;
mod modules;
pub mod preload;
mod proc_file;

mod process;
pub mod program;
mod recording;
pub mod rows;
mod sequences;
mod session;
pub mod settings;
mod sigbus;
pub mod sink;
mod symbols;
mod system;
mod tell;
mod threads;

pub use drain::Drain;
pub use error::Error;
pub use guard::{Builder, Recorder, Recording};
pub use loss::Report;
pub use settings::{Engine, Settings};
pub use sigbus::survive as survive_shrinking_files;
pub use sink::Target;
