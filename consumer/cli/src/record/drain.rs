//! `flightline drain`: writes the recording of a program that records itself (linked library or bare
//! preload).

use std::{
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error, Target,
    helper::{self, Program},
};

use crate::args::{
    repository::RepositoryArgs,
    sampling::{DEFAULT_OUTPUT, SamplingArgs},
};
use crate::diagnostics::note;

/// Arguments of `drain`, which is started by programs, not by people.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Descriptor on which the program waits for the session directory
    #[arg(long, value_name = "FD")]
    ready_fd: i32,
    /// The program
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// The program is already running and waits for the command to join
    #[arg(long)]
    join: bool,
    /// Permit interrupting system calls of the program, which may then return EINTR
    #[arg(long)]
    interrupt: bool,
    /// Output of the recording
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Send messages to the system log
    #[arg(long)]
    syslog: bool,
    /// Print totals at the end
    #[arg(short, long)]
    verbose: bool,
}

/// Runs until the program ends or requests the end.
pub fn run(args: &DrainArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &DrainArgs) -> Result<(), Error> {
    let target = match args.repository.repository()? {
        Some(repository) => Target::Repository(repository),
        None => Target::parse(args.output.as_deref().unwrap_or(Path::new(DEFAULT_OUTPUT)))?,
    };
    let program = Program { pid: args.pid, waiting: args.join, interrupt: args.interrupt };
    let mut tell = |message: &str| if args.syslog { syslog(message, args.pid) } else { note(message) };
    let report = helper::serve(&program, Some(args.ready_fd), args.sampling.settings()?, target, &mut tell)?;
    if args.verbose {
        tell(&report.to_string());
    }
    Ok(())
}

/// Sends a warning to the system log; without a log it is dropped.
fn syslog(message: &str, pid: u32) {
    const DAEMON_WARNING: u32 = 3 << 3 | 4;
    let line = format!("<{DAEMON_WARNING}>flightline[{}]: process {pid}: {message}", std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(line.as_bytes(), "/dev/log");
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, time::Duration};

    use clap::Parser;
    use flightline_recorder::{
        Engine, Settings, drain_options,
        dump::{Condition, Policy},
        settings::{
            AllocSettings, CostSettings, CpuSettings, ExpositionSettings, MetricsSettings, OutputSettings,
            ProcessSettings, Spans, StackSettings, ThreadSelection,
            schedule::{Schedule, Trigger},
        },
        stream,
    };

    use crate::command::{Cli, Command};

    fn parsed(settings: &Settings) -> Settings {
        let first = ["flightline", "drain", "--ready-fd=3", "--pid=1"].map(OsString::from);
        let cli = Cli::try_parse_from(first.into_iter().chain(drain_options(settings))).unwrap();
        let Command::Drain(args) = cli.command else { panic!("another command") };
        args.sampling.settings().unwrap()
    }

    #[test]
    fn settings_round_trip_through_drain_options() {
        let defaults = Settings::default();
        assert_eq!(format!("{:?}", parsed(&defaults)), format!("{defaults:?}"));
        let mut settings = defaults;
        settings.add("cpu@3ms,wall@7ms,alloc@1m,live,metrics@2s,page-faults@9").unwrap();
        settings.add_trace("lib.so:parse:10ms").unwrap();
        let mut threads = ThreadSelection::default();
        threads.add_pattern("-worker").unwrap();
        threads.add_ids(7..=9);
        let mut dumps = Policy::new("/tmp/copies");
        dumps.on = vec![
            Condition::Cpu(80.0, Duration::from_secs(600)),
            Condition::Rss(1 << 30),
            Condition::Stuck(Duration::from_millis(2500)),
            Condition::Exit { code: 0, equal: false },
            Condition::Signal,
        ];
        dumps.last = Some(Duration::from_secs(300));
        dumps.keep = 3;
        let settings = Settings {
            cpu: CpuSettings { engine: Engine::PerfUser, ..settings.cpu },
            alloc: AllocSettings { live_interval: Duration::from_secs(90), ..settings.alloc },
            metrics: MetricsSettings {
                exposition: ExpositionSettings {
                    file: Some("/tmp/m.prom".into()),
                    listen: "127.0.0.1:9464".parse().ok(),
                },
                ..settings.metrics
            },
            stacks: StackSettings { depth: 77, addresses: true },
            spans: Spans::All,
            processes: ProcessSettings {
                follow: false,
                threads: Some(threads),
                redact_args: true,
                fatal_signals: Some(false),
                labels: vec![("zone".into(), "eu-1".into()), ("a/b".into(), String::new())],
                ..settings.processes
            },
            output: OutputSettings {
                flush: Duration::from_millis(300),
                stream: stream::Options {
                    queue_bytes: 1 << 20,
                    pipe_bytes: Some(1 << 16),
                    token: None,
                    anywhere: true,
                },
                sync: true,
                overwrite: true,
                dumps: Some(dumps),
            },
            cost: CostSettings { budget: Some(0.005), ring_bytes: Some(1 << 20), measure: true },
            schedule: Schedule {
                delay: Some(Duration::from_secs(2)),
                duration: Some(Duration::from_secs(60)),
                start_on: Some(Trigger::File("/run/go".into())),
                stop_on: Some("USR2".parse().unwrap()),
            },
            ..settings
        };
        assert_eq!(format!("{:?}", parsed(&settings)), format!("{settings:?}"));
        let mut aggregated = Settings::default();
        aggregated.cpu.aggregate = Some(Duration::from_secs(10));
        aggregated.cpu.aggregate_lines = true;
        aggregated.output.flush = Duration::from_secs(10);
        aggregated.metrics.interval = Some(Duration::from_secs(10));
        assert_eq!(format!("{:?}", parsed(&aggregated)), format!("{aggregated:?}"));
    }
}
