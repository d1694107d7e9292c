//! Exports recordings to other systems: OTLP profiles and traces, pprof, rows for Fluentd.
//!
//! ```text
//! consumer::live (items) ─► Collector ─► Batch ─┬─► otlp::profiles ─┬─► protobuf, JSON ─► file
//!                                               ├─► otlp::traces  ──┘        └─► send: HTTP, gRPC
//!                        │                      └─► pprof ─► file
//!                        └─► hdps: rows ─► JSON ─► file, or send: Fluentd
//! ```
//! This is a separate crate so that programs that only read recordings do not build the dependencies for
//! sending.

#![forbid(unsafe_code)]

mod batch;
mod collector;
mod context;
pub mod hdps;
mod inferred;
pub mod otlp;
pub mod pprof;
mod resource;
#[cfg(any(feature = "http", feature = "grpc"))]
pub mod send;

pub use batch::{Batch, Counts};
pub use collector::Collector;
pub use context::{Labels, Link, Span};
pub use inferred::Inferring;
pub use resource::Attributes;
