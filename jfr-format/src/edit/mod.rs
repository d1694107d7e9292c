//! Making recordings out of recordings: repair, joining, splitting, leaving events out.
//!
//! ```text
//! bytes ─► scan ─► ScannedChunk: header, types, checkpoints, runs of whole events     of any bytes, whatever is wrong
//!                    ├─ sound and unchanged ─► copied as it is
//!                    └─ else ─► rebuild: header, metadata, checkpoints newly chained, the events that stay
//! ```
//! What is rebuilt keeps the bytes of its events and constants, unless text is redacted, or ids of types, keys and ticks are told
//! anew because another recording uses them otherwise; sizes, offsets and the checkpoint chain are new. All functions take
//! the whole input (a [`Source`]) and write chunk after chunk, each in passes: it is read, judged, and written by the ranges
//! and the bit per event that judging left. Pages of a mapped file are let go behind each pass. So memory is some 10 MB, a bit
//! per event and some 50 bytes per constant of the largest chunk. What searching behind
//! damage may cost is linear in the input (`scan::Effort`, `read/resync.rs`).

mod assemble;
mod clock;
pub mod collect;
mod filter;
mod keys;
mod metadata;
mod rebuild;
mod references;
mod repair;
mod rewrite;
mod scan;
mod source;
mod symbolize;
mod unique_start_times;
mod validation_error;

pub use assemble::{Clash, Conflicts, Part, assemble, chunks};
pub use filter::{Decision, Filtered, Scope, Share, filter, time_range};
pub use repair::{Cause, Lost, Missing, Options, Repaired, STEPS_PER_BYTE, repair};
pub use rewrite::{FindSecrets, Redact, Redaction};
pub use source::Source;
pub use symbolize::{FrameLocation, Named, Symbolized, symbolize};
