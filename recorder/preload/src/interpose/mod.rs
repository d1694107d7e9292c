//! The interposed functions, by what they are about. Each is as thread- and async-signal-safe as the C library's own.

mod exec;
mod sandbox;
mod signal;
mod thread;

pub use sandbox::publish;
