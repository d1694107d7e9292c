//! The sample ring (`../src/ring.rs`, the same file) over loom's atomics, with the smallest useful
//! parameters. The tests in `tests/` try every order of loads and stores of a few threads. Run them with
//! `cargo test --manifest-path recorder/in-signal/loom/Cargo.toml`.

/// The atomics that the ring uses instead of the processor's.
mod atomic {
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    /// A load may return an old value any number of times; more tries only repeat the same orders.
    pub const TRIES: usize = 3;
}

/// The crate's own layout, without padding (it orders nothing) and with a ring of eight words.
pub mod layout {
    use loom::sync::atomic::AtomicU64;

    /// Small, so that a few records go round it.
    pub const MIN_RING_WORDS: usize = 8;

    /// `../../src/layout/process.rs`.
    pub struct RingHeader {
        /// Next position to claim.
        pub head: AtomicU64,
        /// Everything before this position is free.
        pub tail: AtomicU64,
        /// The next tail, while a record is being freed.
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

/// Prefetching does nothing here.
mod unwind {
    pub mod stack {
        pub fn prefetch(_: u64) {}
    }
}

#[path = "../../src/ring.rs"]
pub mod ring;
