//! Agents come, are heard of, and go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Notify;

use super::asked::check_labels;
use super::{Agent, Core, Joined, State};
use crate::fault::Fault;
use crate::id;
use crate::log::Level;
use crate::settings::{LONGEST_TEXT, MOST_COMMANDS};
use crate::wire::{
    Capability, Command, Commands, Hello, Labels, Mode, Numbered, State as TargetState, Target, Targets,
    Welcome,
};

impl Core {
    /// Lets an agent in, or in again. `secret` is what it was given before.
    ///
    /// # Errors
    /// It cannot be understood, there is no room, or another agent has the target.
    pub fn hello(&self, hello: Hello, secret: Option<&str>) -> Result<Welcome, Fault> {
        if hello.protocol != 1 {
            return Err(Fault::bad("This service speaks protocol 1; use the agent of its version."));
        }
        if hello.key.is_empty() || hello.key.len() > LONGEST_TEXT || hello.name.is_empty() {
            return Err(Fault::bad("An agent tells `key` and `name` of the process."));
        }
        check_labels(&hello.labels)?;
        let fresh = id::secret().map_err(|error| Fault::internal("make a secret", error))?;
        let now = self.now();
        let id = self.state().id_of(&hello);
        self.make_room_for(&id)?;
        let mut state = self.state();
        let before = state.targets.get(&id).and_then(|joined| joined.agent.as_ref());
        if let Some(agent) = before {
            let known = secret.is_some_and(|secret| id::same(secret, &agent.secret));
            let silent = now.running.saturating_sub(agent.seen) >= self.settings.heartbeat;
            if !known && !silent {
                return Err(Fault::conflict(
                    "Another agent has this process; end it first, or try again in a while.",
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
        // What was not heard yet is told again; numbers go on.
        let earlier = state.targets.remove(&id).and_then(|joined| joined.agent);
        let (commands, next, wake) = match earlier {
            Some(agent) => (agent.commands, agent.next, agent.wake),
            None => (VecDeque::new(), 1, Arc::new(Notify::new())),
        };
        wake.notify_waiters();
        let agent = Agent { secret: fresh.clone(), seen: now.running, commands, next, wake };
        self.settings.log.tell(
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

    /// An agent was heard of.
    ///
    /// # Errors
    /// It is none of ours.
    pub fn heard(&self, target: &str, secret: &str) -> Result<(), Fault> {
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

    /// Commands after number `after`; if there are none, what to wait on for the next.
    ///
    /// # Errors
    /// The agent is none of ours.
    pub fn commands(&self, target: &str, secret: &str, after: u64) -> Result<(Commands, Arc<Notify>), Fault> {
        self.heard(target, secret)?;
        let mut state = self.state();
        let agent =
            state.targets.get_mut(target).and_then(|joined| joined.agent.as_mut()).ok_or_else(stranger)?;
        agent.commands.retain(|command| command.number > after);
        let commands = agent.commands.iter().cloned().collect();
        Ok((Commands { commands }, Arc::clone(&agent.wake)))
    }

    /// The recorded process has ended, as its agent tells.
    ///
    /// # Errors
    /// The agent is none of ours.
    pub fn gone(&self, target: &str, secret: &str, why: &str) -> Result<(), Fault> {
        self.heard(target, secret)?;
        self.lost(target, &short(why));
        Ok(())
    }

    /// All targets.
    pub fn targets(&self) -> Targets {
        let mut targets: Vec<Target> = {
            let state = self.state();
            state.targets.keys().filter_map(|id| state.target(id)).collect()
        };
        targets.iter_mut().for_each(|target| target.continuous = self.windows.bounds(&target.id));
        let (profiling, store) = (self.settings.profiling, self.settings.store.is_some());
        Targets { profiling, local: false, store, limits: self.limits(), targets }
    }

    /// How many targets are there, and how many are gone.
    pub fn census(&self) -> (u64, u64) {
        let state = self.state();
        let all = state.targets.len() as u64;
        let live = state.targets.values().filter(|joined| joined.target.state == TargetState::Live).count();
        (live as u64, all - live as u64)
    }

    /// One target.
    ///
    /// # Errors
    /// There is none.
    pub fn target(&self, id: &str) -> Result<Target, Fault> {
        let target = self.state().target(id).ok_or_else(no_target)?;
        Ok(Target { continuous: self.windows.bounds(id), ..target })
    }

    /// The target that Flink's paths mean by a name: an id, or the name or label of exactly one.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn meant(&self, word: &str) -> Result<String, Fault> {
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
            (Some(_), Some(_)) => Err(Fault::conflict("Several targets are called so; give the id of one.")),
            _ => Err(no_target()),
        }
    }

    /// The target that is meant if none is named: the only one with an agent that is there.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn only_one(&self) -> Result<String, Fault> {
        let state = self.state();
        let live = |joined: &&Joined| joined.target.state == TargetState::Live && joined.agent.is_some();
        let mut live = state.targets.values().filter(live);
        match (live.next(), live.next()) {
            (Some(one), None) => Ok(one.target.id.clone()),
            (None, _) => Err(Fault::missing("No target is there that can be recorded; let an agent join.")),
            _ => Err(Fault::bad("There are several targets: name one, as ?target=NAME.")),
        }
    }

    /// The target that stands for Flink's JobManager: the live one with the label `role=jobmanager`.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn job_manager(&self) -> Result<String, Fault> {
        self.meant("jobmanager").map_err(|fault| match fault.status {
            StatusCode::NOT_FOUND => {
                Fault::missing("No target stands for the JobManager: give one --label role=jobmanager.")
            }
            _ => fault,
        })
    }

    /// Of more targets than may be, the one that is gone for longest is forgotten, with its history.
    ///
    /// # Errors
    /// All are there, or its files cannot be removed.
    pub(super) fn make_room_for(&self, id: &str) -> Result<(), Fault> {
        let gone = {
            let state = self.state();
            if state.targets.contains_key(id) || state.targets.len() < self.settings.max_targets {
                return Ok(());
            }
            state.longest_gone()
        };
        let most = self.settings.max_targets;
        let full = || {
            let sentence = format!("There are {most} targets already; raise --max-targets.");
            Fault::new(StatusCode::TOO_MANY_REQUESTS, sentence)
        };
        self.forget(&gone.ok_or_else(full)?)
    }

    /// Forgets a target that is gone, with its history.
    ///
    /// # Errors
    /// There is none, or it is there.
    pub fn forget(&self, id: &str) -> Result<(), Fault> {
        let runs = {
            let mut state = self.state();
            let joined = state.targets.get(id).ok_or_else(no_target)?;
            if joined.target.state == TargetState::Live {
                return Err(Fault::conflict(format!(
                    "{} is there; only what is gone can be forgotten.",
                    joined.target.name
                )));
            }
            state.targets.remove(id);
            let runs = state.histories.remove(id).unwrap_or_default();
            runs.iter().for_each(|run| drop(state.runs.remove(run)));
            runs
        };
        self.windows.forget(id).map_err(|error| Fault::internal("remove what is kept of it", error))?;
        for run in runs {
            self.store.remove(&run).map_err(|error| Fault::internal("remove a run", error))?;
        }
        Ok(())
    }

    /// Looks who was not heard of in time, and ends what waits in vain. To be called about once a second.
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
            self.lost(&target, "its agent was not heard of any more");
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
                self.settings.log.tell(Level::Info, "target gone", &of);
            }
            joined.target.state = TargetState::Gone;
            why.clone_into(&mut joined.target.gone);
            if let Some(agent) = &mut joined.agent {
                agent.commands.clear();
            }
            run
        };
        if let Some(run) = run {
            self.fail(&run, &format!("The target is gone: {why}."));
        }
    }
}

impl State {
    /// A process keeps its id when it becomes another program by exec.
    fn id_of(&self, hello: &Hello) -> String {
        let id = id::of_target(&hello.name, hello.pid, &hello.key);
        if self.targets.contains_key(&id) {
            return id;
        }
        let known = self.tails.get(tail(&id)).filter(|known| self.targets.contains_key(*known));
        known.cloned().unwrap_or(id)
    }

    /// Lets a target be found by what of its id does not change: when thousands come at once, not all are looked at for each of them.
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

    /// Has a target's agent told something. False if there is none.
    pub(super) fn tell(&mut self, target: &str, command: Command) -> bool {
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

    /// Of the targets that are gone, the one not heard of for longest; those without runs first.
    fn longest_gone(&self) -> Option<String> {
        let gone = |joined: &&Joined| joined.target.state == TargetState::Gone;
        let runs = |id: &str| self.histories.get(id).is_some_and(|runs| !runs.is_empty());
        let of = self.targets.values().filter(gone);
        of.min_by_key(|joined| (runs(&joined.target.id), joined.target.last_seen))
            .map(|joined| joined.target.id.clone())
    }
}

/// Number and key of the process in an id, without its name.
fn tail(id: &str) -> &str {
    let name = id.rsplitn(3, '-').last().map_or(0, str::len);
    id.get(name..).unwrap_or_default()
}

/// Who pushes recordings does so at least so often: Pyroscope's clients every 10 or 15 s.
const PUSHED: Duration = Duration::from_secs(90);

/// Each mode once, in our order; those that the agent does not speak of cannot be had.
fn capabilities(told: Vec<Capability>) -> Vec<Capability> {
    let one = |mode: Mode| {
        let told = told.iter().find(|told| told.mode == mode);
        let available = told.is_some_and(|told| told.available);
        let reason = match told {
            Some(told) => short(&told.reason),
            None => "its agent does not know this mode".into(),
        };
        Capability { mode, available, reason: if available { String::new() } else { reason } }
    };
    Mode::ALL.into_iter().map(one).collect()
}

/// Labels as one text.
pub(super) fn listed(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Texts of strangers are cut.
pub(super) fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

fn stranger() -> Fault {
    Fault::missing("This agent is not known here; it has to introduce itself.")
}

pub(super) fn no_target() -> Fault {
    Fault::missing("There is no such target; GET /v1/targets lists them.")
}
