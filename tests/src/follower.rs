//! Runs programs that follow a recording, and collects their output.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::run::{collect, signal_group, spawn, until, wait};
use crate::victim::flightline;

const LIMIT: Duration = Duration::from_secs(90);

/// A child process that is killed at the end of the test.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            signal_group(self.0.id(), libc::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Lines that can be read while they are written.
#[derive(Debug)]
pub struct Lines(Arc<Mutex<Vec<String>>>, JoinHandle<()>);

impl Lines {
    /// Starts to read.
    pub fn of(stream: impl Read + Send + 'static) -> Lines {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = lines.clone();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        Lines(lines, reader)
    }

    /// Waits until a line satisfies the condition.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        until(LIMIT, what, || {
            thread::sleep(Duration::from_millis(50));
            self.0.lock().unwrap().iter().rev().any(|line| wanted(line)).then_some(())
        });
    }

    /// Returns all lines, at the end of the stream.
    ///
    /// # Panics
    ///
    /// If the reading thread panicked.
    pub fn all(self) -> Vec<String> {
        self.1.join().unwrap();
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A command whose lines can be read while it writes them.
#[derive(Debug)]
pub struct Follower {
    /// The process's name in messages.
    pub who: String,
    child: Killed,
    lines: Lines,
    err: JoinHandle<Vec<u8>>,
}

impl Follower {
    /// Follows a process whose standard output and standard error are pipes.
    pub fn new(who: String, mut child: Child) -> Follower {
        let lines = Lines::of(child.stdout.take().unwrap());
        let err = collect(child.stderr.take().unwrap());
        Follower { who, child: Killed(child), lines, err }
    }

    /// `flightline tail`.
    pub fn tail(args: &[&str]) -> Follower {
        let mut command = Command::new(flightline());
        command.arg("tail").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Follower::new(format!("tail {args:?}"), spawn(&mut command))
    }

    /// Waits until a line satisfies the condition.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        self.lines.until(&format!("{}: {what}", self.who), wanted);
    }

    /// The lines printed so far.
    pub fn so_far(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    /// Sends SIGINT, like Ctrl-C.
    pub fn interrupt(&self) {
        signal_group(self.child.0.id(), libc::SIGINT);
    }

    /// Waits for the command to exit; returns its exit code and lines.
    #[track_caller]
    pub fn end(mut self) -> (i32, Vec<String>, String) {
        let status = wait(&mut self.child.0, LIMIT, &self.who);
        let err = String::from_utf8_lossy(&self.err.join().unwrap()).into_owned();
        (status.code().unwrap_or(-1), self.lines.all(), err)
    }
}
