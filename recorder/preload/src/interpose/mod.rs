//! The interposed functions, by what they are about. Each is as thread- and async-signal-safe as the C library's own.
//!
//! An interposed function calls the C library's function with the program's arguments and returns its result.
//! `errno` is that of the C library. A lock is first tried without waiting, which has the same result unless
//! the lock is held. Semaphores remain cancellation points. Paths, peers and lock owners are looked up only
//! if the call took longer than the threshold. `flightline_in_signal::payload` describes the words of the
//! records.

mod alloc;
mod condition;
mod exec;
mod futex;
mod io;
mod lock;
mod map;
mod seccomp;
mod signal;
mod stdio;
mod symbol_versions;
mod thread;
mod throw;

/// Prepares the interposed functions: finds the loader, the allocator's functions and the layout of locks.
pub fn publish() {
    flightline_capture::find_loader();
    seccomp::publish();
    alloc::look_up();
    lock::learn();
}
