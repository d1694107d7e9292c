//! A run: our own command as a child, with arguments that are never a shell's, and then its file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flightline_recorder::control::{self, Condition, client::ask_within};
use flightline_service::wire::{Mode, Progress};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::link::Link;
use super::orders::Running;
use super::process::{Process, outside, started};
use super::work::Work;

/// What a recorder may take beyond the duration to complete its file.
const COMPLETING: Duration = Duration::from_secs(60);
/// How long what is recorded all the time has to make room.
const FREE: Duration = Duration::from_secs(10);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);
/// How long a program has to be armed before the run is told of without that.
const ARMING: Duration = Duration::from_secs(1);
/// How long a recorder has to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Most that is read of what a recorder says.
const LONGEST_WORDS: u64 = 16 << 10;
/// The recording's name in the directory of the run.
const FILE: &str = "run.jfr";

/// Records and delivers, or tells why not.
pub fn perform(work: &Work, link: &Link, process: &Process, running: &Running) {
    let run = Run { work, link, process, running };
    let recorded = super::scratch::folder();
    let recorded = recorded.map_err(|error| format!("cannot make a directory for the recording: {error}"));
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
    work: &'a Work,
    link: &'a Link,
    process: &'a Process,
    running: &'a Running,
}

impl Run<'_> {
    /// What there is to say of the recording.
    fn record(&self, folder: &Path) -> Result<String, String> {
        if self.running.is_stopped() {
            return Err("It was ended before it began.".into());
        }
        let mut why_outside = String::new();
        if self.work.mode != Mode::OffCpu && self.process.waits() {
            match self.within(folder) {
                Ok(recorder) => return self.follow(recorder, folder, &why_outside),
                // A program whose threads all sleep takes no command; its CPU time can be seen all the same.
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

    /// What is recorded, and the labels that our own options gave.
    fn options(&self) -> Vec<String> {
        let labels = self.process.given.iter().map(|(name, value)| format!("--label={name}={value}"));
        let alone = self.process.alone.then(|| "--no-follow".to_owned());
        self.work.options().into_iter().chain(labels).chain(alone).collect()
    }

    /// By the program itself, which waits for it.
    fn within(&self, folder: &Path) -> Result<Recorder, String> {
        let pid = self.process.pid;
        if self.link.records_always() {
            self.process.wait_for(FREE, Condition::Waiting);
        }
        let found = control::find(pid).map_err(|error| error.to_string())?;
        if let Condition::Recorded(_) = found.condition {
            // Even one that is paused is somebody's, who goes on with it.
            return Err(format!(
                "{} ({pid}) is being recorded already; `flightline ctl -p {pid} stop` ends that",
                found.name
            ));
        }
        // The recorder becomes the program's user, and its file is in our directory.
        if nix::unistd::geteuid().is_root() && found.owner.0 != 0 {
            chown(folder, Some(found.owner.0), Some(found.owner.1))
                .map_err(|error| format!("cannot give the program's user a directory: {error}"))?;
        }
        let mut command = own()?;
        command.args(["ctl", "--json", "-p", &pid.to_string(), "start"]);
        command.args(["--duration", &format!("{}s", self.work.duration), "-o"]).arg(folder.join(FILE));
        command.args(self.options());
        if self.process.interrupt {
            command.arg("--interrupt");
        }
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run our own command: {error}"))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        if answer["ok"] != true {
            let said = answer["error"].as_str().map(str::to_owned);
            return Err(said.unwrap_or_else(|| last_words(&output.stderr)));
        }
        let recorder = answer["recorder"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        match recorder {
            Some(pid) => Ok(Recorder::Apart { pid, since: started(pid) }),
            None => Err("another recording of it was begun at the same time".into()),
        }
    }

    /// Through the kernel, by a recorder that is our child.
    fn outside(&self, folder: &Path) -> Result<Recorder, String> {
        let words = File::create(folder.join("words"));
        let words = words.map_err(|error| format!("cannot keep what the recorder says: {error}"))?;
        let mut command = own()?;
        command.args(["record", "-p", &self.process.pid.to_string(), "--outside"]);
        command.args(["--agent", &std::process::id().to_string()]);
        command.args(["--duration", &format!("{}s", self.work.duration), "-o"]).arg(folder.join(FILE));
        if self.work.mode == Mode::OffCpu {
            command.args(["--off-cpu", "--wakeups"]);
        }
        command.args(self.options());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        let child = command.spawn().map_err(|error| format!("cannot run our own command: {error}"))?;
        Ok(Recorder::Child(child))
    }

    /// Until its recorder has ended.
    fn follow(&self, mut recorder: Recorder, folder: &Path, why_outside: &str) -> Result<String, String> {
        // The end of its own time is the recorder's affair; this is for one that does not come to it.
        let began = Instant::now();
        let until = began + Duration::from_secs(self.work.duration) + COMPLETING;
        let (mut told, mut stopped) = (false, false);
        // Which engine records CPU time is known with the first thread that it is armed for.
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
                    // The answer comes when the file is complete; that is seen otherwise, too.
                    stopped = ask_within(&session, "stop", COMPLETING).is_ok();
                }
            }
            if Instant::now() > until + COMPLETING {
                recorder.kill();
                return Err("the recorder does not end".into());
            }
            sleep(LOOK);
        };
        let words = fs::read(folder.join("words")).unwrap_or_default();
        match recording(&folder.join(FILE)).and_then(|file| file.metadata()) {
            Ok(file) if well && file.len() > 0 => Ok(notices(&words)),
            _ if matches!(recorder, Recorder::Child(_)) => Err(last_words(&words)),
            Ok(_) => Err("the recording is empty".into()),
            Err(error) => Err(format!("there is no recording: {error}")),
        }
    }
}

/// The process that writes the recording.
enum Recorder {
    /// Our own child.
    Child(Child),
    /// Begun by `ctl`, and nobody's child; `since`: what tells it from another of the same number.
    Apart { pid: u32, since: Option<u64> },
}

impl Recorder {
    /// Whether it has ended, and well. Of one that is not our child its file must tell.
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
                // As the first process of a container we inherit it.
                let pid = Pid::from_raw(i32::try_from(*pid).unwrap_or(i32::MAX));
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
                Ok(Some(true))
            }
        }
    }

    /// Where it can be spoken to.
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

/// Opens a recording. The directory may be another user's, who shall not choose what we read.
fn recording(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let (is, folder) = (file.metadata()?, fs::symlink_metadata(path.parent().unwrap_or(path))?);
    if is.is_file() && is.uid() == folder.uid() {
        return Ok(file);
    }
    Err(io::Error::other("what stands in its place is not the recorder's"))
}

/// What is recorded in truth, and why, by what the recorder says of itself; empty if that is what was asked for.
fn effective(mode: Mode, status: &Value, why_outside: &str, without_perf: &str) -> (String, String) {
    if mode != Mode::Cpu {
        return Default::default();
    }
    let engine = status["engine"].as_str().unwrap_or_default();
    let timers = format!(
        "Timers sample it, at most as often as the kernel's clock ticks: perf events are not to be had, {without_perf}."
    );
    let unseen = "The kernel's part of stacks may not be seen here; kernel.perf_event_paranoid of 1 or less permits it.";
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
        std::env::current_exe().map_err(|error| format!("cannot find our own command: {error}"))?;
    // One that was replaced while we run has left its name to its successor.
    let program = match program.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) if !program.exists() => PathBuf::from(path),
        _ => program,
    };
    let mut command = Command::new(program);
    // What is meant for recorded programs is not meant for a recorder.
    for name in ["LD_PRELOAD", "FLIGHTLINE", "FLIGHTLINE_SESSION", "FLIGHTLINE_LABELS"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Lines of a recorder, without the name in front of each.
fn lines(text: &[u8]) -> Vec<String> {
    let mut start = Vec::new();
    let _ = text.take(LONGEST_WORDS).read_to_end(&mut start);
    let lines = String::from_utf8_lossy(&start).into_owned();
    let lines = lines.lines().map(|line| line.trim().trim_start_matches("flightline: ").to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// What a recorder said last.
pub fn last_words(text: &[u8]) -> String {
    lines(text).pop().unwrap_or_else(|| "the recorder ended without a word".into())
}

/// What a recorder that ended well said before its closing line.
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
    fn what_is_recorded_in_truth() {
        let of = |mode, engine: &str, why| effective(mode, &json!({"engine": engine}), why, "for a reason");
        assert_eq!(of(Mode::Cpu, "perf", ""), Default::default());
        assert_eq!(of(Mode::Cpu, "perf from outside", ""), Default::default());
        let table = [
            ("timer", "", "CPU (timer)", "not to be had, for a reason."),
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
        // Timers are what ITIMER asks for.
        assert_eq!(of(Mode::Itimer, "itimer", ""), Default::default());
        assert_eq!(of(Mode::Alloc, "timer", ""), Default::default());
    }

    #[test]
    fn names_of_engines_are_the_recorders() {
        use flightline_recorder::loss::engine_name;
        let names: Vec<&str> = (0..256).map(engine_name).collect();
        let known = ["timer", "perf-user with timer", "perf from outside without stacks of the kernel"];
        for name in known {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn words() {
        let said = b"flightline: no stacks of the kernel\n\nflightline: 7 samples in /x\n";
        assert_eq!(
            (notices(said), last_words(said)),
            ("no stacks of the kernel".into(), "7 samples in /x".into())
        );
        assert_eq!(
            (notices(b""), last_words(b"")),
            (String::new(), "the recorder ended without a word".into())
        );
        assert!(last_words(&vec![b'x'; 1 << 20]).len() <= LONGEST_WORDS as usize);
    }

    #[test]
    fn a_link_is_no_recording() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, path) = (folder.path().join("secret"), folder.path().join(FILE));
        fs::write(&secret, "secret").unwrap();
        assert!(recording(&secret).is_ok());
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(recording(&path).is_err());
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(recording(&path).is_err(), "nor is a pipe, and nobody waits for its writer");
    }
}
