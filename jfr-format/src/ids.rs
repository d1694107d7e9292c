//! Numbers with a meaning, each with its own type.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Id of a type or event type, as declared in the metadata of its chunk.
    TypeId(u32)
}
id! {
    /// A point in the recorder's own time, in units of 1 / `ticks_per_second`.
    Ticks(i64)
}
id! {
    /// Bytes from the start of the file or stream.
    FileOffset(u64)
}
id! {
    /// Bytes from the start of the chunk's header.
    ChunkOffset(u64)
}

/// Position of a chunk in its input, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkIndex(pub u32);

impl ChunkIndex {
    /// Counted from 1, for display.
    pub fn number(self) -> u64 {
        u64::from(self.0) + 1
    }
}
