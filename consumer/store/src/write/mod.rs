//! Writes recordings and streams as files of the store.
//!
//! ```text
//! file ─► chunks (complete? known?) ─► live::keyed (else live::Feed) ─► rows + dictionary ─► encode
//!      ─► delivery: frames, nodes, stacks, then samples
//! ```
//! A delivery consists of one or more chunks, is named after a hash of their contents, and becomes visible
//! with its last file. A repeated delivery is recognized, or writes the same file names.

mod chunks;
mod delivery;
mod dictionary;
mod encode;
mod keyed;
mod labels;
mod rows;
mod stream;

pub use chunks::{Chunk, chunks};
pub use delivery::{Added, Options, Writer};
pub use stream::Stream;
