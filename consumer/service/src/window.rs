//! A target's window: the latest chunks of its continuous profile, by time.
//!
//! ```text
//! body ─► Chunk: validated, without a lock ─► Window::put ─► <from ms>-<to ms>-<random>.jfr
//!                                                               └─► select(from, to) ─► pictures
//! ```
//! Each file holds one upload: one or more chunks of any recorder. It gets its name once it is complete, and
//! never changes. Files are evicted in order of arrival by the service's clock, since clocks of recorded
//! machines may step back. The files never exceed the size limit: old files are removed before a new one is
//! written.

mod files;
mod histogram;
#[cfg(feature = "fuzzing")]
pub(crate) mod names;
#[cfg(not(feature = "fuzzing"))]
mod names;
#[cfg(test)]
mod tests;

pub use files::{Bounds, Chunk, Error, Limits, MOST_SELECTED, Part, Window};
pub use histogram::{Histogram, Timeline};
