//! A stub of the profiling service, controlled by the test. It uses plain sockets and writes HTTP by hand.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a request for commands waits.
const WAIT: Duration = Duration::from_millis(300);
/// Largest body.
const MOST: u64 = 64 << 20;

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// An agent introduced a process.
    Hello(Value),
    /// A run continues.
    Progress(String, Value),
    /// A run's recording: message, how the process ended, the file.
    Recording(String, String, String, Vec<u8>),
    /// The process has ended.
    Gone(String),
}

/// The service's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Answers correctly.
    Well,
    /// It closes every connection.
    Away,
    /// It answers a registration after half a second.
    Slow,
}

#[derive(Default)]
struct State {
    mood: Option<Mood>,
    said: Vec<Said>,
    commands: Vec<Value>,
    secrets: u64,
    /// Requests that were rejected.
    refused: usize,
    token: Option<String>,
}

/// A service at a port of this machine. Its threads end with the test's process.
#[derive(Clone)]
pub struct Stub {
    /// The address.
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Default for Stub {
    fn default() -> Self {
        Self::start(None)
    }
}

impl Stub {
    /// Listens. `token`: required in every request.
    pub fn start(token: Option<&str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let state = State { token: token.map(str::to_owned), ..State::default() };
        let stub = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::new((state.into(), Condvar::new())),
        };
        let own = stub.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stub = own.clone();
                thread::spawn(move || stub.serve(stream));
            }
        });
        stub
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    /// Changes its behaviour.
    pub fn mood(&self, mood: Mood) {
        self.lock().mood = Some(mood);
    }

    /// Simulates a restart: the stub forgets all agents and counts commands from one.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.secrets += 1000;
        state.commands.clear();
    }

    /// The number of rejected requests so far.
    pub fn refused(&self) -> usize {
        self.lock().refused
    }

    /// Sends the agent a command, without its number.
    pub fn command(&self, command: Value) {
        self.commands(vec![command]);
    }

    /// Sends several commands at once.
    pub fn commands(&self, commands: Vec<Value>) {
        let mut state = self.lock();
        for mut command in commands {
            command["number"] = json!(state.commands.len() + 1);
            state.commands.push(command);
        }
        drop(state);
        self.state.1.notify_all();
    }

    /// Starts a run.
    pub fn begin(&self, run: &str, mode: &str, duration: u64, interval: Option<&str>) {
        self.command(
            json!({"command": "start", "run": run, "mode": mode, "duration": duration, "interval": interval}),
        );
    }

    /// Ends a run.
    pub fn stop(&self, run: &str) {
        self.command(json!({"command": "stop", "run": run}));
    }

    /// All requests so far.
    pub fn said(&self) -> Vec<Said> {
        self.lock().said.clone()
    }

    /// Waits for a request that has come or will come.
    #[track_caller]
    pub fn until<T>(&self, limit: Duration, what: &str, find: impl Fn(&Said) -> Option<T>) -> T {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(found) = state.said.iter().find_map(&find) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not within {limit:?}: {what}; what came: {:?}", brief(&state.said));
            state = self.state.1.wait_timeout(state, left).unwrap().0;
        }
    }

    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        while let Some((method, path, headers)) = head(&mut reader) {
            if self.lock().mood == Some(Mood::Away) {
                self.lock().refused += 1;
                return;
            }
            let Some(body) = body(&mut reader, &headers) else { return };
            let (status, answer) = self.answer(&method, &path, &headers, body);
            if status >= 400 {
                self.lock().refused += 1;
            }
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(answer.as_bytes())).is_err() {
                return;
            }
        }
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        body: Vec<u8>,
    ) -> (u16, String) {
        let wrong = |status, why: &str| (status, json!({"errors": [why]}).to_string());
        let said = |said: Said| {
            self.lock().said.push(said);
            self.state.1.notify_all();
            (204, String::new())
        };
        if let Some(token) = &self.lock().token
            && headers.get("authorization") != Some(&format!("Bearer {token}"))
        {
            return wrong(401, "Say the token.");
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let words: Vec<&str> = path.split('/').skip(2).collect();
        let value = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
        if (method, &words[..]) == ("POST", &["agents"]) {
            said(Said::Hello(value()));
            let slow = self.lock().mood == Some(Mood::Slow);
            if slow {
                std::thread::sleep(Duration::from_millis(500));
            }
            let mut state = self.lock();
            state.secrets += 1;
            let secret = format!("secret-{}", state.secrets);
            return (200, json!({"target": "t-1", "secret": secret, "heartbeatSeconds": 1}).to_string());
        }
        let secret = format!("secret-{}", self.lock().secrets);
        if headers.get("x-flightline-agent") != Some(&secret) {
            return wrong(404, "Unknown agent; it must register first.");
        }
        match (method, &words[..]) {
            ("GET", ["agents", "t-1", "commands"]) => {
                let after: usize = values(query).get("after").and_then(|text| text.parse().ok()).unwrap_or(0);
                let state = self.lock();
                let none = |state: &mut State| state.commands.len() <= after;
                let (state, _) = self.state.1.wait_timeout_while(state, WAIT, none).unwrap();
                let commands = state.commands.get(after..).unwrap_or_default();
                (200, json!({"commands": commands}).to_string())
            }
            ("POST", ["agents", "t-1", "runs", run]) => said(Said::Progress((*run).to_owned(), value())),
            ("PUT", ["agents", "t-1", "runs", run, "recording"]) => {
                let values = values(query);
                let word = |name: &str| values.get(name).cloned().unwrap_or_default();
                said(Said::Recording((*run).to_owned(), word("message"), word("ended"), body))
            }
            ("POST", ["agents", "t-1", "gone"]) => {
                said(Said::Gone(value()["message"].as_str().unwrap_or_default().to_owned()))
            }
            _ => wrong(404, "There is no such path."),
        }
    }
}

/// Without the bytes of recordings.
fn brief(said: &[Said]) -> Vec<String> {
    let one = |said: &Said| match said {
        Said::Recording(run, message, ended, bytes) => {
            format!("recording of {run}: {message:?} {ended:?} {} bytes", bytes.len())
        }
        other => format!("{other:?}"),
    };
    said.iter().map(one).collect()
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    (reader.take(64 << 10).read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

/// Method, path and headers.
fn head(reader: &mut impl BufRead) -> Option<(String, String, BTreeMap<String, String>)> {
    let first = line(reader)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let line = line(reader)?;
        let Some((name, value)) = line.split_once(':') else { return Some((method, path, headers)) };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
}

fn body(reader: &mut impl BufRead, headers: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_none_or(|value| value != "chunked") {
        let length: u64 = headers.get("content-length").map_or(Some(0), |text| text.parse().ok())?;
        reader.take(length.min(MOST)).read_to_end(&mut body).ok()?;
        return (body.len() as u64 == length).then_some(body);
    }
    loop {
        let length = u64::from_str_radix(&line(reader)?, 16).ok()?;
        reader.take(length.min(MOST)).read_to_end(&mut body).ok()?;
        line(reader)?;
        if length == 0 {
            return Some(body);
        }
    }
}

fn values(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), plain(value))).collect()
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
