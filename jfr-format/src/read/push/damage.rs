//! Damage, and chunks that do not conform to the format.

use super::{Decoder, Next, Queued, State};
use crate::error::{Error, ErrorKind};
use crate::header::LEN;
use crate::read::conformance::Finding;
use crate::read::resync;

impl Decoder {
    /// Reports nonconformances of the current chunk.
    pub(super) fn report(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let Some(chunk) = &self.chunk else { return };
        for (finding, at) in findings {
            let within = finding.within();
            let error = Error::new(
                ErrorKind::Nonconformance(finding),
                chunk.offset.0 + at,
                Some(chunk.index),
                within,
            );
            self.queue.push_back(Queued::Warning(error));
        }
    }

    /// Tells constants that were defined twice. Only when the chunk is done with: no pool is indexed for this alone.
    pub(super) fn redefined(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        if !std::mem::replace(&mut self.current.redefined, true) {
            let start = chunk.offset.0;
            let found = chunk.pools.redefined(&chunk.types);
            self.report(found.into_iter().map(|(finding, at)| (finding, at - start)));
        }
    }

    /// Behind a damaged event the checkpoint chain of a finished chunk still tells where events start.
    pub(super) fn recover(&mut self) -> Next {
        let at = self.input.position();
        let Some(end) = self.current.end else {
            return self.finish(false, State::Search { from: at, reported: true });
        };
        let have = self.input.end();
        if have < end && !self.input.closed {
            return Next::NeedsMore;
        }
        let Some(chunk) = &self.chunk else { return Next::Again };
        let start = chunk.offset.0;
        let inner = self.input.bytes().get(self.input.scanned..).unwrap_or_default();
        let inner = inner.get(..usize::try_from(end - at).unwrap_or(usize::MAX)).unwrap_or(inner);
        let steps = self.current.resync_steps.get_or_insert(inner.len() as u64 * resync::STEPS_PER_BYTE);
        let types = self.current.has_types.then_some(&*chunk.types);
        match resync::go_on(inner, at - start, Some(&chunk.header), types, have >= end, steps) {
            Some(skipped) => {
                self.hold();
                self.input.discard(skipped);
                self.state = State::Events;
                Next::Again
            }
            None if have < end => self.finish(false, State::Search { from: at, reported: true }),
            None => self.finish(false, State::Skip { until: end }),
        }
    }

    pub(super) fn skip(&mut self, until: u64) -> Next {
        let want = until.saturating_sub(self.input.offset);
        self.input.discard(usize::try_from(want).unwrap_or(usize::MAX));
        if self.input.offset < until {
            if self.input.closed {
                self.state = State::Done;
            }
            return Next::NeedsMore;
        }
        self.state = State::Header;
        Next::Again
    }

    pub(super) fn search(&mut self, from: u64, reported: bool) -> Next {
        let bytes = self.input.bytes();
        // The byte at `from` itself has been tried as a header or an event.
        let tried = usize::from(self.input.offset == from);
        let found = resync::find_header(bytes.get(tried..).unwrap_or_default()).map(|at| at + tried);
        if let Some(found) = found {
            self.input.discard(found);
        } else {
            let keep = if self.input.closed { 0 } else { LEN - 1 };
            self.input.discard(self.input.bytes().len().saturating_sub(keep));
            if !self.input.closed {
                return Next::NeedsMore;
            }
        }
        if !reported {
            self.skipped(from, found.is_some());
        }
        self.state = if found.is_some() { State::Header } else { State::Done };
        Next::Again
    }

    fn skipped(&mut self, from: u64, found: bool) {
        let error = if self.chunks == 0 && !found {
            Error::new(ErrorKind::NotJfr, from, None, "the first chunk header")
        } else {
            let bytes = self.input.offset - from;
            Error::new(ErrorKind::Skipped { bytes }, from, None, "a chunk header")
        };
        self.warn(error);
    }
}
