//! Counters of a recording.

/// What was written to a recording, and what could not be written.
#[derive(Debug)]
pub struct Counters {
    /// ExecutionSample events written, or sums of them.
    pub events: u64,
    /// Panics written.
    pub panics: u64,
    /// Signals written that ended a process, and a description of the last one.
    pub fatal: (u64, String),
    /// Chunks begun.
    pub chunks: u64,
    /// Events that could not be written although their samples were booked: the output failed in between.
    pub unwritten: u64,
    /// Samples that were queued since bytes were last sent to the output.
    pub(super) unsent: u64,
    /// Events were written other than accounts and descriptions.
    pub(super) has_content: bool,
}

impl Default for Counters {
    /// A recording begins with its first chunk.
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

    /// Counts a signal that ended a process.
    pub(super) fn add_fatal(&mut self, description: String) {
        self.fatal = (self.fatal.0 + 1, description);
    }

    /// The output failed: samples that were not sent count as not written. Returns their number.
    pub(super) fn take_back_unsent(&mut self) -> u64 {
        let samples = std::mem::take(&mut self.unsent);
        self.events -= samples;
        self.unwritten += samples;
        samples
    }
}
