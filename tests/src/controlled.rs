//! The controlled test program, which works on command, and `flightline ctl` for it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::run::{Finished, run, spawn, until, wait};
use crate::victim;

/// Long enough for a busy machine. No result depends on this time.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A running `controlled` test program.
pub struct Controlled {
    /// The started process: the test program or `flightline`.
    pub child: Child,
    /// The program's process id.
    pub pid: u32,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The path of the test program.
pub fn program() -> PathBuf {
    victim::c("controlled", victim::OPTIMISED)
}

impl Controlled {
    /// Starts a command that becomes or runs the program.
    #[track_caller]
    pub fn start(command: &mut Command) -> Controlled {
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let output = BufReader::new(child.stdout.take().unwrap());
        Controlled::of(child, output)
    }

    /// Wraps a child process that will execute the test program.
    #[track_caller]
    pub fn of(mut child: Child, output: BufReader<ChildStdout>) -> Controlled {
        let input = child.stdin.take();
        let mut started = Controlled { child, pid: 0, input, output };
        started.pid = started.number("ready ");
        started
    }

    /// Preloaded and waiting for a command.
    #[track_caller]
    pub fn dormant() -> Controlled {
        let mut command = Command::new(victim::flightline());
        command.args(["record", "--dormant", "--"]).arg(program());
        Controlled::start(&mut command)
    }

    /// Recorded by `flightline record` with these options.
    #[track_caller]
    pub fn recorded(output: &Path, options: &[&str]) -> Controlled {
        let mut command = Command::new(victim::flightline());
        command.arg("record").args(options).arg("-o").arg(output).arg("--").arg(program());
        Controlled::start(&mut command)
    }

    /// Sends the program a command line.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Returns the number after `start` in the next line that begins with it.
    #[track_caller]
    pub fn number(&mut self, start: &str) -> u32 {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended before {start:?}");
            if let Some(number) = line.strip_prefix(start) {
                return number.trim().parse().unwrap();
            }
        }
    }

    /// Makes all three threads burn CPU time in `NAME_work`, and waits for that.
    #[track_caller]
    pub fn work(&mut self, name: &str, ms: u32) {
        self.tell(&format!("work {name} {ms}"));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, format!("done {name}\n"));
    }

    /// Ends the program with an exit status; returns its count of interrupted waits.
    #[track_caller]
    pub fn end(mut self, code: i32) -> u32 {
        self.tell(&format!("end {code}"));
        let interrupted = self.number("interrupted ");
        let status = wait(&mut self.child, LIMIT, "the victim's end");
        let mut stderr = String::new();
        let _ = std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut stderr);
        assert_eq!(status.code(), Some(code), "{stderr}");
        interrupted
    }

    /// Runs `flightline ctl` for the program.
    pub fn ctl<S: AsRef<OsStr>>(&self, words: &[S]) -> Finished {
        ctl(self.pid, words)
    }

    /// The same, but it must succeed; returns its answer.
    #[track_caller]
    pub fn ask<S: AsRef<OsStr>>(&self, words: &[S]) -> Value {
        let finished = self.ctl(words).expect_success("flightline ctl");
        serde_json::from_slice(&finished.stdout).unwrap()
    }

    /// Starts a recording at 1 kHz.
    #[track_caller]
    pub fn begin(&self, output: &Path) -> Value {
        self.ask(&["start".as_ref(), "-F".as_ref(), "1000".as_ref(), "-o".as_ref(), output.as_os_str()])
    }

    /// Waits until the recorder reports this state.
    #[track_caller]
    pub fn until_state(&self, state: &str) {
        until(LIMIT, state, || {
            let answer = self.ctl(&["status"]);
            let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
            (answer["state"] == state).then_some(())
        });
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// `flightline --json ctl -p PID …`
pub fn ctl<S: AsRef<OsStr>>(pid: u32, words: &[S]) -> Finished {
    let mut command = Command::new(victim::flightline());
    run(command.args(["ctl", "--json", "-p", &pid.to_string()]).args(words), LIMIT)
}
