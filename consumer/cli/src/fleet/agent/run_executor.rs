//! Executes a run: starts the flightline command as a child, without a shell, and delivers its file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_recorder::control::{self, Condition, ask_within};
use flightline_service::wire::{Mode, Progress};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::command_queue::Running;
use super::process::{Process, outside, started};
use super::run_request::RunRequest;
use super::service_link::ServiceLink;

/// Time beyond the duration for a recorder to complete its file.
const COMPLETING: Duration = Duration::from_secs(60);
/// Time for the continuous recording to release the slot.
const FREE: Duration = Duration::from_secs(10);
/// Poll interval.
const LOOK: Duration = Duration::from_millis(50);
/// How long to wait for the engine's name before reporting the start without it.
const ARMING: Duration = Duration::from_secs(1);
/// Timeout for a recorder's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Maximum bytes read from a recorder's output.
const LONGEST_WORDS: u64 = 16 << 10;
/// File name of the recording in the run's directory.
const FILE: &str = "run.jfr";

/// Records and delivers, or reports the failure.
pub fn perform(work: &RunRequest, link: &ServiceLink, process: &Process, running: &Running) {
    let run = Run { work, link, process, running };
    let recorded = super::temp_dir::folder();
    let recorded = recorded.map_err(|error| format!("cannot create a directory for the recording: {error}"));
    let recorded = recorded.and_then(|folder| run.record(folder.path()).map(|message| (folder, message)));
    running.recorded();
    match recorded {
        Ok((folder, message)) => {
            let path = folder.path().join(FILE);
            link.deliver(&work.run, &message, || recording(&path));
        }
        Err(message) => {
            link.report(&work.run, &Progress::Failed { message });
        }
    }
}

struct Run<'a> {
    work: &'a RunRequest,
    link: &'a ServiceLink,
    process: &'a Process,
    running: &'a Running,
}

impl Run<'_> {
    /// Records; returns the message for the delivery.
    fn record(&self, folder: &Path) -> Result<String, String> {
        if self.running.is_stopped() {
            return Err("The run was cancelled before it started.".into());
        }
        let mut why_outside = String::new();
        if self.work.mode != Mode::OffCpu && self.process.waits() {
            match self.within(folder) {
                Ok(recorder) => return self.follow(recorder, folder, &why_outside),
                // A program whose threads all sleep accepts no command, but its CPU time can be recorded from
                // outside.
                Err(why)
                    if self.work.mode == Mode::Cpu && outside().is_ok() && !self.process.is_recorded() =>
                {
                    why_outside = why;
                }
                Err(why) => return Err(why),
            }
        }
        let recorder = self.outside(folder)?;
        self.follow(recorder, folder, &why_outside)
    }

    /// Events, and the labels of the agent's options.
    fn options(&self) -> Vec<String> {
        let labels = self.process.given.iter().map(|(name, value)| format!("--label={name}={value}"));
        let alone = self.process.alone.then(|| "--no-follow".to_owned());
        self.work.options().into_iter().chain(labels).chain(alone).collect()
    }

    /// Records from within a program in standby.
    fn within(&self, folder: &Path) -> Result<Recorder, String> {
        let pid = self.process.pid;
        if self.link.records_always() {
            self.process.wait_for(FREE, Condition::Waiting);
        }
        let found = control::find(pid).map_err(|error| error.to_string())?;
        if let Condition::Recorded(_) = found.condition {
            // Even a paused recording belongs to another user of the command.
            return Err(format!(
                "{} ({pid}) is already being recorded; stop that recording with `flightline ctl -p {pid} stop`",
                found.name
            ));
        }
        // The recorder switches to the program's user, so that user must be able to write to the directory.
        if nix::unistd::geteuid().is_root() && found.owner.0 != 0 {
            chown(folder, Some(found.owner.0), Some(found.owner.1))
                .map_err(|error| format!("cannot create a directory for the program's user: {error}"))?;
        }
        let mut command = own()?;
        command.args(["ctl", "--json", "-p", &pid.to_string(), "start"]);
        command.args(["--duration", &format!("{}s", self.work.duration), "-o"]).arg(folder.join(FILE));
        command.args(self.options());
        if self.process.interrupt {
            command.arg("--interrupt");
        }
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot start flightline: {error}"))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        if answer["ok"] != true {
            let said = answer["error"].as_str().map(str::to_owned);
            return Err(said.unwrap_or_else(|| last_words(&output.stderr)));
        }
        let recorder = answer["recorder"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        match recorder {
            Some(pid) => Ok(Recorder::Apart { pid, since: started(pid) }),
            None => Err("another recording of the process started at the same time".into()),
        }
    }

    /// Records through the kernel, with the recorder as a child.
    fn outside(&self, folder: &Path) -> Result<Recorder, String> {
        let words = File::create(folder.join("words"));
        let words = words.map_err(|error| format!("cannot store the recorder's messages: {error}"))?;
        let mut command = own()?;
        command.args(["record", "-p", &self.process.pid.to_string(), "--outside"]);
        command.args(["--agent", &std::process::id().to_string()]);
        command.args(["--duration", &format!("{}s", self.work.duration), "-o"]).arg(folder.join(FILE));
        if self.work.mode == Mode::OffCpu {
            command.args(["--off-cpu", "--wakeups"]);
        }
        command.args(self.options());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        let child = command.spawn().map_err(|error| format!("cannot start flightline: {error}"))?;
        Ok(Recorder::Child(child))
    }

    /// Waits until the recorder has ended.
    fn follow(&self, mut recorder: Recorder, folder: &Path, why_outside: &str) -> Result<String, String> {
        // The recorder enforces the duration itself; this limit is for one that hangs.
        let began = Instant::now();
        let until = began + Duration::from_secs(self.work.duration) + COMPLETING;
        let (mut told, mut stopped) = (false, false);
        // The engine for CPU time is known once it is armed for the first thread.
        let known = |status: &Value| {
            self.work.mode != Mode::Cpu || !status["engine"].is_null() || began.elapsed() > ARMING
        };
        let well = loop {
            if let Some(well) = recorder.ended()? {
                break well;
            }
            let late = Instant::now() > until;
            let session = if told && stopped { None } else { recorder.session(self.process.pid) };
            if let Some(session) = session {
                if !told
                    && let Ok(status) = ask_within(&session, "status", ANSWER)
                    && known(&status)
                {
                    told = true;
                    let (effective_mode, message) =
                        effective(self.work.mode, &status, why_outside, &self.process.without_perf());
                    self.link.report(&self.work.run, &Progress::Started { effective_mode, message });
                }
                if !stopped && (self.running.is_stopped() || late) {
                    // The answer arrives when the file is complete, which is also detected otherwise.
                    stopped = ask_within(&session, "stop", COMPLETING).is_ok();
                }
            }
            if Instant::now() > until + COMPLETING {
                recorder.kill();
                return Err("the recorder does not exit".into());
            }
            sleep(LOOK);
        };
        let words = fs::read(folder.join("words")).unwrap_or_default();
        match recording(&folder.join(FILE)).and_then(|file| file.metadata()) {
            Ok(file) if well && file.len() > 0 => Ok(notices(&words)),
            _ if matches!(recorder, Recorder::Child(_)) => Err(last_words(&words)),
            Ok(_) => Err("the recording is empty".into()),
            Err(error) => Err(format!("cannot open the recording: {error}")),
        }
    }
}

/// The process that writes the recording.
enum Recorder {
    /// A child of the agent.
    Child(Child),
    /// Started by `ctl` and not a child. `since` is its start time, which detects reuse of the PID.
    Apart { pid: u32, since: Option<u64> },
}

impl Recorder {
    /// Returns whether it has ended, and successfully. For a process that is not a child, the file must show
    /// that.
    fn ended(&mut self) -> Result<Option<bool>, String> {
        match self {
            Self::Child(child) => {
                let status = child.try_wait();
                let status = status.map_err(|error| format!("cannot wait for the recorder: {error}"))?;
                Ok(status.map(|status| status.success()))
            }
            Self::Apart { pid, since } => {
                if since.is_some() && started(*pid) == *since {
                    return Ok(None);
                }
                // If the agent is PID 1 of a container, it inherits the process and must reap it.
                let pid = Pid::from_raw(i32::try_from(*pid).unwrap_or(i32::MAX));
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
                Ok(Some(true))
            }
        }
    }

    /// Returns the session directory for sending commands.
    fn session(&self, of: u32) -> Option<PathBuf> {
        let pid = match self {
            Self::Child(child) => child.id(),
            Self::Apart { .. } => of,
        };
        match control::find(pid).ok()?.condition {
            Condition::Recorded(session) => Some(session),
            _ => None,
        }
    }

    fn kill(&mut self) {
        if let Self::Child(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Opens a recording. The directory may belong to another user, who must not redirect the read to another
/// file.
fn recording(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let (is, folder) = (file.metadata()?, fs::symlink_metadata(path.parent().unwrap_or(path))?);
    if is.is_file() && is.uid() == folder.uid() {
        return Ok(file);
    }
    Err(io::Error::other("the file was not written by the recorder"))
}

/// Returns the mode that is actually recorded and why, from the recorder's status; empty if it is the
/// requested one.
fn effective(mode: Mode, status: &Value, why_outside: &str, without_perf: &str) -> (String, String) {
    if mode != Mode::Cpu {
        return Default::default();
    }
    let engine = status["engine"].as_str().unwrap_or_default();
    let timers = format!(
        "Timers sample the CPU time, at most at the frequency of the kernel's clock tick, because perf \
         events are not available: {without_perf}."
    );
    let unseen =
        "Kernel stacks are not permitted here; set kernel.perf_event_paranoid to 1 or less to include them.";
    let (effective, why) = match engine {
        "timer" => ("CPU (timer)", timers.as_str()),
        _ if engine.starts_with("perf-user") => ("CPU (kernel not seen)", unseen),
        _ if engine.ends_with("without stacks of the kernel") => {
            ("CPU (from outside, kernel not seen)", unseen)
        }
        "perf from outside" if !why_outside.is_empty() => ("CPU (from outside)", ""),
        _ => ("", ""),
    };
    let why = match why_outside {
        "" => why.to_owned(),
        outside => format!("Recorded from outside: {outside}. {why}"),
    };
    (effective.to_owned(), why.trim_end().to_owned())
}

pub fn own() -> Result<Command, String> {
    let program: PathBuf =
        std::env::current_exe().map_err(|error| format!("cannot find the flightline program: {error}"))?;
    // If the executable was replaced while running, use its successor of the same name.
    let program = match program.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) if !program.exists() => PathBuf::from(path),
        _ => program,
    };
    let mut command = Command::new(program);
    // Remove variables that are for recorded programs, not for recorders.
    for name in ["LD_PRELOAD", "FLIGHTLINE", "FLIGHTLINE_SESSION", "FLIGHTLINE_LABELS"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Returns the lines of a recorder's output without their prefix.
fn lines(text: &[u8]) -> Vec<String> {
    let mut start = Vec::new();
    let _ = text.take(LONGEST_WORDS).read_to_end(&mut start);
    let lines = String::from_utf8_lossy(&start).into_owned();
    let lines = lines.lines().map(|line| line.trim().trim_start_matches("flightline: ").to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the last line of a recorder's output.
pub fn last_words(text: &[u8]) -> String {
    lines(text).pop().unwrap_or_else(|| "the recorder exited without a message".into())
}

/// Returns the lines before the closing line of a successful recorder.
fn notices(text: &[u8]) -> String {
    let mut lines = lines(text);
    lines.pop();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn effective_mode_reflects_engine_and_reason() {
        let of = |mode, engine: &str, why| effective(mode, &json!({"engine": engine}), why, "for a reason");
        assert_eq!(of(Mode::Cpu, "perf", ""), Default::default());
        assert_eq!(of(Mode::Cpu, "perf from outside", ""), Default::default());
        let table = [
            ("timer", "", "CPU (timer)", "not available: for a reason."),
            ("perf-user with timer", "", "CPU (kernel not seen)", "perf_event_paranoid"),
            (
                "perf from outside without stacks of the kernel",
                "",
                "CPU (from outside, kernel not seen)",
                "paranoid",
            ),
            ("perf from outside", "all sleep", "CPU (from outside)", "all sleep"),
        ];
        for (engine, why_outside, mode, why) in table {
            let (effective, message) = of(Mode::Cpu, engine, why_outside);
            assert!(effective == mode && message.contains(why), "{effective}: {message}");
        }
        // Timers are the expected engine of ITIMER.
        assert_eq!(of(Mode::Itimer, "itimer", ""), Default::default());
        assert_eq!(of(Mode::Alloc, "timer", ""), Default::default());
    }

    #[test]
    fn engine_names_match_recorder() {
        use flightline_recorder::engine_name;
        let names: Vec<&str> = (0..256).map(engine_name).collect();
        let known = ["timer", "perf-user with timer", "perf from outside without stacks of the kernel"];
        for name in known {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn notices_and_last_line_are_extracted_from_stderr() {
        let said = b"flightline: no stacks of the kernel\n\nflightline: 7 samples in /x\n";
        assert_eq!(
            (notices(said), last_words(said)),
            ("no stacks of the kernel".into(), "7 samples in /x".into())
        );
        assert_eq!(
            (notices(b""), last_words(b"")),
            (String::new(), "the recorder exited without a message".into())
        );
        assert!(last_words(&vec![b'x'; 1 << 20]).len() <= LONGEST_WORDS as usize);
    }

    #[test]
    fn symlink_or_fifo_is_not_accepted_as_recording() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, path) = (folder.path().join("secret"), folder.path().join(FILE));
        fs::write(&secret, "secret").unwrap();
        assert!(recording(&secret).is_ok());
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(recording(&path).is_err());
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(recording(&path).is_err(), "nor is a pipe, and no reader waits for its writer");
    }
}
