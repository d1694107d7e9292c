//! Agents join, report and leave.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Notify;

use super::run_request::check_labels;
use super::{Agent, Core, Joined, State};
use crate::api_error::ApiError;
use crate::id;
use crate::limits::{LONGEST_TEXT, MOST_COMMANDS};
use crate::log::Level;
use crate::wire::{
    Capability, Command, Commands, Hello, Labels, Mode, Numbered, State as TargetState, Target, Targets,
    Welcome,
};

impl Core {
    /// Registers an agent, or registers it again. `secret` is the one it received before.
    ///
    /// # Errors
    /// Returns an error if the request is invalid, the service is full, or another agent owns the target.
    pub fn hello(&self, hello: Hello, secret: Option<&str>) -> Result<Welcome, ApiError> {
        if hello.protocol != 1 {
            return Err(ApiError::bad("This service uses protocol 1; use an agent of the same version."));
        }
        if hello.key.is_empty() || hello.key.len() > LONGEST_TEXT || hello.name.is_empty() {
            return Err(ApiError::bad("An agent must send the `key` and `name` of the process."));
        }
        check_labels(&hello.labels)?;
        let fresh = id::secret().map_err(|error| ApiError::internal("make a secret", error))?;
        let now = self.now();
        let id = self.state().target_id(&hello);
        self.make_room_for(&id)?;
        let mut state = self.state();
        let before = state.targets.get(&id).and_then(|joined| joined.agent.as_ref());
        if let Some(agent) = before {
            let known = secret.is_some_and(|secret| id::same(secret, &agent.secret));
            let silent = now.running.saturating_sub(agent.seen) >= self.settings.heartbeat;
            if !known && !silent {
                return Err(ApiError::conflict(
                    "Another agent manages this process; stop it first, or retry later.",
                ));
            }
        }
        let run = state.running(&id);
        let target = Target {
            id: id.clone(),
            name: short(&hello.name),
            host: short(&hello.host),
            pid: hello.pid,
            start_time: hello.start_time,
            joined_time: now.utc,
            last_seen: now.utc,
            state: TargetState::Live,
            gone: String::new(),
            labels: hello.labels,
            modes: capabilities(hello.modes),
            run,
            continuous: None,
            load: None,
        };
        // Repeat commands that were not acknowledged, and continue the numbering.
        let earlier = state.targets.remove(&id).and_then(|joined| joined.agent);
        let (commands, next, wake) = match earlier {
            Some(agent) => (agent.commands, agent.next, agent.wake),
            None => (VecDeque::new(), 1, Arc::new(Notify::new())),
        };
        wake.notify_waiters();
        let agent = Agent { secret: fresh.clone(), seen: now.running, commands, next, wake };
        self.settings.log.write(
            Level::Info,
            "target joined",
            &[
                ("target", (&id).into()),
                ("name", (&target.name).into()),
                ("host", (&target.host).into()),
                ("pid", u64::from(target.pid).into()),
                ("labels", (&listed(&target.labels)).into()),
            ],
        );
        state.targets.insert(id.clone(), Joined { target, agent: Some(agent), pushed: None });
        state.remember(&id);
        let heartbeat_seconds = self.settings.heartbeat.as_secs().max(1);
        Ok(Welcome { target: id, secret: fresh, heartbeat_seconds })
    }

    /// Records a sign of life from an agent.
    ///
    /// # Errors
    /// Returns an error if the agent is unknown.
    pub fn heard(&self, target: &str, secret: &str) -> Result<(), ApiError> {
        let now = self.now();
        let mut state = self.state();
        let joined = state.targets.get_mut(target).ok_or_else(stranger)?;
        let agent = joined.agent.as_mut().ok_or_else(stranger)?;
        if !id::same(&agent.secret, secret) {
            return Err(stranger());
        }
        agent.seen = now.running;
        joined.target.last_seen = now.utc;
        joined.target.state = TargetState::Live;
        joined.target.gone.clear();
        Ok(())
    }

    /// Returns commands after number `after`, and a handle that is notified when more arrive.
    ///
    /// # Errors
    /// Returns an error if the agent is unknown.
    pub fn commands(
        &self,
        target: &str,
        secret: &str,
        after: u64,
    ) -> Result<(Commands, Arc<Notify>), ApiError> {
        self.heard(target, secret)?;
        let mut state = self.state();
        let agent =
            state.targets.get_mut(target).and_then(|joined| joined.agent.as_mut()).ok_or_else(stranger)?;
        agent.commands.retain(|command| command.number > after);
        let commands = agent.commands.iter().cloned().collect();
        Ok((Commands { commands }, Arc::clone(&agent.wake)))
    }

    /// Marks a target as gone because its agent reported the end of the process.
    ///
    /// # Errors
    /// Returns an error if the agent is unknown.
    pub fn gone(&self, target: &str, secret: &str, why: &str) -> Result<(), ApiError> {
        self.heard(target, secret)?;
        self.lost(target, &short(why));
        Ok(())
    }

    /// Returns all targets.
    pub fn targets(&self) -> Targets {
        let mut targets: Vec<Target> = {
            let state = self.state();
            state.targets.keys().filter_map(|id| state.target(id)).collect()
        };
        targets.iter_mut().for_each(|target| target.continuous = self.windows.bounds(&target.id));
        let (profiling, store) = (self.settings.profiling, self.settings.store.is_some());
        Targets { profiling, local: false, store, limits: self.limits(), targets }
    }

    /// Returns the numbers of live targets and of targets that are gone.
    pub fn census(&self) -> (u64, u64) {
        let state = self.state();
        let all = state.targets.len() as u64;
        let live = state.targets.values().filter(|joined| joined.target.state == TargetState::Live).count();
        (live as u64, all - live as u64)
    }

    /// Returns a target.
    ///
    /// # Errors
    /// Returns an error if it does not exist.
    pub fn target(&self, id: &str) -> Result<Target, ApiError> {
        let target = self.state().target(id).ok_or_else(no_target)?;
        Ok(Target { continuous: self.windows.bounds(id), ..target })
    }

    /// Resolves a name in Flink's paths to a target: an id, or a name or label value that exactly one target
    /// has.
    ///
    /// # Errors
    /// Returns an error if no target or several targets match.
    pub fn meant(&self, word: &str) -> Result<String, ApiError> {
        let state = self.state();
        if state.targets.contains_key(word) {
            return Ok(word.to_owned());
        }
        let live = |joined: &&Joined| joined.target.state == TargetState::Live;
        let named = |joined: &&Joined| {
            joined.target.name == word || joined.target.labels.values().any(|value| value == word)
        };
        let mut meant = state.targets.values().filter(named).filter(live);
        match (meant.next(), meant.next()) {
            (Some(one), None) => Ok(one.target.id.clone()),
            (Some(_), Some(_)) => Err(ApiError::conflict("Several targets have this name; give an id.")),
            _ => Err(no_target()),
        }
    }

    /// Returns the default target: the only live target with an agent.
    ///
    /// # Errors
    /// Returns an error if there is none, or more than one.
    pub fn only_one(&self) -> Result<String, ApiError> {
        let state = self.state();
        let live = |joined: &&Joined| joined.target.state == TargetState::Live && joined.agent.is_some();
        let mut live = state.targets.values().filter(live);
        match (live.next(), live.next()) {
            (Some(one), None) => Ok(one.target.id.clone()),
            (None, _) => Err(ApiError::missing("No target can be recorded; start an agent.")),
            _ => Err(ApiError::bad("There are several targets; select one with ?target=NAME.")),
        }
    }

    /// Returns the target that represents Flink's JobManager: the live one with the label `role=jobmanager`.
    ///
    /// # Errors
    /// Returns an error if there is none, or more than one.
    pub fn job_manager(&self) -> Result<String, ApiError> {
        self.meant("jobmanager").map_err(|fault| match fault.status {
            StatusCode::NOT_FOUND => ApiError::missing(
                "No target is labelled as the JobManager; start its agent with --label role=jobmanager.",
            ),
            _ => fault,
        })
    }

    /// If the number of targets is at its limit, removes the target that has been gone longest, with its
    /// history.
    ///
    /// # Errors
    /// Returns an error if all targets are live or files cannot be deleted.
    pub(super) fn make_room_for(&self, id: &str) -> Result<(), ApiError> {
        let gone = {
            let state = self.state();
            if state.targets.contains_key(id) || state.targets.len() < self.settings.max_targets {
                return Ok(());
            }
            state.longest_gone()
        };
        let most = self.settings.max_targets;
        let full = || {
            let message = format!("The limit of {most} targets is reached; raise --max-targets.");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
        };
        self.forget(&gone.ok_or_else(full)?)
    }

    /// Removes a target that is gone, with its history.
    ///
    /// # Errors
    /// Returns an error if it does not exist or is live.
    pub fn forget(&self, id: &str) -> Result<(), ApiError> {
        let runs = {
            let mut state = self.state();
            let joined = state.targets.get(id).ok_or_else(no_target)?;
            if joined.target.state == TargetState::Live {
                return Err(ApiError::conflict(format!(
                    "{} is running; only targets that have ended can be removed.",
                    joined.target.name
                )));
            }
            state.targets.remove(id);
            let runs = state.histories.remove(id).unwrap_or_default();
            runs.iter().for_each(|run| drop(state.runs.remove(run)));
            runs
        };
        self.windows.forget(id).map_err(|error| ApiError::internal("remove its stored data", error))?;
        for run in runs {
            self.store.remove(&run).map_err(|error| ApiError::internal("remove a run", error))?;
        }
        Ok(())
    }

    /// Marks silent agents as gone and ends overdue runs. Call this about once a second.
    pub fn look(&self) {
        let now = self.now().running;
        let silent: Vec<String> = {
            let state = self.state();
            let late = |seen: Duration| now.saturating_sub(seen) >= self.settings.heartbeat * 2;
            let there = |joined: &&Joined| joined.target.state == TargetState::Live;
            let of = state.targets.values().filter(there);
            let away = |pushed: Option<Duration>| pushed.is_none_or(|at| now.saturating_sub(at) >= PUSHED);
            let silent = of.filter(|joined| match &joined.agent {
                Some(agent) => late(agent.seen),
                None => away(joined.pushed),
            });
            silent.map(|joined| joined.target.id.clone()).collect()
        };
        for target in silent {
            self.lost(&target, "its agent stopped responding");
        }
        self.overdue();
        self.drop_pulled();
        self.forward.look();
        self.windows.look(self.now().utc);
    }

    fn lost(&self, target: &str, why: &str) {
        let run = {
            let mut state = self.state();
            let run = state.running(target);
            let Some(joined) = state.targets.get_mut(target) else { return };
            if joined.target.state != TargetState::Gone {
                let of =
                    [("target", target.into()), ("name", (&joined.target.name).into()), ("why", why.into())];
                self.settings.log.write(Level::Info, "target gone", &of);
            }
            joined.target.state = TargetState::Gone;
            why.clone_into(&mut joined.target.gone);
            if let Some(agent) = &mut joined.agent {
                agent.commands.clear();
            }
            run
        };
        if let Some(run) = run {
            self.fail(&run, &format!("The target has ended: {why}."));
        }
    }
}

impl State {
    /// A process keeps its target id across exec.
    fn target_id(&self, hello: &Hello) -> String {
        let id = id::target(&hello.name, hello.pid, &hello.key);
        if self.targets.contains_key(&id) {
            return id;
        }
        let known = self.tails.get(tail(&id)).filter(|known| self.targets.contains_key(*known));
        known.cloned().unwrap_or(id)
    }

    /// Indexes a target by the part of its id that does not change, so that a join does not scan thousands of
    /// targets.
    pub(super) fn remember(&mut self, id: &str) {
        if self.tails.len() > 2 * self.targets.len() + 64 {
            let Self { tails, targets, .. } = self;
            tails.retain(|_, id| targets.contains_key(id));
        }
        self.tails.insert(tail(id).to_owned(), id.to_owned());
    }

    fn target(&self, id: &str) -> Option<Target> {
        let joined = self.targets.get(id)?;
        Some(Target { run: self.running(id), ..joined.target.clone() })
    }

    /// Queues a command for a target's agent. Returns false if there is no agent or its queue is full.
    pub(super) fn send(&mut self, target: &str, command: Command) -> bool {
        let Some(agent) = self.targets.get_mut(target).and_then(|joined| joined.agent.as_mut()) else {
            return false;
        };
        if agent.commands.len() >= MOST_COMMANDS {
            return false;
        }
        agent.commands.push_back(Numbered { number: agent.next, command });
        agent.next += 1;
        agent.wake.notify_waiters();
        true
    }

    /// Returns the target that has been gone longest, preferring targets without runs.
    fn longest_gone(&self) -> Option<String> {
        let gone = |joined: &&Joined| joined.target.state == TargetState::Gone;
        let runs = |id: &str| self.histories.get(id).is_some_and(|runs| !runs.is_empty());
        let of = self.targets.values().filter(gone);
        of.min_by_key(|joined| (runs(&joined.target.id), joined.target.last_seen))
            .map(|joined| joined.target.id.clone())
    }
}

/// Returns the PID and key part of an id, without the name.
fn tail(id: &str) -> &str {
    let name = id.rsplitn(3, '-').last().map_or(0, str::len);
    id.get(name..).unwrap_or_default()
}

/// A target whose recordings are pushed counts as gone after this time. Pyroscope's clients push every 10 or
/// 15 s.
const PUSHED: Duration = Duration::from_secs(90);

/// Lists each mode once in a fixed order. Modes that the agent does not list are unavailable.
fn capabilities(told: Vec<Capability>) -> Vec<Capability> {
    let one = |mode: Mode| {
        let told = told.iter().find(|told| told.mode == mode);
        let available = told.is_some_and(|told| told.available);
        let reason = match told {
            Some(told) => short(&told.reason),
            None => "its agent does not support this mode".into(),
        };
        Capability { mode, available, reason: if available { String::new() } else { reason } }
    };
    Mode::ALL.into_iter().map(one).collect()
}

/// Formats labels as `key=value,…`.
pub(super) fn listed(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Truncates text from clients and agents.
pub(super) fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

fn stranger() -> ApiError {
    ApiError::missing("Unknown agent; it must register first.")
}

pub(super) fn no_target() -> ApiError {
    ApiError::missing("Target not found; GET /v1/targets lists the targets.")
}
