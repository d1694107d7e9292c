//! `--dump-on` and related options: copies that a recorder makes automatically.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error,
    dump::{Condition, KEEP, Policy},
    settings::{schedule::Trigger, units::duration},
};

/// When and where to copy.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Copy the recording to --dump-dir when a condition holds: cpu>80%/10s (of one CPU), rss>1g, stuck>30s
    /// (a thread keeps the same callers or waits for one lock), exit!=0, exit=CODE, panic, signal (the
    /// program was killed by it, or a child by SIGSEGV and the like); repeatable
    #[arg(long, value_name = "CONDITION", requires = "dump_dir", value_delimiter = ',')]
    dump_on: Vec<Condition>,
    /// Copy the recording when flightline receives this signal (USR1)
    #[arg(long, value_name = "SIGNAL", requires = "dump_dir", value_parser = signal)]
    dump_signal: Option<Trigger>,
    /// Folder for these copies
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dump_dir: Option<PathBuf>,
    /// Copy only the chunks of this most recent span [default: everything]
    #[arg(long, value_name = "TIME", requires = "dump_dir", value_parser = duration)]
    dump_last: Option<Duration>,
    /// Minimum time between two copies of a process for one condition
    #[arg(long, value_name = "TIME", requires = "dump_dir", default_value = "10m", value_parser = duration)]
    dump_every: Duration,
    /// Number of copies to keep; the oldest are removed
    #[arg(long, value_name = "N", requires = "dump_dir", default_value_t = KEEP)]
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
        Trigger::File(_) => Err(format!("{text:?} is no signal such as USR1")),
        signal @ Trigger::Signal(_) => Ok(signal),
    }
}
