//! Records the program that uses this crate: CPU time, wall-clock time, perf events and slow calls, with
//! stacks. The recording has the format of the JDK's Flight Recorder, which `flightline flame`, JDK Mission
//! Control and `jfr` read.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let recording = flightline::Builder::new()
//!     .events([flightline::Event::Cpu(Duration::from_millis(10)), flightline::Event::WALL])
//!     .label("zone", "eu-1")
//!     .output("run.jfr")
//!     .start()?;
//! // … work …
//! recording.stop()?;
//! # Ok::<(), flightline::Error>(())
//! ```
//!
//! | | |
//! |---|---|
//! | record this process | [`Builder`], [`Recording`] |
//! | select events and threads | [`Event`], [`CpuEngine`], [`Threads`], [`SpanRecording`] |
//! | select the destination | [`Output`], [`Repository`] |
//! | copy the last minutes under certain conditions | [`Dumps`], [`DumpCondition`] |
//! | let a profiling service record this process | [`Service`] |
//! | label the work of a thread | [`Scope`], [`Span`], [`label`] |
//!
//! The `flightline` program writes the recording in a separate process, if it is installed. Otherwise, or
//! with [`Builder::in_process`], a thread of this process writes it.
//!
//! Allocations, lock waits, I/O and exceptions are recorded by interposers of C library functions in
//! `libflightline.so`. A program that links this crate does not have them; to record these events, start the
//! program with `flightline record`, or with `LD_PRELOAD=libflightline.so`.
//!
//! Public signatures use only types of this crate, of the standard library, and those of `flightline-context`
//! that are re-exported here.

#![forbid(unsafe_code)]

mod builder;
mod dump;
mod error;
mod event;
mod output;
mod recording;
mod service;

pub use builder::{Builder, CpuEngine, SpanRecording, Threads};
pub use dump::{DumpCondition, Dumps};
pub use error::Error;
pub use event::Event;
#[doc(inline)]
pub use flightline_context::{
    ActiveScope, Entered, Guard as ContextGuard, InScope, LabelError, Scope, Span, SpanContext, current,
    enter_context, label, scope,
};
pub use output::{Output, Repository};
pub use recording::Recording;
pub use service::Service;
