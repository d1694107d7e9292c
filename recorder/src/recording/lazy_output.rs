//! The start of a recording: immediately, or, in a repository, with a process's first record or flush. Most
//! short-lived processes have neither, and creating a folder, a chunk and a journal would be their largest
//! cost.

use std::path::Path;

use jfr_format::{ids::Ticks, write::ClockLine};

use super::{
    Recording,
    output_state::{Lazy, Stage},
};
use crate::{
    error::Error,
    os::clock::{TICKS_PER_SECOND, TickLine, both_ns, monotonic_ns},
    output::repository::{Owner, Repository},
    output::sink::{Sink, Target},
    settings::Settings,
    shared_memory::journal::Journal,
};

impl Recording {
    /// Opens the output of `owner` and starts its first chunk.
    pub fn open(target: &Target, owner: &Owner, settings: &Settings) -> Result<Recording, Error> {
        let (sink, refused) = match (Sink::open(target, owner, &settings.output.stream), target) {
            (Ok(sink), _) => (sink, None),
            // A repository is retried later, because the disk may be full only now.
            (Err(Error::Io { source, .. }), Target::Repository(repository)) => {
                (Sink::later(repository, owner), Some(source))
            }
            (Err(error), _) => return Err(error),
        };
        let mut recording = Recording::from_now(sink, settings)?;
        // Write the first bytes immediately, so that a failure is noticed before the program runs.
        match refused {
            Some(source) => recording.fail(&source),
            None => recording.write_out(recording.chunk.start_ns),
        }
        match recording.failure() {
            // A pipe or device may fail at any time, and the program should run without it.
            Some(reason) if !recording.chunk.fixed && !recording.will_retry() => {
                Err(Error::Unavailable { name: "output", problem: reason.to_owned() })
            }
            _ => Ok(recording),
        }
    }

    /// Returns a recording into its own folder in a repository, without creating anything yet.
    pub fn later(repository: &Repository, owner: &Owner, settings: &Settings) -> Result<Recording, Error> {
        let mut recording = Recording::from_now(Sink::later(repository, owner), settings)?;
        recording.output.stage = Stage::Lazy(Lazy::default());
        Ok(recording)
    }

    /// Returns a recording whose clock starts now.
    fn from_now(sink: Sink, settings: &Settings) -> Result<Recording, Error> {
        let (mono, wall) = both_ns();
        let line = ClockLine {
            start_ticks: Ticks(0),
            start_epoch_ns: i64::try_from(wall).unwrap_or(0),
            ticks_per_second: TICKS_PER_SECOND,
        };
        Recording::with(sink, line, TickLine::new(mono), Ticks(0), mono, settings)
    }

    /// Starts a journal in the session directory for records whose events are not in the output yet.
    pub fn keep_journal(&mut self, session: &Path, number: u64, pid: u32) {
        if self.chunk.fixed {
            return;
        }
        if let Some(lazy) = self.output.lazy() {
            lazy.journal = Some((session.to_owned(), number, pid));
            return;
        }
        self.make_journal(session, number, pid);
        self.commit();
    }

    /// Without a journal, the recording continues.
    fn make_journal(&mut self, session: &Path, number: u64, pid: u32) {
        self.output.journal = Journal::create(session, number, pid, self.chunk.origin_ns()).ok();
    }

    /// Before the first record: opens a lazy output, and writes the queue.
    #[inline]
    pub(super) fn open_before_record(&mut self) {
        if matches!(self.output.stage, Stage::Lazy(_)) {
            self.write_out(monotonic_ns());
        }
    }

    /// Opens a lazy output.
    pub(super) fn open_lazy(&mut self) {
        let Some(lazy) = self.output.take_lazy() else { return };
        if let Some(repository) = self.output.sink.repository()
            && let Err(error) = repository.next_chunk()
        {
            self.fail(&error);
        }
        if let Some((session, number, pid)) = lazy.journal {
            self.make_journal(&session, number, pid);
        }
    }

    /// At the end: returns true if the output was never opened, and need not be.
    pub(super) fn discard_lazy(&mut self) -> bool {
        if self.counters.has_content || self.output.lazy().is_none() {
            return false;
        }
        self.counters.chunks = 0;
        true
    }
}
