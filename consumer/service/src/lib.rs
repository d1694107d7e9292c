//! The profiling service: records any of many processes on demand.
//!
//! ```text
//! agent (next to a process) ──HTTP──▶ http ─▶ core (targets, runs) ─▶ store (history on disk)
//! browser, curl, `flightline remote` ──▶ http ─▶ core, pictures (recording → page, folded, pprof, OTLP)
//! ```
//! Agents connect to the service, poll for commands and upload recordings. The service itself connects only
//! to the receivers of [`forward`]. It starts processes only if configured to: agents for local processes
//! ([`local`]) and queries of a store ([`stored`]).

#![forbid(unsafe_code)]

pub mod clock;
pub mod core;
mod fault;
pub mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
pub mod id;
pub mod ingest;
pub mod local;
pub mod log;
mod page;
pub mod pictures;
pub mod serve;
pub mod settings;
mod store;
pub mod stored;
pub mod window;
pub mod wire;

pub use fault::Fault;
