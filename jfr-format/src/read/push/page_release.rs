//! Pages of the input that can be let go.

use std::ops::Range;
use std::sync::Arc;

use super::Decoder;
use super::delivery::PASSED_AT_ONCE;
use super::events::CACHED;

/// Bytes prepared at a time: what is walked until pages are let go again.
const AHEAD: u64 = PASSED_AT_ONCE + CACHED as u64;

/// A mapped file, or the like. Only memory and time are at stake.
pub(crate) trait Paged: Send + Sync {
    /// These bytes are not looked at again soon.
    fn release(&self, range: Range<u64>);

    /// These are next.
    fn prepare(&self, range: Range<u64>);
}

/// Lets pages of an input that lies in a mapped file go; they come back when they are looked at again. Of other inputs
/// there is nothing to let go.
#[derive(Clone, Default)]
pub struct Pages(Option<Arc<dyn Paged>>);

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pages")
    }
}

impl Pages {
    pub(crate) fn new(of: impl Paged + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// Whether there is anything to let go.
    pub(super) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Says that these bytes of the input are not looked at again soon: only memory is at stake.
    pub fn release(&self, range: Range<u64>) {
        if let Some(paged) = &self.0 {
            paged.release(range);
        }
    }
}

/// The pages that a decoder has let go.
#[derive(Debug, Default)]
pub(super) struct PageRelease {
    pub(super) pages: Pages,
    /// The pages of the input up to here have been let go.
    pub(super) passed_to: u64,
    /// The batch that was returned last: its pages are let go when the next item is requested.
    pub(super) lent: Option<Range<u64>>,
}

impl Decoder {
    /// Has the pages let go that have been dealt with.
    pub(crate) fn on_passed(&mut self, pages: Pages) {
        self.pages.pages = pages;
    }

    /// Tells of the input up to `end`.
    pub(super) fn pass(&mut self, end: u64) {
        if end > self.pages.passed_to {
            self.pages.pages.release(self.pages.passed_to..end);
            self.prepare(end);
        }
        self.pages.passed_to = self.pages.passed_to.max(end);
    }

    /// Tells of the input from `start` on.
    pub(super) fn prepare(&self, start: u64) {
        if let Some(paged) = &self.pages.pages.0 {
            let end = self.input.end();
            paged.prepare(start..end.min(start.saturating_add(AHEAD)));
        }
    }

    /// Tells of bytes that were looked at a second time.
    pub(super) fn pass_again(&self, range: Range<u64>) {
        self.pages.pages.release(range);
    }

    /// Tells of the chunk that is over: constants were looked up all over it.
    pub(super) fn pass_chunk(&self) {
        if let Some(chunk) = &self.chunk {
            self.pass_again(chunk.offset.0..self.input.offset);
        }
    }
}
