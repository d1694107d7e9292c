//! `flightline ctl`: starts, stops and changes the recording of a running program.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::{Args, Subcommand, ValueHint};
use flightline_recorder::{
    Error,
    control::{Condition, TargetProcess, ask, ask_within},
    session,
};
use serde_json::{Value, json};

use crate::args::sampling::SamplingArgs;
use crate::control::status;
use crate::diagnostics::note;
use crate::discovery::targets;

pub const EXAMPLES: &str = "\
Examples:
  flightline record --dormant -- ./server &       run in standby, without recording
  flightline ctl -p $! start -o run.jfr -e cpu,lock@1ms --duration 60s
  flightline ctl -p $! stop                       finish the recording; the program continues
  flightline ctl -p $! status --json | jq .samplesPerSecond
  flightline ctl status                           every recording on this machine; --json: .recordings[]
  flightline ctl -p $! engines cpu,alloc          switch to other engines
  flightline ctl -p $! pause; flightline ctl -p $! resume
  flightline ctl -p $! dump                       write everything recorded so far to the file

All actions except `status` need -p: the PID of the program, of one of its children, or of the \
flightline process that records it. Only the user of the program and root can send commands.

A running thread of the program accepts the command, or a thread whose wait the kernel restarts. If all \
threads wait in poll, select or sleep, the command takes effect when one of them runs. With --interrupt \
it takes effect immediately, and the interrupted wait returns EINTR.";

/// Timeout for the answer of each recorder.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `ctl`.
#[derive(Debug, Args)]
pub struct CtlArgs {
    /// The program, by PID or name; `status` without it prints the status of every recording
    #[arg(short, long, value_name = "PID|NAME")]
    pid: Option<String>,
    /// Answer as JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start recording a program in standby, or continue after a pause or before the end of a delay
    Start(Box<StartArgs>),
    /// Stop recording and wait until the file is complete; the program continues
    Stop,
    /// Pause recording until `resume`
    Pause,
    /// Continue recording
    Resume,
    /// Write everything recorded so far to the file
    Dump,
    /// Print rates, losses and memory; without -p for every recording
    Status,
    /// Switch to other engines, as in `record -e`: cpu, wall, alloc@512k, lock@1ms, …
    Engines {
        /// Engines with their intervals, separated by commas
        #[arg(required = true, value_name = "EVENT")]
        engines: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct StartArgs {
    /// Output file; `%p` in the name gives each process its own file
    #[arg(short, long, value_name = "FILE", default_value = "flightline.jfr", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// If no thread accepts the command, interrupt a wait of the program
    #[arg(long)]
    interrupt: bool,
}

/// Runs the command. Exit status: 0 done, 1 refused, 2 wrong usage.
pub fn run(args: &CtlArgs) -> ExitCode {
    match act(args) {
        Ok(answer) => {
            if args.json {
                println!("{answer}");
            } else {
                print_answer(&args.action, &answer, args.pid.is_none());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            if args.json {
                println!("{}", json!({"ok": false, "error": error.to_string()}));
            }
            note(error.to_string());
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}

fn act(args: &CtlArgs) -> Result<Value, Error> {
    let found = match (&args.pid, &args.action) {
        (Some(pid), _) => targets::recorded(pid)?,
        (None, Action::Status) => return Ok(all()),
        (None, action) => return Err(no_target(action)),
    };
    let request = match &args.action {
        Action::Start(start) => return begin(&found, start),
        Action::Status if found.condition == Condition::Waiting => {
            return Ok(json!({"ok": true, "state": "waiting", "pid": found.pid, "name": found.name}));
        }
        Action::Engines { engines } => format!("engines {}", engines.join(",")),
        action => action_name(action).to_owned(),
    };
    match &found.condition {
        Condition::Recorded(session) => ask(session, &request),
        condition => Err(not_recorded(&found, condition)),
    }
}

/// Returns the status of every recording that answers. Prints a message for the others, those of other users
/// for example.
fn all() -> Value {
    let mut recordings = Vec::new();
    for session in session::on_machine() {
        let problem = match session.drain {
            // `flightline repositories` lists those whose recorder was killed.
            Some(0) => continue,
            None => "belongs to another user".to_owned(),
            Some(_) => match ask_within(&session.dir, "status", PATIENCE) {
                Ok(status) => {
                    recordings.push(status);
                    continue;
                }
                Err(error) => error.to_string(),
            },
        };
        note(format!("cannot get the status of the recording {}: {problem}", session.dir.display()));
    }
    json!({"ok": true, "recordings": recordings})
}

/// Returns the name of an action, on the command line and in requests to the recorder.
fn action_name(action: &Action) -> &'static str {
    match action {
        Action::Start(_) => "start",
        Action::Stop => "stop",
        Action::Pause => "pause",
        Action::Resume => "resume",
        Action::Dump => "dump",
        Action::Status => "status",
        Action::Engines { .. } => "engines",
    }
}

fn no_target(action: &Action) -> Error {
    let name = action_name(action);
    let problem = format!(
        "`{name}` needs a program: `flightline ctl -p PID|NAME {name}`; `flightline ctl status` lists \
         the programs that are being recorded"
    );
    Error::Setting { name: "-p", problem }
}

fn not_recorded(found: &TargetProcess, condition: &Condition) -> Error {
    let (name, pid) = (&found.name, found.pid);
    let problem = match condition {
        Condition::Waiting => {
            format!(
                "{name} ({pid}) is not being recorded; start recording with `flightline ctl -p {pid} start`"
            )
        }
        Condition::Deaf => format!(
            "{name} ({pid}) does not accept commands; start it with `flightline record --dormant`, or with FLIGHTLINE=dormant"
        ),
        _ => format!(
            "{name} ({pid}) was started without libflightline.so; start it with `flightline record \
             --dormant`, or use `flightline record -p {pid}`"
        ),
    };
    Error::Unavailable { name: "pid", problem }
}

fn begin(found: &TargetProcess, start: &StartArgs) -> Result<Value, Error> {
    match &found.condition {
        Condition::Waiting => {}
        Condition::Recorded(session) => {
            let status = ask(session, "status")?;
            if status["state"] == "paused" {
                return ask(session, "resume");
            }
            let problem = format!(
                "{} ({}) is already being recorded; stop that recording with `flightline ctl -p {} stop`",
                found.name, found.pid, found.pid
            );
            return Err(Error::Unavailable { name: "pid", problem });
        }
        condition => return Err(not_recorded(found, condition)),
    }
    // Report errors in options here, since the recorder process has no terminal.
    start.sampling.settings()?;
    launch(found, start)
}

/// Starts the process that writes the recording. It is detached and outlives this process.
fn launch(found: &TargetProcess, start: &StartArgs) -> Result<Value, Error> {
    let failed = |source: std::io::Error| Error::Io { doing: "start the recorder process".into(), source };
    let program = std::env::current_exe().map_err(failed)?;
    let (reader, writer) = pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["drain", "--join", "--ready-fd", &writer.as_raw_fd().to_string()]);
    command.args(["--pid", &found.pid.to_string()]).args(words_after_start());
    command.env_remove("LD_PRELOAD").env_remove("FLIGHTLINE").env_remove("FLIGHTLINE_SESSION");
    // Only the program's own user can access its memory, so the recorder and its file switch to that user.
    let own = nix::unistd::geteuid().as_raw();
    if own == 0 && found.owner.0 != 0 {
        command.uid(found.owner.0).gid(found.owner.1);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    // Only the child holds the other end now.
    drop(writer);
    let mut line = String::new();
    BufReader::new(File::from(reader)).read_line(&mut line).map_err(failed)?;
    match line.trim_end() {
        "" => {
            let _ = child.wait();
            Err(failed(std::io::Error::other("it exited immediately")))
        }
        text => match text.strip_prefix('!') {
            Some(why) => {
                let _ = child.wait();
                Err(Error::Unavailable { name: "start", problem: why.to_owned() })
            }
            None => {
                let output = std::path::absolute(&start.output).unwrap_or_else(|_| start.output.clone());
                Ok(json!({"ok": true, "state": "recording", "recorder": child.id(), "output": output}))
            }
        },
    }
}

/// Returns the options of `start` as given, for the recorder process.
fn words_after_start() -> impl Iterator<Item = std::ffi::OsString> {
    let words = std::env::args_os().skip_while(|word| word != "start").skip(1);
    words.filter(|word| word != "--json")
}

/// Creates a pipe whose write end the child inherits.
fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok((reader, writer))
}

/// Prints an answer as text; `all` if it contains all recordings.
fn print_answer(action: &Action, answer: &Value, all: bool) {
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    match action {
        Action::Status => match answer["recordings"].as_array().filter(|_| all) {
            Some(recordings) if recordings.is_empty() => note("no recordings in progress on this machine"),
            Some(recordings) => {
                print!("{}", recordings.iter().map(status::text).collect::<Vec<_>>().join("\n"));
            }
            None => print!("{}", status::text(answer)),
        },
        Action::Start(_) if !answer["output"].is_null() => note(format!("recording to {}", text("output"))),
        Action::Stop => note(format!("stopped: {} in {}", text("summary"), files(answer))),
        Action::Dump => note(format!("written to {}", files(answer))),
        Action::Pause => note("paused"),
        Action::Start(_) | Action::Resume | Action::Engines { .. } => {
            let sleeping = answer["sleeping"].as_array().map_or(0, Vec::len);
            let waits = match sleeping {
                0 => String::new(),
                n => format!("; {n} sleeping processes will accept it when they wake up"),
            };
            note(format!("{} {}{waits}", text("state"), text("engines")));
        }
    }
}

/// Returns the outputs, separated by commas.
pub fn files(answer: &Value) -> String {
    let files = answer["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A recording without events has no file yet.
    files.iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
}
