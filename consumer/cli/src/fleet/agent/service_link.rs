//! Connection to the service: joining, commands, reports and uploads. Tolerates outages of the service
//! without affecting the process.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_service::wire::{Gone, Progress, Welcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Method;

use super::command_queue::CommandQueue;
use super::process::{Condition, Process};
use super::run_request::is_id;
use crate::diagnostics::note;
use crate::fleet::remote::client::{Client, Refused};

/// Minimum and maximum delay between attempts to reach the service.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long to retry uploads of recordings, and reports.
const OFFERED: Duration = Duration::from_secs(60);
/// See [`OFFERED`].
const NEWS: Duration = Duration::from_secs(10);
/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(10);
/// Time to report the end of the process. It delays the agent's own exit and thus the program's exit status.
const FAREWELL: Duration = Duration::from_secs(3);
/// Time to complete and upload the last recording.
const LAST_RUN: Duration = Duration::from_secs(8);
/// Minimum upload rate in bytes per second.
const SLOWEST: u64 = 64 << 10;
/// Minimum interval between polls, for a service that does not support long polling.
const LEAST_WAIT: Duration = Duration::from_millis(200);

/// Connection of one process.
pub struct ServiceLink {
    client: Arc<Client>,
    process: Arc<Process>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The service's reply when the process was registered.
    known: Option<Welcome>,
    /// The service no longer knows this agent, which must register again.
    forgotten: bool,
    /// State of the process at registration.
    was: Option<Condition>,
    orders: CommandQueue,
    /// The continuous recording is running and ends separately.
    always: bool,
    /// How the process ended.
    ended: Option<String>,
    /// The end has been reported.
    told: bool,
    /// A registration is on its way; the service may know the process already.
    registering: bool,
    /// The last request failed.
    away: bool,
}

impl ServiceLink {
    /// Creates the connection without contacting the service.
    pub fn new(client: Arc<Client>, process: Arc<Process>) -> Self {
        Self { client, process, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls for commands until the end has been reported, so that the target stays live while the last
    /// recording is uploaded.
    pub fn talk(&self) {
        let mut pause = PAUSES.0;
        let mut told_away = false;
        let is_over = |state: &State| state.told || state.ended.is_some() && state.orders.is_idle();
        // Do not register a process that has ended.
        while !is_over(&self.state()) {
            let began = Instant::now();
            match self.known().and_then(|welcome| self.ask(&welcome)) {
                Ok(commands) => {
                    if told_away {
                        note(format!("{} ({}) has joined again", self.process.name, self.process.pid));
                    }
                    (pause, told_away) = (PAUSES.0, false);
                    self.state().away = false;
                    if commands.commands.is_empty() {
                        sleep(LEAST_WAIT.saturating_sub(began.elapsed()));
                    }
                    for command in commands.commands {
                        let refused = self.state().orders.take(command);
                        self.changed.notify_all();
                        if let Some((run, message)) = refused {
                            self.report(&run, &Progress::Failed { message });
                        }
                    }
                }
                Err(refused) => {
                    if let Refused::Status(404 | 401, _) = refused {
                        self.state().forgotten = true;
                    }
                    self.state().away = matches!(refused, Refused::Unreachable(_));
                    if !told_away && !matches!(refused, Refused::Status(404, _)) {
                        note(format!("{refused} Retrying until it is available."));
                        told_away = true;
                    }
                    sleep(jittered(pause));
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Executes runs one after the other until the end.
    pub fn work(&self) {
        loop {
            let mut state = self.state();
            let (work, running) = loop {
                if state.orders.is_over() {
                    return;
                }
                if let Some(next) = state.orders.next() {
                    break next;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            super::run_executor::perform(&work, self, &self.process, &running);
            self.state().orders.done();
            self.changed.notify_all();
        }
    }

    /// Returns the registration; registers the process if necessary.
    fn known(&self) -> Result<Welcome, Refused> {
        let is = self.process.condition();
        let (known, current) = {
            let state = self.state();
            // Exec may change the process.
            (state.known.clone(), !state.forgotten && state.was.as_ref() == Some(&is))
        };
        if let Some(known) = known.clone().filter(|_| current) {
            return Ok(known);
        }
        self.state().registering = true;
        let registered = self.register(known.as_ref().map(|known| known.secret.as_str()));
        let mut state = self.state();
        state.registering = false;
        self.changed.notify_all();
        let welcome = registered?;
        if state.forgotten {
            // A restarted service numbers its commands from one.
            state.orders.count_anew();
        }
        (state.known, state.was, state.forgotten) = (Some(welcome.clone()), Some(is), false);
        Ok(welcome)
    }

    /// Introduces the process to the service. `secret` is that of an earlier registration.
    fn register(&self, secret: Option<&str>) -> Result<Welcome, Refused> {
        let hello = json(&self.process.hello());
        let response = self.client.call_within(Some(ANSWER), Method::POST, "/agents", secret, Some(hello))?;
        let answer = self.client.answer::<Welcome>(response);
        let welcome = answer.map_err(|error| Refused::Unreachable(error.to_string()))?;
        if !is_id(&welcome.target) {
            return Err(Refused::Unreachable("The server is not a profiling service.".into()));
        }
        Ok(welcome)
    }

    fn ask(&self, welcome: &Welcome) -> Result<CommandList, Refused> {
        let after = self.state().orders.heard();
        let path = format!("/agents/{}/commands?after={after}", welcome.target);
        // Without commands, the service answers within a heartbeat.
        let limit = ANSWER + Duration::from_secs(welcome.heartbeat_seconds.min(60));
        let response =
            self.client.call_within(Some(limit), Method::GET, &path, Some(&welcome.secret), None)?;
        self.client.answer(response).map_err(|error| Refused::Unreachable(error.to_string()))
    }

    /// Reports a run's progress. Returns false if the service does not want it.
    pub fn report(&self, run: &str, progress: &Progress) -> bool {
        self.send(&format!("runs/{run}"), Method::POST, NEWS, || Ok((json(progress), 0)))
    }

    /// Uploads a recording. `open` may be called again for retries.
    pub fn deliver(&self, run: &str, message: &str, open: impl Fn() -> std::io::Result<File>) -> bool {
        let mut state = self.state();
        if !self.process.is_there() {
            // The agent is the parent and will soon know how the process ended.
            let unknown = |state: &mut State| state.ended.is_none();
            let waited = self.changed.wait_timeout_while(state, FAREWELL, unknown);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let ended = state.ended.clone().unwrap_or_default();
        drop(state);
        let query = format!("message={}&ended={}", escaped(message), escaped(&ended));
        self.send(&format!("runs/{run}/recording?{query}"), Method::PUT, OFFERED, || {
            let file = open()?;
            let length = file.metadata()?.len();
            Ok((SendBody::from_owned_reader(file.take(length)), length))
        })
    }

    /// Returns true while a run is in progress.
    pub fn is_busy(&self) -> bool {
        !self.state().orders.is_idle()
    }

    /// Returns true if no more runs start.
    pub fn is_over(&self) -> bool {
        self.state().orders.is_over()
    }

    /// Returns true while the continuous recording is running.
    pub fn records_always(&self) -> bool {
        self.state().always
    }

    /// Sets whether the continuous recording is running.
    pub fn record_always(&self, always: bool) {
        self.state().always = always;
        self.changed.notify_all();
    }

    /// Uploads chunks of the continuous recording. Returns false if the upload should be retried.
    pub fn give_chunks(&self, path: &Path) -> bool {
        let Some(known) = self.state().known.clone() else { return false };
        // The chunk was rolled away in the meantime.
        let Ok(file) = File::open(path) else { return true };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let limit = ANSWER + Duration::from_secs(length / SLOWEST);
        let body = SendBody::from_owned_reader(file.take(length));
        let path = format!("/agents/{}/chunks", known.target);
        match self.client.call_within(Some(limit), Method::POST, &path, Some(&known.secret), Some(body)) {
            Ok(_) => true,
            Err(Refused::Status(413 | 422, said)) => {
                note(said);
                true
            }
            Err(_) => false,
        }
    }

    /// Sends a request until it is accepted, rejected or obsolete.
    fn send(
        &self,
        what: &str,
        method: Method,
        patience: Duration,
        body: impl Fn() -> std::io::Result<(SendBody<'static>, u64)>,
    ) -> bool {
        let began = Instant::now();
        let mut pause = PAUSES.0;
        let mut stranger = None;
        loop {
            let known = {
                let state = self.state();
                state.known.clone().filter(|_| !state.forgotten)
            };
            let refused = match known {
                None => Refused::Unreachable("The service refused access.".into()),
                Some(known) => {
                    let (body, length) = match body() {
                        Ok(body) => body,
                        Err(error) => {
                            note(format!("cannot read the recording: {error}"));
                            return false;
                        }
                    };
                    let path = format!("/agents/{}/{what}", known.target);
                    let limit = ANSWER + Duration::from_secs(length / SLOWEST);
                    let secret = known.secret;
                    let sent = self.client.call_within(
                        Some(limit),
                        method.clone(),
                        &path,
                        Some(&secret),
                        Some(body),
                    );
                    match sent {
                        Ok(_) => return true,
                        // The service may have been restarted or the secret replaced; retry once after
                        // registering again.
                        Err(refused @ Refused::Status(401 | 404, _)) if stranger.is_none() => {
                            let mut state = self.state();
                            state.forgotten |= state.known.as_ref().is_some_and(|now| now.secret == secret);
                            stranger = Some(secret);
                            refused
                        }
                        Err(Refused::Status(status, said)) if !matches!(status, 408 | 429 | 500..=599) => {
                            note(said);
                            return false;
                        }
                        Err(refused) => refused,
                    }
                }
            };
            if began.elapsed() >= patience {
                note(refused.to_string());
                return false;
            }
            sleep(jittered(pause));
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Announces the end: no more runs start. With `stop`, a run in progress ends early; otherwise its
    /// recorder sees the process end.
    pub fn last(&self, why: &str, stop: bool) {
        let mut state = self.state();
        state.ended = Some(why.to_owned());
        state.orders.end(stop);
        drop(state);
        self.changed.notify_all();
    }

    /// Reports the end of the process, after its last recording was uploaded.
    pub fn end(&self, why: &str) {
        // The program's exit status is delayed until this returns. Do not wait for an unreachable service,
        // unless a run is in progress.
        let waits = |state: &mut State| !state.orders.is_idle() || state.always && !state.away;
        let waited = self.changed.wait_timeout_while(self.state(), LAST_RUN, waits);
        drop(waited);
        // The process may end before the answer to its registration is here.
        let registering = |state: &mut State| state.registering;
        let waited = self.changed.wait_timeout_while(self.state(), FAREWELL, registering);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.told = true;
        let Some(known) = state.known.clone().filter(|_| !state.away) else { return };
        drop(state);
        let gone = json(&Gone { message: why.to_owned() });
        let path = format!("/agents/{}/gone", known.target);
        let _ = self.client.call_within(Some(FAREWELL), Method::POST, &path, Some(&known.secret), Some(gone));
    }
}

/// Commands, possibly unknown ones from a newer service.
#[derive(Deserialize)]
struct CommandList {
    commands: Vec<Value>,
}

fn json(value: &impl Serialize) -> SendBody<'static> {
    // Serialization of these types cannot fail.
    SendBody::from_owned_reader(Cursor::new(serde_json::to_vec(value).unwrap_or_default()))
}

/// Percent-encodes a query value.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Returns a random delay between half of `pause` and all of it, so that agents do not reconnect
/// simultaneously.
fn jittered(pause: Duration) -> Duration {
    let nanos = Instant::now().elapsed().subsec_nanos() ^ std::process::id().wrapping_mul(0x9e37_79b9);
    pause / 2 + pause.mul_f64(f64::from(nanos % 1024) / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_values_are_percent_encoded() {
        assert_eq!(escaped("a b&c=;$(id)/ä"), "a%20b%26c%3D%3B%24%28id%29%2F%C3%A4");
    }

    #[test]
    fn retry_delay_jitter_is_between_half_and_full_delay() {
        let pause = Duration::from_secs(10);
        assert!((pause / 2..=pause).contains(&jittered(pause)));
    }
}
