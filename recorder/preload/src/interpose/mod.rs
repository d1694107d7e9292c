//! The interposed functions, by what they are about. Each is as thread- and async-signal-safe as the C library's own.

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
