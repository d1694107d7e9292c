//! Sampling options, shared by `record`, `ctl start` and the drain of programs that record themselves.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use flightline_recorder::dump::Condition;
use flightline_recorder::settings::units::{bytes, duration, percent};
use flightline_recorder::settings::{
    AllocSettings, CostSettings, CpuSettings, DEFAULT_DEPTH, DEFAULT_RATE, ExpositionSettings,
    MetricsSettings, OutputSettings, ProcessSettings, Spans, StackSettings, ThreadSelection, labels,
};
use flightline_recorder::{Engine, Error, Settings};

use crate::args::{dump_policy::PolicyArgs, help, schedule::ScheduleArgs, stream::StreamArgs, values};

/// Output if neither `-o` nor `--flame` is given.
pub const DEFAULT_OUTPUT: &str = "flightline.jfr";

/// Sampling options, shared by `record` and the drain of programs that record themselves.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// Events to record, separated by commas: cpu, wall, alloc, lock, io, … (see `flightline list`) [default: cpu]
    #[arg(short, long, alias = "events", value_name = "EVENT", display_order = 5)]
    event: Vec<String>,
    /// CPU samples per second, 1 to 10000
    #[arg(short = 'F', long, alias = "freq", value_name = "HZ", default_value_t = DEFAULT_RATE, conflicts_with = "interval")]
    #[arg(value_parser = rate, display_order = 6)]
    rate: f64,
    /// Record all events that can be combined, in addition to those of --event
    #[arg(long, help_heading = help::EVENTS)]
    all_events: bool,
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
    #[arg(long, value_name = "on|off", value_parser = values::on_or_off, help_heading = help::EVENTS)]
    fatal_signals: Option<bool>,
    /// Record only these threads: ids, such as 17,20-30, or a regular expression for the name; repeatable.
    /// Names are read once per second
    #[arg(long, value_name = "THREADS", help_heading = help::TARGETS)]
    only_thread: Vec<String>,
    /// Do not record child processes
    #[arg(long, help_heading = help::TARGETS)]
    pub no_follow: bool,
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
            threads: match self.only_thread.is_empty() {
                true => None,
                false => Some(ThreadSelection::parse(&self.only_thread)?),
            },
            redact_args: self.redact_args,
            fatal_signals: self.fatal_signals,
            labels: self.label.clone(),
            ..ProcessSettings::default()
        })
    }

    /// Returns true if events are selected by name.
    pub fn names_events(&self) -> bool {
        self.all_events || !self.event.is_empty() || !self.trace.is_empty()
    }

    /// Returns the recorder's settings.
    pub fn settings(&self) -> Result<Settings, Error> {
        let period = match self.interval {
            Some(interval) => interval,
            None => Settings::period_for_rate(self.rate)?,
        };
        let engines = match (self.all_events, self.event.is_empty() && self.trace.is_empty()) {
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
            best_effort: self.all_events,
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

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Settings::period_for_rate(rate).map_err(|e| e.to_string())?;
    Ok(rate)
}
