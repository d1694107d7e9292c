//! Targets and their runs, independent of HTTP.
//!
//! One mutex guards all state and is never held across blocking calls. Files are written before it is locked
//! or after it is released; run descriptions are written one at a time, each with the run's state at that
//! time ([`History::describe`]).

mod label_groups;
#[cfg(test)]
mod limits_tests;
mod run_end;
mod run_request;
mod runs;
mod targets;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::forward::Forward;
use crate::history::{History, StoredRun};
use crate::settings::Settings;
use crate::window;
use crate::wire::{Limits, Numbered, Run, State as TargetState, Status, Target};

pub use label_groups::LabelGroup;
pub use run_request::{RunRequest, check_labels};
pub use windows::WindowContents;
use windows::Windows;

pub use run_end::{Delivered, Delivery};

/// The service without its network interface.
#[derive(Debug)]
pub struct Core {
    /// The settings.
    pub settings: Settings,
    clock: Arc<dyn Clock>,
    store: History,
    windows: Windows,
    forward: Forward,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    targets: BTreeMap<String, Joined>,
    /// Target ids by the part that does not depend on the name. May contain stale entries.
    tails: HashMap<String, String>,
    runs: HashMap<String, Entry>,
    /// Runs of each target, oldest first, including targets without an agent.
    histories: HashMap<String, VecDeque<String>>,
}

/// A target and its agent.
#[derive(Debug)]
struct Joined {
    target: Target,
    /// `None` if no agent has joined since the service started.
    agent: Option<Agent>,
    /// When a recording was last pushed for it.
    pushed: Option<Duration>,
}

#[derive(Debug)]
struct Agent {
    secret: String,
    seen: Duration,
    commands: VecDeque<Numbered>,
    next: u64,
    wake: Arc<Notify>,
}

/// A run with the service's internal state.
#[derive(Debug)]
struct Entry {
    kept: StoredRun,
    began: Moment,
    phase: Phase,
    /// When the agent last reported on it.
    news: Duration,
    stopping: bool,
    /// Belongs to the client that pulls it and is deleted once that client is gone.
    pulled: bool,
}

/// Phase of a run; determines which timeout applies to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its description is being written.
    New,
    /// The command has been queued for the agent.
    Sent,
    /// The agent is recording.
    Recording,
    /// The recording is being uploaded.
    Delivering,
    /// It has ended.
    Over,
}

impl Core {
    /// Opens a directory and loads its history. Also returns a message for each item that could not be read.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used.
    pub fn open(
        path: &Path,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> io::Result<(Arc<Self>, Vec<String>)> {
        let store = History::open(path)?;
        let found = store.read()?;
        let limits = window::Limits {
            bytes: settings.window_bytes,
            age: settings.window_age,
            ..window::Limits::default()
        };
        let (windows, kept) = Windows::open(&path.join("windows"), limits, clock.utc())?;
        let forward = Forward::new(&settings.forward, &settings.log)?;
        let core = Self { settings, clock, store, windows, forward, state: Mutex::default() };
        let mut broken_off = Vec::new();
        {
            let mut state = core.state();
            for mut kept in found.runs {
                let began = Moment { utc: kept.run.trigger_time, running: core.clock.running() };
                if kept.run.status == Status::Running {
                    kept.run.status = Status::Failed;
                    kept.run.message = "service restarted".into();
                    kept.run.finished_time = core.clock.utc().max(kept.run.trigger_time);
                    broken_off.push(kept.run.id.clone());
                }
                state.adopt(kept, began);
            }
        }
        for id in &broken_off {
            core.store.remove_recording(id)?;
            core.describe(id)?;
        }
        core.adopt_windows(kept);
        core.roll_all();
        Ok((Arc::new(core), found.unreadable))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays consistent if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment::now(&*self.clock)
    }

    /// Returns the queues that forward recordings.
    pub fn forward(&self) -> &Forward {
        &self.forward
    }

    /// Current UTC in ms.
    pub fn utc(&self) -> i64 {
        self.clock.utc()
    }

    /// Writes the run's current description to disk.
    fn describe(&self, id: &str) -> io::Result<()> {
        self.store.describe(|| self.state().runs.get(id).map(|entry| entry.kept.clone()))
    }

    /// Returns the limits on requests.
    pub fn limits(&self) -> Limits {
        let set = &self.settings;
        Limits {
            max_duration_seconds: set.max_duration.as_secs(),
            history_size: set.history_size,
            history_bytes: set.history_bytes,
            max_concurrent: set.max_concurrent,
            heartbeat_seconds: set.heartbeat.as_secs().max(1),
        }
    }
}

impl State {
    /// Adds a run of a previous service process.
    fn adopt(&mut self, kept: StoredRun, began: Moment) {
        let id = kept.run.id.clone();
        let target = kept.of.id.clone();
        let gone = "not seen since the service started".to_owned();
        let of = Target { state: TargetState::Gone, gone, run: None, ..kept.of.clone() };
        self.targets.entry(target.clone()).or_insert(Joined { target: of, agent: None, pushed: None });
        self.remember(&target);
        self.histories.entry(target).or_default().push_back(id.clone());
        let entry =
            Entry { kept, began, phase: Phase::Over, news: began.running, stopping: false, pulled: false };
        self.runs.insert(id, entry);
    }

    /// Returns the run as clients see it now.
    fn view(&self, id: &str, now: Duration) -> Option<Run> {
        let entry = self.runs.get(id)?;
        let mut run = entry.kept.run.clone();
        if run.status == Status::Running {
            run.elapsed = millis(now.saturating_sub(entry.began.running));
        }
        Some(run)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
