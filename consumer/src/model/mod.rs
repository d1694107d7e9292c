//! The vocabulary: threads, frames, stacks and weighted samples of a recording, each interned once.

mod frame;
mod interner;
mod sample;
mod thread;

pub use frame::{Frame, FrameKind, Stack};
pub use interner::{Id, Interner};
pub use sample::{EventKind, SampleKey, Unit, Weight};
pub use thread::Thread;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Everything a profile is made of.
#[derive(Debug, Default)]
pub struct Model {
    /// Threads, over all chunks.
    pub threads: Interner<Thread>,
    /// Frames, over all chunks.
    pub frames: Interner<Frame>,
    /// Stacks, over all chunks.
    pub stacks: Interner<Stack>,
    /// Thread states by name.
    pub states: Interner<Arc<str>>,
    /// Event types that carry stack traces.
    pub kinds: Interner<EventKind>,
    /// How much of what was seen where.
    pub samples: HashMap<SampleKey, Weight>,
    /// Event types with stack traces that were met but not asked for.
    pub passed_over: BTreeSet<String>,
    /// Chunks read.
    pub chunks: u32,
    /// Start of the first chunk, ns since 1970.
    pub start_nanos: Option<i64>,
    /// CPU time one `jdk.ExecutionSample` stands for, if the recording says so, in ns.
    pub period_nanos: Option<u64>,
}
