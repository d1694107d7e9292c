//! Failing outputs: a file retains its contents, a pipe without a reader ends, a repository is retried.
//!
//! While a repository refuses data, its recording pauses. The failure is reported once, and the output is
//! retried after 1 s to 30 s. Samples in between are counted as lost. The outputs of ended processes are
//! closed (`Drain::retire`).

use flightline_in_signal::layout::loss::{NAMES, OUTPUT_FULL};
use jfr_format::schema;

use super::{
    Recording,
    constants::ThreadConstants,
    output_state::{Lazy, Stage},
};
use crate::{names::intern::Interner, settings::DICTIONARY_BYTES};

/// The reason for the failure of a pipe.
const READER_GONE: &str = "the reader is gone";
/// First and longest time after which a failed output is retried, ns.
const RETRY_NS: [u64; 2] = [1_000_000_000, 30_000_000_000];

/// A time in which the output accepted nothing.
pub(super) struct Outage {
    /// The reason.
    pub(super) reason: String,
    /// The deferred parts of an output that had not been opened yet.
    pub(super) lazy: Option<Lazy>,
    since_ns: u64,
    pub(super) retry_ns: u64,
    wait_ns: u64,
    /// Number of samples that were queued at its start.
    samples: u64,
    /// Samples since its start, and the CPU time that they represented.
    refused: (u64, u64),
}

impl Outage {
    /// Continues the outage `before` after another failed attempt: adopts its start and counts, and waits
    /// longer.
    fn prolong(&mut self, before: Outage, now_ns: u64) {
        self.wait_ns = (before.wait_ns * 2).min(RETRY_NS[1]);
        self.retry_ns = now_ns + self.wait_ns;
        self.samples += before.samples;
        (self.since_ns, self.refused) = (before.since_ns, before.refused);
    }
}

impl Recording {
    /// Starts the next file. In a repository, each chunk is a file with its own wall-clock start.
    pub(super) fn next_file(&mut self) -> std::io::Result<()> {
        let Some(repository) = self.output.sink.repository() else { return Ok(()) };
        repository.next_chunk()?;
        self.chunk.correct_clock();
        Ok(())
    }

    /// Returns true if the output failed for another reason than a reader that disconnected.
    pub fn broken(&self) -> bool {
        self.failure().is_some_and(|reason| !reason.ends_with(READER_GONE))
    }

    /// Handles a failed or full output: retains the valid contents, and reports the reason once.
    pub(super) fn fail(&mut self, error: &std::io::Error) {
        if self.output.has_failed() {
            return;
        }
        let reason = match error.kind() {
            std::io::ErrorKind::BrokenPipe => READER_GONE.to_owned(),
            _ => crate::error::plain(error),
        };
        let name = match self.output.sink.repository() {
            Some(repository) => repository.repository().root.display().to_string(),
            None => self.name(),
        };
        let reason = format!("{name}: {reason}");
        let samples = self.counters.take_back_unsent();
        self.counters.unwritten += self.aggregate.as_mut().map_or(0, |a| a.forget());
        if let Some(journal) = &mut self.output.journal {
            journal.give_up();
        }
        // The reader of a stream already has its data.
        if self.chunk.fixed {
            return self.output.set_failed(reason);
        }
        // A file retains its contents; only the header must mark their end.
        self.chunk.writer.discard();
        let now_ns = crate::os::clock::monotonic_ns();
        let now = self.ticks(now_ns);
        let last = self.output.sink.repository().is_none();
        let _ = self.chunk.writer.finish(now, last, &mut self.output.sink);
        let Some(repository) = self.output.sink.repository() else { return self.output.set_failed(reason) };
        repository.close();
        let wait_ns = RETRY_NS[0];
        self.output.begin_outage(Outage {
            reason,
            lazy: None,
            since_ns: now_ns,
            retry_ns: now_ns + wait_ns,
            wait_ns,
            samples,
            refused: (0, 0),
        });
    }

    /// Counts a sample for which the output has no room.
    pub fn refuse(&mut self, weight_ns: u64) {
        if let Stage::Outage(outage) = &mut self.output.stage {
            outage.refused = (outage.refused.0 + 1, outage.refused.1 + weight_ns);
        }
    }

    /// Returns true if the output failed and is retried from time to time.
    pub fn will_retry(&self) -> bool {
        self.output.will_retry()
    }

    /// Retries a failed output if that is due. Returns a message if it accepts bytes again.
    pub fn retry(&mut self, now_ns: u64) -> Option<String> {
        let outage = self.output.take_due_outage(now_ns)?;
        if !self.chunk.next_declares(schema::OUTAGE) {
            // The chunk that starts now contains the event.
            self.chunk.declare_next([schema::OUTAGE]);
        }
        match self.next_file() {
            Ok(()) => {
                self.begin_chunk(now_ns, 0, 0, DICTIONARY_BYTES);
                // The first write decides.
                self.write_out(now_ns);
            }
            Err(error) => self.fail(&error),
        }
        if let Stage::Outage(next) = &mut self.output.stage {
            next.prolong(outage, now_ns);
            return None;
        }
        let (now, lost_ns) = (self.ticks(now_ns), outage.samples * self.period_ns);
        if outage.samples > 0 {
            let cause = NAMES[OUTPUT_FULL];
            self.event(schema::SAMPLE_LOSS, None, cause.len(), |e, key| {
                e.ticks(now).key(key).string(cause).long(outage.samples as i64).long(lost_ns as i64);
            });
        }
        let reason = &outage.reason;
        let lost_ns = lost_ns.saturating_add(outage.refused.1);
        let (start, took) = self.interval(outage.since_ns, now_ns.saturating_sub(outage.since_ns));
        self.event(schema::OUTAGE, None, reason.len(), |e, _| {
            e.ticks(start).ticks(took).string(reason);
            e.long((outage.samples + outage.refused.0) as i64).long(lost_ns as i64);
        });
        let seconds = now_ns.saturating_sub(outage.since_ns) as f64 / 1e9;
        Some(format!("recording again after {seconds:.1} s ({reason})"))
    }

    /// Ends the recording and releases its memory. The counters remain.
    pub fn retire(&mut self) {
        self.finish();
        self.output.end_outage();
        self.aggregate = None;
        self.interner = Interner::new();
        self.threads = ThreadConstants::default();
        self.chunk.writer.let_go();
        if let Some(repository) = self.output.sink.repository() {
            repository.end(!self.counters.has_content);
        }
    }

    /// Releases the disk space reserved for the last chunk of a repository.
    pub fn close_file(&mut self) {
        if let Some(repository) = self.output.sink.repository() {
            repository.end(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    use crate::{
        output::repository::{Owner, Repository},
        output::sink::Target,
        settings::Settings,
    };

    #[test]
    fn retired_recording_releases_its_buffers() {
        let root = tempfile::tempdir().unwrap();
        let target = Target::Repository(Repository::new(root.path()));
        let mut ended = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        let now_ns = crate::os::clock::monotonic_ns();
        (0..1000).for_each(|_| ended.notice(&"x".repeat(100), now_ns));
        assert!(ended.chunk.writer.buffer_capacity() > 50_000);
        ended.retire();
        assert_eq!(ended.chunk.writer.buffer_capacity(), 0);
    }

    /// Returns a repository whose root is a file, so that no folder can be created in it.
    fn blocked_repository(dir: &Path) -> (PathBuf, Repository) {
        let root = dir.join("root");
        std::fs::write(&root, "in the way").unwrap();
        (root.clone(), Repository::new(&root))
    }

    #[test]
    fn failed_repository_is_retried_until_it_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let (root, repository) = blocked_repository(dir.path());
        let target = Target::Repository(repository);
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        let now_ns = crate::os::clock::monotonic_ns();
        assert!(recording.will_retry() && recording.full() && recording.failure().is_some());
        assert_eq!(recording.retry(now_ns), None, "too early");
        assert_eq!(recording.retry(now_ns + RETRY_NS[0]), None);
        assert!(recording.will_retry(), "the root is still in the way");
        std::fs::remove_file(root).unwrap();
        assert_eq!(
            recording.retry(now_ns + 2 * RETRY_NS[0]),
            None,
            "the next attempt comes after twice the time"
        );
        let message = recording.retry(now_ns + 3 * RETRY_NS[0]).unwrap();
        assert!(message.starts_with("recording again after 3.0 s ("), "{message}");
        assert!(!recording.will_retry() && recording.failure().is_none());
    }

    #[test]
    fn output_that_ends_in_an_outage_retains_its_failure() {
        let dir = tempfile::tempdir().unwrap();
        let (_, repository) = blocked_repository(dir.path());
        let target = Target::Repository(repository);
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        recording.finish();
        assert!(recording.will_retry() && recording.broken());
        assert_eq!(recording.retry(u64::MAX), None, "it is finished");
        recording.retire();
        assert!(!recording.will_retry() && recording.broken());
    }

    #[test]
    fn lazy_output_that_failed_is_opened_by_the_next_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::new(dir.path().join("root"));
        let mut recording = Recording::later(&repository, &Owner::default(), &Settings::default()).unwrap();
        recording.keep_journal(dir.path(), 1, 7);
        recording.fail(&std::io::Error::other("refused"));
        assert!(recording.will_retry() && recording.output.journal.is_none());
        let now_ns = crate::os::clock::monotonic_ns();
        assert!(recording.retry(now_ns + RETRY_NS[0]).is_some());
        assert!(matches!(recording.output.stage, Stage::Open) && recording.output.journal.is_some());
    }

    #[test]
    fn event_type_declared_before_the_first_record_opens_a_lazy_output() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::new(dir.path().join("root"));
        let mut recording = Recording::later(&repository, &Owner::default(), &Settings::default()).unwrap();
        recording.declare(jfr_format::schema::SAMPLE_CONTEXT);
        assert!(matches!(recording.output.stage, Stage::Open) && recording.failure().is_none());
    }

    #[test]
    fn lazy_output_without_content_is_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let mut recording =
            Recording::later(&Repository::new(&root), &Owner::default(), &Settings::default()).unwrap();
        recording.finish();
        assert!(!root.exists() && recording.counters().chunks == 0 && recording.failure().is_none());
    }
}
