//! What is kept of a target that is recorded all the time: its latest chunks, by time.
//!
//! ```text
//! body ─► Chunk: checked, without any lock ─► Window::put ─► <from ms>-<to ms>-<random>.jfr ─► select(from, to) ─► pictures
//! ```
//! Each file is what came at once: one chunk or several, of whatever recorder. It is complete when it gets its name, and is never changed.
//! Chunks go in the order in which they came, by our own clock, since those of the recorded machines may step back. What is on disk is
//! never more than the bound: room is made before anything is written, by chunks that were whole already.

mod line;
#[cfg(feature = "fuzzing")]
pub(crate) mod names;
#[cfg(not(feature = "fuzzing"))]
mod names;
mod store;
#[cfg(test)]
mod tests;

pub use line::{Line, Timeline};
pub use store::{Bounds, Chunk, Error, Limits, MOST_SELECTED, Part, Window};
