//! Tracing spans and the samples in them.
//!
//! ```text
//! live::Item ─► listen, told: ours and foreign ─► join: by thread and time ─┬─► profile: sums by span, name, endpoint, trace, label
//!                                                                   └─► infer: spans out of samples
//! ```
//! Files and streams are processed in the same way. Memory is bounded, and dropped data is counted.

pub(crate) mod board;
pub mod ids;
pub mod infer;
pub mod join;
mod listen;
pub mod moments;
pub mod profile;
pub mod reader;
pub mod report;
pub mod span_events;
mod timeline;
pub mod trace;

#[cfg(test)]
mod tests;

pub use ids::{SpanKey, TraceId};
pub use infer::{Inference, Inferred, Parent};
pub use join::{Attributed, Counts, JoinedSample, Joiner, Limits, Path};
pub use listen::Listener;
pub use profile::{Entry, Profile, Spent};
pub use reader::{ClockMismatch, Lost, Options, SpanReport, Spans};
pub use span_events::{Labels, Scope, Span, SpanContext, SpanRecord, parse_labels};
