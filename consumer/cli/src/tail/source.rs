//! One recording that is followed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flightline_consumer::print::Printer;
use flightline_consumer::warnings::Warnings;
use flightline_recorder::repository;
use jfr_format::read::{Follow, Item, Progress};

use crate::recover;
use crate::talk::shown;

/// Without news for so long, it is asked whether there is still a recorder.
const QUIET: Duration = Duration::from_secs(3);

pub(super) struct Source {
    pub path: PathBuf,
    pub follow: Follow,
    pub printer: Option<Printer>,
    pub warnings: Warnings,
    /// Up to when events have been taken, ns since 1970.
    pub at: i64,
    /// There was nothing new when it was looked at.
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

    /// Looks whether there is something new, unless it was idle or over before.
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

    /// Asks now and then whether anybody still writes; what a killed recorder left is recovered. `true` if there is
    /// something new to be done for the reader.
    fn is_over(&mut self) -> Result<bool> {
        if self.changed.elapsed() < QUIET || self.asked.elapsed() < QUIET {
            return Ok(false);
        }
        self.asked = Instant::now();
        recover::before_reading(&self.path);
        // Other recorders, and files, do not tell.
        if !self.path.join(repository::HELD_FILE).exists() || repository::in_use(&self.path) {
            return Ok(false);
        }
        self.follow.let_go().with_context(|| shown(&self.path))?;
        Ok(true)
    }
}

/// When what an item tells began, ns since 1970.
pub(super) fn time_of(item: &Item<'_>) -> Option<i64> {
    match item {
        Item::ChunkStart(chunk) => Some(chunk.header.start_nanos),
        Item::Events(batch) => batch.events().next()?.start_nanos(),
        Item::ChunkEnd(_) | Item::Warning(_) => None,
    }
}
