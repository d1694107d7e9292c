//! The output of a recording: its sink, its journal, and the stage of its life.
//!
//! | from | to | when |
//! |---|---|---|
//! | – | `Lazy` | [`Recording::later`](super::Recording::later) |
//! | – | `Open` | [`Recording::open`](super::Recording::open), [`Recording::resume`](super::Recording::resume) |
//! | `Lazy` | `Open` | the first record or flush: folder, chunk and journal are created |
//! | `Lazy`, `Open` | `Outage` | a repository refuses bytes, a file or a folder |
//! | `Lazy`, `Open` | `Failed` | any other output refuses bytes |
//! | `Outage` | `Lazy`, `Open` | it is time for another attempt; the stage before the outage is restored |
//! | all but `Finished` | `Finished` | [`Recording::finish`](super::Recording::finish); the failure is retained |
//!
//! A finished stream may still fail while its last bytes wait for a reader. It stays `Finished`, with that failure.

use std::{path::PathBuf, sync::Arc};

use super::outage::Outage;
use crate::{
    output::sink::{Sink, StreamSink, Syncer},
    shared_memory::journal::{Entry, Journal},
};

/// The arguments of [`Journal::create`] for a journal that is created later: session directory, number,
/// process.
pub(super) type JournalRequest = (PathBuf, u64, u32);

/// An output that has not been created yet.
#[derive(Default)]
pub(super) struct Lazy {
    pub(super) journal: Option<JournalRequest>,
}

/// The stage of an output's life; the module's documentation has the transitions.
pub(super) enum Stage {
    /// Not created yet.
    Lazy(Lazy),
    /// Accepts bytes.
    Open,
    /// The output refuses bytes; it is retried from time to time.
    Outage(Outage),
    /// The output refused bytes, for this reason, and is not retried.
    Failed(String),
    /// Complete.
    Finished(Finished),
}

/// The end of an output.
#[derive(Default)]
pub(super) struct Finished {
    /// The reason why it had failed.
    failure: Option<String>,
    /// It ended during an outage.
    in_outage: bool,
}

/// The output of a recording.
pub(super) struct OutputState {
    pub(super) sink: Sink,
    pub(super) stage: Stage,
    /// Records whose events are not in the output yet, in a file that outlives the recorder.
    pub(super) journal: Option<Journal>,
    /// Writes flushed bytes through to the disk.
    pub(super) syncer: Option<Arc<Syncer>>,
}

impl OutputState {
    /// Returns an output that accepts bytes.
    pub(super) fn new(sink: Sink) -> OutputState {
        OutputState { sink, stage: Stage::Open, journal: None, syncer: None }
    }

    /// Returns true if events may be written: the output neither failed nor is it finished.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Lazy(_))
    }

    /// Returns true if the output failed.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        match &self.stage {
            Stage::Open | Stage::Lazy(_) => false,
            Stage::Outage(_) | Stage::Failed(_) => true,
            Stage::Finished(end) => end.failure.is_some(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// Returns true if the output failed and is retried, or would be if it were not finished.
    pub(super) fn will_retry(&self) -> bool {
        match &self.stage {
            Stage::Outage(_) => true,
            Stage::Finished(end) => end.in_outage,
            _ => false,
        }
    }

    /// Returns the reason why nothing can be written, if that is so.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.stage {
            Stage::Open | Stage::Lazy(_) => None,
            Stage::Outage(outage) => Some(&outage.reason),
            Stage::Failed(reason) => Some(reason),
            Stage::Finished(end) => end.failure.as_deref(),
        }
    }

    /// `Lazy`, `Open` → `Failed`. A finished output retains the reason.
    pub(super) fn set_failed(&mut self, reason: String) {
        self.stage = match &self.stage {
            Stage::Finished(_) => Stage::Finished(Finished { failure: Some(reason), in_outage: false }),
            _ => Stage::Failed(reason),
        };
    }

    /// `Lazy`, `Open` → `Outage`. A finished output retains the reason.
    pub(super) fn begin_outage(&mut self, mut outage: Outage) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Finished(_) => Stage::Finished(Finished { failure: Some(outage.reason), in_outage: true }),
            Stage::Lazy(lazy) => {
                outage.lazy = Some(lazy);
                Stage::Outage(outage)
            }
            _ => Stage::Outage(outage),
        };
    }

    /// `Outage` → `Lazy`, `Open` if it is time for another attempt. Returns the outage, without its lazy output.
    pub(super) fn take_due_outage(&mut self, now_ns: u64) -> Option<Outage> {
        if !matches!(&self.stage, Stage::Outage(outage) if outage.retry_ns <= now_ns) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Outage(mut outage) => {
                if let Some(lazy) = outage.lazy.take() {
                    self.stage = Stage::Lazy(lazy);
                }
                Some(outage)
            }
            _ => None,
        }
    }

    /// Any stage → `Finished`.
    pub(super) fn set_finished(&mut self) {
        let in_outage = self.will_retry();
        let failure = match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Open | Stage::Lazy(_) => None,
            Stage::Outage(outage) => Some(outage.reason),
            Stage::Failed(reason) => Some(reason),
            Stage::Finished(end) => end.failure,
        };
        self.stage = Stage::Finished(Finished { failure, in_outage });
    }

    /// A finished output will not be retried.
    pub(super) fn end_outage(&mut self) {
        if let Stage::Finished(end) = &mut self.stage {
            end.in_outage = false;
        }
    }

    /// Returns the deferred parts of the output, even if it has failed since.
    pub(super) fn lazy(&mut self) -> Option<&mut Lazy> {
        match &mut self.stage {
            Stage::Lazy(lazy) => Some(lazy),
            Stage::Outage(outage) => outage.lazy.as_mut(),
            _ => None,
        }
    }

    /// `Lazy` → `Open`; returns the deferred parts.
    pub(super) fn take_lazy(&mut self) -> Option<Lazy> {
        if !matches!(self.stage, Stage::Lazy(_)) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Lazy(lazy) => Some(lazy),
            _ => None,
        }
    }

    /// Returns the stream, if the output is one and has not failed.
    pub(super) fn stream(&self) -> Option<&StreamSink> {
        self.sink.stream().filter(|_| !self.has_failed())
    }

    /// Returns the stream, if the output is one and has not failed.
    pub(super) fn stream_mut(&mut self) -> Option<&mut StreamSink> {
        if self.has_failed() { None } else { self.sink.stream_mut() }
    }

    /// Returns true if the output is a stream without a reader.
    pub(super) fn has_no_reader(&self) -> bool {
        self.stream().is_some_and(StreamSink::has_no_reader)
    }

    /// Marks the journal's record as queued, if there is one.
    #[inline]
    pub(super) fn queued(&self, entry: Option<Entry>) {
        if let (Some(journal), Some(entry)) = (&self.journal, entry) {
            journal.queued(entry);
        }
    }

    /// Writes flushed bytes through to the disk, if that is requested.
    pub(super) fn sync(&self) {
        if let Some(syncer) = &self.syncer {
            self.sink.sync(syncer);
        }
    }
}
