//! Internal to the recorder, no stable API.
//!
//! The part of the recorder that runs in the recorded program, outside signal handlers. `preload` exports the functions that lead here; the
//! linked library calls [`start()`] and [`stop()`]. A module depends only on those in its own line and above:
//!
//! ```text
//! os/         system calls, a lock, the C library's own functions, the identity of the process
//! target      inspects a program before it is executed
//! shadow      the signal mask of a thread
//! sandbox     threads that may not make system calls
//! session/    the joined recording and its memory
//! modules/    the loader's modules in the process file; dlclose
//! signals/    SIGTRAP and SIGPROF, shared with the program; masks, commands, last samples
//! threads/    registers threads and arms their engines; their stacks and names
//! engines/    chooses the engine for CPU time; engines that record calls
//! alloc/      the engine that records allocations
//! context/    spans, and off-CPU time per span
//! lifecycle/  start, join, fork, exec and exit; executes commands
//! ```
//! The crate does not allocate (neither through the program's `malloc` nor any other), keep a descriptor, start a thread, print (unless
//! `FLIGHTLINE_DEBUG` is set), or export a symbol.
#![no_std]

pub mod alloc;
pub mod context;
pub mod engines;
pub mod lifecycle;
pub mod modules;
pub mod os;
pub mod sandbox;
pub mod session;
pub mod shadow;
pub mod signals;
pub mod target;
pub mod threads;

pub use lifecycle::start::{Moment, Stopped, find_loader, is_active, start, stop, wait_for_commands};
