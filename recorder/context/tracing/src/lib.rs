//! Tells [`flightline_context`] what a program that uses `tracing` or OpenTelemetry is working at, so that a profiler's samples know
//! their span.
//!
//! ```
//! use tracing_subscriber::prelude::*;
//! let subscriber = tracing_subscriber::registry().with(flightline_tracing::layer().with_labels(["tenant", "http.route"]));
//! tracing::subscriber::with_default(subscriber, || {
//!     let _inside = tracing::info_span!("checkout", tenant = "acme").entered();
//!     assert!(flightline_context::current().is_some());
//! });
//! ```
//!
//! On top of `tracing-opentelemetry` (feature `opentelemetry`) the layer takes OpenTelemetry's ids: see
//! `FlightlineLayer::with_opentelemetry`. Programs that use OpenTelemetry without `tracing` call `observe_opentelemetry` and add a
//! `FlightlineProcessor` to their tracer provider (feature `opentelemetry-sdk`).

mod layer;
#[cfg(feature = "opentelemetry")]
mod otel;
#[cfg(feature = "opentelemetry-sdk")]
mod processor;

pub use layer::{FlightlineLayer, layer};
#[cfg(feature = "opentelemetry")]
pub use otel::observe_opentelemetry;
#[cfg(feature = "opentelemetry-sdk")]
pub use processor::FlightlineProcessor;
