//! The part of the recorder that runs in the recorded program, outside signal handlers: it joins a session, keeps the
//! books of threads, arms the engines, and keeps fork, exec, `dlclose`, signals and exit harmless.
//!
//! What it does: [`session`] joins, [`threads`] registers and arms, [`signals`] and [`masks`] share SIGTRAP and SIGPROF
//! with the program, [`fork`], [`exec`], [`closing`] and [`exit`] follow the process through its life; [`alloc`] samples allocations.
//! What it does not: allocate (neither through the program's `malloc` nor any other), keep a descriptor, start a
//! thread, print (unless `FLIGHTLINE_DEBUG` is set), or export a symbol. `preload` exports the functions that lead
//! here; the linked library calls [`start()`] and [`stop()`].
#![no_std]

pub mod alloc;
pub mod closing;
pub mod command;
pub mod context;
pub mod engines;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod fork_token;
mod kept;
pub mod masks;
pub mod modules;
pub mod names;
pub mod os;
mod put_aside;
pub mod real;
pub mod sandbox;
pub mod session;
mod signal_frame;
pub mod signals;
pub mod slow_io;
pub mod spin;
pub mod stacks;
mod start;
mod start_objects;
pub mod target;
pub mod threads;
pub mod thrown;
pub mod traced;
pub mod waits;

pub use start::{Moment, Stopped, find_loader, is_active, start, stop, wait_for_commands};
