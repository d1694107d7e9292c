//! What [`crate::ring`] is made of; `loom/` has an `atomic` of its own, whose every operation is a place where threads may change.

pub use core::sync::atomic::{AtomicU64, Ordering};

/// How often a claim is tried while others win.
pub const TRIES: usize = 128;
