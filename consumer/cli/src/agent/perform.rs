//! A run: our own command as a child, with arguments that are never a shell's, and then its file.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_recorder::control;
use flightline_service::wire::{Mode, Progress};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::link::Link;
use super::process::Process;
use crate::record::say;

/// What a recorder may take beyond the duration to complete its file.
const COMPLETING: Duration = Duration::from_secs(60);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);
/// Most that is read of what a recorder says.
const LONGEST_WORDS: u64 = 16 << 10;

/// A run that goes on.
#[derive(Clone, Debug)]
pub struct Running {
    run: Arc<str>,
    stopped: Arc<AtomicBool>,
}

impl Running {
    /// Of this id.
    pub fn new(run: &str) -> Self {
        Self { run: run.into(), stopped: Arc::default() }
    }

    /// Its id.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Has it end early.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Work {
    /// The run's id.
    pub run: String,
    /// What to record.
    pub mode: Mode,
    /// For so many seconds.
    pub duration: u64,
    /// How far apart samples are.
    pub interval: Option<String>,
    /// Other engines.
    pub engines: Vec<String>,
}

impl Work {
    /// Records and delivers, or tells why not.
    pub fn perform(&self, link: &Link, process: &Process, running: &Running) {
        let recorded = tempfile::Builder::new()
            .prefix("flightline-agent-")
            .tempdir()
            .map_err(|error| format!("cannot make a directory for the recording: {error}"));
        let recorded = recorded.and_then(|folder| {
            let message = self.record(folder.path(), link, process, running)?;
            Ok((folder, message))
        });
        match recorded {
            Ok((folder, message)) => {
                link.deliver(&self.run, &folder.path().join(FILE), &message);
            }
            Err(message) => {
                link.report(&self.run, &Progress::Failed { message });
            }
        }
    }

    fn record(
        &self,
        folder: &Path,
        link: &Link,
        process: &Process,
        running: &Running,
    ) -> Result<String, String> {
        if process.waits() && self.mode != Mode::OffCpu {
            self.within(folder, link, process, running)
        } else {
            self.outside(folder, link, process, running)
        }
    }

    /// What is recorded, as `record -e` has it.
    fn events(&self) -> Vec<String> {
        let (first, second) = match self.mode {
            Mode::Cpu => ("cpu", None),
            Mode::Itimer => ("itimer", None),
            Mode::Wall => ("wall", None),
            Mode::Alloc => ("alloc", None),
            Mode::Live => ("alloc", Some("live")),
            Mode::Lock => ("lock", None),
            Mode::Io => ("io", None),
            Mode::Throw => ("throw", None),
            Mode::OffCpu => return Vec::new(),
        };
        let first = match &self.interval {
            Some(interval) => format!("{first}@{interval}"),
            None => first.to_owned(),
        };
        std::iter::once(first).chain(second.map(str::to_owned)).chain(self.engines.iter().cloned()).collect()
    }

    /// By the program itself, which waits for it.
    fn within(
        &self,
        folder: &Path,
        link: &Link,
        process: &Process,
        running: &Running,
    ) -> Result<String, String> {
        let found = control::find(process.pid).map_err(|error| error.to_string())?;
        // The recorder becomes the program's user, and its file is in our directory.
        if nix::unistd::geteuid().is_root() && found.owner.0 != 0 {
            chown(folder, Some(found.owner.0), Some(found.owner.1))
                .map_err(|error| format!("cannot give the program's user a directory: {error}"))?;
        }
        let pid = process.pid.to_string();
        let ctl = |words: &[&str]| -> Result<Value, String> {
            let mut command = own()?;
            command.args(["ctl", "-p", &pid, "--json"]).args(words).stdin(Stdio::null());
            let output = command.output().map_err(|error| format!("cannot run our own command: {error}"))?;
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            match answer["ok"].as_bool() {
                Some(true) => Ok(answer),
                _ => Err(answer["error"].as_str().map_or_else(
                    || String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                    str::to_owned,
                )),
            }
        };
        let file = folder.join(FILE);
        let (file, duration) = (file.to_string_lossy().into_owned(), format!("{}s", self.duration));
        let events: Vec<String> = self.events().iter().map(|event| format!("--event={event}")).collect();
        let mut words = vec!["start", "-o", &file, "--duration", &duration];
        words.extend(events.iter().map(String::as_str));
        let recorder = ctl(&words)?["recorder"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let Some(recorder) = recorder else { return Err("another recording of it goes on".into()) };
        let effective = ctl(&["status"]).map(|status| effective(self.mode, &status)).unwrap_or_default();
        let (effective_mode, message) = effective;
        link.report(&self.run, &Progress::Started { effective_mode, message });
        let until = Instant::now() + Duration::from_secs(self.duration) + COMPLETING;
        let mut stopped = false;
        while Path::new(&format!("/proc/{recorder}")).exists() {
            let late = Instant::now() > until;
            if !stopped && (running.is_stopped() || late) {
                stopped = true;
                if let Err(error) = ctl(&["stop"]) {
                    // It ends by itself just now.
                    say(&error);
                }
            }
            if late && Instant::now() > until + COMPLETING {
                return Err("the recorder does not end".into());
            }
            sleep(LOOK);
        }
        self.there_is(folder).map(|()| String::new())
    }

    /// Through the kernel, by a recorder that is our child.
    fn outside(
        &self,
        folder: &Path,
        link: &Link,
        process: &Process,
        running: &Running,
    ) -> Result<String, String> {
        let words = folder.join("words");
        let said =
            File::create(&words).map_err(|error| format!("cannot keep what the recorder says: {error}"))?;
        let mut command = own()?;
        command.args([
            "record",
            "-p",
            &process.pid.to_string(),
            "--duration",
            &format!("{}s", self.duration),
            "-o",
        ]);
        command.arg(folder.join(FILE));
        if self.mode == Mode::OffCpu {
            command.args(["--off-cpu", "--wakeups"]);
        }
        command.args(self.events().iter().map(|event| format!("--event={event}")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = command.spawn().map_err(|error| format!("cannot run our own command: {error}"))?;
        // A recorder that cannot begin says so at once.
        sleep(Duration::from_millis(300));
        if ended(&mut child)?.is_none() {
            link.report(
                &self.run,
                &Progress::Started { effective_mode: String::new(), message: String::new() },
            );
        }
        let until = Instant::now() + Duration::from_secs(self.duration) + COMPLETING;
        let mut stopped = false;
        let status = loop {
            if let Some(status) = ended(&mut child)? {
                break status;
            }
            let late = Instant::now() > until;
            if !stopped && (running.is_stopped() || late) {
                stopped = true;
                let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)), Signal::SIGINT);
            }
            if late && Instant::now() > until + COMPLETING {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the recorder does not end".into());
            }
            sleep(LOOK);
        };
        if status && self.there_is(folder).is_ok() {
            return Ok(String::new());
        }
        Err(last_words(&words))
    }

    fn there_is(&self, folder: &Path) -> Result<(), String> {
        match fs::metadata(folder.join(FILE)) {
            Ok(file) if file.len() > 0 => Ok(()),
            Ok(_) => Err("the recording is empty".into()),
            Err(error) => Err(format!("there is no recording: {error}")),
        }
    }
}

/// The recording's name in the directory of the run.
const FILE: &str = "run.jfr";

/// What is recorded in truth, and why, by what the recorder says of itself; empty if that is what was asked for.
fn effective(mode: Mode, status: &Value) -> (String, String) {
    let engine = status["engine"].as_str().unwrap_or_default();
    match (mode, engine) {
        (Mode::Cpu, "timer") => (
            "CPU (timer)".into(),
            "Perf events are not permitted here, so timers sample, at most as often as the kernel's clock ticks.".into(),
        ),
        (Mode::Cpu, "perf-user") => (
            "CPU (kernel not seen)".into(),
            "The kernel's part of stacks may not be seen here; kernel.perf_event_paranoid of 1 or less permits it.".into(),
        ),
        _ => Default::default(),
    }
}

pub fn own() -> Result<Command, String> {
    let program: PathBuf =
        std::env::current_exe().map_err(|error| format!("cannot find our own command: {error}"))?;
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").env_remove("FLIGHTLINE").env_remove("FLIGHTLINE_SESSION");
    Ok(command)
}

/// Whether it has ended, and well.
fn ended(child: &mut Child) -> Result<Option<bool>, String> {
    let status = child.try_wait().map_err(|error| format!("cannot wait for the recorder: {error}"))?;
    Ok(status.map(|status| status.success()))
}

/// What a recorder said last.
pub fn last_words(path: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(LONGEST_WORDS).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let last = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("the recorder ended without a word");
    last.trim().trim_start_matches("flightline: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(mode: Mode, interval: Option<&str>, engines: &[&str]) -> Work {
        let engines = engines.iter().map(|engine| (*engine).to_owned()).collect();
        Work { run: "r".into(), mode, duration: 1, interval: interval.map(str::to_owned), engines }
    }

    #[test]
    fn modes_are_engines() {
        assert_eq!(work(Mode::Cpu, None, &[]).events(), ["cpu"]);
        assert_eq!(work(Mode::Cpu, Some("10ms"), &["alloc@1m"]).events(), ["cpu@10ms", "alloc@1m"]);
        assert_eq!(work(Mode::Live, Some("64k"), &[]).events(), ["alloc@64k", "live"]);
        assert!(work(Mode::OffCpu, None, &[]).events().is_empty());
    }

    #[test]
    fn what_others_say_is_a_value_and_never_an_option() {
        let hostile = "-o/etc/passwd;$(id)".to_owned();
        let work = Work {
            interval: Some(hostile.clone()),
            engines: vec![hostile.clone()],
            ..work(Mode::Wall, None, &[])
        };
        let words: Vec<String> = work.events().iter().map(|event| format!("--event={event}")).collect();
        assert_eq!(words, ["--event=wall@-o/etc/passwd;$(id)", "--event=-o/etc/passwd;$(id)"]);
        assert!(flightline_recorder::settings::Settings::default().add(&work.events()[0]).is_err());
    }

    #[test]
    fn a_stop_is_of_one_run() {
        let running = Running::new("one");
        assert!(!running.is_stopped());
        running.clone().stop();
        assert!(running.is_stopped() && running.run() == "one");
    }
}
