//! Records the program that uses it: CPU time, wall-clock time, perf events and slow calls, with stacks, into a recording in the
//! format of the JDK's Flight Recorder. `flightline flame`, JDK Mission Control and `jfr` read it.
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
//! | what is recorded | [`Event`], [`CpuEngine`], [`Threads`], [`SpanRecording`] |
//! | where to | [`Output`], [`Repository`] |
//! | copies of the last minutes, when something happens | [`Dumps`], [`DumpCondition`] |
//! | have a profiling service record this process | [`Service`] |
//! | what a thread works on | [`Scope`], [`Span`], [`label`] |
//!
//! The recording is written by the `flightline` program in a process of its own, if it is installed; otherwise, or with
//! [`Builder::in_process`], by a thread of this process.
//!
//! Allocations, lock waits, I/O and exceptions are recorded by functions that `libflightline.so` puts in front of those of the C library.
//! A program that links this crate has no such functions; start it with `flightline record`, or with `LD_PRELOAD=libflightline.so`, to
//! record these.
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
