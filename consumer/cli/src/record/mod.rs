//! `flightline record`: run a program and record it.

pub mod drain;
pub mod list;
pub mod standby;

use std::ffi::OsStr;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueHint};
use flightline_recorder::command::{Ended, Recorded, record, record_running};
use flightline_recorder::settings::labels;
use flightline_recorder::settings::units::format_bytes;
use flightline_recorder::{Error, Target, find_preload_library};
use tempfile::TempDir;

use crate::args::{
    attach::AttachArgs,
    help,
    off_cpu_recording::{OffCpuArgs, OffCpuLimits},
    repository::RepositoryArgs,
    sampling::{DEFAULT_OUTPUT, SamplingArgs},
};
use crate::diagnostics::note;
use crate::discovery::targets;
use crate::draw::flame::{self, FlameArgs};

/// The shared object for recorded programs; empty if the build did not embed it.
pub const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libflightline.so"));

const EXAMPLES: &str = "\
Examples:
  flightline record --flame flame.html -- ./server       a flame graph of CPU time
  flightline record -p 1234 --duration 30s -o run.jfr    a running process, for 30 seconds
  flightline record -e cpu,alloc,lock -- ./server        also allocations and lock waits";

const DETAILS: &str = "\
Events:
  -e NAME or -e NAME@INTERVAL; `flightline list` shows which work on this machine
  cpu            CPU time by stack (default), such as cpu@1ms
  wall           wall-clock time by stack: threads that run and threads that wait
  alloc          memory allocations, by bytes, such as alloc@512k
  live           memory that was allocated and not freed
  lock           waits for locks, such as lock@1ms for those of at least 1 ms
  io             reads, writes, syncs and connections, such as io@10ms
  throw          exceptions and panics
  metrics        CPU load, memory and threads of the process
  page-faults, cycles, sched:sched_switch, uprobe:libc.so.6:malloc, …   any event of Linux perf

Outputs:
  run.jfr        a file; an existing file is renamed to run.jfr.old
  run-%p.jfr     one file per process; %p is the PID
  -              standard output; the standard output of the program then goes to standard error
  fd:N, a FIFO, unix:PATH, tcp:HOST:PORT   a live stream; see `flightline tail` and `flightline collect`

More examples:
  flightline record -F 1000 -o run.jfr -- xz -9 -T2 big.bin
  flightline record -e cpu,wall@20ms,lock,io -o run.jfr -- redis-server
  flightline record --off-cpu --wakeups -p postgres --duration 30s
  flightline record --repository /var/lib/fl --max-age 24h --max-size 1g -- nginx   retain the last day
  flightline record --repository /var/lib/fl --label zone=eu-1 --wait -- ./start-daemon
  flightline record -o - -- python3 script.py | flightline flame - -o x.svg

The last line of output counts CPU-time events. If the number of sampled stacks differs, it follows as `(254 stacks sampled)`: \
a late sample represents several events.

SIGINT and SIGTERM finish the recording; a second signal ends it immediately.

Exit status: that of the program (128 + N if signal N killed it); 126 or 127 if the program cannot be run; 1 if the program succeeded \
but the recording could not be written; 2 for wrong usage.";

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = DETAILS, help_template = help::EXAMPLES_FIRST)]
#[command(
    override_usage = "flightline record [OPTIONS] [--] <COMMAND>...\n       flightline record [OPTIONS] -p <PID|NAME>"
)]
pub struct RecordArgs {
    /// Output file, or `-` for standard output [default: flightline.jfr]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    pub output: Option<PathBuf>,
    /// Draw a flame graph when the recording ends: FILE.html, FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "repository", display_order = 2)]
    pub flame: Option<PathBuf>,
    #[command(flatten)]
    off_cpu: OffCpuArgs,
    #[command(flatten)]
    pub attach: AttachArgs,
    /// Continue until all child processes have ended, too
    #[arg(short, long, display_order = 8)]
    pub wait: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose", display_order = 9)]
    pub quiet: bool,
    /// Print more details at the end
    #[arg(short, long, display_order = 10)]
    pub verbose: bool,
    /// Run the program in standby, without recording; `flightline ctl -p PID start` records it later
    #[arg(long, help_heading = help::TARGETS)]
    pub dormant: bool,
    #[command(flatten)]
    pub repository: RepositoryArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    off_cpu_limits: OffCpuLimits,
    /// Program to run, with its arguments
    #[arg(
        required_unless_present_any = ["pid", "all_processes"],
        conflicts_with_all = ["pid", "all_processes"],
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Runs the command. The exit status is the program's, or 1 if that is 0 and the recording could not be
/// written.
pub fn run(args: &RecordArgs) -> ExitCode {
    match record_command(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            note(error.to_string());
            ExitCode::from(match &error {
                Error::Program(refusal) => refusal.exit_code(),
                error if error.is_usage() => 2,
                _ => 1,
            })
        }
    }
}

fn record_command(args: &RecordArgs) -> Result<u8, Error> {
    args.attach.end_with_agent();
    let mut settings =
        args.off_cpu.add_to(args.sampling.settings()?, &args.sampling, &args.off_cpu_limits)?;
    settings.processes.outside = args.attach.outside;
    // Each process reads its own environment; report errors in this one too.
    labels::parse_list(&std::env::var(labels::ENV).unwrap_or_default())?;
    if args.dormant {
        match standby::run(&find_preload_library(EMBEDDED)?, &args.command)? {}
    }
    let stdout = args.output.as_deref() == Some(Path::new("-"));
    if stdout && std::io::stdout().is_terminal() {
        return Err(Error::Setting {
            name: "output",
            problem: "not writing a recording to a terminal; redirect the output, or use -o FILE".into(),
        });
    }
    if let Some(output) = &args.output {
        check_ending(output)?;
    }
    let scratch = folder_for_picture(args)?;
    let only_for_picture = scratch.as_ref().map(|folder| folder.path().join("run.jfr"));
    let path = args.output.clone().or(only_for_picture).unwrap_or_else(|| DEFAULT_OUTPUT.into());
    let repository = args.repository.repository()?;
    let path = repository.as_ref().map_or(path, |r| r.root.clone());
    let target = if let Some(repository) = repository {
        Target::Repository(repository)
    } else if stdout {
        let fd = std::io::stdout().as_fd().try_clone_to_owned();
        Target::Descriptor(Arc::new(
            fd.map_err(|e| Error::Io { doing: "use standard output".into(), source: e })?,
        ))
    } else {
        Target::parse(&path)?
    };
    let _picture = match &args.flame {
        Some(picture) => {
            can_be_drawn(&target)?;
            Some(PictureFile::create(picture)?)
        }
        None => None,
    };
    if !args.attach.pid.is_empty() || args.off_cpu.all() {
        let mut find = || match args.sampling.no_follow {
            false => targets::with_descendants(&args.attach.pid),
            true => targets::pids(&args.attach.pid),
        };
        let ended = record_running(&mut find, settings, target, &mut |message: &str| note(message))?;
        return conclude(args, &ended, stdout, &path, scratch);
    }
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or(Error::Setting { name: "command", problem: "no program given".into() })?;
    let recorded = Recorded {
        program: program.clone(),
        arguments: arguments.to_vec(),
        preload: find_preload_library(EMBEDDED)?,
        stdout_to_stderr: stdout,
        wait_for_children: args.wait,
    };
    let ended = record(&recorded, settings, target, &mut |message: &str| note(message))?;
    conclude(args, &ended, stdout, &path, scratch)
}

/// The file of `--flame` while the program is recorded.
struct PictureFile<'a> {
    path: &'a Path,
    is_new: bool,
}

impl<'a> PictureFile<'a> {
    /// Opens or creates the file, to fail now rather than after an hour of recording.
    fn create(path: &'a Path) -> Result<Self, Error> {
        let is_new = !path.exists();
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        file.map_err(|e| Error::io("create", path, e))?;
        Ok(Self { path, is_new })
    }
}

impl Drop for PictureFile<'_> {
    /// Removes the file if nothing was drawn.
    fn drop(&mut self) {
        if self.is_new && self.path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
        {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// Prints the closing line, draws the flame graph, and returns the exit status.
fn conclude(
    args: &RecordArgs,
    ended: &Ended,
    stdout: bool,
    path: &Path,
    scratch: Option<TempDir>,
) -> Result<u8, Error> {
    if ended.unseen {
        note(match args.command.is_empty() {
            true => "no process was recorded: the recording was stopped before it started",
            false => {
                "the program was not recorded: it ended before it loaded libflightline.so, or it cannot load \
                the library; try `flightline record -p PID`"
            }
        });
        return Ok(ended.code.max(1));
    }
    let drawn = match &args.flame {
        Some(picture) => {
            let options = FlameArgs::new(path.to_owned(), picture.clone(), title(args));
            flame::run(&options).map(|_| Some(picture))
        }
        None => Ok(None),
    };
    if !args.quiet {
        let size = format_bytes(ended.report.output.bytes);
        let place = match (&drawn, &scratch) {
            // The recording is removed with its folder.
            (Ok(Some(picture)), Some(_)) => format!("flame graph in {}", picture.display()),
            (Ok(Some(picture)), None) => {
                format!("{size} in {}, flame graph in {}", path.display(), picture.display())
            }
            _ if stdout => format!("{size} in standard output"),
            _ => format!("{size} in {}", path.display()),
        };
        close(args, ended, &place);
    }
    if let Err(error) = drawn {
        let _ = scratch.map(TempDir::keep);
        note(format!("cannot draw the flame graph: {error:#}; the recording is in {}", path.display()));
        return Ok(ended.code.max(1));
    }
    // The program's status, unless it succeeded while its recording failed.
    Ok(if ended.report.output.broken { ended.code.max(1) } else { ended.code })
}

/// Returns an error unless a flame graph can be drawn from the output when the recording has ended: streams
/// and FIFOs are gone by then, and `%p` makes several recordings.
fn can_be_drawn(target: &Target) -> Result<(), Error> {
    let what = match target {
        Target::Repository(_) => return Ok(()),
        Target::Path(path) if path.to_string_lossy().contains("%p") => "one recording per process (%p)",
        Target::Path(path) if path.metadata().is_ok_and(|m| !m.is_file()) => "a pipe or device",
        Target::Path(_) => return Ok(()),
        Target::Descriptor(_) | Target::Listen(_) => "a stream",
    };
    Err(Error::Setting {
        name: "flame",
        problem: format!("cannot draw from {what}; omit -o, or give a file"),
    })
}

/// Rejects extensions of images and text for a recording.
fn check_ending(output: &Path) -> Result<(), Error> {
    let ending = output.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
    let remedy = match ending.as_str() {
        "html" | "htm" | "svg" | "png" => format!("to draw a flame graph, use --flame {}", output.display()),
        "folded" | "collapsed" | "txt" | "json" => {
            "to write text, use `flightline fold` or `flightline convert`".to_owned()
        }
        _ => return Ok(()),
    };
    let problem = format!("{} has the wrong extension for a recording (.jfr); {remedy}", output.display());
    Err(Error::Setting { name: "output", problem })
}

/// Checks the file of `--flame` before the recording starts. Without `-o` the recording is only needed for
/// the flame graph: returns a private folder for it.
fn folder_for_picture(args: &RecordArgs) -> Result<Option<TempDir>, Error> {
    let Some(picture) = &args.flame else { return Ok(None) };
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(Error::Setting {
            name: "flame",
            problem: "cannot draw a recording that goes to standard output; use -o FILE, or pipe it to `flightline flame -`"
                .into(),
        });
    }
    // Fail now rather than after an hour of recording.
    flame::output_format(picture).map_err(|problem| Error::Setting { name: "flame", problem })?;
    if args.output.is_some() {
        return Ok(None);
    }
    // An unpredictable name and mode 0700: no other user can plant a link there or read the recording.
    let folder = tempfile::Builder::new().prefix("flightline-").tempdir();
    folder.map(Some).map_err(|e| Error::io("create a folder in", &std::env::temp_dir(), e))
}

/// Prints the closing line with the locations of the output.
fn close(args: &RecordArgs, ended: &Ended, place: &str) {
    let report = &ended.report;
    note(format!("{report}, {place}"));
    if let Some(advice) = report.advice() {
        note(advice);
    }
    if let Some(advice) = report.advice_on_stacks() {
        note(advice);
    }
    if args.verbose {
        note(format!(
            "{} processes, {} threads, {} events, {} chunks; CPU time of the recorder: {} ms",
            report.processes,
            report.threads,
            report.output.events,
            report.output.chunks,
            report.own_cpu_ns / 1_000_000
        ));
    }
}

/// Title of a flame graph: the program, or the value of `-p`.
fn title(args: &RecordArgs) -> String {
    if let Some(program) = args.command.first() {
        return program.to_string_lossy().into_owned();
    }
    let words = args.attach.pid.iter().flat_map(|list| list.split(','));
    let named = |word: &str| match word.parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => word.to_owned(),
    };
    let names: Vec<String> = words.map(named).collect();
    if names.is_empty() { "all processes".into() } else { names.join(", ") }
}
