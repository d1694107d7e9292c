//! `flightline print`

use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use flightline_consumer::print::{Categories, Format, Order, Patterns, PrintOptions, Printer, Selection};
use flightline_consumer::time_range::Bound;
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{self, Follow, Input, Item, default_jobs};

use crate::Outcome;
use crate::args::time_range::{self, RangeArgs, Times};
use crate::diagnostics::{self, shown};
use crate::input::{self, event_filter::EventFilter, repository};
use crate::output::{self, Tame, is_stdout, refuse_input};
use crate::signals::Signals;
use crate::usage_error::bail_usage;

pub const EXAMPLES: &str = "\
Examples:
  flightline print run.jfr | less
  flightline print run.jfr --event ExecutionSample --stack-depth 64
  flightline print run.jfr --event 'jdk.Thread*,flightline.*' --ndjson | jq -r .event
  flightline print run.jfr --categories 'GC,Java Application' --from 2m --to -30
  flightline print run.jfr --event CPULoad --csv -o load.csv
  flightline print run.jfr --json -o run.json               the format of the JDK's `jfr print --json`
  flightline print --follow --event GarbageCollection run.jfr   while it is recorded, until Ctrl-C
  flightline record -o - -- ./server | flightline print - --ndjson

Text and JSON have the format of the JDK's `jfr print`: events of a chunk in order of their end, five \
frames per stack, timestamps in the recording's time zone. A time range selects every event that \
overlaps it; the end is exclusive.";

/// Arguments of `print`.
#[derive(Debug, Args)]
pub struct PrintArgs {
    /// Recordings or repositories, one after the other; `-` is standard input
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    form: Form,
    /// Print numbers, times and durations with all digits
    #[arg(long, conflicts_with = "Form")]
    exact: bool,
    /// Event types, by name with or without package; `*` matches any text, `?` one character
    #[arg(short, long = "event", visible_alias = "events", value_name = "NAME,…", value_delimiter = ',')]
    events: Vec<String>,
    /// Event types by category, with `*` and `?`; initials, such as JVM, match names of several words
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    categories: Vec<String>,
    /// Number of frames to print per stack [default: 5; with --compact all]
    #[arg(long, value_name = "N")]
    stack_depth: Option<usize>,
    #[command(flatten)]
    range: RangeArgs,
    /// Continue while the recording is written, until it ends or Ctrl-C; FILE may be the repository of a JVM
    #[arg(long)]
    follow: bool,
    /// Poll interval of --follow, in ms
    #[arg(long, value_name = "MS", default_value = "500", requires = "follow")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    every: u64,
    /// Output file; `-` is standard output. A file appears when it is complete, with --follow immediately
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Number of threads [default: the number of CPUs, at most 4]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Output formats.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Form {
    /// One JSON document, as the JDK writes it
    #[arg(long)]
    json: bool,
    /// One JSON object per line
    #[arg(long)]
    ndjson: bool,
    /// A table
    #[arg(long)]
    csv: bool,
    /// One JSON object per line, with each stack, method, class and thread only once
    #[arg(long)]
    compact: bool,
}

impl Form {
    fn format(&self) -> Format {
        match self {
            Self { json: true, .. } => Format::Json,
            Self { ndjson: true, .. } => Format::Ndjson,
            Self { csv: true, .. } => Format::Csv,
            Self { compact: true, .. } => Format::Compact,
            _ => Format::Text,
        }
    }
}

/// Prints events.
pub fn run(args: PrintArgs) -> Result<Outcome> {
    let paths =
        if args.follow { args.inputs.clone() } else { repository::expand(&args.inputs, args.range.last)? };
    let format = args.form.format();
    let stack_depth = args.stack_depth.unwrap_or(if format == Format::Compact { usize::MAX } else { 5 });
    let options = PrintOptions {
        selection: selection(&args, &paths)?,
        stack_depth,
        exact: args.exact,
        order: if args.follow { Order::AsFound } else { Order::EndTime },
        jobs: args.jobs.map_or_else(default_jobs, NonZeroUsize::get),
    };
    let mut session = Session {
        printer: Printer::new(format, options),
        wanted: EventFilter::new(&args.events, &args.categories),
        outcome: Outcome::Whole,
        bar: !is_stdout(&args.output) || !io::stdout().is_terminal(),
    };
    if args.follow {
        return session.follow(&args);
    }
    let tame = format == Format::Text && io::stdout().is_terminal() && is_stdout(&args.output);
    refuse_input(&args.output, args.inputs.iter().map(PathBuf::as_path))?;
    // Open the first input before writing, so that an invalid one leaves no partial document.
    let mut first = match input::recording(&paths[0]) {
        Err(error) if !repository::rolled_away(&paths[0], &args.inputs) => return Err(error),
        input => Some(input),
    };
    output::text(&args.output, |out| -> Result<()> {
        let mut tamed;
        let out: &mut dyn Write = if tame {
            tamed = Tame::new(out);
            &mut tamed
        } else {
            out
        };
        session.printer.begin(out)?;
        for path in &paths {
            match first.take().unwrap_or_else(|| input::recording(path)) {
                Ok(input) => session.one(path, input, out)?,
                Err(_) if repository::rolled_away(path, &args.inputs) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(session.printer.end(out)?)
    })?;
    session.wanted.check(&diagnostics::all_shown(&args.inputs))?;
    Ok(session.outcome)
}

/// Execution of the command.
struct Session {
    printer: Printer,
    wanted: EventFilter,
    outcome: Outcome,
    /// A progress bar would not interfere with the output.
    bar: bool,
}

impl Session {
    /// Prints a recording.
    fn one(&mut self, path: &Path, mut input: Input<Box<dyn Read>>, out: &mut dyn Write) -> Result<()> {
        self.printer.select(input.decoder());
        self.wanted.next_input();
        let progress = self.bar.then(|| diagnostics::Progress::new(input.size()));
        let mut warnings = Warnings::default();
        loop {
            if let Some(progress) = &progress {
                progress.at(input.consumed());
            }
            let Some(item) = input.next().with_context(|| shown(path))? else { break };
            self.item(item, &mut warnings, out)?;
        }
        drop(progress);
        if diagnostics::warnings(path, &warnings) == Outcome::Partial {
            self.outcome = Outcome::Partial;
        }
        Ok(())
    }

    fn item(&mut self, item: Item<'_>, warnings: &mut Warnings, out: &mut dyn Write) -> Result<()> {
        match &item {
            Item::ChunkEnd(end) => self.wanted.see(end.chunk),
            Item::Events(batch) => self.wanted.see(batch.chunk()),
            _ => {}
        }
        Ok(self.printer.item(item, warnings, out)?)
    }

    /// Follows a recording.
    fn follow(mut self, args: &PrintArgs) -> Result<Outcome> {
        let path = match &args.inputs[..] {
            [path] if !is_stdout(path) => path,
            [_] => {
                bail_usage!("--follow does not apply to standard input, which is always read as it arrives")
            }
            _ => bail_usage!("--follow accepts only one recording"),
        };
        let signals = Signals::from_user()?;
        let interval = Duration::from_millis(args.every);
        let mut follow = Follow::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        self.printer.select(follow.decoder());
        let mut out: Box<dyn Write> = if !is_stdout(&args.output) {
            refuse_input(&args.output, [path.as_path()])?;
            output::refuse_recording(&args.output)?;
            let create = std::fs::File::create(&args.output);
            Box::new(create.with_context(|| format!("cannot write {}", args.output.display()))?)
        } else if args.form.format() == Format::Text && io::stdout().is_terminal() {
            Box::new(Tame::new(io::stdout().lock()))
        } else {
            Box::new(io::stdout().lock())
        };
        let mut warnings = Warnings::default();
        self.printer.begin(&mut out)?;
        let mut silent = path.is_dir();
        let ended = loop {
            let progress = follow.poll().with_context(|| shown(path))?;
            let wait = match progress {
                read::Progress::Ended => break true,
                read::Progress::Ready => Duration::ZERO,
                read::Progress::Waiting => {
                    out.flush().context("cannot write")?;
                    if std::mem::take(&mut silent) {
                        eprintln!("waiting for a recording in {}; Ctrl-C ends", shown(path));
                    }
                    interval
                }
            };
            if signals.wait(Some(wait)).is_some() {
                break false;
            }
            if progress == read::Progress::Ready
                && let Some(item) = follow.next().with_context(|| shown(path))?
            {
                silent = false;
                self.item(item, &mut warnings, &mut out)?;
            }
        };
        self.printer.end(&mut out)?;
        out.flush().context("cannot write")?;
        let outcome = diagnostics::warnings(path, &warnings);
        if ended {
            self.wanted.check(&shown(path))?;
        }
        Ok(outcome)
    }
}

/// Returns the selected events, with times relative to the first recording's start or the last one's end made
/// absolute.
fn selection(args: &PrintArgs, paths: &[PathBuf]) -> Result<Selection> {
    let mut selection = Selection {
        events: Patterns::new(args.events.clone()),
        categories: Categories::new(args.categories.clone()),
        from: args.range.earliest(),
        to: args.range.to,
        end: None,
    };
    time_range::check(&args.range)?;
    let from_end = args.range.bounds().any(Bound::needs_end);
    let relative = args.range.bounds().any(|bound| !matches!(bound, Bound::Absolute(_)));
    if !from_end && (!relative || paths.len() == 1) {
        return Ok(selection);
    }
    if args.follow {
        bail_usage!(
            "--follow does not accept times before the end, percentages or clock times, because the end is not known"
        );
    }
    if let Some(times) = Times::read(paths)? {
        let (from, to) = args.range.moments(times.start, times.end);
        (selection.from, selection.to) = (from.map(Bound::Absolute), to.map(Bound::Absolute));
    }
    Ok(selection)
}
