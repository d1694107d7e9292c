//! Adopts processes on the service's machine: starts an agent for each, without a shell.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::api_error::ApiError;
use crate::core::check_labels;
use crate::log::{Level, Log};
use crate::wire::Labels;

/// Maximum number of agents.
const MOST_AGENTS: usize = 256;
/// Maximum number of listed processes.
const MOST_PROCESSES: usize = 16_384;
/// Maximum bytes of a line of an agent's output.
const LONGEST_LINE: u64 = 4096;
/// Maximum bytes of a command line.
const LONGEST_COMMAND: u64 = 300;

/// How to start an agent: a program and the arguments before `-p PID --label=…`.
#[derive(Clone, Debug)]
pub struct Agents {
    /// The program.
    pub program: PathBuf,
    /// Its leading arguments.
    pub arguments: Vec<OsString>,
    /// Log for the agent's output, instead of the service's stderr, which may be JSON lines.
    pub log: Option<Log>,
}

impl Agents {
    /// Adds the arguments that make agents join the service at this address.
    #[must_use]
    pub fn joining(mut self, address: SocketAddr, tls: bool) -> Self {
        let scheme = if tls { "https" } else { "http" };
        // If the service listens on all addresses, agents use the loopback.
        let ip = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let url = format!("{scheme}://{}", SocketAddr::new(ip, address.port()));
        self.arguments.extend(["--join".into(), url.into()]);
        self
    }
}

/// A process that can be adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pid: u32,
    name: String,
    command: String,
    user: String,
}

/// A request to adopt a process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pid: u32,
    #[serde(default)]
    labels: Labels,
}

/// The agents that the service started.
#[derive(Debug)]
pub struct Local {
    agents: Agents,
    children: Mutex<Vec<(u32, Child)>>,
}

impl Local {
    /// Creates an empty set.
    pub fn new(agents: Agents) -> Self {
        Self { agents, children: Mutex::default() }
    }

    /// Lists processes that the service's user may record, without the service and its agents.
    pub fn processes(&self) -> Vec<Process> {
        let own = nix::unistd::geteuid();
        let ours: Vec<u32> = self.with(|children| children.iter().map(|(_, child)| child.id()).collect());
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let pids = pids.filter(|pid| *pid != std::process::id() && !ours.contains(pid));
        let mut processes: Vec<Process> = pids
            .filter_map(|pid| {
                let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
                // Kernel threads have no executable.
                let program = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
                (program && (own.is_root() || own.as_raw() == user))
                    .then(|| Process::read(pid, user))
                    .flatten()
            })
            .take(MOST_PROCESSES)
            .collect();
        processes.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
        processes
    }

    /// Adopts a process.
    ///
    /// # Errors
    /// Returns an error if the process does not exist, may not be recorded, or there are too many agents.
    pub fn adopt(&self, asked: &Adopt) -> Result<(), ApiError> {
        check_labels(&asked.labels)?;
        // Labels are passed as `--label=KEY=VALUE`, where a comma starts the next one.
        let plain = |text: &String| !text.contains([',', '\0', '\n']);
        if !asked.labels.iter().all(|(key, value)| plain(key) && plain(value) && !key.contains('=')) {
            return Err(ApiError::bad(
                "Labels must not contain commas or line breaks, and keys must not contain `=`.",
            ));
        }
        if !self.processes().iter().any(|process| process.pid == asked.pid) {
            return Err(ApiError::missing(
                "The process does not exist, or the service's user may not record it.",
            ));
        }
        self.with(|children| {
            if children.iter().any(|(pid, _)| *pid == asked.pid) {
                return Err(ApiError::conflict("The process already has an agent of this service."));
            }
            if children.len() >= MOST_AGENTS {
                let message = format!("The limit of {MOST_AGENTS} agents is reached.");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
            }
            let mut command = Command::new(&self.agents.program);
            command.args(&self.agents.arguments).args(["-p", &asked.pid.to_string()]);
            command.args(asked.labels.iter().map(|(key, value)| format!("--label={key}={value}")));
            if self.agents.log.is_some() {
                command.stderr(Stdio::piped());
            }
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            let mut child = child.map_err(|error| ApiError::internal("start an agent", error))?;
            if let (Some(log), Some(said)) = (&self.agents.log, child.stderr.take()) {
                forward_output(log.clone(), asked.pid, said);
            }
            children.push((asked.pid, child));
            Ok(())
        })
    }

    /// Reaps agents that have ended.
    pub fn look(&self) {
        self.with(|_| ());
    }

    fn with<T>(&self, then: impl FnOnce(&mut Vec<(u32, Child)>) -> T) -> T {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        then(&mut children)
    }
}

impl Drop for Local {
    /// Stops the agents, which cannot do anything without the service.
    fn drop(&mut self) {
        self.with(|children| {
            for (_, child) in children.iter_mut() {
                let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            }
            children.drain(..).for_each(|(_, mut child)| drop(child.wait()));
        });
    }
}

/// Logs an agent's output until it ends.
fn forward_output(log: Log, pid: u32, said: ChildStderr) {
    let mut said = BufReader::new(said);
    let work = move || {
        let mut line = Vec::new();
        // A line that is too long is logged in pieces.
        while (&mut said).take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            let fields = [("pid", u64::from(pid).into()), ("said", text.trim_end().into())];
            log.write(Level::Info, "agent", &fields);
            line.clear();
        }
    };
    // If no thread can be started, the output is lost.
    let _ = std::thread::Builder::new().name("agent".into()).spawn(work);
}

impl Process {
    fn read(pid: u32, user: u32) -> Option<Self> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned();
        let mut command = Vec::new();
        let _ =
            File::open(format!("/proc/{pid}/cmdline")).ok()?.take(LONGEST_COMMAND).read_to_end(&mut command);
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim_end().to_owned();
        let user = nix::unistd::User::from_uid(user.into())
            .ok()
            .flatten()
            .map_or_else(|| user.to_string(), |user| user.name);
        Some(Self { pid, name, command, user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Format;

    struct ChannelWriter(std::sync::mpsc::Sender<String>);

    impl std::io::Write for ChannelWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn adopt(local: &Local, pid: u32, labels: &[(&str, &str)]) -> Result<(), u16> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        local.adopt(&Adopt { pid, labels }).map_err(|fault| fault.status.as_u16())
    }

    #[test]
    fn process_is_adopted_once_with_arguments_passed_verbatim() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        // A stand-in for the command: writes its arguments to a file and stays alive.
        let script = format!("printf '%s\\n' \"$@\" > {}; echo joined >&2; exec sleep 60", said.display());
        let (shown, lines) = std::sync::mpsc::channel();
        let log = Log::new(Format::Json, Level::Info, ChannelWriter(shown)).unwrap();
        let arguments = ["-c".into(), script.into(), "agent".into()].to_vec();
        let local = Local::new(Agents { program: "/bin/sh".into(), arguments, log: Some(log) });
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = process.id();
        // Wait until the new process has called exec.
        let listed = loop {
            let listed = local.processes().into_iter().find(|listed| listed.pid == pid);
            if let Some(listed) = listed.filter(|listed| listed.command == "sleep 60") {
                break listed;
            }
        };
        assert_eq!((listed.name.as_str(), listed.command.as_str()), ("sleep", "sleep 60"));
        for bad in [[("a", "x,y")], [("a=b", "x")], [("a", "x\ny")], [("", "x")]] {
            assert_eq!(adopt(&local, pid, &bad), Err(400), "{bad:?}");
        }
        assert_eq!(adopt(&local, u32::MAX, &[]), Err(404));
        assert_eq!(adopt(&local, std::process::id(), &[]), Err(404));
        adopt(&local, pid, &[("why", "`id`;$(id) --join=http://evil")]).unwrap();
        assert_eq!(adopt(&local, pid, &[]), Err(409));
        let words = loop {
            match fs::read_to_string(&said) {
                Ok(words) if words.lines().count() == 3 => break words,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(words, format!("-p\n{pid}\n--label=why=`id`;$(id) --join=http://evil\n"));
        let line = lines.recv().unwrap();
        assert!(line.contains(&format!("\"event\":\"agent\",\"pid\":{pid},\"said\":\"joined\"")), "{line}");
        let agent = local.with(|children| children[0].1.id());
        drop(local);
        assert!(!fs::exists(format!("/proc/{agent}")).unwrap(), "agents end with the service");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
