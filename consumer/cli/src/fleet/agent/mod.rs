//! `flightline agent`: lets a profiling service record a process.
//!
//! ```text
//! mod.rs         selection of processes; two threads for each
//! process.rs     identity, labels and available modes of a process
//! link.rs        connection to the service: registration, commands, reports, uploads
//! orders.rs      queue of commands
//! work.rs        validation of run requests
//! perform.rs     execution of a run: a recorder as a child process, then the upload of its file
//! continuous.rs  the continuous recording
//! scratch.rs     temporary directories for recordings
//! family.rs      child processes
//! ```
//! The recorded process is not involved: it has no connection and never waits for the service.

mod child_discovery;
mod command_queue;
mod continuous;
mod process;
mod run_executor;
mod run_request;
mod service_link;
mod temp_dir;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueHint};
use flightline_recorder::{Error, find_preload_library, settings::labels};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::args::help;
use crate::diagnostics::note;
use crate::discovery::targets;
use crate::fleet::remote::client::Client;
use crate::record::{EMBEDDED, standby};
use crate::signals::Signals;
use child_discovery::Family;
use process::Process;
use service_link::ServiceLink;

pub const EXAMPLES: &str = "\
Examples:
  flightline agent --join http://127.0.0.1:7070 -- ./server       a new program
  flightline agent --join http://127.0.0.1:7070 -p redis-server   a running program
  flightline agent --continuous -p nginx                          also record continuously
  flightline agent --join https://prof:7070 --token-file token --label zone=eu-1 -- ./server
  LD_PRELOAD=libflightline.so FLIGHTLINE_JOIN=http://127.0.0.1:7070 ./server   the program starts an agent

Child processes join the service as separate targets, except with --no-children. The agent connects to \
the service and polls it for commands; the program gets no thread, descriptor or connection. The \
variables FLIGHTLINE_JOIN, FLIGHTLINE_JOIN_TOKEN_FILE, FLIGHTLINE_JOIN_CA_FILE and FLIGHTLINE_JOIN_RATE \
set the service, token, certificates and the rate of --continuous.

Exit status: that of the program; 126 or 127 if the program cannot be run; with -p, 0 when all processes \
have ended.";

/// Environment variables of an agent. They are removed for the program, which would otherwise start an agent
/// of its own.
const JOIN: [&str; 4] =
    ["FLIGHTLINE_JOIN", "FLIGHTLINE_JOIN_TOKEN_FILE", "FLIGHTLINE_JOIN_CA_FILE", "FLIGHTLINE_JOIN_RATE"];
/// Time for a new program to exec and initialize.
const SETTLING: Duration = Duration::from_secs(1);
/// Interval between scans for child processes; a child seen twice joins.
const GROWING: Duration = Duration::from_secs(1);
/// Maximum number of children that join.
const MOST: usize = 64;
/// Poll interval for the end of a process.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// URL of the profiling service
    #[arg(long, value_name = "URL", env = JOIN[0], default_value = "http://127.0.0.1:7070", value_hint = ValueHint::Url)]
    join: String,
    /// File whose first line is the service's token
    #[arg(long, value_name = "FILE", env = JOIN[1], value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::SECURITY)]
    token_file: Option<PathBuf>,
    /// Trust these certificates (PEM) for TLS instead of the usual authorities
    #[arg(long, value_name = "FILE", env = JOIN[2], value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::SECURITY)]
    ca_file: Option<PathBuf>,
    /// If no thread accepts the command to start a run, interrupt a wait of the program
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    interrupt: bool,
    /// Label of the process, such as zone=eu-1 or role=jobmanager; repeatable. Service and container are
    /// detected
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = labels::parse)]
    label: Vec<(String, String)>,
    /// Also record CPU time continuously at this rate; the service keeps the most recent part
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "19", value_parser = rate)]
    continuous: Option<f64>,
    /// The same for the environment variable
    #[arg(long, value_name = "HZ", hide = true, env = JOIN[3], value_parser = rate)]
    rate: Option<f64>,
    /// Record child processes as part of their parent. By default each child that lives for a second or two
    /// becomes a target of its own, up to 64 at a time
    #[arg(long)]
    no_children: bool,
    /// Running processes: PIDs, or the name of a program for all of its processes
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

impl AgentArgs {
    /// Returns the sampling rate of the continuous recording.
    fn rate(&self) -> Option<f64> {
        self.continuous.or(self.rate)
    }

    fn process(&self, pid: u32) -> Result<Process, Error> {
        Process::read(pid, &self.label, self.interrupt, !self.no_children)
    }
}

/// Runs until the processes end or a signal arrives.
pub fn run(args: &AgentArgs) -> std::process::ExitCode {
    match act(args) {
        Ok(code) => std::process::ExitCode::from(code),
        Err(error) => {
            note(error.to_string());
            let refusal = error.downcast_ref::<Error>();
            std::process::ExitCode::from(match refusal {
                Some(Error::Program(refusal)) => refusal.exit_code(),
                _ => crate::usage_error::status(&error),
            })
        }
    }
}

fn act(args: &AgentArgs) -> anyhow::Result<u8> {
    let client = Arc::new(Client::new(&args.join, args.token_file.as_deref(), args.ca_file.as_deref())?);
    temp_dir::sweep();
    if args.command.is_empty() {
        return watch(args, &client, &Signals::from_user()?);
    }
    // Start the program before signals are blocked, so that it does not inherit the mask.
    let mut child = start(args)?;
    let signals = Signals::from_user()?;
    // The child exists until it is waited for, even after it has ended; then there is nothing to record.
    let root = child.id();
    let mut crew = Crew::new(args, &client);
    if let Ok(process) = args.process(root) {
        process.settle(SETTLING);
        crew.join(process)?;
    }
    let status = wait(&mut child, &signals, &mut crew)?;
    let why = ended(status);
    crew.end(
        |pid| if pid == root { &why } else { "its agent ended together with the program that started it" },
        false,
    );
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    })
}

/// Serves processes that are already running.
fn watch(args: &AgentArgs, client: &Arc<Client>, signals: &Signals) -> anyhow::Result<u8> {
    let pids = targets::pids(&args.pid)?;
    let mut crew = Crew::new(args, client);
    for process in pids.into_iter().map(|pid| args.process(pid)).collect::<Result<Vec<_>, _>>()? {
        crew.join(process)?;
    }
    while !crew.members.is_empty() {
        if signals.wait(Some(LOOK)).is_some() {
            break;
        }
        crew.look(None);
    }
    crew.end(|_| "its agent was stopped", true);
    Ok(0)
}

/// The processes of an agent: the requested ones and their children.
struct Crew<'a> {
    args: &'a AgentArgs,
    client: &'a Arc<Client>,
    members: Vec<Joined>,
    family: Family,
    looked: Instant,
    /// Threads that report the end of members.
    farewells: Vec<JoinHandle<()>>,
    /// The message about exceeding [`MOST`] was printed.
    told: bool,
}

impl<'a> Crew<'a> {
    fn new(args: &'a AgentArgs, client: &'a Arc<Client>) -> Self {
        let (members, farewells) = (Vec::new(), Vec::new());
        Self {
            args,
            client,
            members,
            family: Family::default(),
            looked: Instant::now(),
            farewells,
            told: false,
        }
    }

    fn join(&mut self, process: Process) -> anyhow::Result<()> {
        self.members.push(Joined::new(process, self.client, self.args.rate())?);
        Ok(())
    }

    /// Finds processes that ended or started. The caller reports the end of `root`, whose exit status it
    /// knows.
    fn look(&mut self, root: Option<u32>) {
        let is_over = |member: &Joined| Some(member.process.pid) != root && !member.process.is_there();
        let (over, members) = std::mem::take(&mut self.members).into_iter().partition(is_over);
        self.members = members;
        self.farewells.retain(|farewell| !farewell.is_finished());
        // Report on a thread, so that other members do not wait.
        self.farewells.extend(Vec::<Joined>::into_iter(over).map(|member| {
            std::thread::spawn(move || {
                member.link.last("it has ended", false);
                member.link.end("it has ended");
            })
        }));
        if self.args.no_children || self.looked.elapsed() < GROWING {
            return;
        }
        self.looked = Instant::now();
        let roots: Vec<u32> = self.members.iter().map(|member| member.process.pid).collect();
        for pid in self.family.grown(&roots) {
            if self.members.len() > MOST {
                if !std::mem::replace(&mut self.told, true) {
                    note(format!(
                        "more than {MOST} child processes are running; the others do not join the service"
                    ));
                }
                break;
            }
            if let Ok(process) = self.args.process(pid)
                && let Err(error) = self.join(process)
            {
                note(format!("process {pid} cannot join the service: {error}"));
            }
        }
    }

    /// Reports the end of all members in parallel and waits until that is done.
    fn end<'w>(&mut self, why: impl Fn(u32) -> &'w str, stop: bool) {
        self.members.iter().for_each(|member| member.link.last(why(member.process.pid), stop));
        std::thread::scope(|scope| {
            for member in self.members.drain(..) {
                let why = why(member.process.pid);
                scope.spawn(move || member.link.end(why));
            }
        });
        self.farewells.drain(..).for_each(|farewell| drop(farewell.join()));
    }
}

/// A process and its connection.
struct Joined {
    process: Arc<Process>,
    link: Arc<ServiceLink>,
}

impl Joined {
    /// Starts the threads. They end with the agent's process, since one may be blocked in a long poll.
    fn new(process: Process, client: &Arc<Client>, continuous: Option<f64>) -> anyhow::Result<Self> {
        let process = Arc::new(process);
        let link = Arc::new(ServiceLink::new(Arc::clone(client), Arc::clone(&process)));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let (talking, working) = (Arc::clone(&link), Arc::clone(&link));
        thread("agent").spawn(move || talking.talk()).context("cannot start a thread")?;
        thread("runs").spawn(move || working.work()).context("cannot start a thread")?;
        if let Some(rate) = continuous {
            let (of, link) = (Arc::clone(&process), Arc::clone(&link));
            link.record_always(true);
            thread("continuous")
                .spawn(move || continuous::record(&of, rate, &link))
                .context("cannot start a thread")?;
        }
        Ok(Self { process, link })
    }
}

/// Parses samples per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (1.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "give 1 to 1000 samples per second".into())
}

/// Starts the program, preloaded and in standby.
fn start(args: &AgentArgs) -> anyhow::Result<Child> {
    let mut command = standby::command(&find_preload_library(EMBEDDED)?, &args.command)?;
    for name in JOIN {
        command.env_remove(name);
    }
    Ok(command.spawn().map_err(|error| Error::io("run", command.get_program().as_ref(), error))?)
}

/// Waits for the program. Forwards signals, except those that a terminal sent to both processes.
fn wait(child: &mut Child, signals: &Signals, crew: &mut Crew<'_>) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        crew.look(Some(child.id()));
        if let Some((signal, false)) = signals.next(Some(LOOK))
            && let Ok(signal) = Signal::try_from(signal)
        {
            let _ = kill(pid, signal);
        }
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit status {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal)
                .map_or_else(|_| signal.to_string(), |signal| signal.as_str().to_owned());
            format!("it was killed by {name}")
        }
        (None, None) => "it has ended".into(),
    }
}
