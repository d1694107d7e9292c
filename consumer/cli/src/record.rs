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
    off_cpu::OffCpuArgs,
    targets,
};

/// The shared object for recorded programs; empty if the build did not embed it.
pub const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libflightline.so"));

/// Output if neither `-o` nor `--flame` is given.
pub const DEFAULT_OUTPUT: &str = "flightline.jfr";

const EXAMPLES: &str = "\
Examples:
  flightline record --flame flame.html -- sqlite3 big.db 'select …'
  flightline record -F 1000 -o run.jfr -- xz -9 -T2 big.bin
  flightline record -e cpu,wall@20ms,lock,io -o run.jfr -- redis-server
  flightline record -o 'run-%p.jfr' -- make                     a file for each process
  flightline record --repository /var/lib/fl --max-age 24h --max-size 1g -- nginx   the last day, always
  flightline record --repository /var/lib/fl --label zone=eu-1 --wait -- ./start-daemon
  flightline record -p 1234 --duration 30s --flame flame.html   a running process, from outside
  flightline record -o - -- python3 script.py | flightline flame - -o x.svg

The line at the end counts samples as every reader does: one of two periods of CPU time is written as two, one of less than half may be \
none. `(254 taken)` behind them says how many were taken, where that is another number.

SIGINT and SIGTERM finish the recording properly; a second one finishes at once. The exit status is the program's \
(128 + n if signal n ended it), 1 if the program succeeded but the recording could not be written.";

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// Output of the recording; `-` is standard output (the program's own output then goes to standard
    /// error), `%p` in the name gives each process its own file; fd:N, a FIFO, unix:PATH or tcp:HOST:PORT
    /// write a stream. An existing file is renamed to FILE.old [default: flightline.jfr]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub repository: RepositoryArgs,
    /// Draw a flame graph when the program has ended: FILE.html, FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "repository")]
    pub flame: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Continue until all processes that the program left behind have ended
    #[arg(short, long)]
    pub wait: bool,
    /// Do not record; run the program in standby, so that `flightline ctl -p PID start` can record it later
    #[arg(long)]
    pub dormant: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more at the end
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub attach: AttachArgs,
    #[command(flatten)]
    off_cpu: OffCpuArgs,
    /// Program and arguments
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
    /// Record to this folder, with a folder per process and a file per chunk, and remove old chunks: the
    /// layout of the JDK's repositories, which `jfr`, JMC and EventStream.openRepository read. `%u`
    /// represents the user's id
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "output")]
    repository: Option<PathBuf>,
    /// Remove chunks older than this, such as 24h, 7d
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration)]
    max_age: Option<Duration>,
    /// Limit the disk space of all recordings in the repository by removing the oldest chunks, such as 500m,
    /// 1g
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes)]
    max_size: Option<u64>,
    /// Close a chunk at this age [default: 15m, at most an eighth of --max-age]
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration)]
    chunk_age: Option<Duration>,
    /// Close a chunk at this size [default: 12m, at most an eighth of --max-size]
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes)]
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
    /// Events to record, as NAME or NAME@INTERVAL: cpu@10ms, wall, alloc@512k, live, lock@1ms, io@10ms,
    /// throw, metrics, or any perf event (page-faults, sched:sched_switch, uprobe:libc.so.6:malloc);
    /// separated by commas or repeated [default: cpu]
    #[arg(short, long, value_name = "EVENT")]
    event: Vec<String>,
    /// Record all events that can be combined, in addition to those of --event
    #[arg(long)]
    all: bool,
    /// Record calls of a function that exceed a duration: FUNCTION:THRESHOLD or LIBRARY:FUNCTION:THRESHOLD
    #[arg(long, value_name = "FN:TIME")]
    trace: Vec<String>,
    /// CPU samples per second, 1 to 10000
    #[arg(short = 'F', long, alias = "freq", value_name = "HZ", default_value_t = DEFAULT_RATE, conflicts_with = "interval")]
    #[arg(value_parser = rate)]
    rate: f64,
    /// CPU time between samples instead, such as 10ms, 500us
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    interval: Option<Duration>,
    /// Limit the overhead, in percent of the programs' CPU time, or of one CPU if they use less, such as
    /// 0.5%: while it is exceeded, samples are taken less often, with a higher weight
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    budget: Option<f64>,
    /// Engine for CPU samples; `flightline list` shows which ones work
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,
    /// Maximum number of frames per stack, up to 2048
    #[arg(long, value_name = "FRAMES", default_value_t = DEFAULT_DEPTH, value_parser = clap::value_parser!(u32).range(1..=2048))]
    depth: u32,
    /// Sync each flush to the disk: a power failure then costs at most the data since the last flush, not
    /// what the kernel had cached
    #[arg(long)]
    sync: bool,
    /// Overwrite the output file. By default an existing file is renamed to FILE.old
    #[arg(long)]
    force: bool,
    /// Interval between flushes, which limits the delay for readers [default: 1s, or that of --aggregate]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    flush: Option<Duration>,
    /// Merge identical CPU samples within this interval (such as 10s) into one profiler.WallClockSample.
    /// Files become about ten times smaller; line numbers and inlined frames are dropped
    #[arg(long, value_name = "TIME", value_parser = duration)]
    aggregate: Option<Duration>,
    /// With --aggregate: keep lines, addresses and inlined functions; stacks that differ in these are not
    /// merged
    #[arg(long, requires = "aggregate")]
    aggregate_lines: bool,
    /// Record the addresses of frames instead of source lines and inlined functions: `annotate --asm` shows
    /// samples per instruction, and `symbolize` adds lines and inlined functions afterwards. Recordings
    /// become larger
    #[arg(long)]
    addresses: bool,
    /// Write metrics about the recorder to this file every ten seconds, for Prometheus' text file collector
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    metrics_file: Option<PathBuf>,
    /// Serve the metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464, without access control
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<std::net::SocketAddr>,
    /// With -e live: how often to write a summary of live memory by stack (at least 1s). Every live
    /// allocation is also written at the end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    live_interval: Duration,
    /// Memory for samples per recorded process, a power of two [default: by rate and CPUs, 256K to 16M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    ring_size: Option<u64>,
    /// Record only these threads: ids, such as 17,20-30, or a regular expression for the name; repeatable.
    /// Names are read once per second
    #[arg(long, value_name = "THREADS")]
    threads: Vec<String>,
    /// Do not record child processes
    #[arg(long)]
    no_follow: bool,
    /// Omit the arguments of recorded programs
    #[arg(long)]
    redact_args: bool,
    /// If a signal such as SIGSEGV or SIGABRT kills a program, record the signal with a last sample of every
    /// thread [default: with --repository]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    fatal_signals: Option<bool>,
    /// Spans to record from the trace layer, the C API or OpenTelemetry's thread context: those with samples,
    /// all, or none. Samples refer to their spans except with off, with --aggregate, and when recording from
    /// outside [default: sampled; with --off-cpu, --syscall-io and similar options all, because threads may
    /// wait in spans without samples]
    #[arg(long, value_name = "sampled|all|off", value_parser = Spans::parse)]
    pub spans: Option<Spans>,
    /// Label to write to every chunk, such as zone=eu-1; repeatable, or FLIGHTLINE_LABELS=a=1,b=2. Host,
    /// service (the systemd unit or OTEL_SERVICE_NAME, else the program's name), version and container are
    /// detected
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = labels::parse)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    dumps: PolicyArgs,
    /// Measure the cost of the signal handler
    #[arg(long, hide = true)]
    measure: bool,
}

/// See [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineArg {
    /// The best that works
    Auto,
    /// perf_event_open, kernel time included
    Perf,
    /// perf_event_open without kernel time, which a timer covers
    PerfUser,
    /// A CPU-time timer per thread
    Timer,
    /// One CPU-time timer per process
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
    let mut settings = args.off_cpu.add_to(args.sampling.settings()?, &args.sampling)?;
    settings.processes.outside = args.attach.outside;
    // Each process reads its own environment; report errors in this one too.
    labels::parse_list(&std::env::var(labels::ENV).unwrap_or_default())?;
    if args.dormant {
        match run_dormant(&find_preload_library(EMBEDDED)?, &args.command)? {}
    }
    let stdout = args.output.as_deref() == Some(Path::new("-"));
    if stdout && std::io::stdout().is_terminal() {
        return Err(Error::Unavailable {
            name: "output",
            problem: "a recording is not for a terminal; pipe it on or use -o FILE".into(),
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
        .ok_or(Error::Unavailable { name: "command", problem: "no program given".into() })?;
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
        say("the program was not recorded: it ended before it loaded libflightline.so, or it cannot load it");
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
            (Ok(Some(picture)), Some(_)) => format!("drawn in {}", picture.display()),
            (Ok(Some(picture)), None) => {
                format!("{size} in {}, drawn in {}", path.display(), picture.display())
            }
            _ if stdout => format!("{size} in standard output"),
            _ => format!("{size} in {}", path.display()),
        };
        close(args, ended, &place);
    }
    if let Err(error) = drawn {
        let _ = scratch.map(TempDir::keep);
        say(&format!("no flame graph: {error:#}; the recording is {}", path.display()));
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
    Err(Error::Unavailable {
        name: "flame",
        problem: format!("cannot draw from {what}; leave out -o, or name a file"),
    })
}

/// Rejects extensions of images and text for a recording.
fn check_ending(output: &Path) -> Result<(), Error> {
    let ending = output.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
    let remedy = match ending.as_str() {
        "html" | "htm" | "svg" | "png" => format!("--flame {} draws it", output.display()),
        "folded" | "collapsed" | "txt" | "json" => "`flightline fold` and `convert` write text".to_owned(),
        _ => return Ok(()),
    };
    let problem =
        format!("{} would hold a recording (JFR), not what its name says; {remedy}", output.display());
    Err(Error::Unavailable { name: "output", problem })
}

/// Checks the file of `--flame` before the recording starts. Without `-o` the recording is only needed for
/// the flame graph: returns a private folder for it.
fn folder_for_picture(args: &RecordArgs) -> Result<Option<TempDir>, Error> {
    let Some(picture) = &args.flame else { return Ok(None) };
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(Error::Unavailable {
            name: "flame",
            problem: "cannot draw what goes to standard output; use -o FILE, or `| flightline flame -`"
                .into(),
        });
    }
    // Fail now rather than after an hour of recording.
    crate::flame::format_of(picture).map_err(|problem| Error::Unavailable { name: "flame", problem })?;
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
            "{} processes, {} threads, {} events, {} chunks, {} CPU ms of our own",
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
