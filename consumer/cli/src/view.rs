//! `flightline view`

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::time_range::{self, Bound};
use flightline_consumer::view::{
    self, Category, Datum, Enabled, Heading, Layout, Options, Plan, Table, Truncate, Unit, View, Viewer,
    native_option, recording_instructions, similar, write_csv, write_json, write_json_list, write_text,
};
use jfr_format::read::{Item, Recording, default_jobs};

use crate::args::usage;
use crate::range::RangeArgs;
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, output, range, repository};

/// Shown below the help.
pub const EXAMPLES: &str = "\
Examples:
  flightline view --list                                  all views
  flightline view run.jfr                                 views with events in the recording
  flightline view --list --json run.jfr | jq -r '.rows[] | select(.Events > 0).View'
  flightline view hot-methods run.jfr
  flightline view gc-pauses,allocation-by-class run.jfr   several views, in one pass
  flightline view contention-by-site --cell-height 10 run.jfr
  flightline view file-reads-by-path --json run.jfr | jq '.rows[0]'
  flightline view jdk.CPULoad --csv run.jfr               any event type: a table of its fields
  flightline view hot-methods --from 2m --to -30 run.jfr  from the third minute to half a minute before the end
  flightline view all-views run.jfr | less";

/// Arguments of `view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// View or event type, several separated by `,`; all-views, all-events
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Recordings or repositories, merged; `-` is standard input
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// List the views; for a recording, those that it has events for
    #[arg(long)]
    list: bool,
    /// Print JSON: plain numbers, times in UTC, durations in ns
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// Maximum number of rows [default: depends on the view]
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    #[command(flatten)]
    range: RangeArgs,
    /// Characters per line [default: the terminal's width; otherwise as many as needed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..))]
    width: Option<u16>,
    /// Which end of a text to truncate
    #[arg(long, value_enum, default_value = "end")]
    truncate: Cut,
    /// Maximum number of lines per cell; for a stack, of frames
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    cell_height: u16,
    /// Number of chunks to read in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Explain how each table is computed
    #[arg(long)]
    verbose: bool,
}

/// Which end of a text to truncate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cut {
    /// …the end remains
    Beginning,
    /// the beginning remains…
    End,
}

/// Requested views.
#[derive(Debug, Default)]
struct Wanted {
    plans: Vec<Plan>,
    event_types: Vec<String>,
    all_views: bool,
    all_events: bool,
}

/// Prints tables.
pub fn run(args: ViewArgs) -> Result<Outcome> {
    if let Some(outcome) = list_instead(&args)? {
        return Ok(outcome);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let wanted = Wanted::of(name);
    if args.inputs.is_empty() {
        // Without an input, event types cannot be looked up, so an unknown view is an error.
        if let Some(unknown) = wanted.event_types.iter().find(|name| !name.contains('.')) {
            bail!("{}", unknown_name(unknown, view::all().map(|view| view.name)));
        }
        let message = format!("no recording given; use `flightline view {name} FILE`");
        usage("view", ErrorKind::MissingRequiredArgument, &message);
    }
    if wanted.is_empty() {
        usage("view", ErrorKind::InvalidValue, "no view given; list all views with `flightline view --list`");
    }
    if Path::new(name).is_file() && args.inputs.iter().all(|input| !input.is_file()) {
        let message = format!("give the view first: `flightline view {} {name}`", args.inputs[0].display());
        usage("view", ErrorKind::InvalidValue, &message);
    }
    range::check(&args.range)?;
    let options = Options {
        limit: args.limit.map(NonZeroUsize::get),
        event_types: wanted.event_types.clone(),
        all_event_types: wanted.all_events,
        ..Options::default()
    };
    let mut viewer = Viewer::new(wanted.plans, options);
    let outcome = read(&args.range, args.jobs, &args.inputs, &mut viewer)?;
    for name in &wanted.event_types {
        let named = |full: &&String| *full == name || full.rsplit('.').next() == Some(name);
        match viewer.declared().iter().find(named) {
            Some(full) if !viewer.counts().contains_key(full) => {
                talk::warning(format_args!("no events {full} in {}", names(&args.inputs)));
            }
            Some(_) => {}
            None => {
                let known =
                    view::all().map(|view| view.name).chain(viewer.declared().iter().map(String::as_str));
                bail!("{}", unknown_name(name, known));
            }
        }
    }
    let settings: BTreeMap<String, Enabled> = viewer.take_enabled();
    let counts = viewer.counts().clone();
    let mut tables = viewer.finish();
    if !wanted.all_views && !wanted.all_events {
        for table in tables.iter().filter(|table| table.is_empty()) {
            talk::warning(missing(table, &args, &settings, &counts));
        }
    } else {
        tables.retain(|table| !table.is_empty());
    }
    // Text and JSON output state this themselves.
    let full: Vec<&str> = tables.iter().filter(|table| table.full).map(|table| &*table.name).collect();
    if let (true, [first, others @ ..]) = (args.csv, &*full) {
        let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        talk::warning(format_args!(
            "only the first rows of {first}{others} are shown; for more, use --limit N, for all events, `flightline print --csv`"
        ));
    }
    write(&args, &tables)?;
    Ok(outcome)
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.event_types.is_empty() && !self.all_views && !self.all_events
    }

    fn of(names: &str) -> Self {
        let mut wanted = Self::default();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            match (name, view::find(name)) {
                ("all-views", _) => {
                    wanted.all_views = true;
                    wanted.plans.extend(view::all().map(Plan::from_view));
                }
                ("all-events", _) => wanted.all_events = true,
                (_, Some(view)) => wanted.plans.push(Plan::from_view(view)),
                (_, None) => wanted.event_types.push(name.to_owned()),
            }
        }
        wanted
    }
}

/// Reads the recordings completely.
pub fn read(
    wanted: &RangeArgs,
    jobs: Option<NonZeroUsize>,
    inputs: &[PathBuf],
    viewer: &mut Viewer,
) -> Result<Outcome> {
    let paths = repository::expand(inputs, wanted.last)?;
    let (mut from, mut to) = (wanted.earliest(), wanted.to);
    // A chunk of a repository is not a recording of its own: times count from the first chunk.
    if paths != inputs
        && (from.is_some() || to.is_some())
        && let Some(times) = range::Times::of(&paths)?
    {
        let moments = wanted.moments(times.first, times.end);
        (from, to) = (moments.0.map(Bound::Absolute), moments.1.map(Bound::Absolute));
    }
    let needs_end = [from, to].iter().flatten().any(|bound| bound.needs_end());
    let mut outcome = Outcome::Whole;
    let jobs = jobs.map_or_else(default_jobs, NonZeroUsize::get);
    let timed = from.is_some() || to.is_some();
    for path in &paths {
        // Times count from the first chunk, which a thread that starts in the middle does not know.
        if let Some(recording) = if timed || jobs == 1 { None } else { whole(path, inputs)? } {
            let progress = Progress::new(Some(recording.size()));
            viewer.take_recording(&recording, jobs, |at| progress.at(at));
            drop(progress);
            if talk::warnings(path, &viewer.take_warnings()) == Outcome::Partial {
                outcome = Outcome::Partial;
            }
            continue;
        }
        let end = if needs_end { end_of(path)? } else { i64::MAX };
        let mut input = match input::recording(path) {
            Err(_) if repository::rolled_away(path, inputs) => continue,
            input => input?,
        };
        let progress = Progress::new(input.size());
        let mut started = false;
        loop {
            progress.at(input.consumed());
            let Some(item) = input.next().with_context(|| shown(path))? else { break };
            if let (Item::ChunkStart(chunk), false) = (&item, started) {
                started = true;
                let (from, to) = time_range::moments(from, to, chunk.header.start_nanos, end);
                viewer.between(from, to);
            }
            viewer.take(item);
        }
        drop(progress);
        if talk::warnings(path, &viewer.take_warnings()) == Outcome::Partial {
            outcome = Outcome::Partial;
        }
    }
    Ok(outcome)
}

/// Maps the recording; `None` if it was rolled away.
fn whole(path: &Path, given: &[PathBuf]) -> Result<Option<Recording>> {
    match input::whole(path) {
        Err(_) if repository::rolled_away(path, given) => Ok(None),
        recording => recording,
    }
}

/// Returns the end of a recording in ns since 1970, from its last chunk.
fn end_of(path: &Path) -> Result<i64> {
    if output::is_stdout(path) {
        bail!(
            "times before the end, percentages and clock times need a file; standard input has no known end"
        );
    }
    let mut input = input::recording(path)?;
    let mut end = i64::MIN;
    while let Some(item) = input.next().with_context(|| shown(path))? {
        if let Item::ChunkEnd(chunk_end) = item {
            let header = &chunk_end.chunk.header;
            end = end.max(header.start_nanos.saturating_add(header.duration_nanos.max(0)));
        }
    }
    Ok(end)
}

fn write(args: &ViewArgs, tables: &[Table]) -> Result<()> {
    let layout = Layout {
        width: args.width.map(usize::from).or_else(terminal_width),
        cell_height: usize::from(args.cell_height),
        truncate: match args.truncate {
            Cut::Beginning => Truncate::Beginning,
            Cut::End => Truncate::End,
        },
        colours: coloured(),
        verbose: args.verbose,
    };
    output::text(Path::new("-"), |out| -> Result<()> {
        match tables {
            [table] if args.json => write_json(table, out)?,
            _ if args.json => write_json_list(tables, out)?,
            [table] if args.csv => write_csv(table, out)?,
            _ if args.csv => {
                for (at, table) in tables.iter().enumerate() {
                    writeln!(out, "{}# {}", if at > 0 { "\n" } else { "" }, table.name)?;
                    write_csv(table, out)?;
                }
            }
            _ => {
                for table in tables.iter().filter(|table| !table.is_empty()) {
                    write_text(table, &layout, out)?;
                }
            }
        }
        Ok(())
    })
}

fn terminal_width() -> Option<usize> {
    let (terminal_size::Width(width), _) = terminal_size::terminal_size_of(stdout())?;
    Some(usize::from(width).max(20))
}

fn coloured() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn names(inputs: &[PathBuf]) -> String {
    inputs.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ")
}

/// Event types, related types and the views of these: memory that was not freed, while the program ran and at
/// its end.
const RELATED: [(&str, &str, &str); 2] = [
    ("flightline.LiveAllocation", "flightline.LiveMemory", "live-memory"),
    ("flightline.LiveMemory", "flightline.LiveAllocation", "live-allocation"),
];

/// Returns why a table is empty and what to do.
fn missing(
    table: &Table,
    args: &ViewArgs,
    settings: &BTreeMap<String, Enabled>,
    counts: &BTreeMap<String, u64>,
) -> String {
    let inputs = &args.inputs;
    if !args.range.is_everything() {
        return format!("{}: no events in that range of {}", table.name, names(inputs));
    }
    let needs: Vec<&str> = table.needs.iter().map(String::as_str).collect();
    let related = |(of, other, _): &&(&str, &str, &str)| needs.contains(of) && counts.contains_key(*other);
    if let Some((_, other, view)) = RELATED.iter().find(related) {
        return format!(
            "{}: no events in {}, which has {} {other} events; use `flightline view {view}`",
            table.name,
            names(inputs),
            counts[*other]
        );
    }
    let enabled = |name: &&str| settings.get(*name).filter(|of| of.is_enabled == Some(true));
    let recorded: Vec<String> = needs
        .iter()
        .filter_map(|name| {
            let threshold =
                enabled(name)?.threshold.as_deref().filter(|threshold| !threshold.starts_with("0 "));
            Some(threshold.map_or_else(|| (*name).to_owned(), |least| format!("{name} ({least} or longer)")))
        })
        .collect();
    if !recorded.is_empty() {
        return format!(
            "{}: no events in {}: {} events were enabled, but none occurred",
            table.name,
            names(inputs),
            recorded.join(", ")
        );
    }
    let is_native = counts.keys().any(|name| name.starts_with("flightline."));
    let native = needs.first().filter(|_| is_native).and_then(|first| native_option(first));
    let how = native.map(str::to_owned).or_else(|| needs.first().map(|first| recording_instructions(first)));
    let how = how.unwrap_or_default();
    let some = if needs.len() > 4 { format!("{}, …", needs[..4].join(", ")) } else { needs.join(", ") };
    format!(
        "{}: no events in {}: the view needs {some} events. To record them: {how}",
        table.name,
        names(inputs)
    )
}

fn unknown_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let like = similar(name, known);
    let hint = if like.is_empty() { String::new() } else { format!("; did you mean {}?", like.join(", ")) };
    format!("no view or event type named {name}{hint}; list all views with `flightline view --list`")
}

/// `view`, `view --list …`, `view FILE`: the list of views.
fn list_instead(args: &ViewArgs) -> Result<Option<Outcome>> {
    let mut inputs = args.inputs.clone();
    match &args.name {
        None => {
            list(args, None)?;
            return Ok(Some(Outcome::Whole));
        }
        Some(name) if args.list => inputs.insert(0, PathBuf::from(name)),
        Some(name) => {
            let path = Path::new(name);
            // A file instead of a view: list the views that it has data for.
            if !inputs.is_empty() || view::find(name).is_some() || !(name == "-" || path.exists()) {
                return Ok(None);
            }
            inputs.push(path.to_owned());
        }
    }
    let mut viewer = Viewer::new(Vec::new(), Options::default());
    let outcome = read(&args.range, args.jobs, &inputs, &mut viewer)?;
    list(args, Some(viewer.counts()))?;
    Ok(Some(outcome))
}

/// Returns the number of events in a recording for a view.
fn events_for(view: &View, counts: &BTreeMap<String, u64>) -> u64 {
    let of = |names: &[&str]| match names.contains(&"*") {
        true => counts.values().sum::<u64>(),
        false => names.iter().filter_map(|&name| counts.get(name)).sum::<u64>(),
    };
    Some(of(view.events)).filter(|&events| events > 0).unwrap_or_else(|| of(view.instead))
}

/// Returns the list as a table for programs. Event types of a recording are included, since each can be
/// viewed too.
fn table_of(counts: Option<&BTreeMap<String, u64>>) -> Table {
    let text = |text: &str| Datum::Text(text.into());
    let number = |events: u64| Datum::Int(i64::try_from(events).unwrap_or(i64::MAX), Unit::One);
    let of_view = |view: &View| {
        let needs = view.events.iter().chain(view.instead).map(|&name| name.into()).collect();
        let events = counts.map_or(Datum::Null, |counts| number(events_for(view, counts)));
        vec![text(view.name), text(view.title), text(view.category.title()), Datum::Stack(needs), events]
    };
    let in_order =
        Category::ALL.into_iter().flat_map(|of| view::all().filter(move |view| view.category == of));
    let mut rows: Vec<Vec<Datum>> = in_order.map(of_view).collect();
    rows.extend(counts.into_iter().flatten().map(|(name, &events)| {
        vec![
            text(name),
            Datum::Null,
            text("Event types"),
            Datum::Stack([name.as_str().into()].into()),
            number(events),
        ]
    }));
    let headings = ["View", "Title", "Category", "Needs", "Events"].map(|title| Heading {
        title: title.into(),
        unit: Unit::One,
        number: title == "Events",
        empty: title == "Events" && counts.is_none(),
    });
    Table {
        name: "list".into(),
        title: "Views".into(),
        headings: headings.into(),
        rows,
        form: false,
        more: 0,
        full: false,
        events: counts.map_or(0, |counts| counts.values().sum()),
        needs: Vec::new(),
        explained: String::new(),
    }
}

/// Lists the views; marks those for which the recording has events.
fn list(args: &ViewArgs, counts: Option<&BTreeMap<String, u64>>) -> Result<()> {
    if args.json || args.csv {
        return write(args, &[table_of(counts)]);
    }
    let (bold, plain) = if coloured() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let widest = view::all().map(|view| view.name.len()).max().unwrap_or(0);
    let Some(counts) = counts else {
        return output::text(Path::new("-"), |out| -> Result<()> {
            for category in Category::ALL {
                writeln!(out, "{bold}{}{plain}", category.title())?;
                for view in view::all().filter(|view| view.category == category) {
                    writeln!(out, "  {:widest$}  {}", view.name, view.title)?;
                }
                writeln!(out)?;
            }
            writeln!(
                out,
                "Every event type is also a view: `flightline view jdk.CPULoad run.jfr`. For everything: all-views, all-events."
            )?;
            Ok(())
        });
    };
    let events = |view: &View| Some(events_for(view, counts)).filter(|&events| events > 0);
    let digits = counts.values().sum::<u64>().max(1).to_string().len();
    output::text(Path::new("-"), |out| -> Result<()> {
        let mut others = 0;
        for category in Category::ALL {
            let views: Vec<&View> = view::all().filter(|view| view.category == category).collect();
            others += views.iter().filter(|view| events(view).is_none()).count();
            if views.iter().all(|view| events(view).is_none()) {
                continue;
            }
            writeln!(out, "{bold}{}{plain}", category.title())?;
            for view in views {
                if let Some(events) = events(view) {
                    writeln!(out, "  {events:>digits$}  {:widest$}  {}", view.name, view.title)?;
                }
            }
            writeln!(out)?;
        }
        writeln!(out, "{bold}Event types{plain}, each a view too")?;
        for (name, count) in counts {
            writeln!(out, "  {count:>digits$}  {name}")?;
        }
        writeln!(
            out,
            "\nNumbers are events. The recording has no events for {others} other views (flightline view --list)."
        )?;
        Ok(())
    })
}
