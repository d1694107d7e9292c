//! The atomics that [`crate::ring`] uses. `loom/` has its own `atomic`, in which every operation is a
//! possible thread switch.

pub use core::sync::atomic::{AtomicU64, Ordering};

/// Number of attempts to claim memory while other producers win.
pub const TRIES: usize = 128;
