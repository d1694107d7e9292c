//! The interposed functions, by what they are about. Each is as thread- and async-signal-safe as the C library's own.

mod exec;
mod signal;
mod thread;
