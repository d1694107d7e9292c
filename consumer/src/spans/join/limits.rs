//! How much may wait, and what became of it.

/// How much may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records of a stream are in order of time but for so much, in ns, where it does not say better; `None`: as a file, of
    /// which all is read before anything is settled.
    pub lateness: Option<i64>,
    /// How long samples wait for an interval that is told when it ends, in ns.
    pub interval: i64,
    /// Records that wait, all threads together; beyond that the older half is settled with what is known.
    pub pending: usize,
    /// Threads remembered at a time.
    pub threads: usize,
}

impl Limits {
    /// For what is read to its end.
    pub const FILE: Self =
        Self { lateness: None, interval: 60_000_000_000, pending: 1 << 20, threads: 10_000 };
    /// For a stream that does not end.
    pub const STREAM: Self = Self { lateness: Some(3_000_000_000), pending: 1 << 18, ..Self::FILE };
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Samples given to a span.
    pub in_spans: u64,
    /// Samples in no span.
    pub outside: u64,
    /// Samples that came later than the stream may be out of order: counted, given to their span, but in no inferred tree.
    pub late: u64,
    /// Samples divided by time between spans.
    pub divided: u64,
    /// Records settled before all of their time had come, as too many were waiting.
    pub unwaited: u64,
    /// Threads forgotten, as there were too many.
    pub threads_dropped: u64,
    /// Samples that no activation was told for: they are in no inferred tree.
    pub orphans: u64,
    /// Nodes of trees left out, as a thread had too many.
    pub nodes_dropped: u64,
    /// Moments of which a span was told, but no sample came.
    pub contexts_unused: u64,
}
