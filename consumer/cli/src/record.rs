//! `flightline record`: run a program and record it.

use std::{
    ffi::{OsStr, OsString},
    io::{IsTerminal, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Parser, ValueEnum, ValueHint};
use flightline_recorder::{
    Engine, Error, Settings, Target,
    command::{Ended, Recorded, record, record_running},
    dump::Condition,
    find_preload_library,
    repository::{self, Repository},
    settings::{
        AllocSettings, CostSettings, CpuSettings, DEFAULT_DEPTH, DEFAULT_RATE, ExpositionSettings,
        MetricsSettings, OutputSettings, ProcessSettings, Spans, StackSettings, ThreadSelection, labels,
        units::{bytes, duration, format_bytes, percent},
    },
};
use tempfile::TempDir;

use crate::stream_args::StreamArgs;
use crate::{
    args::Cli,
    attach::AttachArgs,
    ctl::{ScheduleArgs, run_dormant},
    dump_policy::PolicyArgs,
    help,
    off_cpu::{OffCpuArgs, OffCpuLimits},
    targets,
};

/// The shared object for recorded programs; empty if the build did not embed it.
pub const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libflightline.so"));

/// Output if neither `-o` nor `--flame` is given.
pub const DEFAULT_OUTPUT: &str = "flightline.jfr";

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

/// A rolling repository instead of a file.
#[derive(Debug, Args)]
pub struct RepositoryArgs {
    /// Record to this folder and remove old data: one folder per process, one file per chunk. `jfr`, JDK
    /// Mission Control and EventStream.openRepository can read it. `%u` is replaced by the user id
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "output", help_heading = help::REPOSITORY)]
    repository: Option<PathBuf>,
    /// Remove chunks older than this, such as 24h or 7d
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration, help_heading = help::REPOSITORY)]
    max_age: Option<Duration>,
    /// Limit the disk space of all recordings in the repository, such as 500m or 1g; the oldest chunks are
    /// removed
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes, help_heading = help::REPOSITORY)]
    max_size: Option<u64>,
    /// Close a chunk at this age [default: 15m, at most an eighth of --max-age]
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration, help_heading = help::REPOSITORY)]
    chunk_age: Option<Duration>,
    /// Close a chunk at this size [default: 12m, at most an eighth of --max-size]
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes, help_heading = help::REPOSITORY)]
    chunk_size: Option<u64>,
}

impl RepositoryArgs {
    /// Returns the repository, if one was requested.
    pub fn repository(&self) -> Result<Option<Repository>, Error> {
        let Some(root) = &self.repository else { return Ok(None) };
        // The recorder may have a different working directory.
        let root = repository::expand_user(root);
        let root = std::path::absolute(&root).map_err(|e| Error::io("find", &root, e))?;
        let new = Repository::new(root);
        let repository = Repository {
            max_age: self.max_age,
            max_size: self.max_size,
            chunk_age: self.chunk_age.unwrap_or(new.chunk_age),
            chunk_bytes: self.chunk_size.unwrap_or(new.chunk_bytes),
            ..new
        };
        repository.check()?;
        Ok(Some(repository))
    }
}

/// Sampling options, shared by `record` and the drain of programs that record themselves.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// Events to record, separated by commas: cpu, wall, alloc, lock, io, … (see `flightline list`) [default: cpu]
    #[arg(short, long, value_name = "EVENT", display_order = 5)]
    event: Vec<String>,
    /// CPU samples per second, 1 to 10000
    #[arg(short = 'F', long, alias = "freq", value_name = "HZ", default_value_t = DEFAULT_RATE, conflicts_with = "interval")]
    #[arg(value_parser = rate, display_order = 6)]
    rate: f64,
    /// Record all events that can be combined, in addition to those of --event
    #[arg(long, help_heading = help::EVENTS)]
    all: bool,
    /// Record calls of a function that exceed a duration: FUNCTION:TIME or LIBRARY:FUNCTION:TIME; repeatable
    #[arg(long, value_name = "FN:TIME", help_heading = help::EVENTS)]
    trace: Vec<String>,
    /// Spans to record from the trace layer, the C API or OpenTelemetry's thread context: those with samples,
    /// all, or none. Samples refer to their spans, except with `off`, with --aggregate, and with -p [default:
    /// sampled; all with --off-cpu, --syscall-io, --block-io or --growth]
    #[arg(long, value_name = "sampled|all|off", value_parser = Spans::parse, help_heading = help::EVENTS)]
    pub spans: Option<Spans>,
    /// With -e live: interval between summaries of live memory by stack, at least 1s. Every live allocation
    /// is also written at the end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, help_heading = help::EVENTS)]
    live_interval: Duration,
    /// If a signal such as SIGSEGV or SIGABRT kills a program, record the signal and a last sample of every
    /// thread [default: on with --repository, else off]
    #[arg(long, value_name = "on|off", value_parser = on_or_off, help_heading = help::EVENTS)]
    fatal_signals: Option<bool>,
    /// Record only these threads: ids, such as 17,20-30, or a regular expression for the name; repeatable.
    /// Names are read once per second
    #[arg(long, value_name = "THREADS", help_heading = help::TARGETS)]
    threads: Vec<String>,
    /// Do not record child processes
    #[arg(long, help_heading = help::TARGETS)]
    no_follow: bool,
    /// Overwrite the output file. By default an existing file is renamed to FILE.old
    #[arg(long, help_heading = help::OUTPUT)]
    force: bool,
    /// Label of the recording, such as zone=eu-1; repeatable, or FLIGHTLINE_LABELS=a=1,b=2. Host, service,
    /// version and container are detected. The service is the systemd unit or OTEL_SERVICE_NAME, else the
    /// program's name
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = labels::parse)]
    #[arg(help_heading = help::OUTPUT)]
    label: Vec<(String, String)>,
    /// Omit the arguments of recorded programs, which can contain secrets
    #[arg(long, help_heading = help::OUTPUT)]
    redact_args: bool,
    /// Merge identical CPU samples within this interval (such as 10s) into one profiler.WallClockSample.
    /// Files become about ten times smaller; line numbers and inlined frames are dropped
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = help::OUTPUT)]
    aggregate: Option<Duration>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    dumps: PolicyArgs,
    #[command(flatten)]
    stream: StreamArgs,
    /// CPU time between samples, such as 10ms or 500us, instead of --rate
    #[arg(short, long, value_name = "TIME", value_parser = duration, help_heading = help::ADVANCED)]
    interval: Option<Duration>,
    /// Limit the overhead, such as 0.5%: a share of the programs' CPU time, or of one CPU if they use less.
    /// Above the limit, samples are taken less often and get a higher weight
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = help::ADVANCED)]
    budget: Option<f64>,
    /// Engine for CPU samples: perf (perf_event_open), perf-user (perf_event_open without kernel stacks; a
    /// timer covers kernel time), timer (a CPU-time timer per thread), itimer (one CPU-time timer per process)
    /// or auto (the best one that works); `flightline list` shows which ones work
    #[arg(long, value_enum, default_value_t = EngineArg::Auto, hide_possible_values = true, help_heading = help::ADVANCED)]
    engine: EngineArg,
    /// Maximum number of frames per stack, up to 2048
    #[arg(long, value_name = "FRAMES", default_value_t = DEFAULT_DEPTH, value_parser = clap::value_parser!(u32).range(1..=2048))]
    #[arg(help_heading = help::ADVANCED)]
    depth: u32,
    /// Record the addresses of frames instead of source lines and inlined functions, for `annotate --asm` and
    /// `symbolize`. Recordings become larger
    #[arg(long, help_heading = help::ADVANCED)]
    addresses: bool,
    /// With --aggregate: keep lines, addresses and inlined functions; stacks that differ in these are not
    /// merged
    #[arg(long, requires = "aggregate", help_heading = help::ADVANCED)]
    aggregate_lines: bool,
    /// Interval between flushes, which limits the delay for readers [default: 1s, or that of --aggregate]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = help::ADVANCED)]
    flush: Option<Duration>,
    /// Sync each flush to the disk: after a power failure, at most the data since the last flush is lost
    #[arg(long, help_heading = help::ADVANCED)]
    sync: bool,
    /// Shared memory for samples per recorded process, a power of two [default: by rate and CPUs, 256K to
    /// 16M]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = help::ADVANCED)]
    ring_size: Option<u64>,
    /// Write metrics about the recorder to this file every ten seconds, in the Prometheus text format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = help::ADVANCED)]
    metrics_file: Option<PathBuf>,
    /// Serve these metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464, without access control
    #[arg(long, value_name = "ADDRESS", help_heading = help::ADVANCED)]
    metrics_listen: Option<std::net::SocketAddr>,
    /// Measure the cost of the signal handler
    #[arg(long, hide = true)]
    measure: bool,
}

/// See [`Engine`]. The help of `--engine` describes the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineArg {
    Auto,
    Perf,
    PerfUser,
    Timer,
    Itimer,
}

impl From<EngineArg> for Engine {
    fn from(argument: EngineArg) -> Engine {
        match argument {
            EngineArg::Auto => Engine::Auto,
            EngineArg::Perf => Engine::Perf,
            EngineArg::PerfUser => Engine::PerfUser,
            EngineArg::Timer => Engine::Timer,
            EngineArg::Itimer => Engine::ProcessTimer,
        }
    }
}

impl SamplingArgs {
    fn exposition(&self) -> Result<ExpositionSettings, Error> {
        let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|e| Error::io("find", path, e));
        Ok(ExpositionSettings {
            file: self.metrics_file.as_ref().map(absolute).transpose()?,
            listen: self.metrics_listen,
        })
    }

    fn processes(&self) -> Result<ProcessSettings, Error> {
        Ok(ProcessSettings {
            follow: !self.no_follow,
            threads: match self.threads.is_empty() {
                true => None,
                false => Some(ThreadSelection::parse(&self.threads)?),
            },
            redact_args: self.redact_args,
            fatal_signals: self.fatal_signals,
            labels: self.label.clone(),
            ..ProcessSettings::default()
        })
    }

    /// Returns true if events are selected by name.
    pub fn names_events(&self) -> bool {
        self.all || !self.event.is_empty() || !self.trace.is_empty()
    }

    /// Returns the recorder's settings.
    pub fn settings(&self) -> Result<Settings, Error> {
        let period = match self.interval {
            Some(interval) => interval,
            None => Settings::period_for_rate(self.rate)?,
        };
        let engines = match (self.all, self.event.is_empty() && self.trace.is_empty()) {
            (true, _) => Settings::all(),
            (_, true) => Settings::default(),
            _ => Settings::default().without_engines(),
        };
        let mut settings = Settings {
            cpu: CpuSettings {
                period,
                engine: self.engine.into(),
                aggregate: self.aggregate,
                aggregate_lines: self.aggregate_lines,
                ..engines.cpu
            },
            alloc: AllocSettings { live_interval: self.live_interval, ..engines.alloc },
            metrics: MetricsSettings {
                // Metrics for every second would need more space than the samples.
                interval: self.aggregate.or(engines.metrics.interval),
                exposition: self.exposition()?,
            },
            stacks: StackSettings { depth: self.depth, addresses: self.addresses },
            spans: self.spans.unwrap_or_default(),
            processes: self.processes()?,
            output: OutputSettings {
                flush: self.flush.or(self.aggregate).unwrap_or(Duration::from_secs(1)),
                stream: self.stream.options()?,
                sync: self.sync,
                overwrite: self.force,
                dumps: self.dumps.policy()?,
            },
            cost: CostSettings { budget: self.budget, ring_bytes: self.ring_size, measure: self.measure },
            schedule: self.schedule.schedule(),
            best_effort: self.all,
            ..engines
        };
        for list in &self.event {
            settings.add(list)?;
        }
        for function in &self.trace {
            settings.add_trace(function)?;
        }
        // A panic is detected where it is thrown.
        settings.calls.throw |=
            settings.output.dumps.as_ref().is_some_and(|p| p.on.contains(&Condition::Panic));
        settings.check()?;
        Ok(settings)
    }
}

/// Runs the command. The exit status is the program's, or 1 if that is 0 and the recording could not be
/// written.
pub fn run(args: &RecordArgs) -> ExitCode {
    match record_command(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&error.to_string());
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
        match run_dormant(&find_preload_library(EMBEDDED)?, &args.command)? {}
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
    if let Some(picture) = &args.flame {
        can_be_drawn(&target)?;
        // Fail now rather than after an hour of recording.
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(picture);
        file.map_err(|e| Error::io("create", picture, e))?;
    }
    if !args.attach.pid.is_empty() || args.off_cpu.all() {
        let mut find = || match args.sampling.no_follow {
            false => targets::with_descendants(&args.attach.pid),
            true => targets::pids(&args.attach.pid),
        };
        let ended = record_running(&mut find, settings, target, &mut say)?;
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
    let ended = record(&recorded, settings, target, &mut say)?;
    conclude(args, &ended, stdout, &path, scratch)
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
        say("the program was not recorded: it ended before it loaded libflightline.so, or it cannot load \
            the library; try `flightline record -p PID`");
        return Ok(ended.code.max(1));
    }
    let drawn = match &args.flame {
        Some(picture) => draw(args, path, picture).map(|()| Some(picture)),
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
        say(&format!("cannot draw the flame graph: {error:#}; the recording is in {}", path.display()));
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
    crate::flame::format_of(picture).map_err(|problem| Error::Setting { name: "flame", problem })?;
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
    say(&format!("{report}, {place}"));
    if let Some(advice) = report.advice() {
        say(advice);
    }
    if let Some(advice) = report.advice_on_stacks() {
        say(&advice);
    }
    if args.verbose {
        say(&format!(
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
fn title(args: &RecordArgs) -> OsString {
    if let Some(program) = args.command.first() {
        return program.clone();
    }
    let words = args.attach.pid.iter().flat_map(|wanted| wanted.split(','));
    let named = |word: &str| match word.parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => word.to_owned(),
    };
    let names: Vec<String> = words.map(named).collect();
    if names.is_empty() { "all processes".into() } else { names.join(", ").into() }
}

/// Draws the recording with `flightline flame`.
fn draw(args: &RecordArgs, recording: &Path, picture: &Path) -> Result<(), anyhow::Error> {
    let option = |name: &str, value: &OsStr| {
        let mut option = OsString::from(format!("--{name}="));
        option.push(value);
        option
    };
    // Names may begin with a hyphen: values are joined to their options, and `--` ends these.
    let title = title(args);
    let words: [OsString; 6] = [
        "flightline".into(),
        "flame".into(),
        option("title", &title),
        option("output", picture.as_os_str()),
        "--".into(),
        recording.into(),
    ];
    let cli = Cli::try_parse_from(words)?;
    let crate::args::Command::Flame(flame) = cli.command else { return Ok(()) };
    crate::flame::run(&flame).map(|_| ())
}

/// Prints one line for the user.
pub fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "flightline: {message}");
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Settings::period_for_rate(rate).map_err(|e| e.to_string())?;
    Ok(rate)
}
