//! Limits for waiting records, and statistics.

/// Limits for the number of waiting records and for their waiting time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records of a stream without watermarks are out of order by at most this, in ns. `None` for a file,
    /// which is read completely before records are settled.
    pub lateness: Option<i64>,
    /// How long samples wait for an interval that is reported at its end, in ns.
    pub interval: i64,
    /// Maximum number of waiting records of all threads. Beyond that, the older half is settled with the
    /// information so far.
    pub pending: usize,
    /// Maximum number of threads.
    pub threads: usize,
}

impl Limits {
    /// Limits for input that is read to its end.
    pub const FILE: Self =
        Self { lateness: None, interval: 60_000_000_000, pending: 1 << 20, threads: 10_000 };
    /// Limits for an endless stream.
    pub const STREAM: Self = Self { lateness: Some(3_000_000_000), pending: 1 << 18, ..Self::FILE };
}

/// Statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Samples assigned to a span.
    pub in_spans: u64,
    /// Samples outside of spans.
    pub outside: u64,
    /// Samples that arrived too late. They are counted and assigned to their span, but not to an inferred
    /// tree.
    pub late: u64,
    /// Samples split between spans by time.
    pub divided: u64,
    /// Records that were settled too early because too many were waiting.
    pub unwaited: u64,
    /// Threads dropped because there were too many.
    pub threads_dropped: u64,
    /// Samples without an activation, which are in no inferred tree.
    pub orphans: u64,
    /// Tree nodes dropped because a thread had too many.
    pub nodes_dropped: u64,
    /// Contexts of threads and times for which no sample arrived.
    pub contexts_unused: u64,
}
