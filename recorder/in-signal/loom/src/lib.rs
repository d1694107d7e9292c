//! The sample ring (`../src/ring.rs`, the same file) over loom's atomics, as small as it can be: every order of loads and stores of a
//! few threads is tried in `tests/`. `cargo test --manifest-path recorder/in-signal/loom/Cargo.toml`.

/// What the ring takes for the processor's.
mod atomic {
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    /// A load may give an old value as often as it likes: more tries are more orders of the same.
    pub const TRIES: usize = 3;
}

/// As in the crate itself, but for padding, which orders nothing, and a ring of eight words.
pub mod layout {
    use loom::sync::atomic::AtomicU64;

    /// Small, so that a few records go round it.
    pub const MIN_RING_WORDS: usize = 8;

    /// `../../src/layout/process.rs`.
    pub struct RingHeader {
        /// Next position to claim.
        pub head: AtomicU64,
        /// What is before is free.
        pub tail: AtomicU64,
        /// The tail to be.
        pub releasing: AtomicU64,
    }

    /// Kinds of records, as in `../../src/layout/records.rs`.
    pub mod record {
        /// Fills the end of the memory.
        pub const PAD: u8 = 1;
        /// A sample.
        pub const SAMPLE: u8 = 2;
    }
}

/// Nothing is fetched ahead here.
mod stack {
    pub fn prefetch(_: u64) {}
}

#[path = "../../src/ring.rs"]
pub mod ring;
