//! `flightline serve` beside a test, and the lines that it tells.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{Answer, send};
use crate::run::{children, signal, spawn, until};
use crate::victim::flightline;

const LIMIT: Duration = Duration::from_secs(60);

/// A service on a port of its own; ended with the test.
pub struct Served {
    child: Child,
    /// Where it answers.
    pub port: u16,
    /// A folder for the test; its history is in it.
    pub folder: TempDir,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// Starts it with a log as JSON, which says where it answers.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(options: &[&str]) -> Self {
        Self::start_with(options, &[])
    }

    /// The same with variables in its environment.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_with(options: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::with_prefix("flightline-served-").unwrap();
        let mut command = Command::new(flightline());
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--min-free",
            "1m",
            "--log-format",
            "json",
            "--dir",
        ]);
        command.arg(folder.path().join("history")).args(options).stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(environment.iter().copied());
        let mut child = spawn(command.stderr(Stdio::piped()));
        let said = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                eprintln!("serve: {line}");
                all.lock().unwrap().push(line);
            }
        });
        let mut served = Self { child, port: 0, folder, lines };
        served.port = until(LIMIT, "the service", || {
            let line =
                served.lines().into_iter().find_map(|line| serde_json::from_str::<Value>(&line).ok())?;
            line["address"].as_str()?.rsplit(':').next()?.parse().ok()
        });
        served
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks for something.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        send(self.port, "GET", path, &[], b"")
    }

    /// Lets it record a program; `options` are the agent's.
    pub fn agent(&self, options: &[&str], program: &[&str]) -> Agent {
        let mut command = Command::new(flightline());
        command.args(["agent", "--join", &self.url()]).args(options).arg("--").args(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Agent(spawn(&mut command))
    }

    /// The one target that is there and of which this is true, once it is.
    pub fn target(&self, is: impl Fn(&Value) -> bool) -> Value {
        until(LIMIT, "a target", || {
            let list = self.get("/v1/targets").json();
            list["targets"].as_array()?.iter().find(|target| target["state"] == "LIVE" && is(target)).cloned()
        })
    }

    /// Ends it as a terminal does, and waits until all is told.
    pub fn end(&mut self) {
        signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent and the program that it started; both ended with the test.
pub struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        children(self.0.id()).into_iter().for_each(|child| signal(child, libc::SIGKILL));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
