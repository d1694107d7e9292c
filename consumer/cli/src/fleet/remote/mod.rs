//! `flightline remote`: the functions of the service's page, from a shell.

pub mod client;
mod text;
mod window;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use flightline_recorder::settings::units::duration;
use flightline_service::wire::{Create, History, Mode, Run, Runs, State, Status, Target, Targets};
use serde::Serialize;

use crate::diagnostics::{self, Progress};
use crate::{Outcome, output};
use client::Client;

pub const EXAMPLES: &str = "\
Examples:
  flightline remote targets                                          list the processes that can be profiled
  flightline remote profile redis-server --duration 30s -o redis.html wait, and write the flame graph
  flightline remote profile cart-1 cart-2 --mode wall --duration 60  several targets
  flightline remote runs redis-server; flightline remote cancel RUN; flightline remote delete RUN
  flightline remote get RUN --format jfr -o run.jfr                  also html, folded, pprof, otlp
  flightline remote compare BEFORE AFTER -o diff.html
  flightline remote window cart --from -5m -o now.html               the continuous profile (agent --continuous)
  flightline remote compare version=1.1@.. version=1.2@-10m.. -o diff.html   compare targets by label
  flightline remote --url https://prof.example:7070 --token-file token targets --json

A target is named by its id, or by a unique name, label or PID. The variable FLIGHTLINE_SERVICE sets the \
address of the service.";

/// Arguments of `remote`.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    /// URL of the service
    #[arg(long, value_name = "URL", global = true, env = "FLIGHTLINE_SERVICE", default_value = "http://127.0.0.1:7070", value_hint = ValueHint::Url)]
    url: String,
    /// File whose first line is the service's token
    #[arg(long, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Trust these certificates (PEM) for TLS instead of the usual authorities
    #[arg(long, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    ca_file: Option<PathBuf>,
    /// Answer as JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List targets
    Targets,
    /// Start a run on one or more targets and wait for it
    Profile(ProfileArgs),
    /// List runs, newest first
    Runs {
        /// Only runs of this target
        target: Option<String>,
    },
    /// Show the status of a run
    Run {
        /// Its id
        run: String,
    },
    /// Cancel a run; what was recorded until then is kept
    Cancel {
        /// Its id
        run: String,
    },
    /// Fetch the result of a run
    Get(GetArgs),
    /// Delete finished runs
    Delete {
        /// Ids of the runs
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Fetch an interval of a continuous profile, or show what is available
    Window(window::WindowArgs),
    /// Fetch a differential flame graph of two runs or intervals
    Compare {
        /// First side: a run, or TARGET@FROM..TO or KEY=VALUE@FROM..TO of a continuous profile
        before: String,
        /// Second side
        after: String,
        /// Event type
        #[arg(short, long, value_name = "EVENT")]
        event: Option<String>,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE", default_value = "diff.html", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
    /// Remove a target that is gone, with its runs
    Forget {
        /// Its id
        target: String,
    },
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// Targets to record
    #[arg(required = true)]
    targets: Vec<String>,
    /// Mode: CPU, ITIMER, WALL, ALLOC, LOCK, IO, LIVE, THROW, OFF_CPU
    #[arg(short, long, default_value = "CPU", value_parser = mode)]
    mode: Mode,
    /// Duration
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    duration: Duration,
    /// Sampling interval, or threshold
    #[arg(short, long)]
    interval: Option<String>,
    /// Additional engine, as in `record -e`
    #[arg(short, long, value_name = "EVENT")]
    engine: Vec<String>,
    /// Label of the run
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::args::values::label)]
    label: Vec<(String, String)>,
    /// Do not wait for the end
    #[arg(long, conflicts_with = "output")]
    no_wait: bool,
    /// Fetch the result to this file; its extension determines the format
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Overwrite the output even if it is a recording
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// The run's id
    run: String,
    /// Format [default: by the output's extension]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Event type
    #[arg(short, long, value_name = "EVENT")]
    event: Option<String>,
    /// Output file; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Overwrite the output even if it is a recording
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A flame graph
    Html,
    /// The recording
    Jfr,
    /// Folded stacks
    Folded,
    /// gzip-compressed profile.proto
    Pprof,
    /// OpenTelemetry profiles
    Otlp,
}

impl Format {
    /// Name in URLs.
    fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
        }
    }
}

/// Runs the command.
pub fn run(args: &RemoteArgs) -> Result<Outcome> {
    let client = Client::new(&args.url, args.token_file.as_deref(), args.ca_file.as_deref())?;
    match &args.action {
        Action::Targets => {
            let targets: Targets = client.get("/targets")?;
            args.print(&targets, || text::targets(&targets))
        }
        Action::Profile(asked) => profile(args, &client, asked),
        Action::Runs { target: Some(target) } => {
            let target = meant(&client, target)?;
            let history: History = client.get(&format!("/targets/{}/runs", target.id))?;
            args.print(&history, || text::runs(&history.profiling_list))
        }
        Action::Runs { target: None } => {
            let runs: Runs = client.get("/runs")?;
            args.print(&runs, || text::runs(&runs.runs))
        }
        Action::Run { run } => {
            let run: Run = client.get(&format!("/runs/{}", word(run)?))?;
            args.print(&run, || text::runs(std::slice::from_ref(&run)))
        }
        Action::Cancel { run } => {
            let run: Run = client.post(&format!("/runs/{}/cancel", word(run)?), &())?;
            args.print(&run, || text::runs(std::slice::from_ref(&run)))
        }
        Action::Get(get) => {
            let format = get.format.or_else(|| get.output.as_ref().and_then(|path| by_name(path)));
            let Some(format) = format else {
                bail!("give --format: html, jfr, folded, pprof or otlp");
            };
            let output = get.output.clone().unwrap_or_else(|| PathBuf::from("-"));
            fetch(&client, &get.run, format, get.event.as_deref(), &output, get.force)
        }
        Action::Delete { runs } => {
            for run in runs {
                let still: Option<Run> = client.delete(&format!("/runs/{}", word(run)?))?;
                match still {
                    None => diagnostics::note(format_args!("removed {run}")),
                    Some(_) => diagnostics::note(format_args!(
                        "{run} was still running and is being cancelled; run the command again to remove it"
                    )),
                }
            }
            Ok(Outcome::Whole)
        }
        Action::Compare { before, after, event, output } => {
            let event = event.as_deref().map(word).transpose()?;
            let event = event.map_or(String::new(), |event| format!("&event={event}"));
            let (before, after) = (window::side(&client, before)?, window::side(&client, after)?);
            let path = format!("/compare/html?before={before}&after={after}{event}");
            save(&client, &path, output, false)
        }
        Action::Window(asked) => window::run(args, &client, asked),
        Action::Forget { target } => {
            client.delete::<Target>(&format!("/targets/{}", word(target)?))?;
            Ok(Outcome::Whole)
        }
    }
}

impl RemoteArgs {
    fn print(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<Outcome> {
        let text = if self.json { serde_json::to_string_pretty(value)? + "\n" } else { text() };
        output::document(std::path::Path::new("-"), text.as_bytes())?;
        Ok(Outcome::Whole)
    }
}

fn profile(args: &RemoteArgs, client: &Client, asked: &ProfileArgs) -> Result<Outcome> {
    if asked.targets.len() > 1 && asked.output.is_some() {
        bail!("-o applies to one target; for several targets, use `flightline remote get`");
    }
    if let Some(output) = asked.output.as_ref().filter(|output| !asked.force && output::is_recording(output))
    {
        output::refuse_existing(output)?;
    }
    if asked.duration.subsec_nanos() != 0 || asked.duration.is_zero() {
        bail!("--duration is in whole seconds");
    }
    let named =
        asked.targets.iter().map(|target| Ok(meant(client, target)?.id)).collect::<Result<Vec<_>>>()?;
    let create = Create {
        mode: asked.mode.name().into(),
        duration: asked.duration.as_secs().into(),
        interval: asked.interval.clone(),
        engines: asked.engine.clone(),
        labels: asked.label.iter().cloned().collect::<BTreeMap<_, _>>(),
        targets: if named.len() > 1 { named.clone() } else { Vec::new() },
    };
    let mut runs = match &named[..] {
        [one] => vec![client.post::<Run>(&format!("/targets/{one}/runs"), &create)?],
        _ => client.post::<Runs>("/runs", &create)?.runs,
    };
    if !asked.no_wait {
        wait(client, &mut runs, asked.duration)?;
    }
    let failed = runs.iter().any(|run| run.status == Status::Failed);
    match (&asked.output, &runs[..]) {
        (Some(output), [run]) if !run.files.is_empty() => {
            let Some(format) = by_name(output) else {
                bail!(
                    "cannot determine the format from the name {}; use .html, .jfr, .folded, .pb.gz or .otlp",
                    output.display()
                );
            };
            fetch(client, &run.id, format, None, output, asked.force)?;
        }
        _ => {}
    }
    args.print(&Runs { group: None, runs: runs.clone() }, || text::runs(&runs))?;
    Ok(if failed { Outcome::Partial } else { Outcome::Whole })
}

/// Waits until all runs have ended.
fn wait(client: &Client, runs: &mut [Run], duration: Duration) -> Result<()> {
    let progress = Progress::with_seconds(duration.as_secs());
    loop {
        for run in runs.iter_mut().filter(|run| run.status == Status::Running) {
            let now: Run = client.get(&format!("/runs/{}", run.id))?;
            *run = now;
        }
        let Some(slowest) =
            runs.iter().filter(|run| run.status == Status::Running).map(|run| run.elapsed).max()
        else {
            return Ok(());
        };
        progress.at((slowest / 1000).min(duration.as_secs()));
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Finds the target with this id, name or PID.
fn meant(client: &Client, word: &str) -> Result<Target> {
    let Targets { targets, .. } = client.get("/targets")?;
    if let Some(target) = targets.iter().find(|target| target.id == word) {
        return Ok(target.clone());
    }
    let called = |target: &&Target| {
        target.name == word
            || target.pid.to_string() == word
            || target.labels.values().any(|value| value == word)
    };
    let (live, gone): (Vec<_>, Vec<_>) =
        targets.iter().filter(called).partition(|target| target.state == State::Live);
    match (&live[..], &gone[..]) {
        ([one], _) | ([], [one]) => Ok((*one).clone()),
        ([], []) => bail!(
            "no target named {word}; list targets with `flightline remote targets`, or add one with \
             `flightline agent --join URL -p {word}`"
        ),
        (several, more) => {
            let ids = several
                .iter()
                .chain(more.iter())
                .map(|target| diagnostics::plain(&target.id))
                .collect::<Vec<_>>()
                .join(", ");
            bail!("several targets are named {word}; give an id: {ids}")
        }
    }
}

fn fetch(
    client: &Client,
    run: &str,
    format: Format,
    event: Option<&str>,
    output: &std::path::Path,
    force: bool,
) -> Result<Outcome> {
    let name = format.name();
    let event = event.map(word).transpose()?.map_or(String::new(), |event| format!("?event={event}"));
    save(client, &format!("/runs/{}/files/{name}{event}", word(run)?), output, force)
}

fn save(client: &Client, path: &str, output: &std::path::Path, force: bool) -> Result<Outcome> {
    if !force && output::is_recording(output) {
        output::refuse_existing(output)?;
    }
    let (mut file, length) = client.file(path)?;
    let mut whole = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut whole).context("the response was cut off")?;
    if length.is_some_and(|length| length != whole.len() as u64) {
        bail!("the response was cut off");
    }
    if output::is_stdout(output) {
        output::document(output, &whole)?;
    } else {
        output::whole(output, |out| Ok(out.write_all(&whole)?))?;
    }
    Ok(Outcome::Whole)
}

fn by_name(path: &std::path::Path) -> Option<Format> {
    let name = path.to_string_lossy().to_lowercase();
    let endings = [
        (".html", Format::Html),
        (".jfr", Format::Jfr),
        (".folded", Format::Folded),
        (".collapsed", Format::Folded),
        (".pb.gz", Format::Pprof),
        (".pprof", Format::Pprof),
        (".otlp", Format::Otlp),
    ];
    endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
}

/// Checks a path or query component.
fn word(text: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text);
    }
    bail!("{} is neither the id of a run or target nor the name of an event", diagnostics::plain(text))
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::named(&text.replace('-', "_")).ok_or_else(|| {
        let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        format!("choose one of {}", names.join(", "))
    })
}
