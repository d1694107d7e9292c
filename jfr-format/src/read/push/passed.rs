//! Pages of the input that can be let go.

use std::ops::Range;

use super::Decoder;

/// Told which bytes of the input are not looked at again soon.
pub(crate) struct Passed(pub(crate) Box<dyn Fn(Range<u64>) + Send>);

impl std::fmt::Debug for Passed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passed")
    }
}

impl Decoder {
    /// Has `passed` told of the bytes that have been dealt with.
    pub(crate) fn on_passed(&mut self, passed: Passed) {
        self.passed = Some(passed);
    }

    /// Tells of the input up to `end`.
    pub(super) fn pass(&mut self, end: u64) {
        if let Some(Passed(passed)) = &self.passed
            && end > self.passed_to
        {
            passed(self.passed_to..end);
        }
        self.passed_to = self.passed_to.max(end);
    }

    /// Tells of bytes that were looked at a second time.
    pub(super) fn pass_again(&self, range: Range<u64>) {
        if let Some(Passed(passed)) = &self.passed {
            passed(range);
        }
    }

    /// Tells of the chunk that is over: constants were looked up all over it.
    pub(super) fn pass_chunk(&self) {
        if let Some(chunk) = &self.chunk {
            self.pass_again(chunk.offset.0..self.offset);
        }
    }
}
