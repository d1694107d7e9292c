//! Settings of the output.

use std::{ops::RangeInclusive, time::Duration};

use super::{between, hold};
use crate::{error::Error, output::dump::Policy, output::sink::stream};

/// Shortest and longest time between two flushes.
const FLUSH: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// How the recording is written.
#[derive(Clone, Debug)]
pub struct OutputSettings {
    /// Time between two flushes: the age of the oldest sample that a reader has not got yet.
    pub flush: Duration,
    /// Options of streams, if the output is one.
    pub stream: stream::Options,
    /// Each flush is synchronized with the disk (`fdatasync`), in a thread of its own.
    pub sync: bool,
    /// Overwrite an output file that exists. Otherwise it is renamed to `NAME.old` before the recording
    /// begins.
    pub overwrite: bool,
    /// When the recorder copies the recording on its own.
    pub dumps: Option<Policy>,
}

impl Default for OutputSettings {
    fn default() -> OutputSettings {
        OutputSettings {
            flush: Duration::from_secs(1),
            stream: stream::Options::default(),
            sync: false,
            overwrite: false,
            dumps: None,
        }
    }
}

impl OutputSettings {
    /// Returns an error for values out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        hold(FLUSH.contains(&self.flush), "flush", || between(self.flush, &FLUSH))?;
        self.stream.check()?;
        self.dumps.as_ref().map_or(Ok(()), Policy::check)
    }
}
