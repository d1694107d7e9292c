//! The way to the service: hello, commands, reports, uploads. It may be away for a while; the process does not notice.

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

use super::orders::Orders;
use super::process::{Condition, Process};
use super::work::is_id;
use crate::record::say;
use crate::remote::client::{Client, Refused};

/// Shortest and longest pause before the service is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a recording is offered to a service that is away, and how long news are.
const OFFERED: Duration = Duration::from_secs(60);
/// See [`OFFERED`].
const NEWS: Duration = Duration::from_secs(10);
/// How long the service has to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it has to hear of the end of the process: meanwhile our own end, and so the program's status, is waited for.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long what was recorded by the end has to be completed and sent.
const LAST_RUN: Duration = Duration::from_secs(8);
/// A recording is sent at least at so many bytes a second.
const SLOWEST: u64 = 64 << 10;
/// A service that does not let us wait for commands is not asked more often.
const LEAST_WAIT: Duration = Duration::from_millis(200);

/// The connection of one process.
pub struct Link {
    client: Arc<Client>,
    process: Arc<Process>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What the service gave us when we introduced the process.
    known: Option<Welcome>,
    /// The service does not know us any more: hello is to be said again.
    forgotten: bool,
    /// What the process was when it was introduced.
    was: Option<Condition>,
    orders: Orders,
    /// What is recorded all the time has an end of its own.
    always: bool,
    /// How the process ended.
    ended: Option<String>,
    /// That has been told.
    told: bool,
    /// The service did not answer the last time.
    away: bool,
}

impl Link {
    /// Not connected yet.
    pub fn new(client: Arc<Client>, process: Arc<Process>) -> Self {
        Self { client, process, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for commands until the end has been told: who sends the last of it is still there.
    pub fn talk(&self) {
        let mut pause = PAUSES.0;
        let mut told_away = false;
        let is_over = |state: &State| state.told || state.ended.is_some() && state.orders.is_idle();
        // What has ended is not introduced once more.
        while !is_over(&self.state()) {
            let began = Instant::now();
            match self.known().and_then(|welcome| self.ask(&welcome)) {
                Ok(commands) => {
                    if told_away {
                        say(&format!("{} ({}) has joined again", self.process.name, self.process.pid));
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
                        say(&format!("{refused} Trying again until it is there."));
                        told_away = true;
                    }
                    sleep(jittered(pause));
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Does runs, one after the other, until it is over.
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
            super::perform::perform(&work, self, &self.process, &running);
            self.state().orders.done();
            self.changed.notify_all();
        }
    }

    /// What the service gave us; asks it if there is nothing.
    fn known(&self) -> Result<Welcome, Refused> {
        let is = self.process.condition();
        let (known, current) = {
            let state = self.state();
            // A process may become another program by exec.
            (state.known.clone(), !state.forgotten && state.was.as_ref() == Some(&is))
        };
        if let Some(known) = known.clone().filter(|_| current) {
            return Ok(known);
        }
        let secret = known.as_ref().map(|known| known.secret.as_str());
        let hello = json(&self.process.hello());
        let response = self.client.call_within(Some(ANSWER), Method::POST, "/agents", secret, Some(hello))?;
        let answer = self.client.answer::<Welcome>(response);
        let welcome = answer.map_err(|error| Refused::Unreachable(error.to_string()))?;
        if !is_id(&welcome.target) {
            return Err(Refused::Unreachable("What answers is no profiling service.".into()));
        }
        let mut state = self.state();
        if state.forgotten {
            // Another life of the service counts from one.
            state.orders.count_anew();
        }
        (state.known, state.was, state.forgotten) = (Some(welcome.clone()), Some(is), false);
        Ok(welcome)
    }

    fn ask(&self, welcome: &Welcome) -> Result<Asked, Refused> {
        let after = self.state().orders.heard();
        let path = format!("/agents/{}/commands?after={after}", welcome.target);
        // It answers within a heartbeat if there is nothing to be done.
        let limit = ANSWER + Duration::from_secs(welcome.heartbeat_seconds.min(60));
        let response =
            self.client.call_within(Some(limit), Method::GET, &path, Some(&welcome.secret), None)?;
        self.client.answer(response).map_err(|error| Refused::Unreachable(error.to_string()))
    }

    /// Tells how a run goes on. False if nobody wants to know.
    pub fn report(&self, run: &str, progress: &Progress) -> bool {
        self.told(&format!("runs/{run}"), Method::POST, NEWS, || Ok((json(progress), 0)))
    }

    /// Gives a recording. `open`: it may have to be sent again.
    pub fn deliver(&self, run: &str, message: &str, open: impl Fn() -> std::io::Result<File>) -> bool {
        let mut state = self.state();
        if !self.process.is_there() {
            // Its parent, our own process, is about to know how it ended.
            let unknown = |state: &mut State| state.ended.is_none();
            let waited = self.changed.wait_timeout_while(state, FAREWELL, unknown);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let ended = state.ended.clone().unwrap_or_default();
        drop(state);
        let query = format!("message={}&ended={}", escaped(message), escaped(&ended));
        self.told(&format!("runs/{run}/recording?{query}"), Method::PUT, OFFERED, || {
            let file = open()?;
            let length = file.metadata()?.len();
            Ok((SendBody::from_owned_reader(file.take(length)), length))
        })
    }

    /// Whether a run goes on.
    pub fn is_busy(&self) -> bool {
        !self.state().orders.is_idle()
    }

    /// Whether nothing more is to be begun.
    pub fn is_over(&self) -> bool {
        self.state().orders.is_over()
    }

    /// Whether the process is recorded all the time.
    pub fn records_always(&self) -> bool {
        self.state().always
    }

    /// It is now, or not any more.
    pub fn record_always(&self, always: bool) {
        self.state().always = always;
        self.changed.notify_all();
    }

    /// Gives chunks of what is recorded all the time. False if they are to be offered again.
    pub fn give_chunks(&self, path: &Path) -> bool {
        let Some(known) = self.state().known.clone() else { return false };
        // What has rolled away meanwhile is gone.
        let Ok(file) = File::open(path) else { return true };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let limit = ANSWER + Duration::from_secs(length / SLOWEST);
        let body = SendBody::from_owned_reader(file.take(length));
        let path = format!("/agents/{}/chunks", known.target);
        match self.client.call_within(Some(limit), Method::POST, &path, Some(&known.secret), Some(body)) {
            Ok(_) => true,
            Err(Refused::Status(413 | 422, said)) => {
                say(&said);
                true
            }
            Err(_) => false,
        }
    }

    /// Sends something until it is taken, refused, or not worth it any more.
    fn told(
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
                None => Refused::Unreachable("The service has not let us in.".into()),
                Some(known) => {
                    let (body, length) = match body() {
                        Ok(body) => body,
                        Err(error) => {
                            say(&format!("cannot read the recording: {error}"));
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
                        // It may be another life of the service, or the secret an old one: once more when it has let us in again.
                        Err(refused @ Refused::Status(401 | 404, _)) if stranger.is_none() => {
                            let mut state = self.state();
                            state.forgotten |= state.known.as_ref().is_some_and(|now| now.secret == secret);
                            stranger = Some(secret);
                            refused
                        }
                        Err(Refused::Status(status, said)) if !matches!(status, 408 | 429 | 500..=599) => {
                            say(&said);
                            return false;
                        }
                        Err(refused) => refused,
                    }
                }
            };
            if began.elapsed() >= patience {
                say(&refused.to_string());
                return false;
            }
            sleep(jittered(pause));
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The end is near: nothing more is begun. `stop`: what goes on ends early; else the recorder sees the process end.
    pub fn last(&self, why: &str, stop: bool) {
        let mut state = self.state();
        state.ended = Some(why.to_owned());
        state.orders.end(stop);
        drop(state);
        self.changed.notify_all();
    }

    /// Tells the end of the process; what was being recorded is sent first.
    pub fn end(&self, why: &str) {
        // The program's status waits for us: not for a service that is away, unless somebody asked for what was being recorded.
        let waits = |state: &mut State| !state.orders.is_idle() || state.always && !state.away;
        let waited = self.changed.wait_timeout_while(self.state(), LAST_RUN, waits);
        drop(waited);
        let mut state = self.state();
        state.told = true;
        let Some(known) = state.known.clone().filter(|_| !state.away) else { return };
        drop(state);
        let gone = json(&Gone { message: why.to_owned() });
        let path = format!("/agents/{}/gone", known.target);
        let _ = self.client.call_within(Some(FAREWELL), Method::POST, &path, Some(&known.secret), Some(gone));
    }
}

/// Commands, of which some may be of a later version than ours.
#[derive(Deserialize)]
struct Asked {
    commands: Vec<Value>,
}

fn json(value: &impl Serialize) -> SendBody<'static> {
    // Our own types always become JSON.
    SendBody::from_owned_reader(Cursor::new(serde_json::to_vec(value).unwrap_or_default()))
}

/// As a value behind a `?`.
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

/// Between half of it and all: agents that lost a service at once do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let nanos = Instant::now().elapsed().subsec_nanos() ^ std::process::id().wrapping_mul(0x9e37_79b9);
    pause / 2 + pause.mul_f64(f64::from(nanos % 1024) / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        assert_eq!(escaped("a b&c=;$(id)/ä"), "a%20b%26c%3D%3B%24%28id%29%2F%C3%A4");
    }

    #[test]
    fn pauses_are_between_half_and_all() {
        let pause = Duration::from_secs(10);
        assert!((pause / 2..=pause).contains(&jittered(pause)));
    }
}
