//! Internal to the recorder, no stable API.
//!
//! The part of the recorder that runs in the recorded program, outside signal handlers. `preload` exports the functions that lead here; the
//! linked library calls [`start()`] and [`stop()`]. A module depends only on those in its own line and above:
//!
//! ```text
//! os, spin, real, fork_token            system calls, a lock, the C library's own functions, the identity of the process
//! retained_mapping                      address ranges that are reused
//! shadow, sandbox                       signal masks; whether a thread may make system calls
//! session                               the joined recording and its memory
//! modules, names, start_objects, join   contents of the process file; joining
//! command                               receives commands
//! masks, signals                        share SIGTRAP and SIGPROF with the program
//! stacks, threads, engines              register threads and arm their engines
//! alloc, lock_waits, slow_io, …         engines that record calls; preemption, context: spans
//! seccomp, control, fork, exec, exit    follow the life of the process, execute commands
//! start                                 begins and ends the recording
//! ```
//! The crate does not allocate (neither through the program's `malloc` nor any other), keep a descriptor, start a thread, print (unless
//! `FLIGHTLINE_DEBUG` is set), or export a symbol.
#![no_std]

pub mod alloc;
pub mod command;
pub mod context;
mod control;
pub mod dlclose;
pub mod engines;
pub mod exceptions;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod fork_token;
pub mod join;
pub mod lock_waits;
pub mod masks;
pub mod modules;
pub mod names;
pub mod os;
mod preemption;
pub mod real;
mod retained_mapping;
pub mod sandbox;
pub mod seccomp;
pub mod session;
pub mod shadow;
mod signal_frame;
pub mod signals;
pub mod slow_io;
pub mod spin;
pub mod stacks;
mod start;
mod start_objects;
pub mod target;
pub mod threads;
pub mod traced_functions;

pub use start::{Moment, Stopped, find_loader, is_active, start, stop, wait_for_commands};
