//! Runs `flightline serve` for a test, and reads the lines that it logs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, send};
use crate::recording::Recording;
use crate::run::{children, run, signal, spawn, until};
use crate::victim::flightline;

const LIMIT: Duration = Duration::from_secs(60);

/// The header of a JSON body.
pub const JSON: &str = "Content-Type: application/json";

/// Computes until it is killed.
pub const PYTHON: &str = "
def work():
    return sum(hash(str(i)) % 7 for i in range(20000))
while True: work()
";

/// The time between two reports of an agent to a service under test. A test may wait until the service gives
/// an agent up, which takes two of them; an agent on a busy machine is late by seconds.
pub const HEARTBEAT: &str = "3s";

/// The path of a Python that is no script of a version manager; prints SKIPPED and returns `None` if there is
/// none.
#[track_caller]
pub fn python() -> Option<&'static str> {
    crate::skip::have_python().then_some("/usr/bin/python3")
}

/// A service on a port of its own, which ends with the test.
pub struct Served {
    child: Child,
    /// The port.
    pub port: u16,
    /// A folder for the test, which contains the service's history.
    pub folder: TempDir,
    lines: Arc<Mutex<Vec<String>>>,
    options: Vec<String>,
}

impl Served {
    /// Starts it with a JSON log, which contains its address.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(options: &[&str]) -> Self {
        Self::start_with(options, &[])
    }

    /// The same with environment variables.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_with(options: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::with_prefix("flightline-served-").unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let lines = Arc::default();
        let (child, port) = begin(folder.path(), &options, environment, 0, &lines);
        Self { child, port, folder, lines, options }
    }

    /// A service that accepts agents, which report every [`HEARTBEAT`].
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn profiling() -> Self {
        Self::start(&["--profiling", "--heartbeat", HEARTBEAT])
    }

    /// Restarts the service on the same port after a `kill -9`.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.lock().unwrap().clear();
        (self.child, self.port) = begin(self.folder.path(), &self.options, &[], self.port, &self.lines);
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends a request.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        send(self.port, "GET", path, &[], b"")
    }

    /// Sends a request with a body.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.port, "POST", path, &[JSON], body.to_string().as_bytes())
    }

    /// Starts an agent for a program, or without one; `options` are the agent's.
    pub fn agent(&self, options: &[&str], program: &[&str]) -> Agent {
        let mut command = Command::new(flightline());
        command.args(["agent", "--join", &self.url()]).args(options);
        if !program.is_empty() {
            command.arg("--").args(program);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Agent(spawn(&mut command))
    }

    /// Waits for the only target that satisfies the condition.
    pub fn target(&self, is: impl Fn(&Value) -> bool) -> Value {
        until(LIMIT, "a target", || {
            let list = self.get("/v1/targets").json();
            list["targets"].as_array()?.iter().find(|target| target["state"] == "LIVE" && is(target)).cloned()
        })
    }

    /// Starts a run of this number of seconds; returns its id.
    ///
    /// # Panics
    ///
    /// If the service refuses.
    #[track_caller]
    pub fn begin(&self, target: &Value, mode: &str, duration: u64) -> String {
        let path = format!("/v1/targets/{}/runs", target["id"].as_str().unwrap());
        let answer = self.post(&path, &json!({"mode": mode, "duration": duration}));
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Returns the service's description of a run.
    pub fn run(&self, id: &str) -> Value {
        self.get(&format!("/v1/runs/{id}")).json()
    }

    /// Waits until a run has ended.
    pub fn ended(&self, id: &str) -> Value {
        until(LIMIT, "the end of a run", || Some(self.run(id)).filter(|run| run["status"] != "RUNNING"))
    }

    /// Returns a run's file in a format.
    pub fn file(&self, id: &str, format: &str) -> Answer {
        self.get(&format!("/v1/runs/{id}/files/{format}"))
    }

    /// A run's recording, read by our own reader.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn recording(&self, id: &str) -> Recording {
        let answer = self.file(id, "jfr");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let path = self.folder.path().join(format!("{id}.fetched"));
        std::fs::write(&path, &answer.body).unwrap();
        Recording::read(&path).expect("a recording")
    }

    /// Runs `flightline remote` with this service: its status, output and messages.
    pub fn remote(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(flightline());
        let done =
            run(command.arg("remote").args(["--url", &self.url()]).args(words).stdin(Stdio::null()), LIMIT);
        (done.code(), done.stdout_text(), done.stderr.clone())
    }

    /// Ends the service with the signal of a terminal, and waits until it has logged everything.
    pub fn end(&mut self) {
        signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
        // The thread that reads the log ends together with it.
        until(LIMIT, "the end of the log", || (Arc::strong_count(&self.lines) == 1).then_some(()));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `flightline serve` with a JSON log, which contains its address; its lines go into `lines`.
fn begin(
    folder: &Path,
    options: &[String],
    environment: &[(&str, &str)],
    port: u16,
    lines: &Arc<Mutex<Vec<String>>>,
) -> (Child, u16) {
    let mut command = Command::new(flightline());
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--min-free", "1m"]);
    command.args(["--log-format", "json", "--dir"]).arg(folder.join("history")).args(options);
    if !options.iter().any(|option| option.contains("token")) {
        command.arg("--no-token");
    }
    command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = spawn(command.stderr(Stdio::piped()));
    let said = BufReader::new(child.stderr.take().unwrap());
    let all = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            eprintln!("serve: {line}");
            all.lock().unwrap().push(line);
        }
    });
    let port = until(LIMIT, "the service", || {
        let lines = lines.lock().unwrap();
        let mut lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find_map(|line| line["address"].as_str()?.rsplit(':').next()?.parse().ok())
    });
    (child, port)
}

/// An agent and the program that it started, if any; both end with the test.
pub struct Agent(pub Child);

impl Agent {
    /// The program that it started.
    pub fn program(&self) -> u32 {
        until(LIMIT, "the program", || children(self.0.id()).first().copied())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mut found = vec![self.0.id()];
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            found.extend(children(parent));
            at += 1;
        }
        found.into_iter().skip(1).for_each(|child| signal(child, libc::SIGKILL));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
