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
    command::{Ended, Recorded, record},
    loss, preload,
    settings::{DEFAULT_DEPTH, DEFAULT_RATE},
};

use crate::args::Cli;

/// The shared object for recorded programs, empty if the build did not put it into the command.
const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libflightline.so"));

/// Output if neither `-o` nor `--flame` is given.
const DEFAULT_OUTPUT: &str = "flightline.jfr";

const EXAMPLES: &str = "\
Examples:
  flightline record --flame flame.html -- sqlite3 big.db 'select …'
  flightline record -F 1000 -o run.jfr -- xz -9 -T2 big.bin
  flightline record -o 'run-%p.jfr' -- make                     a file for each process
  flightline record -o - -- python3 script.py | flightline flame - -o x.svg

SIGINT and SIGTERM finish the recording properly; a second one finishes at once. The exit status is the program's \
(128 + n if signal n ended it), 1 if the program succeeded but the recording could not be written.";

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// Where the recording goes; `-` is standard output (the program's own then goes to standard error), `%p` in the
    /// name gives each process a file of its own [default: flightline.jfr]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Draw a flame graph when the program has ended: FILE.html or FILE.svg
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub flame: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Go on until all processes the program left behind have ended
    #[arg(short, long)]
    pub wait: bool,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more at the end
    #[arg(short, long)]
    pub verbose: bool,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// How to sample: common to `record` and the drain of programs that record themselves.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// Samples per second of CPU time, 1 to 10000
    #[arg(short = 'F', long, alias = "freq", value_name = "HZ", default_value_t = DEFAULT_RATE, conflicts_with = "interval")]
    #[arg(value_parser = rate)]
    rate: f64,
    /// CPU time between samples instead, as 10ms, 500us
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    interval: Option<Duration>,
    /// How to sample; `flightline list` tells what works here
    #[arg(short, long, value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,
    /// Frames kept per stack, at most 2048
    #[arg(long, value_name = "FRAMES", default_value_t = DEFAULT_DEPTH, value_parser = clap::value_parser!(u32).range(1..=2048))]
    depth: u32,
    /// Time between flushes: how late a reader may see a sample
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    flush: Duration,
    /// Memory for samples per recorded process, a power of two [default: by rate and CPUs, 256K to 16M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    ring_size: Option<u64>,
    /// Do not record children
    #[arg(long)]
    no_follow: bool,
    /// Leave the arguments of recorded programs out
    #[arg(long)]
    redact_args: bool,
    /// Count what the signal handler costs
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
}

impl SamplingArgs {
    /// As settings of the recorder.
    pub fn settings(&self) -> Result<Settings, Error> {
        let period = match self.interval {
            Some(interval) => interval,
            None => Settings::period_of_rate(self.rate)?,
        };
        let settings = Settings {
            period,
            engine: match self.engine {
                EngineArg::Auto => Engine::Auto,
                EngineArg::Perf => Engine::Perf,
                EngineArg::PerfUser => Engine::PerfUser,
                EngineArg::Timer => Engine::Timer,
            },
            depth: self.depth,
            flush: self.flush,
            ring_bytes: self.ring_size,
            follow: !self.no_follow,
            redact_args: self.redact_args,
            measure: self.measure,
        };
        settings.check()?;
        Ok(settings)
    }
}

/// Runs it; the exit status is the program's, or 1 if that is 0 and the recording could not be written.
pub fn run(args: &RecordArgs) -> ExitCode {
    match record_command(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(match &error {
                Error::Program(refusal) => refusal.exit_code(),
                Error::Setting { name: "rate" | "interval" | "depth" | "flush" | "ring-size", .. } => 2,
                _ => 1,
            })
        }
    }
}

fn record_command(args: &RecordArgs) -> Result<u8, Error> {
    let settings = args.sampling.settings()?;
    let stdout = args.output.as_deref() == Some(Path::new("-"));
    if stdout && std::io::stdout().is_terminal() {
        return Err(Error::Setting {
            name: "output",
            problem: "a recording is not for a terminal; pipe it on or use -o FILE".into(),
        });
    }
    let scratch = scratch_for_picture(args)?;
    let path = args.output.clone().or(scratch.clone()).unwrap_or_else(|| DEFAULT_OUTPUT.into());
    let target = if stdout {
        let fd = std::io::stdout().as_fd().try_clone_to_owned();
        Target::Descriptor(Arc::new(
            fd.map_err(|e| Error::Io { doing: "use standard output".into(), source: e })?,
        ))
    } else {
        Target::Path(path.clone())
    };
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or(Error::Setting { name: "command", problem: "no program given".into() })?;
    let recorded = Recorded {
        program: program.clone(),
        arguments: arguments.to_vec(),
        preload: preload::find(EMBEDDED)?,
        stdout_to_stderr: stdout,
        wait_for_children: args.wait,
    };
    let ended = record(&recorded, settings, target, &mut say)?;
    if !args.quiet {
        close(args, &ended, if stdout { Path::new("standard output") } else { &path });
    }
    if let Some(picture) = &args.flame
        && !ended.unseen
        && let Err(error) = draw(args, &path, picture)
    {
        say(&format!("no flame graph: {error:#}; the recording is {}", path.display()));
        return Ok(ended.code.max(1));
    }
    if let Some(scratch) = scratch {
        let _ = std::fs::remove_file(scratch);
    }
    // The program's status, but for a program that succeeded while its recording did not.
    Ok(if ended.report.broken { ended.code.max(1) } else { ended.code })
}

/// With `--flame` alone the recording is only needed for the picture.
fn scratch_for_picture(args: &RecordArgs) -> Result<Option<PathBuf>, Error> {
    let Some(picture) = &args.flame else { return Ok(None) };
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(Error::Setting {
            name: "flame",
            problem: "cannot draw what goes to standard output; use -o FILE, or `| flightline flame -`"
                .into(),
        });
    }
    // Better an error now than after an hour of recording.
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(picture)
        .map_err(|e| Error::io("create", picture, e))?;
    if args.output.is_some() {
        return Ok(None);
    }
    Ok(Some(std::env::temp_dir().join(format!("flightline-{}.jfr", std::process::id()))))
}

/// The closing line.
fn close(args: &RecordArgs, ended: &Ended, path: &Path) {
    let report = &ended.report;
    if ended.unseen {
        say("the program was not recorded: it ended before, or never loaded, libflightline.so");
        return;
    }
    let size = loss::size(report.bytes);
    say(&format!("{report}, {size} in {}", path.display()));
    if args.verbose {
        say(&format!(
            "{} processes, {} threads, {} events, {} chunks, {} CPU ms of our own",
            report.processes,
            report.threads,
            report.events,
            report.chunks,
            report.own_cpu_ns / 1_000_000
        ));
    }
}

/// Draws what was recorded as `flightline flame` does.
fn draw(args: &RecordArgs, recording: &Path, picture: &Path) -> Result<(), anyhow::Error> {
    let title = args.command.first().map_or_else(String::new, |c| c.to_string_lossy().into_owned());
    let words: [&OsStr; 7] = [
        "flightline".as_ref(),
        "flame".as_ref(),
        "--title".as_ref(),
        title.as_ref(),
        "-o".as_ref(),
        picture.as_ref(),
        recording.as_ref(),
    ];
    let cli = Cli::try_parse_from(words)?;
    let crate::args::Command::Flame(flame) = cli.command else { return Ok(()) };
    crate::flame::run(flame).map(|_| ())
}

/// One line for the user.
pub fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "flightline: {message}");
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Settings::period_of_rate(rate).map_err(|e| e.to_string())?;
    Ok(rate)
}

/// `10ms`, `500us`, `1.5s`, `100000ns`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.trim().parse().map_err(|_| format!("{text:?} is not a time such as 10ms"))?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(format!("{text:?}: give a unit: ns, us, ms or s")),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| format!("{text:?} is out of range"))
}

/// `65536`, `64k`, `4M`.
fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        _ => (lower, 0),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a size such as 4M"))?;
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["10", "ms", "-1s", "1 parsec", "1e99s", "nans"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("64k"), Ok(65536));
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        for bad in ["", "k", "4x", "99999999999999999g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
