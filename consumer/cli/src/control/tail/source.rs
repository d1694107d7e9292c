//! A recording that is being followed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flightline_consumer::print::Printer;
use flightline_consumer::warnings::Warnings;
use flightline_recorder::repository;
use jfr_format::read::{Follow, Item, Progress};

use crate::diagnostics::shown;
use crate::input::unfinished;

/// After this time without data, check whether the recorder still exists.
const QUIET: Duration = Duration::from_secs(3);

pub(super) struct Source {
    pub path: PathBuf,
    pub follow: Follow,
    pub printer: Option<Printer>,
    pub warnings: Warnings,
    /// Time up to which events have been processed, ns since 1970.
    pub at: i64,
    /// The last check found no new data.
    pub idle: bool,
    pub ended: bool,
    changed: Instant,
    asked: Instant,
}

impl Source {
    pub fn new(path: PathBuf, follow: Follow, printer: Option<Printer>) -> Source {
        let now = Instant::now();
        let warnings = Warnings::default();
        Source {
            path,
            follow,
            printer,
            warnings,
            at: i64::MIN,
            idle: false,
            ended: false,
            changed: now,
            asked: now,
        }
    }

    /// Checks for new data, unless idle or ended.
    pub fn look(&mut self) -> Result<()> {
        while !self.idle {
            match self.follow.poll().with_context(|| shown(&self.path))? {
                Progress::Ready => {
                    self.changed = Instant::now();
                    return Ok(());
                }
                Progress::Ended => (self.idle, self.ended) = (true, true),
                Progress::Waiting => self.idle = !self.is_over()?,
            }
        }
        Ok(())
    }

    /// Periodically checks whether a writer still exists; recovers the data of a killed recorder. Returns
    /// true if there may be new data.
    fn is_over(&mut self) -> Result<bool> {
        if self.changed.elapsed() < QUIET || self.asked.elapsed() < QUIET {
            return Ok(false);
        }
        self.asked = Instant::now();
        unfinished::before_reading(&self.path);
        // Other recorders and plain files do not indicate this.
        if !self.path.join(repository::HELD_FILE).exists() || repository::in_use(&self.path) {
            return Ok(false);
        }
        self.follow.let_go().with_context(|| shown(&self.path))?;
        Ok(true)
    }
}

/// Returns the start time of an item, ns since 1970.
pub(super) fn item_time(item: &Item<'_>) -> Option<i64> {
    match item {
        Item::ChunkStart(chunk) => Some(chunk.header.start_nanos),
        Item::Events(batch) => batch.events().next()?.start_nanos(),
        Item::ChunkEnd(_) | Item::Warning(_) => None,
    }
}
