//! Releases pages of the input.

use std::ops::Range;
use std::sync::Arc;

use super::Decoder;
use super::delivery::PASSED_AT_ONCE;
use super::events::CACHED;

/// Number of bytes prepared at a time: the bytes that are read until pages are released again.
const AHEAD: u64 = PASSED_AT_ONCE + CACHED as u64;

/// A mapped file or similar input. The methods only affect memory and time.
pub(crate) trait Paged: Send + Sync {
    /// Releases bytes that are not read again soon.
    fn release(&self, range: Range<u64>);

    /// Prepares the bytes that are read next.
    fn prepare(&self, range: Range<u64>);
}

/// Releases pages of an input in a mapped file; they are loaded again when they are read. For other inputs
/// this has no effect.
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

    /// Returns true if there are pages to release.
    pub(super) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Declares that these bytes of the input are not read again soon. This only affects memory.
    pub fn release(&self, range: Range<u64>) {
        if let Some(paged) = &self.0 {
            paged.release(range);
        }
    }
}

/// The pages that a decoder has released.
#[derive(Debug, Default)]
pub(super) struct PageRelease {
    pub(super) pages: Pages,
    /// The pages of the input up to here have been released.
    pub(super) passed_to: u64,
    /// The last returned batch: its pages are released when the next item is requested.
    pub(super) lent: Option<Range<u64>>,
}

impl Decoder {
    /// Enables the release of processed pages.
    pub(crate) fn on_passed(&mut self, pages: Pages) {
        self.pages.pages = pages;
    }

    /// Releases the input up to `end`.
    pub(super) fn pass(&mut self, end: u64) {
        if end > self.pages.passed_to {
            self.pages.pages.release(self.pages.passed_to..end);
            self.prepare(end);
        }
        self.pages.passed_to = self.pages.passed_to.max(end);
    }

    /// Prepares the input from `start` on.
    pub(super) fn prepare(&self, start: u64) {
        if let Some(paged) = &self.pages.pages.0 {
            let end = self.input.end();
            paged.prepare(start..end.min(start.saturating_add(AHEAD)));
        }
    }

    /// Releases bytes that were read a second time.
    pub(super) fn pass_again(&self, range: Range<u64>) {
        self.pages.pages.release(range);
    }

    /// Releases the chunk that has ended, because constants were looked up everywhere in it.
    pub(super) fn pass_chunk(&self) {
        if let Some(chunk) = &self.chunk {
            self.pass_again(chunk.offset.0..self.input.offset);
        }
    }
}
