//! `flightline tail`
//!
//! All folders of a repository are followed at once: the next item is read from the folder that is
//! furthest behind. Without new data, `tail` checks that the recorder still runs; if not, it recovers
//! the recording.

mod hot;
mod sample;
mod source;
mod spans;
mod stream;
mod target;

use std::collections::HashSet;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use flightline_consumer::print::{Categories, Format, Order, Patterns, PrintOptions, Printer, Selection};
use flightline_consumer::time_range::Bound;
use flightline_consumer::top::{Table, Top};
use flightline_recorder::repository;
use jfr_format::read::Follow;
use serde_json::json;

use crate::Outcome;
use crate::args::help;
use crate::diagnostics::{self, shown};
use crate::input::unfinished;
use crate::output::Tame;
use crate::signals::Signals;
use crate::usage_error::bail_usage;
use source::Source;
use target::Family;

pub const EXAMPLES: &str = "\
Examples:
  flightline tail /var/lib/flightline                   all programs recorded there, until Ctrl-C
  flightline tail -p 4711 --top                         a live table of its hottest functions
  flightline tail -p 4711 --top=40 --window 60s --event wall
  flightline tail -p 4711 --by span                     a live table of its tracing spans
  flightline tail run.jfr --event 'jdk.Java*' --last 1m
  flightline tail /var/lib/flightline/2026_11_21_15_00_00_4711 --ndjson | jq .event
  flightline tail -p 4711 --top --json | jq '.functions[0]'
  flightline record -o - -- ./server | flightline tail - --flame          a live flame graph in the terminal
  flightline tail unix:/run/fl.sock --samples | jq -r .stack.frames[0].function
  flightline tail pipe --per-thread --window 30s --event wall

Events appear within one or two seconds, because recorders write them once per second (--flush). A file, \
a program or the folder of a process is followed until its recording ends. New programs in a repository \
are followed as soon as they are recorded.";

/// Maximum number of processes followed simultaneously: each needs memory for constants and two descriptors.
/// Others wait until one ends.
const MOST_SOURCES: usize = 256;

/// Subject of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowKind {
    /// Functions
    Function,
    /// Spans of tracing, by name
    Span,
}

/// Arguments of `tail`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct TailArgs {
    /// A repository, the folder of a process in it, a recording; or a stream: `-`, a FIFO, fd:N, unix:PATH,
    /// tcp:HOST:PORT
    #[arg(value_name = "DIR|FILE|STREAM", value_hint = ValueHint::AnyPath, group = "what")]
    path: Option<PathBuf>,
    /// A running program, by PID or name, with its children
    #[arg(short, long, value_name = "PID|NAME", group = "what")]
    pid: Option<String>,
    /// Show a table of the most active functions, with this many lines [default: 20]
    #[arg(long, value_name = "LINES", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    top: Option<usize>,
    /// Rows of the table
    #[arg(long, value_enum, value_name = "WHAT")]
    #[arg(conflicts_with_all = ["per_thread", "flame", "samples", "categories", "stack_depth"])]
    by: Option<RowKind>,
    /// Streams: show the table by thread
    #[arg(long)]
    #[arg(help_heading = help::STREAM)]
    per_thread: bool,
    /// Streams: show a flame graph of block characters with this many lines, root at the top, with
    /// --per-thread one tower per thread [default: 16]
    #[arg(long, value_name = "LINES", num_args = 0..=1, require_equals = true, default_missing_value = "16")]
    #[arg(conflicts_with_all = ["top", "ndjson"])]
    #[arg(help_heading = help::STREAM)]
    flame: Option<usize>,
    /// Streams: print one JSON object per line for each sample and each loss; docs/guide/tasks/follow-recordings.md
    /// describes the fields
    #[arg(long, conflicts_with_all = ["top", "flame", "per_thread", "categories"])]
    #[arg(help_heading = help::STREAM)]
    samples: bool,
    /// The token for a recorder on TCP is in this file [default: FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::STREAM)]
    token_file: Option<PathBuf>,
    /// Time span of the table
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    #[arg(value_parser = flightline_recorder::settings::units::duration)]
    window: Duration,
    /// Event types, by name with or without package; `*` matches any text, `?` one character; with --top
    /// those of flame and fold, such as wall
    #[arg(short, long = "event", visible_alias = "events", value_name = "NAME,…", value_delimiter = ',')]
    events: Vec<String>,
    /// Event types by category, with `*` and `?`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "top")]
    categories: Vec<String>,
    /// Print one JSON object per line: an event, or with --top a table
    #[arg(long, visible_alias = "json")]
    ndjson: bool,
    /// Number of frames to print per stack [default: 5; all with --samples]
    #[arg(long, value_name = "N", conflicts_with = "top")]
    stack_depth: Option<usize>,
    /// Start this far in the past: 30s, 10m, 2h
    #[arg(long, value_name = "SPAN", value_parser = crate::args::time_range::last)]
    last: Option<Bound>,
    /// Start with everything that is available
    #[arg(long, conflicts_with = "last")]
    from_start: bool,
    /// Poll interval in ms [default: 250; with --top 1000, also the interval of the table]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    every: Option<u64>,
}

/// Follows a recording or stream.
pub fn run(args: &TailArgs) -> Result<Outcome> {
    let signals = Signals::from_user()?;
    let (path, family) = match (&args.path, &args.pid) {
        (Some(path), _) => (path.clone(), None),
        (None, wanted) => target::output(wanted.as_deref().unwrap_or_default())?,
    };
    let text = args.table().is_none() && !args.shows_stream() && !args.ndjson && io::stdout().is_terminal();
    let mut out: Box<dyn Write> =
        if text { Box::new(Tame::new(io::stdout().lock())) } else { Box::new(io::stdout().lock()) };
    if let Some(address) = crate::input::stream::address(&path)? {
        let mut tail = Tail::without_family(args, &path, true);
        stream::run(args, &mut tail, &address, &signals, &mut out)?;
        return Ok(tail.outcome);
    }
    if args.shows_stream() {
        bail_usage!(
            "--samples, --flame and --per-thread need a stream: -, a FIFO, fd:N, unix:PATH or tcp:HOST:PORT"
        );
    }
    let mut tail = Tail::new(args, &path, family)?;
    let mut silent = true;
    while !tail.round(&signals, &mut out)? {
        if std::mem::take(&mut silent) && tail.none() {
            diagnostics::note(format_args!(
                "waiting for a recording in {}; press Ctrl-C to stop",
                shown(&path)
            ));
        }
        if signals.wait(Some(tail.every)).is_some() {
            break;
        }
    }
    out.flush().context("cannot write")?;
    if tail.was_over() {
        diagnostics::note(format_args!(
            "the recording {} has ended; use --from-start to print all of it, or --last 1h to print its last hour",
            shown(&path)
        ));
    }
    Ok(tail.outcome)
}

/// How events are processed.
enum Form {
    Events(PrintOptions, Format),
    Table { top: Box<Top>, lines: usize, json: bool, window: Duration, due: Instant },
    Spans(Box<spans::Table>),
}

struct Tail {
    path: PathBuf,
    /// The path is a repository of several processes.
    several: bool,
    since: i64,
    every: Duration,
    form: Form,
    sources: Vec<Source>,
    /// The message that not all processes are followed was printed.
    told_most: bool,
    /// Restriction to a process family in a repository.
    family: Option<Family>,
    /// Folders that have ended.
    done: HashSet<PathBuf>,
    /// Path of the events printed last.
    shown: Option<PathBuf>,
    /// Some events were printed.
    printed: bool,
    /// Time up to which ended recordings have been read, ns since 1970.
    newest: Option<i64>,
    outcome: Outcome,
}

impl TailArgs {
    /// Returns true if an option requires a stream.
    fn shows_stream(&self) -> bool {
        self.samples || self.flame.is_some() || self.per_thread
    }

    /// Returns the number of lines if a table was requested.
    fn table(&self) -> Option<usize> {
        self.top.or(self.by.map(|_| 20))
    }
}

impl Tail {
    fn new(args: &TailArgs, path: &Path, family: Option<Family>) -> Result<Self> {
        let mut tail = Self { family, ..Self::without_family(args, path, false) };
        if !tail.several {
            unfinished::before_reading(path);
            tail.add(path.to_owned())?;
        }
        Ok(tail)
    }

    /// Creates the state without sources. A stream has no earlier data except what is buffered in it.
    fn without_family(args: &TailArgs, path: &Path, stream: bool) -> Self {
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
        let all = args.from_start || stream;
        let since = if all { i64::MIN } else { args.last.map_or(now, |last| last.at(i64::MIN, now)) };
        let every =
            Duration::from_millis(args.every.unwrap_or(if args.table().is_some() || args.shows_stream() {
                1000
            } else {
                250
            }));
        let turns = (args.window.as_nanos() / every.as_nanos()).clamp(1, 10_000) as usize;
        let form = match args.table() {
            Some(lines) if args.by == Some(RowKind::Span) => {
                let top = flightline_consumer::top::spans::Spans::new(&args.events, turns, since);
                let (json, window, due) = (args.ndjson, args.window, Instant::now() + every);
                Form::Spans(Box::new(spans::Table { top, lines, json, window, due }))
            }
            Some(lines) => {
                let top = Box::new(Top::new(args.events.clone(), turns, since));
                Form::Table {
                    top,
                    lines,
                    json: args.ndjson,
                    window: args.window,
                    due: Instant::now() + every,
                }
            }
            None => {
                let options = PrintOptions {
                    selection: Selection {
                        events: Patterns::new(args.events.clone()),
                        categories: Categories::new(args.categories.clone()),
                        from: (!all).then_some(Bound::Absolute(since)),
                        ..Selection::default()
                    },
                    stack_depth: args.stack_depth.unwrap_or(5),
                    order: Order::AsFound,
                    ..PrintOptions::default()
                };
                Form::Events(options, if args.ndjson { Format::Ndjson } else { Format::Text })
            }
        };
        Self {
            path: path.to_owned(),
            several: path.is_dir() && !is_one(path),
            family: None,
            since,
            every,
            form,
            sources: Vec::new(),
            told_most: false,
            done: HashSet::new(),
            shown: None,
            printed: false,
            newest: None,
            outcome: Outcome::Whole,
        }
    }

    /// Returns true if there was nothing to follow or read.
    fn none(&self) -> bool {
        self.sources.is_empty() && self.shown.is_none()
    }

    /// Returns true if all recordings ended before the selected time.
    fn was_over(&self) -> bool {
        self.sources.is_empty() && !self.printed && self.newest.is_some_and(|newest| newest < self.since)
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        let follow = Follow::open(&path).with_context(|| format!("cannot open {}", shown(&path)))?;
        let mut follow = follow.since(self.since);
        let printer = match &self.form {
            Form::Events(options, format) => {
                let printer = Printer::new(*format, options.clone());
                printer.select(follow.decoder());
                Some(printer)
            }
            Form::Table { top, .. } => {
                top.select(follow.decoder());
                None
            }
            Form::Spans(table) => {
                table.top.select(follow.decoder());
                None
            }
        };
        self.sources.push(Source::new(path, follow, printer));
        Ok(())
    }

    /// Follows new processes in a repository, and existing ones that have not ended.
    fn discover(&mut self) -> Result<()> {
        let folders = match repository::folders(&self.path) {
            // The recorder creates it again.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            folders => folders.with_context(|| format!("cannot read {}", shown(&self.path)))?,
        };
        let there: HashSet<&PathBuf> = folders.iter().collect();
        self.done.retain(|folder| there.contains(folder));
        for folder in folders {
            if self.done.contains(&folder) || self.sources.iter().any(|source| source.path == folder) {
                continue;
            }
            if self.family.as_ref().is_some_and(|family| !family.has(&folder)) {
                self.done.insert(folder);
                continue;
            }
            let newest = repository::chunks(&folder)
                .ok()
                .and_then(|chunks| chunks.last()?.metadata().ok()?.modified().ok());
            // The recording has begun, but nothing has been written.
            let Some(newest) = newest else { continue };
            let at = newest.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
            if at < self.since && !repository::in_use(&folder) {
                self.done.insert(folder);
            } else if self.sources.len() < MOST_SOURCES {
                self.add(folder)?;
            } else {
                if !std::mem::replace(&mut self.told_most, true) {
                    diagnostics::note(format_args!(
                        "following {MOST_SOURCES} processes; others are followed when one of these ends"
                    ));
                }
                break;
            }
        }
        Ok(())
    }

    /// Processes the new data of all sources, in order of time as far as it has been written. Returns true at
    /// the end.
    fn round(&mut self, signals: &Signals, out: &mut dyn Write) -> Result<bool> {
        if self.several {
            self.discover()?;
        }
        for source in &mut self.sources {
            source.idle = false;
        }
        loop {
            for source in &mut self.sources {
                source.look()?;
            }
            // Advance the source that is furthest behind.
            let behind = self.sources.iter_mut().filter(|source| !source.idle).min_by_key(|source| source.at);
            let Some(source) = behind else { break };
            if signals.wait(Some(Duration::ZERO)).is_some() {
                return Ok(true);
            }
            self.printed |= step(source, &mut self.form, self.several, &mut self.shown, out)?;
        }
        // A repository continues; a program and its children end.
        let goes_on = self.several && (self.family.is_none() || self.sources.is_empty());
        let ended = self.sources.iter().all(|source| source.ended) && !goes_on;
        self.table(ended, out)?;
        out.flush().context("cannot write")?;
        for source in self.sources.extract_if(.., |source| source.ended) {
            if diagnostics::warnings(&source.path, &source.warnings) == Outcome::Partial {
                self.outcome = Outcome::Partial;
            }
            self.newest = self.newest.max(Some(source.at));
            self.done.insert(source.path);
        }
        Ok(ended)
    }

    /// Prints the table if it is due.
    fn table(&mut self, ended: bool, out: &mut dyn Write) -> Result<()> {
        if let Form::Spans(table) = &mut self.form {
            if table.write(ended, self.every, &self.path, out)? == Outcome::Partial {
                self.outcome = Outcome::Partial;
            }
            return Ok(());
        }
        let Form::Table { top, lines, json, window, due } = &mut self.form else { return Ok(()) };
        if !ended && Instant::now() < *due {
            return Ok(());
        }
        *due = Instant::now() + self.every;
        let (table, warnings) = top.turn();
        if diagnostics::warnings(&self.path, &warnings) == Outcome::Partial {
            self.outcome = Outcome::Partial;
        }
        if *json {
            let functions: Vec<_> = table
                .rows
                .iter()
                .take(*lines)
                .map(|r| json!({"function": *r.function, "module": r.module.as_deref(), "self": r.own, "total": r.total}))
                .collect();
            let line = json!({
                "windowSeconds": window.as_secs_f64(), "unit": table.unit, "total": table.total, "functions": functions,
            });
            return writeln!(out, "{line}").context("cannot write");
        }
        let text = written(&table, *lines, *window, &shown(&self.path));
        let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        write!(out, "{clear}{text}").context("cannot write")
    }
}

/// Processes one item; returns true if something was printed.
fn step(
    source: &mut Source,
    form: &mut Form,
    several: bool,
    shown_last: &mut Option<PathBuf>,
    out: &mut dyn Write,
) -> Result<bool> {
    let Source { follow, printer, warnings, path, at, .. } = source;
    let Some(item) = follow.next().with_context(|| shown(path))? else { return Ok(false) };
    *at = source::item_time(&item).unwrap_or(*at);
    match (form, printer) {
        (Form::Table { top, .. }, _) => top.item(item).with_context(|| shown(path))?,
        (Form::Spans(table), _) => table.top.item(item).with_context(|| shown(path))?,
        (Form::Events(_, format), Some(printer)) => {
            let mut lines = Vec::new();
            printer.item(item, warnings, &mut lines)?;
            if !lines.is_empty() && several && shown_last.as_ref() != Some(path) {
                if matches!(format, Format::Text) {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    writeln!(out, "==> {name} <==").context("cannot write")?;
                }
                *shown_last = Some(path.clone());
            }
            out.write_all(&lines).context("cannot write")?;
            return Ok(!lines.is_empty());
        }
        (Form::Events(..), None) => {}
    }
    Ok(false)
}

/// Returns true if a directory is a single recording: the folder of a process, by any recorder.
fn is_one(path: &Path) -> bool {
    path.join(repository::OWNER_FILE).exists()
        || repository::chunks(path).is_ok_and(|chunks| !chunks.is_empty())
}

fn written(table: &Table, lines: usize, window: Duration, of: &str) -> String {
    use std::fmt::Write;
    let mut text = format!("{} {} in {} s of {of}\n", table.total, table.unit, window.as_secs_f64());
    let percent = |part: u64| 100.0 * part as f64 / table.total.max(1) as f64;
    let _ = writeln!(text, "   self  total  function");
    for row in table.rows.iter().take(lines) {
        let module = row.module.as_deref().map(|module| format!("  [{module}]")).unwrap_or_default();
        let function = diagnostics::plain(&row.function);
        let _ = writeln!(text, "{:6.1}% {:5.1}%  {function}{module}", percent(row.own), percent(row.total));
    }
    text.push('\n');
    text
}
