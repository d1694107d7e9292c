//! `--dump-on` and related options: copies that a recorder makes automatically.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error,
    dump::{Condition, KEEP, Policy},
    settings::{schedule::Trigger, units::duration},
};

use crate::args::help;

/// When and where to copy.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Copy the recording to --dump-dir when a condition holds; repeatable: cpu>80%/10s (of one CPU), rss>1g,
    /// stuck>30s (a thread has the same callers or waits for the same lock), exit!=0, exit=CODE, panic, signal
    /// (any signal killed the program, or a signal such as SIGSEGV killed a child)
    #[arg(long, value_name = "CONDITION", requires = "dump_dir", value_delimiter = ',', help_heading = help::COPIES)]
    dump_on: Vec<Condition>,
    /// Copy the recording when flightline receives this signal (USR1)
    #[arg(long, value_name = "SIGNAL", requires = "dump_dir", value_parser = signal, help_heading = help::COPIES)]
    dump_signal: Option<Trigger>,
    /// Folder for these copies
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = help::COPIES)]
    dump_dir: Option<PathBuf>,
    /// Copy only the chunks of the last TIME, such as 10m [default: everything]
    #[arg(long, value_name = "TIME", requires = "dump_dir", value_parser = duration, help_heading = help::COPIES)]
    dump_last: Option<Duration>,
    /// Minimum time between two copies of a process for one condition
    #[arg(long, value_name = "TIME", requires = "dump_dir", default_value = "10m", value_parser = duration, help_heading = help::COPIES)]
    dump_every: Duration,
    /// Number of copies to keep; the oldest are removed
    #[arg(long, value_name = "N", requires = "dump_dir", default_value_t = KEEP, help_heading = help::COPIES)]
    dump_keep: usize,
}

impl PolicyArgs {
    /// Returns the recorder's setting.
    pub fn policy(&self) -> Result<Option<Policy>, Error> {
        let Some(dir) = &self.dump_dir else { return Ok(None) };
        // The recorder may have a different working directory.
        let dir = std::path::absolute(dir).map_err(|e| Error::io("find", dir, e))?;
        let signal = self.dump_signal.as_ref().and_then(|trigger| match trigger {
            Trigger::Signal(signal) => Some(*signal),
            Trigger::File(_) => None,
        });
        Ok(Some(Policy {
            on: self.dump_on.clone(),
            signal,
            last: self.dump_last,
            every: self.dump_every,
            keep: self.dump_keep,
            ..Policy::new(dir)
        }))
    }
}

/// Parses a signal, not a file.
fn signal(text: &str) -> Result<Trigger, String> {
    match text.parse()? {
        Trigger::File(_) => Err(format!("{text:?} is not the name of a signal, such as USR1")),
        signal @ Trigger::Signal(_) => Ok(signal),
    }
}
