//! Create, list, cancel and delete runs.

use std::time::Duration;

use axum::http::StatusCode;

use super::targets::no_target;
use super::{Core, Entry, Phase, RunRequest, State};
use crate::api_error::ApiError;
use crate::clock::{Moment, stamp};
use crate::history::StoredRun;
use crate::id;
use crate::log::Level;
use crate::wire::{Command, Run, State as TargetState, Status};

impl Core {
    /// Starts a run. Blocks while a small file is written.
    ///
    /// # Errors
    /// Returns an error if the request cannot be satisfied now, or not at all.
    pub fn create(&self, target: &str, asked: &RunRequest) -> Result<Run, ApiError> {
        self.begin(target, asked, None)
    }

    /// Starts a run on each of the named targets. If one cannot start, its run reports the failure.
    ///
    /// # Errors
    /// Returns an error if no targets are named or no id can be generated.
    pub fn create_group(&self, asked: &RunRequest) -> Result<(String, Vec<Run>), ApiError> {
        if asked.targets.is_empty() {
            return Err(ApiError::bad("Give `targets`: a list of target ids."));
        }
        self.is_on()?;
        let group = self.new_id()?;
        let one = |target: &String| match self.begin(target, asked, Some(&group)) {
            Ok(run) => Ok(run),
            Err(fault) => self.refused(target, asked, &group, &fault.message),
        };
        let runs = asked.targets.iter().map(one).collect::<Result<_, _>>()?;
        Ok((group, runs))
    }

    fn begin(&self, target: &str, asked: &RunRequest, group: Option<&str>) -> Result<Run, ApiError> {
        self.is_on()?;
        let run = self.new_run(asked, group)?;
        let id = run.id.clone();
        let room = self.has_room();
        {
            let now = self.now();
            let mut state = self.state();
            let of = state.targets.get(target).ok_or_else(no_target)?.target.clone();
            if of.state == TargetState::Gone {
                return Err(ApiError::conflict(format!("{} has ended: {}.", of.name, of.gone)));
            }
            if let Some(cannot) = of.modes.iter().find(|can| can.mode == asked.mode && !can.available) {
                let (mode, name) = (asked.mode.name(), &of.name);
                return Err(ApiError::bad(format!(
                    "{mode} cannot be recorded for {name}: {}.",
                    cannot.reason
                )));
            }
            if state.running(target).is_some() {
                return Err(ApiError::conflict(format!("{target} is still under profiling.")));
            }
            let running = state.runs.values().filter(|entry| entry.phase != Phase::Over).count();
            if running >= self.settings.max_concurrent {
                let message = format!(
                    "The limit of {running} concurrent runs is reached; wait for a run to end, or cancel one."
                );
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
            }
            room?;
            let run = Run { target: of.id.clone(), target_name: of.name.clone(), ..run };
            state.add(StoredRun { run, of }, now, Phase::New);
            state.pulled(&id, asked.pulled);
        }
        if let Err(error) = self.describe(&id) {
            self.drop_entry(&id);
            return Err(ApiError::internal("write the run's description", error));
        }
        let seconds = asked.duration;
        let of = [("run", (&id).into()), ("target", target.into()), ("mode", asked.mode.name().into())];
        self.settings.log.write(
            Level::Info,
            "run began",
            &[&of[..], &[("seconds", seconds.into())]].concat(),
        );
        let sent = {
            let mut state = self.state();
            let waiting = state.runs.get_mut(&id).filter(|entry| entry.phase == Phase::New);
            let queued = waiting.map(|entry| {
                entry.phase = Phase::Sent;
                entry.stopping
            });
            let command = Command::Start {
                run: id.clone(),
                mode: asked.mode,
                duration: asked.duration,
                interval: asked.interval.clone(),
                engines: asked.engines.clone(),
            };
            match queued {
                Some(false) => state.send(target, command),
                // Cancelled or removed in the meantime; the agent need not know.
                Some(true) | None => true,
            }
        };
        if !sent {
            self.fail(&id, "The agent does not accept more commands.");
        }
        self.roll(target);
        self.run(&id)
    }

    /// Creates a failed run, shown in a group for a target that could not be recorded.
    fn refused(&self, target: &str, asked: &RunRequest, group: &str, why: &str) -> Result<Run, ApiError> {
        let run = self.new_run(asked, Some(group))?;
        let now = self.now();
        let run = Run {
            target: super::targets::short(target),
            status: Status::Failed,
            finished_time: run.trigger_time,
            message: why.to_owned(),
            ..run
        };
        let mut state = self.state();
        let Some(of) = state.targets.get(target).map(|joined| joined.target.clone()) else { return Ok(run) };
        let run = Run { target_name: of.name.clone(), ..run };
        state.add(StoredRun { run: run.clone(), of }, now, Phase::Over);
        drop(state);
        self.describe(&run.id).map_err(|error| ApiError::internal("write the run's description", error))?;
        self.roll(target);
        Ok(run)
    }

    fn new_id(&self) -> Result<String, ApiError> {
        id::new_run(self.now().utc).map_err(|error| ApiError::internal("make an id", error))
    }

    fn new_run(&self, asked: &RunRequest, group: Option<&str>) -> Result<Run, ApiError> {
        let now = self.now();
        Ok(Run {
            id: id::new_run(now.utc).map_err(|error| ApiError::internal("make an id", error))?,
            group: group.map(str::to_owned),
            target: String::new(),
            target_name: String::new(),
            status: Status::Running,
            mode: asked.mode,
            effective_mode: String::new(),
            interval: asked.interval.clone().unwrap_or_default(),
            engines: asked.engines.clone(),
            trigger_time: now.utc,
            finished_time: 0,
            duration: asked.duration,
            elapsed: 0,
            message: String::new(),
            output_file: String::new(),
            bytes: 0,
            events: Vec::new(),
            labels: asked.labels.clone(),
            files: Vec::new(),
        })
    }

    /// # Errors
    /// Returns an error if on-demand profiling is off.
    pub fn is_on(&self) -> Result<(), ApiError> {
        if self.settings.profiling {
            return Ok(());
        }
        Err(ApiError::missing(
            "Profiling on demand is off; start the service with `flightline serve --profiling`.",
        ))
    }

    /// Returns a run.
    ///
    /// # Errors
    /// Returns an error if it does not exist.
    pub fn run(&self, id: &str) -> Result<Run, ApiError> {
        self.is_on()?;
        let now = self.now().running;
        self.state().view(id, now).ok_or_else(no_run)
    }

    /// Returns a target's runs, newest first.
    ///
    /// # Errors
    /// Returns an error if the target does not exist.
    pub fn history(&self, target: &str) -> Result<Vec<Run>, ApiError> {
        self.is_on()?;
        let now = self.now().running;
        let state = self.state();
        if !state.targets.contains_key(target) {
            return Err(no_target());
        }
        let ids = state.histories.get(target).into_iter().flatten().rev();
        Ok(ids.filter_map(|id| state.view(id, now)).collect())
    }

    /// Returns all runs, or those of a group, newest first.
    ///
    /// # Errors
    /// Returns an error if on-demand profiling is off.
    pub fn all(&self, group: Option<&str>) -> Result<Vec<Run>, ApiError> {
        self.is_on()?;
        let now = self.now().running;
        let state = self.state();
        let of_group = |run: &Run| group.is_none_or(|group| run.group.as_deref() == Some(group));
        let mut runs: Vec<Run> =
            state.runs.keys().filter_map(|id| state.view(id, now)).filter(of_group).collect();
        runs.sort_by(|a, b| (b.trigger_time, &b.id).cmp(&(a.trigger_time, &a.id)));
        Ok(runs)
    }

    /// Cancels a run.
    ///
    /// # Errors
    /// Returns an error if it does not exist or has ended.
    pub fn cancel(&self, id: &str) -> Result<Run, ApiError> {
        self.is_on()?;
        {
            let now = self.now().running;
            let mut state = self.state();
            let entry = state.runs.get_mut(id).ok_or_else(no_run)?;
            if entry.phase == Phase::Over {
                return Err(ApiError::conflict("This run has ended."));
            }
            if !entry.stopping {
                entry.stopping = true;
                entry.news = now;
                entry.kept.run.message = "being cancelled".into();
                let (target, run) = (entry.kept.run.target.clone(), id.to_owned());
                state.send(&target, Command::Stop { run });
            }
        }
        self.run(id)
    }

    /// Deletes a finished run with its recording, or cancels a run in progress. Returns true if the run was
    /// deleted.
    ///
    /// # Errors
    /// Returns an error if it does not exist or its files cannot be deleted.
    pub fn delete(&self, id: &str) -> Result<bool, ApiError> {
        self.is_on()?;
        {
            let state = self.state();
            let entry = state.runs.get(id).ok_or_else(no_run)?;
            if entry.phase != Phase::Over {
                drop(state);
                return self.cancel(id).map(|_| false);
            }
        }
        self.drop_entry(id);
        self.store.remove(id).map_err(|error| ApiError::internal("remove the run", error))?;
        Ok(true)
    }

    /// Deletes the target's oldest finished runs until its history is within limits.
    pub(super) fn roll(&self, target: &str) {
        let removed = {
            let mut state = self.state();
            let (size, bytes) = (self.settings.history_size, self.settings.history_bytes);
            let mut removed = Vec::new();
            while let Some(oldest) = state.beyond(target, size, bytes) {
                state.drop_run(&oldest);
                removed.push(oldest);
            }
            removed
        };
        // Files that cannot be deleted now are deleted at the next start.
        removed.iter().for_each(|id| drop(self.store.remove(id)));
    }

    /// Deletes pulled runs that no client collected.
    pub(super) fn drop_pulled(&self) {
        let now = self.now().running;
        let late = |entry: &&Entry| {
            entry.pulled && entry.phase == Phase::Over && now.saturating_sub(entry.news) >= PULLED
        };
        let late: Vec<String> =
            self.state().runs.values().filter(late).map(|entry| entry.kept.run.id.clone()).collect();
        // A run that cannot be deleted appears as an ordinary run after the next start.
        late.iter().for_each(|id| drop(self.delete(id)));
    }

    pub(super) fn roll_all(&self) {
        let targets: Vec<String> = self.state().histories.keys().cloned().collect();
        targets.iter().for_each(|target| self.roll(target));
    }

    /// Returns totals over all runs.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for entry in self.state().runs.values() {
            totals.statuses[entry.kept.run.status as usize] += 1;
            totals.bytes += entry.kept.run.bytes;
        }
        totals
    }

    /// # Errors
    /// Returns an error if the disk has no room for another recording.
    pub fn has_room(&self) -> Result<(), ApiError> {
        // If the free space is unknown, continue; a failed write is reported.
        let free = self.store.free().unwrap_or(u64::MAX);
        if free >= self.settings.min_free {
            return Ok(());
        }
        let message = format!(
            "Only {} MiB are free on the service's disk, but {} MiB must stay free; remove runs or files.",
            free >> 20,
            self.settings.min_free >> 20
        );
        Err(ApiError::new(StatusCode::INSUFFICIENT_STORAGE, message))
    }

    fn drop_entry(&self, id: &str) {
        self.state().drop_run(id);
    }
}

/// How long a pulled run's recording waits for its client, which is usually connected.
const PULLED: Duration = Duration::from_secs(60);

/// Totals over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Runs by [`Status`].
    statuses: [u64; 4],
    /// Size of all recordings in bytes.
    pub bytes: u64,
}

impl Totals {
    /// Number of runs with this status.
    pub fn by_status(&self, status: Status) -> u64 {
        self.statuses[status as usize]
    }
}

impl State {
    fn add(&mut self, kept: StoredRun, began: Moment, phase: Phase) {
        let (id, target) = (kept.run.id.clone(), kept.of.id.clone());
        self.histories.entry(target).or_default().push_back(id.clone());
        self.runs
            .insert(id, Entry { kept, began, phase, news: began.running, stopping: false, pulled: false });
    }

    fn pulled(&mut self, id: &str, pulled: bool) {
        if let Some(entry) = self.runs.get_mut(id) {
            entry.pulled = pulled;
        }
    }

    /// Returns the target's run in progress.
    pub(super) fn running(&self, target: &str) -> Option<String> {
        let mut ids = self.histories.get(target)?.iter();
        ids.find(|&id| self.runs.get(id).is_some_and(|entry| entry.phase != Phase::Over)).cloned()
    }

    /// Returns the oldest finished run if the history exceeds its limits.
    fn beyond(&self, target: &str, size: usize, bytes: u64) -> Option<String> {
        let history = self.histories.get(target)?;
        // Pulled runs must not evict runs that users requested.
        let runs = || history.iter().filter_map(|id| self.runs.get(id)).filter(|entry| !entry.pulled);
        let kept: u64 = runs().map(|entry| entry.kept.run.bytes).sum();
        // The newest recording stays whatever its size, since it was accepted.
        let too_many = runs().count() > size;
        let too_large = kept > bytes && runs().filter(|entry| entry.kept.run.bytes > 0).count() > 1;
        let oldest = runs()
            .find(|entry| entry.phase == Phase::Over && (too_many || too_large && entry.kept.run.bytes > 0));
        oldest.filter(|_| too_many || too_large).map(|entry| entry.kept.run.id.clone())
    }

    fn drop_run(&mut self, id: &str) {
        let Some(entry) = self.runs.remove(id) else { return };
        if let Some(history) = self.histories.get_mut(&entry.kept.of.id) {
            history.retain(|kept| kept != id);
        }
    }
}

/// Unique file name of a run's flame graph.
pub(super) fn file_name(run: &Run) -> String {
    let random = run.id.rsplit('-').next().unwrap_or_default();
    format!(
        "{}_{}_{}_{}.html",
        run.target,
        run.mode.name(),
        stamp(run.trigger_time),
        &random[..random.len().min(8)]
    )
}

pub(super) fn no_run() -> ApiError {
    ApiError::missing("Run not found.")
}
