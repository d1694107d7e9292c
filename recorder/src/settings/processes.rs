//! Settings of the processes to record, and of the information about each of them.

use std::path::PathBuf;

use super::{ThreadSelection, labels, labels::Label};
use crate::error::Error;

/// The processes and threads to record.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The program to record, if known: functions to trace are looked up in it.
    pub program: Option<PathBuf>,
    /// Record children (fork, exec) too.
    pub follow: bool,
    /// Only these threads are recorded.
    pub threads: Option<ThreadSelection>,
    /// Processes that wait for the recorder are recorded from outside as well.
    pub outside: bool,
    /// Leave the arguments of the recorded programs out of the recording.
    pub redact_args: bool,
    /// Record the last samples of all threads when a signal ends a program. By default, only in a repository.
    pub fatal_signals: Option<bool>,
    /// Labels of each process, in addition to those that the recorder detects; see
    /// [`crate::settings::labels`].
    pub labels: Vec<Label>,
}

impl Default for ProcessSettings {
    fn default() -> ProcessSettings {
        ProcessSettings {
            program: None,
            follow: true,
            threads: None,
            outside: false,
            redact_args: false,
            fatal_signals: None,
            labels: Vec::new(),
        }
    }
}

impl ProcessSettings {
    /// Returns an error for an invalid label.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (name, value) in &self.labels {
            let checked = labels::parse(&format!("{name}={value}"));
            checked.map_err(|problem| Error::Setting { name: "label", problem })?;
        }
        Ok(())
    }
}
