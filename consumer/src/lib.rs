//! Makes profiles from JFR recordings.
//!
//! ```text
//! jfr_format::read ─► decode ─► load ─► model ─► fold (select, label) ─► tree ─► render: HTML, SVG, folded text
//!        ├──────────► summary, print, metadata
//!        └──────────► live: the items of a stream as they come ─► spans, off_cpu, slow, latency
//! ```
//! Recordings of any producer can be read: types and fields are found by the names in the recording's
//! metadata.

#![deny(unsafe_code)] // but for live/asynchronous.rs

pub mod amount;
pub mod convert;
pub mod cut;
mod decode;
pub mod difference;
pub mod error;
mod fields;
pub mod fold;
pub mod folded;
pub mod input_format;
pub mod latency;
pub mod live;
pub mod load;
pub mod metadata;
pub mod missing;
pub mod model;
pub mod off_cpu;
pub mod picture;
pub mod print;
pub mod redact;
pub mod render;
pub mod report;
pub mod reshape;
pub mod slow;
pub mod spans;
pub mod summary;
pub mod time_range;
pub mod top;
pub mod tree;
pub mod unfreed;
pub mod view;
pub mod warnings;

pub use error::Error;
