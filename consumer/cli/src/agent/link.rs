//! The way to the service: hello, commands, reports, uploads. It may be away for a while; the process does not notice.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flightline_service::wire::{Command, Commands, Gone, Progress, Welcome};
use serde::Serialize;
use ureq::SendBody;
use ureq::http::Method;

use super::perform::{Running, Work};
use super::process::{Condition, Process};
use crate::record::say;
use crate::remote::client::{Client, Refused};

/// Shortest and longest pause before the service is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a recording is offered to a service that is away.
const OFFERED: Duration = Duration::from_secs(60);

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
    /// What the process was when it was introduced.
    was: Option<Condition>,
    /// Commands up to this number have been heard.
    heard: u64,
    running: Option<Running>,
    /// How the process ended.
    ended: Option<String>,
}

impl Link {
    /// Not connected yet.
    pub fn new(client: Arc<Client>, process: Arc<Process>) -> Self {
        Self { client, process, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for commands until it is over.
    pub fn talk(self: &Arc<Self>, over: &AtomicBool) {
        let mut pause = PAUSES.0;
        let mut told_away = false;
        while !over.load(Relaxed) {
            let asked = self.known().and_then(|welcome| self.ask(&welcome));
            match asked {
                Ok(commands) => {
                    if told_away {
                        say(&format!("{} ({}) has joined again", self.process.name, self.process.pid));
                    }
                    (pause, told_away) = (PAUSES.0, false);
                    commands.commands.into_iter().for_each(|numbered| {
                        if std::mem::replace(&mut self.state().heard, numbered.number) < numbered.number {
                            self.obey(numbered.command);
                        }
                    });
                }
                Err(refused) => {
                    if matches!(refused, Refused::Status(404 | 401, _)) {
                        // Another life of the service counts from one.
                        let mut state = self.state();
                        (state.known, state.heard) = (None, 0);
                    }
                    if !told_away && !matches!(refused, Refused::Status(404, _)) {
                        say(&format!("{refused} Trying again until it is there."));
                        told_away = true;
                    }
                    std::thread::sleep(jittered(pause));
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// What the service gave us; asks it if there is nothing.
    fn known(&self) -> Result<Welcome, Refused> {
        let is = self.process.condition();
        let (known, was) = {
            let state = self.state();
            (state.known.clone(), state.was.clone())
        };
        // A process may become another program by exec.
        if let Some(known) = known.clone().filter(|_| was.as_ref() == Some(&is)) {
            return Ok(known);
        }
        let secret = known.as_ref().map(|known| known.secret.as_str());
        let hello = json(&self.process.hello());
        let response = self.client.call(Method::POST, "/agents", secret, Some(hello))?;
        let answer = self.client.answer::<Welcome>(response);
        let welcome = answer.map_err(|error| Refused::Unreachable(error.to_string()))?;
        let mut state = self.state();
        (state.known, state.was) = (Some(welcome.clone()), Some(is));
        Ok(welcome)
    }

    fn ask(&self, welcome: &Welcome) -> Result<Commands, Refused> {
        let after = self.state().heard;
        let path = format!("/agents/{}/commands?after={after}", welcome.target);
        let response = self.client.call(Method::GET, &path, Some(&welcome.secret), None)?;
        self.client.answer(response).map_err(|error| Refused::Unreachable(error.to_string()))
    }

    fn obey(self: &Arc<Self>, command: Command) {
        match command {
            Command::Start { run, mode, duration, interval, engines } => {
                let work = Work { run, mode, duration, interval, engines };
                let mut state = self.state();
                if let Some(running) = &state.running {
                    let message = format!("The agent still records run {}.", running.run());
                    drop(state);
                    self.report(&work.run, &Progress::Failed { message });
                    return;
                }
                let running = Running::new(&work.run);
                state.running = Some(running.clone());
                drop(state);
                let link = Arc::clone(self);
                let doing = std::thread::Builder::new().name("run".into());
                let begun = doing.spawn(move || {
                    work.perform(&link, &link.process, &running);
                    link.state().running = None;
                    link.changed.notify_all();
                });
                if let Err(error) = begun {
                    self.state().running = None;
                    say(&format!("cannot begin a thread: {error}"));
                }
            }
            // Of a run that has ended there is nothing to stop, nor is the next one meant.
            Command::Stop { run } => {
                if let Some(running) = self.state().running.as_ref().filter(|running| running.run() == run) {
                    running.stop();
                }
            }
        }
    }

    /// Tells how a run goes on. False if nobody wants to know.
    pub fn report(&self, run: &str, progress: &Progress) -> bool {
        self.told(&format!("runs/{run}"), Method::POST, || Ok(json(progress)))
    }

    /// Gives a recording.
    pub fn deliver(&self, run: &str, path: &Path, message: &str) -> bool {
        let ended = self.state().ended.clone().unwrap_or_default();
        let query = format!("message={}&ended={}", escaped(message), escaped(&ended));
        self.told(&format!("runs/{run}/recording?{query}"), Method::PUT, || {
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            Ok(SendBody::from_owned_reader(file.take(length)))
        })
    }

    /// Gives chunks of what is recorded all the time. False if they are to be offered again.
    pub fn give_chunks(&self, path: &Path) -> bool {
        let Some(known) = self.state().known.clone() else { return false };
        // What has rolled away meanwhile is gone.
        let Ok(file) = File::open(path) else { return true };
        let body = SendBody::from_owned_reader(file);
        let path = format!("/agents/{}/chunks", known.target);
        match self.client.call(Method::POST, &path, Some(&known.secret), Some(body)) {
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
        body: impl Fn() -> std::io::Result<SendBody<'static>>,
    ) -> bool {
        let began = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let Some(known) = self.state().known.clone() else { return false };
            let body = match body() {
                Ok(body) => body,
                Err(error) => {
                    say(&format!("cannot read the recording: {error}"));
                    return false;
                }
            };
            let path = format!("/agents/{}/{what}", known.target);
            match self.client.call(method.clone(), &path, Some(&known.secret), Some(body)) {
                Ok(_) => return true,
                Err(Refused::Status(status, said)) if !matches!(status, 408 | 429 | 500..=599) => {
                    say(&said);
                    return false;
                }
                Err(_) if began.elapsed() < OFFERED => std::thread::sleep(jittered(pause)),
                Err(refused) => {
                    say(&refused.to_string());
                    return false;
                }
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Tells the end of the process; what was being recorded is sent first.
    pub fn end(&self, why: &str) {
        {
            let mut state = self.state();
            state.ended = Some(why.to_owned());
            // The recorder sees the end itself and completes its file.
            let (left, _) = self
                .changed
                .wait_timeout_while(state, Duration::from_secs(8), |state| state.running.is_some())
                .unwrap_or_else(PoisonError::into_inner);
            state = left;
            if let Some(running) = &state.running {
                running.stop();
            }
        }
        let Some(known) = self.state().known.clone() else { return };
        let gone = Gone { message: why.to_owned() };
        let path = format!("/agents/{}/gone", known.target);
        let _ = self.client.call(Method::POST, &path, Some(&known.secret), Some(json(&gone)));
    }
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
