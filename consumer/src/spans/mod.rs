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
mod timeline;
pub mod told;
pub mod trace;

#[cfg(test)]
mod tests;

pub use ids::{SpanKey, TraceId};
pub use infer::{Inference, Inferred, Parent};
pub use join::{Attributed, Counts, Joiner, Limits, Path, Taken};
pub use listen::Listener;
pub use profile::{Entry, Profile, Spent};
pub use reader::{ClockMismatch, Found, Lost, Options, Spans};
pub use told::{Labels, Scope, Span, SpanContext, Told, labels_of};
