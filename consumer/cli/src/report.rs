//! `flightline report`

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::difference::{CompareBy, Difference, Scale};
use flightline_consumer::fold;
use flightline_consumer::missing;
use flightline_consumer::model::Model;
use flightline_consumer::picture;
use flightline_consumer::render::{PictureOptions, html};
use flightline_consumer::report::{
    Area, Before, Changed, Measures, Picture, Report, Tables, VIEWS, write_page, write_text,
};
use flightline_consumer::view::{self, Enabled, Options, Plan, Table, Viewer};

use crate::range::RangeArgs;
use crate::select::{SelectArgs, StackArgs};
use crate::stacks::{self, For};
use crate::talk::{self, all_shown};
use crate::{Outcome, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline report run.jfr                               unusual findings, with commands for details
  flightline report run.jfr -o report.html                a page with tables, and a folder with flame graphs
  flightline report monday.jfr --before sunday.jfr        also compare with an earlier recording
  flightline report run.jfr --json | jq -r '.findings[] | select(.severity == \"high\").text'

The limits of the findings are rules of thumb. JSON and the page name the corresponding rule of JDK \
Mission Control, if there is one.";

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Recordings or repositories, merged
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// Compare with this recording
    #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    before: Option<PathBuf>,
    /// Write a page, and flame graphs to files next to it: report.cpu.html, report.alloc.html, … [default:
    /// text on standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Flame graphs of a page: event, by time or bytes, area, title.
const PICTURES: [(&str, bool, Area, &str); 6] = [
    ("cpu", false, Area::Cpu, "Flame graph of the CPU time"),
    ("wall", true, Area::Cpu, "Flame graph of the wall-clock time"),
    ("alloc", true, Area::Allocation, "Flame graph of the allocations"),
    ("lock", true, Area::Locks, "Flame graph of the waits for locks"),
    ("exception", false, Area::Exceptions, "Flame graph of the exceptions"),
    ("io", true, Area::Io, "Flame graph of input and output"),
];

/// Prints or draws a report.
pub fn run(args: &ReportArgs) -> Result<Outcome> {
    let (contents, mut outcome) = contents(&args.inputs)?;
    let before = match &args.before {
        Some(path) => {
            let (before, of_before) = before(path, &args.inputs)?;
            if of_before == Outcome::Partial {
                outcome = Outcome::Partial;
            }
            Some(before)
        }
        None => None,
    };
    let report = Report::new(talk::file_names(&args.inputs), contents.tables(), before);
    match &args.output {
        Some(path) => page(args, path, &report, &contents.counts)?,
        None => output::text(Path::new("-"), |out| -> Result<()> {
            match args.json {
                true => writeln!(out, "{:#}", report.to_json())?,
                false => write_text(&report, &all_shown(&args.inputs), out)?,
            }
            Ok(())
        })?,
    }
    Ok(outcome)
}

/// Reads the recording to compare with.
fn before(path: &PathBuf, inputs: &[PathBuf]) -> Result<(Before, Outcome)> {
    let paths = std::slice::from_ref(path);
    let (contents, outcome) = contents(paths)?;
    let (name, measures) = (talk::file_names(paths), Measures::from_tables(contents.tables()));
    Ok((Before { name, measures, changed: changed(paths, inputs)? }, outcome))
}

/// Events by type.
type Counts = std::collections::BTreeMap<String, u64>;

/// The parts of a recording that a report needs.
struct Contents {
    tables: Vec<Table>,
    enabled: std::collections::BTreeMap<String, Enabled>,
    counts: Counts,
}

impl Contents {
    fn tables(&self) -> Tables<'_> {
        Tables { all: &self.tables, enabled: &self.enabled }
    }
}

/// Reads a recording.
fn contents(inputs: &[PathBuf]) -> Result<(Contents, Outcome)> {
    let plans = VIEWS.iter().filter_map(|name| view::find(name)).map(Plan::from_view).collect();
    let mut viewer = Viewer::new(plans, Options::default());
    let outcome = crate::view::read(&RangeArgs::default(), None, inputs, &mut viewer)?;
    let counts = viewer.counts().clone();
    if counts.is_empty() {
        bail!("{} has no events", all_shown(inputs));
    }
    let enabled = viewer.take_enabled();
    Ok((Contents { tables: viewer.finish(), enabled, counts }, outcome))
}

/// Writes the page and its flame graphs.
fn page(args: &ReportArgs, path: &Path, report: &Report<'_>, counts: &Counts) -> Result<()> {
    if output::is_stdout(path) {
        bail!("an HTML report has several files; give its name with -o");
    }
    output::refuse_picture(path, "the report is an HTML page; the output must end in .html")?;
    output::refuse_input(path, args.inputs.iter().chain(&args.before).map(PathBuf::as_path))?;
    let recorded = PICTURES.iter().filter(|(event, ..)| !fold::recorded_types(event, counts).is_empty());
    let recorded: Vec<&(&str, bool, Area, &str)> = recorded.collect();
    let events: Vec<String> = recorded.iter().map(|(event, ..)| (*event).to_owned()).collect();
    let stacks = StackArgs { inputs: args.inputs.clone(), select: SelectArgs::default() }.with_names();
    let Some(model) = stacks::read_more(&stacks.inputs, &stacks.select, &events)? else {
        bail!("an HTML report reads its inputs twice; give files instead of standard input");
    };
    let mut pictures = Vec::new();
    for &&(event, total, area, title) in &recorded {
        let select = SelectArgs { events: vec![event.to_owned()], total, ..stacks.select.clone() };
        let html = match picture(&model, &select, &report.name) {
            Ok(Some(html)) => html,
            Ok(None) => continue,
            Err(error) => {
                talk::warning(format_args!("cannot draw the flame graph of {event}: {error:#}"));
                continue;
            }
        };
        let file = path.with_extension(format!("{event}.html"));
        output::document(&file, &html)?;
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pictures.push(Picture { area, title: title.to_owned(), file });
    }
    output::text(path, |out| write_page(report, &pictures, out))
}

/// Draws the flame graph of an event. Returns `None` if it would be empty.
fn picture(model: &Model, select: &SelectArgs, title: &str) -> Result<Option<Vec<u8>>> {
    let options = stacks::options(select, For::Page);
    let tree = stacks::reshape(select, For::Page)?.tree(fold::fold(model, &options)?);
    if tree.total == 0 {
        return Ok(None);
    }
    let missing = missing::selected_losses(model, &options);
    if let Some(missing) = &missing {
        talk::note(missing);
    }
    let subtitle = picture::headline(model, &options, &[&tree], missing.as_ref(), None, &[]);
    let options = PictureOptions { title: title.to_owned(), subtitle: Some(subtitle), inverted: false };
    let mut html = Vec::new();
    html::write(&tree, &options, &mut html)?;
    Ok(Some(html))
}

/// Returns the functions whose share of CPU time changed beyond noise, largest first.
fn changed(before: &[PathBuf], after: &[PathBuf]) -> Result<Vec<Changed>> {
    let select = SelectArgs { events: vec!["cpu".to_owned()], ..SelectArgs::default() };
    let read = |inputs: &[PathBuf]| stacks::read(inputs, &select, For::Comparison);
    // Measures other than samples can be compared without CPU samples.
    let (Ok(before), Ok(after)) = (read(before), read(after)) else {
        talk::note("the recordings have no common CPU-time samples; functions are not compared");
        return Ok(Vec::new());
    };
    let difference = Difference::new(&before.tree, &after.tree, Scale::Normalized);
    let whole = difference.whole();
    if whole <= 0.0 {
        return Ok(Vec::new());
    }
    let rows = difference.functions(CompareBy::Either);
    let changes = rows.iter().map(|row| (row, row.by(CompareBy::Either))).filter(|(_, change)| !change.noise);
    let changed = changes.map(|(row, change)| Changed {
        function: row.label.text.to_string(),
        before: change.before / whole,
        after: change.after / whole,
    });
    Ok(changed.collect())
}
