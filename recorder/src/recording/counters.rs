//! Counters of a recording.

/// Counts of written events, and of those that could not be written.
#[derive(Debug)]
pub struct Counters {
    /// ExecutionSample events written, individual or merged.
    pub events: u64,
    /// Panics written.
    pub panics: u64,
    /// Number of fatal signals written, and a description of the last one.
    pub fatal: (u64, String),
    /// Chunks started.
    pub chunks: u64,
    /// Events that were not written because the output failed after their samples were counted.
    pub unwritten: u64,
    /// Samples that were queued since bytes were last sent to the output.
    pub(super) unsent: u64,
    /// Events other than totals and information events were written.
    pub(super) has_content: bool,
}

impl Default for Counters {
    /// A recording starts with its first chunk.
    fn default() -> Counters {
        let fatal = (0, String::new());
        Counters { events: 0, panics: 0, fatal, chunks: 1, unwritten: 0, unsent: 0, has_content: false }
    }
}

impl Counters {
    /// Counts an event of a sample that is queued.
    #[inline]
    pub(super) fn add_sample(&mut self) {
        self.events += 1;
        self.unsent += 1;
        self.has_content = true;
    }

    /// Counts a fatal signal.
    pub(super) fn add_fatal(&mut self, description: String) {
        self.fatal = (self.fatal.0 + 1, description);
    }

    /// Counts unsent samples as not written, because the output failed. Returns their number.
    pub(super) fn take_back_unsent(&mut self) -> u64 {
        let samples = std::mem::take(&mut self.unsent);
        self.events -= samples;
        self.unwritten += samples;
        samples
    }
}
