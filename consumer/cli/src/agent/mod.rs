//! `flightline agent`: lets a profiling service record a process.
//!
//! ```text
//! mod.rs        which processes; one thread for each      process.rs   what a process is: key, labels, what can be recorded
//! link.rs       hello, commands, reports, uploads         perform.rs   a run: our own command as a child, then its file
//! ```
//! The recorded process knows nothing of it: it holds no connection and waits for nobody.

mod continuous;
mod link;
mod perform;
mod process;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::{Args, ValueHint};
use flightline_recorder::{Error, labels, preload};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::attach;
use crate::record::{EMBEDDED, say};
use crate::remote::client::Client;
use crate::signals::Signals;
use link::Link;
use process::Process;

pub const EXAMPLES: &str = "\
Examples:
  flightline agent --join http://127.0.0.1:7070 -- ./server            start a program that can then be profiled in every mode
  flightline agent --join http://127.0.0.1:7070 -p redis-server        what runs already: CPU and off-CPU time
  flightline agent --continuous -p nginx                               and all the time at 19 Hz: what was it doing at 14:03?
  flightline agent --join https://prof:7070 --token-file token --label zone=eu-1 -- ./server

The program is preloaded and waits to be recorded: it gets no thread, descriptor or connection. All talking is done by this \
process, which comes to the service and asks for commands. Exit status: that of the program, 126 or 127 if it cannot be run; with -p: 0 when all have ended.";

/// How long a program that was just started has to become itself.
const SETTLING: Duration = Duration::from_secs(1);

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The profiling service
    #[arg(long, value_name = "URL", env = "FLIGHTLINE_SERVICE", default_value = "http://127.0.0.1:7070", value_hint = ValueHint::Url)]
    join: String,
    /// File whose first line is the service's token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Certificates (PEM) that the service's is signed by, instead of those that are always believed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca_file: Option<PathBuf>,
    /// What the process is told apart by, as zone=eu-1 or role=jobmanager; repeatable. Service and container are found by themselves
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = labels::parse)]
    label: Vec<(String, String)>,
    /// Record CPU time all the time, too, at this rate, from outside: the service keeps the last while of it
    #[arg(long, value_name = "HZ", num_args = 0..=1, default_missing_value = "19", value_parser = rate)]
    continuous: Option<f64>,
    /// Running processes: their ids, or the name of all processes of a program
    #[arg(
        short,
        long,
        value_name = "PID|NAME",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pid: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs until the processes have ended, or a signal comes.
pub fn run(args: &AgentArgs) -> std::process::ExitCode {
    match act(args) {
        Ok(code) => std::process::ExitCode::from(code),
        Err(error) => {
            say(&error.to_string());
            let refusal = error.downcast_ref::<Error>();
            std::process::ExitCode::from(match refusal {
                Some(Error::Program(refusal)) => refusal.exit_code(),
                Some(error) if crate::record::is_usage(error) => 2,
                _ => 1,
            })
        }
    }
}

fn act(args: &AgentArgs) -> anyhow::Result<u8> {
    let token = args.token_file.as_deref().map(crate::serve::token).transpose()?;
    let client = Arc::new(Client::new(&args.join, token, args.ca_file.as_deref())?);
    if args.command.is_empty() {
        return watch(args, &client, &Signals::of_user()?);
    }
    // Before signals are held back: the program is to have none of that.
    let mut child = start(args)?;
    let signals = Signals::of_user()?;
    let process = Process::of(child.id(), &args.label)?;
    process.settle(SETTLING);
    let agent = Joined::new(process, Arc::clone(&client), args.continuous);
    let status = wait(&mut child, &signals)?;
    agent.end(&ended(status));
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    })
}

/// For processes that run already.
fn watch(args: &AgentArgs, client: &Arc<Client>, signals: &Signals) -> anyhow::Result<u8> {
    let pids = attach::pids(&args.pid)?;
    let processes =
        pids.into_iter().map(|pid| Process::of(pid, &args.label)).collect::<Result<Vec<_>, _>>()?;
    let mut agents: Vec<Joined> = processes
        .into_iter()
        .map(|process| Joined::new(process, Arc::clone(client), args.continuous))
        .collect();
    while !agents.is_empty() {
        if signals.wait(Some(Duration::from_millis(200))).is_some() {
            agents.drain(..).for_each(|agent| agent.end("its agent was ended"));
            return Ok(0);
        }
        let (run, over): (Vec<_>, Vec<_>) = agents.into_iter().partition(|agent| agent.process.is_there());
        over.into_iter().for_each(|agent| agent.end("it has ended"));
        agents = run;
    }
    Ok(0)
}

/// A process and the thread that speaks for it.
struct Joined {
    process: Arc<Process>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    recording: Option<std::thread::JoinHandle<()>>,
    link: Arc<Link>,
}

impl Joined {
    fn new(process: Process, client: Arc<Client>, continuous: Option<f64>) -> Self {
        let process = Arc::new(process);
        let link = Arc::new(Link::new(client, Arc::clone(&process)));
        let over = Arc::new(AtomicBool::new(false));
        let (talking, done) = (Arc::clone(&link), Arc::clone(&over));
        let thread = std::thread::Builder::new().name("agent".into()).spawn(move || talking.talk(&done)).ok();
        let recording = continuous.and_then(|rate| {
            let (process, link, over) = (Arc::clone(&process), Arc::clone(&link), Arc::clone(&over));
            let thread = std::thread::Builder::new().name("continuous".into());
            thread.spawn(move || continuous::record(&process, rate, &link, &over)).ok()
        });
        Self { process, over, thread, recording, link }
    }

    /// Tells the end of the process.
    fn end(mut self, why: &str) {
        self.over.store(true, Relaxed);
        // Its last chunk is to come, too.
        if let Some(recording) = self.recording.take() {
            let _ = recording.join();
        }
        self.link.end(why);
        // It may be in the midst of a question, which is answered within a heartbeat; nobody needs the answer any more.
        drop(self.thread.take());
    }
}

/// Starts the program, preloaded and waiting to be recorded.
fn start(args: &AgentArgs) -> anyhow::Result<Child> {
    let mut command = crate::ctl::dormant(&preload::find(EMBEDDED)?, &args.command)?;
    Ok(command.spawn().map_err(|error| Error::io("run", command.get_program().as_ref(), error))?)
}

/// Until it ends; signals are passed on.
fn wait(child: &mut Child, signals: &Signals) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = signals.wait(Some(Duration::from_millis(50)))
            && let Ok(signal) = Signal::try_from(signal)
        {
            let _ = kill(pid, signal);
        }
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal)
                .map_or_else(|_| signal.to_string(), |signal| signal.as_str().to_owned());
            format!("it was ended by {name}")
        }
        (None, None) => "it has ended".into(),
    }
}

/// Samples a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (1.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "give 1 to 1000 samples a second".into())
}
