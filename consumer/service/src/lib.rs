//! The profiling service: any of many processes, recorded on demand.
//!
//! ```text
//! agent (beside a process) ──HTTP──▶ http ─▶ core (targets, runs) ─▶ store (history on disk)
//! browser, curl, `flightline remote` ──▶ http ─▶ core, pictures (recording → page, folded stacks, pprof, OTLP)
//! ```
//! Agents come to the service, ask for commands and bring recordings; the service connects to nobody (but whom [`forward`] sends to), and starts nothing but
//! agents for processes of its own machine and questions to a store, if it was told to ([`local`], [`stored`]).

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
