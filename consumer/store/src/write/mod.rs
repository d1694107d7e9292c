//! Recordings and streams → files of the store.
//!
//! ```text
//! file ─► chunks (whole? which?) ─► live::keyed (else live::Feed) ─► rows + dictionary ─► encode ─► delivery: frames, nodes, stacks, then samples
//! ```
//! A delivery is of some chunks, is named after their contents, and counts as there when its last file is: what is delivered again
//! is known, or written under the same names.

mod chunks;
mod deliver;
mod dictionary;
mod encode;
mod keyed;
mod labels;
mod rows;
mod stream;

pub use chunks::{Chunk, chunks};
pub use deliver::{Added, Options, Writer};
pub use stream::Stream;
