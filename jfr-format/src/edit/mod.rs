//! Making recordings out of recordings: repair, joining, splitting, leaving events out.
//!
//! ```text
//! bytes ─► scan ─► Found: header, types, checkpoints, runs of whole events     of any bytes, whatever is wrong
//!                    ├─ sound and unchanged ─► copied as it is
//!                    └─ else ─► rebuild: header, metadata, checkpoints newly chained, the events that stay
//! ```
//! What is rebuilt keeps the bytes of its events and constants; sizes, offsets and the checkpoint chain are new. All
//! functions take the whole input (a mapped file) and write chunk after chunk; memory goes with the largest chunk.

mod assemble;
mod filter;
mod rebuild;
mod references;
mod repair;
mod scan;
mod source;

pub use assemble::{Clash, Conflicts, Part, assemble, chunks};
pub use filter::{Decision, Filtered, Scope, Share, filter, time_range};
pub use repair::{Cause, Lost, Options, Repaired, repair};
pub use source::open;
