//! Passes the active spans of `tracing` or OpenTelemetry to [`flightline_context`], so that a profiler's
//! samples contain their span.
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
//! On top of `tracing-opentelemetry` (feature `opentelemetry`) the layer uses OpenTelemetry's ids, see
//! `FlightlineLayer::with_opentelemetry`. Programs that use OpenTelemetry without `tracing` call
//! `observe_opentelemetry` and add a `FlightlineProcessor` to their tracer provider (feature
//! `opentelemetry-sdk`).

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
