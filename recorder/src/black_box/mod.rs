//! The black box: nothing that was taken is lost when the program, the drain or both are killed.
//!
//! ```text
//! handler ─▶ ring ─▶ journal.rs ─▶ chunk buffer ─▶ output, commit        all but the buffer outlives everybody
//!             │          │
//!             └──────────┴──▶ recover.rs: the output put back to its last commit, the rest written after it
//! counts of what was lost ──▶ output; what of them was told: told.rs
//! ```

#[cfg(not(feature = "fuzzing"))]
pub(crate) mod journal;
#[cfg(feature = "fuzzing")]
pub mod journal;
mod recover;
#[cfg(not(feature = "fuzzing"))]
pub(crate) mod told;
#[cfg(feature = "fuzzing")]
pub mod told;

pub(crate) use recover::is_wanted;
pub use recover::{Recovered, abandoned, output_of, outputs, recorded, recover};

/// FNV-1a: a single wrong byte is never overlooked.
fn checksum(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
