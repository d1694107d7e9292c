//! How runs end: delivered, failed or given up.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use super::runs::{file_name, no_run};
use super::{Core, Phase, millis};
use crate::api_error::ApiError;
use crate::forward::{Content, Item};
use crate::history::{StoredRun, Upload};
use crate::log::Level;
use crate::wire::{Progress, Run, Status};

/// Lowest upload rate that agents assume, in bytes per second.
const SLOWEST: u64 = 64 << 10;

/// An upload in progress. If it is dropped before it is complete, the run keeps waiting for its recording.
#[derive(Debug)]
pub struct Delivery {
    core: Arc<Core>,
    run: String,
    upload: Option<Upload>,
}

/// A recording that passed validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// File size in bytes.
    pub bytes: u64,
    /// Groups of events with stack traces in the recording.
    pub events: Vec<String>,
    /// The agent's message.
    pub message: String,
    /// How the process ended, if it ended before the run did.
    pub ended: String,
}

impl Core {
    /// Applies an agent's progress report to a run.
    ///
    /// # Errors
    /// Returns an error if the run does not belong to the agent or has ended.
    pub fn progress(
        &self,
        target: &str,
        secret: &str,
        run: &str,
        progress: Progress,
    ) -> Result<(), ApiError> {
        self.heard(target, secret)?;
        let now = self.now().running;
        let mut state = self.state();
        let entry =
            state.runs.get_mut(run).filter(|entry| entry.kept.run.target == target).ok_or_else(no_run)?;
        if entry.phase == Phase::Over {
            return Err(ended());
        }
        entry.news = now;
        match progress {
            Progress::Started { effective_mode, message } => {
                entry.phase = entry.phase.unless_delivering(Phase::Recording);
                entry.kept.run.effective_mode = super::targets::short(&effective_mode);
                if !message.is_empty() && !entry.stopping {
                    entry.kept.run.message = super::targets::short(&message);
                }
            }
            Progress::Failed { message } => {
                drop(state);
                self.fail(run, &format!("Start profiler failed. {}", super::targets::short(&message)));
                return Ok(());
            }
        }
        drop(state);
        self.describe(run).map_err(|error| ApiError::internal("write the run's description", error))
    }

    /// Begins to receive a run's recording.
    ///
    /// # Errors
    /// Returns an error if the run does not belong to the agent, has ended, or is already being uploaded.
    pub fn deliver(self: &Arc<Self>, target: &str, secret: &str, run: &str) -> Result<Delivery, ApiError> {
        self.heard(target, secret)?;
        let now = self.now().running;
        {
            let mut state = self.state();
            let entry =
                state.runs.get_mut(run).filter(|entry| entry.kept.run.target == target).ok_or_else(no_run)?;
            match entry.phase {
                Phase::Over => return Err(ended()),
                Phase::Delivering => {
                    return Err(ApiError::conflict("The recording is already being uploaded."));
                }
                _ => entry.phase = Phase::Delivering,
            }
            entry.news = now;
        }
        let mut delivery = Delivery { core: Arc::clone(self), run: run.to_owned(), upload: None };
        match self.store.begin(run) {
            Ok(upload) => delivery.upload = Some(upload),
            Err(error) => return Err(ApiError::internal("write the recording", error)),
        }
        Ok(delivery)
    }

    /// Ends a run without a recording.
    pub(super) fn fail(&self, run: &str, why: &str) {
        let target = {
            let now = self.now().running;
            let mut state = self.state();
            let Some(entry) = state.runs.get_mut(run).filter(|entry| entry.phase != Phase::Over) else {
                return;
            };
            // The user cancelled the run before it began.
            let unwanted = entry.stopping && matches!(entry.phase, Phase::New | Phase::Sent);
            entry.end(if unwanted { Status::Cancelled } else { Status::Failed }, why, now);
            self.log_end(&entry.kept.run);
            entry.kept.run.target.clone()
        };
        // If the description cannot be written, the next start treats the run as interrupted, which is close
        // to the truth.
        let _ = self.describe(run);
        self.roll(&target);
    }

    /// Forwards a finished run to the receivers. Pulled runs are not forwarded; the client that requested
    /// them has the result.
    fn pass_on(&self, id: &str) {
        if self.forward.is_empty() {
            return;
        }
        let kept = self.state().runs.get(id).filter(|entry| !entry.pulled).map(|entry| entry.kept.clone());
        let Some((StoredRun { run, of }, Ok(file))) = kept.zip(Some(self.store.recording(id))) else {
            return;
        };
        let (content, bytes) = (Content::File(file), run.bytes);
        let (from, until) = (run.trigger_time, run.finished_time);
        self.forward.offer(Item { content, bytes, of, labels: run.labels, from, until });
    }

    fn log_end(&self, run: &Run) {
        let level = if run.status == Status::Failed { Level::Warn } else { Level::Info };
        let fields = [
            ("run", (&run.id).into()),
            ("target", (&run.target).into()),
            ("status", run.status.name().into()),
            ("message", (&run.message).into()),
            ("bytes", run.bytes.into()),
            ("duration_ms", run.elapsed.into()),
        ];
        self.settings.log.write(level, "run ended", &fields);
    }

    /// Gives up runs whose agents have stopped reporting.
    pub(super) fn overdue(&self) {
        let now = self.now().running;
        let set = &self.settings;
        let mut late = Vec::new();
        for entry in self.state().runs.values() {
            let run = &entry.kept.run;
            let silent = now.saturating_sub(entry.news);
            let over = entry.began.running + set.start_timeout + Duration::from_secs(run.duration);
            let why = match entry.phase {
                Phase::New | Phase::Sent if silent >= set.start_timeout => {
                    format!("The agent did not start the recording within {} s.", set.start_timeout.as_secs())
                }
                Phase::Recording if entry.stopping && silent >= set.delivery_timeout => {
                    format!("The agent did not send its data within {} s.", set.delivery_timeout.as_secs())
                }
                Phase::Recording if now >= over + set.delivery_timeout && silent >= set.delivery_timeout => {
                    format!(
                        "The agent did not send the recording within {} s.",
                        set.delivery_timeout.as_secs()
                    )
                }
                Phase::Recording | Phase::Delivering if now >= over + self.longest_delivery() => {
                    "The agent did not finish the recording.".to_owned()
                }
                Phase::Delivering if silent >= set.delivery_timeout => {
                    format!("The upload of the recording stalled for {} s.", set.delivery_timeout.as_secs())
                }
                _ => continue,
            };
            late.push((run.id.clone(), why));
        }
        late.iter().for_each(|(run, why)| self.fail(run, why));
    }

    /// Longest time between a run's end and the end of its upload. It stops an agent that keeps uploading
    /// from holding a slot forever.
    fn longest_delivery(&self) -> Duration {
        self.settings.delivery_timeout * 4 + Duration::from_secs(self.settings.max_recording / SLOWEST)
    }

    /// Returns a run's recording and the run.
    ///
    /// # Errors
    /// Returns an error if the run has no recording.
    pub fn recording(&self, id: &str) -> Result<(File, Run), ApiError> {
        let run = self.run(id).map_err(|_| no_file())?;
        if run.files.is_empty() {
            return Err(no_file());
        }
        Ok((self.store.recording(id).map_err(|_| no_file())?, run))
    }

    /// Returns the target's run whose flame graph has this file name.
    ///
    /// # Errors
    /// Returns an error if no run matches.
    pub fn named(&self, target: &str, name: &str) -> Result<String, ApiError> {
        let history = self.history(target).map_err(|_| no_file())?;
        let run = history.into_iter().find(|run| !run.output_file.is_empty() && run.output_file == name);
        run.map(|run| run.id).ok_or_else(no_file)
    }
}

impl Delivery {
    /// Returns the temporary file that receives the bytes.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.upload.as_mut().map(Upload::file).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Records that bytes arrived. Returns false if the upload is no longer accepted.
    pub fn goes_on(&self) -> bool {
        let now = self.core.now().running;
        let mut state = self.core.state();
        match state.runs.get_mut(&self.run).filter(|entry| entry.phase == Phase::Delivering) {
            Some(entry) => {
                entry.news = now;
                true
            }
            None => false,
        }
    }

    /// Ends the run successfully once the recording has arrived and passed validation. Blocks on the disk.
    ///
    /// # Errors
    /// Returns an error if the run has ended in the meantime or the disk cannot be written.
    pub fn complete(mut self, delivered: Delivered) -> Result<(), ApiError> {
        let Some(upload) = self.upload.take() else { return Err(ended()) };
        upload.sync().map_err(|error| ApiError::internal("write the recording", error))?;
        let core = Arc::clone(&self.core);
        // Rename before the run is reported as finished, so that its file exists by then. A busy disk may
        // delay the rename, so do it without the lock.
        upload.complete().map_err(|error| ApiError::internal("store the recording", error))?;
        let target = {
            let now = core.now().running;
            let mut state = core.state();
            let entry = state.runs.get_mut(&self.run).filter(|entry| entry.phase == Phase::Delivering);
            let Some(entry) = entry else {
                drop(state);
                let _ = core.store.remove_recording(&self.run);
                return Err(ended());
            };
            let (status, said) = delivered.outcome(entry.stopping, &entry.kept.run);
            entry.end(status, &said, now);
            let run = &mut entry.kept.run;
            run.bytes = delivered.bytes;
            run.events = delivered.events;
            run.output_file = file_name(run);
            run.files = ["html", "jfr", "folded", "pprof", "otlp"].map(str::to_owned).to_vec();
            core.log_end(run);
            run.target.clone()
        };
        core.describe(&self.run).map_err(|error| ApiError::internal("write the run's description", error))?;
        core.pass_on(&self.run);
        core.roll(&target);
        Ok(())
    }

    /// Rejects the uploaded data and marks the run as failed.
    pub fn refuse(mut self, why: &str) -> ApiError {
        self.upload = None;
        self.core.fail(&self.run, why);
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, why)
    }
}

impl Delivered {
    /// Returns the final status and its message.
    fn outcome(&self, stopping: bool, run: &Run) -> (Status, String) {
        if !self.ended.is_empty() {
            let ended = super::targets::short(&self.ended);
            return (
                Status::Failed,
                format!("The target has ended: {ended}. The recording up to then is available."),
            );
        }
        let (status, first) = match stopping {
            true => (Status::Cancelled, "Cancelled; the recording up to then is available."),
            false => (Status::Finished, "Profiling Successful"),
        };
        let more = if self.message.is_empty() && !stopping { &run.message } else { &self.message };
        let said = if more.is_empty() {
            first.to_owned()
        } else {
            format!("{}. {more}", first.trim_end_matches('.'))
        };
        (status, super::targets::short(&said))
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let now = self.core.now().running;
        let mut state = self.core.state();
        if let Some(entry) = state.runs.get_mut(&self.run).filter(|entry| entry.phase == Phase::Delivering) {
            entry.phase = Phase::Recording;
            entry.news = now;
        }
    }
}

impl super::Entry {
    fn end(&mut self, status: Status, message: &str, now: Duration) {
        self.phase = Phase::Over;
        let run = &mut self.kept.run;
        run.status = status;
        message.clone_into(&mut run.message);
        run.elapsed = millis(now.saturating_sub(self.began.running));
        run.finished_time = self.began.to_utc(now);
    }
}

impl Phase {
    /// A late start report does not undo the upload phase.
    fn unless_delivering(self, other: Self) -> Self {
        if self == Self::Delivering { self } else { other }
    }
}

fn ended() -> ApiError {
    ApiError::conflict("This run has ended; no more data is accepted.")
}

fn no_file() -> ApiError {
    ApiError::missing("File not found.")
}
