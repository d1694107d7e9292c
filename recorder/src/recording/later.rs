//! Folder, chunk and journal of a process in a repository are made with its first record or flush: most processes that live for
//! a moment have neither, and making them costs more than all else.

use std::path::{Path, PathBuf};

use jfr_format::{ids::Ticks, write::ClockLine};

use super::Recording;
use crate::{
    black_box::journal::Journal,
    clock::{TICKS_PER_SECOND, TickLine, both_ns, monotonic_ns},
    error::Error,
    repository::{Owner, Repository},
    settings::Settings,
    sink::Sink,
};

/// What is made later.
#[derive(Default)]
pub(super) struct Later {
    /// Of the journal: session directory, its number, the process.
    journal: Option<(PathBuf, u64, u32)>,
}

impl Later {
    pub fn journal(&mut self, session: &Path, number: u64, pid: u32) {
        self.journal = Some((session.to_owned(), number, pid));
    }
}

impl Recording {
    /// A recording into a folder of its own in a repository, of which nothing is made yet.
    pub fn later(repository: &Repository, owner: &Owner, settings: &Settings) -> Result<Recording, Error> {
        let (mono, wall) = both_ns();
        let line = ClockLine {
            start_ticks: Ticks(0),
            start_epoch_ns: i64::try_from(wall).unwrap_or(0),
            ticks_per_second: TICKS_PER_SECOND,
        };
        let sink = Sink::later(repository, owner);
        let mut recording = Recording::with(sink, line, TickLine::new(mono), Ticks(0), mono, settings)?;
        recording.later = Some(Later::default());
        Ok(recording)
    }

    /// Before the first record: makes what was put off, and writes what is queued.
    #[inline]
    pub(super) fn open_later(&mut self) {
        if self.later.is_some() {
            self.write_out(monotonic_ns());
        }
    }

    /// Makes what was put off.
    pub(super) fn make_later(&mut self) {
        let Some(later) = self.later.take() else { return };
        if let Some(repository) = self.sink.repository()
            && let Err(error) = repository.next_chunk()
        {
            self.fail(&error);
        }
        // Without it everything else works.
        self.journal = later.journal.and_then(|(session, number, pid)| {
            Journal::create(&session, number, pid, self.ticks.origin_ns()).ok()
        });
    }

    /// At the end: whether nothing was made, and nothing came that is worth it.
    pub(super) fn forget_later(&mut self) -> bool {
        if self.worth || self.later.take().is_none() {
            return false;
        }
        self.chunks = 0;
        true
    }
}
