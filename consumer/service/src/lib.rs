//! The profiling service: records any of many processes on demand.
//!
//! ```text
//! agent (next to a process) ──HTTP──▶ http ─▶ core (targets, runs) ─▶ history (runs on disk)
//! browser, curl, `flightline remote` ──▶ http ─▶ core, render (recording → page, folded, pprof, OTLP)
//! ```
//! Agents connect to the service, poll for commands and upload recordings. The service itself connects only
//! to the receivers of [`forward`]. It starts processes only if configured to: agents for local processes
//! ([`local`]) and queries of a store ([`stored`]).

#![forbid(unsafe_code)]

mod api_error;
pub mod clock;
pub mod core;
pub mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod history;
pub mod http;
pub mod id;
pub mod ingest;
mod limits;
pub mod local;
pub mod log;
mod page;
pub mod profile_store;
pub mod render;
pub mod server;
pub mod settings;
pub mod window;
pub mod wire;

pub use api_error::ApiError;
