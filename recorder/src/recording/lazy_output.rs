//! How a recording begins: at once, or in a repository with a process's first record or flush. Most processes that live for a
//! moment have neither, and making folder, chunk and journal costs more than all else.

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
    /// Opens the output of `owner` and begins its first chunk.
    pub fn open(target: &Target, owner: &Owner, settings: &Settings) -> Result<Recording, Error> {
        let (sink, refused) = match (Sink::open(target, owner, &settings.stream), target) {
            (Ok(sink), _) => (sink, None),
            // A repository is tried again: the disk may be full just now.
            (Err(Error::Io { source, .. }), Target::Repository(repository)) => {
                (Sink::later(repository, owner), Some(source))
            }
            (Err(error), _) => return Err(error),
        };
        let mut recording = Recording::from_now(sink, settings)?;
        // The first bytes at once: an output that cannot be written is noticed before the program runs.
        match refused {
            Some(source) => recording.fail(&source),
            None => recording.write_out(recording.chunk.start_ns),
        }
        match recording.failure() {
            // A pipe or device may fail at any time: the program's run is worth more than its recording.
            Some(reason) if !recording.chunk.fixed && !recording.will_retry() => {
                Err(Error::Unavailable { name: "output", problem: reason.to_owned() })
            }
            _ => Ok(recording),
        }
    }

    /// A recording into a folder of its own in a repository, of which nothing is made yet.
    pub fn later(repository: &Repository, owner: &Owner, settings: &Settings) -> Result<Recording, Error> {
        let mut recording = Recording::from_now(Sink::later(repository, owner), settings)?;
        recording.output.stage = Stage::Lazy(Lazy::default());
        Ok(recording)
    }

    /// A recording whose clock begins now.
    fn from_now(sink: Sink, settings: &Settings) -> Result<Recording, Error> {
        let (mono, wall) = both_ns();
        let line = ClockLine {
            start_ticks: Ticks(0),
            start_epoch_ns: i64::try_from(wall).unwrap_or(0),
            ticks_per_second: TICKS_PER_SECOND,
        };
        Recording::with(sink, line, TickLine::new(mono), Ticks(0), mono, settings)
    }

    /// Retains records whose events are not in the output yet, in the session directory.
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

    /// The recording continues if the journal cannot be made.
    fn make_journal(&mut self, session: &Path, number: u64, pid: u32) {
        self.output.journal = Journal::create(session, number, pid, self.chunk.origin_ns()).ok();
    }

    /// Before the first record: opens a lazy output, and writes what is queued.
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

    /// At the end: returns true if the output was never opened, and there is no reason to open it.
    pub(super) fn discard_lazy(&mut self) -> bool {
        if self.counters.has_content || self.output.lazy().is_none() {
            return false;
        }
        self.counters.chunks = 0;
        true
    }
}
