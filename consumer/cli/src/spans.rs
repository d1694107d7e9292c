//! `flightline spans`

mod json;
mod read;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, ValueHint};
use flightline_consumer::Error;
use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::fold::{self, Filter as SampleFilter, FoldOptions};
use flightline_consumer::folded;
use flightline_consumer::model::Model;
use flightline_consumer::picture;
use flightline_consumer::render::difference::DifferenceOptions;
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::render::trace::TraceView;
use flightline_consumer::render::{self, PictureOptions, html, svg};
use flightline_consumer::spans::report::{self, Extremes, Filter, GroupBy};
use flightline_consumer::spans::trace::{Line, MOST_LINES, lines};
use flightline_consumer::spans::{Profile, SpanReport, TraceId};
use flightline_consumer::tree::Tree;
use regex::Regex;

use crate::select::SelectArgs;
use crate::stacks::For;
use crate::talk::all_shown;
use crate::{Outcome, help, output, stacks};
pub use read::read_model;

pub const EXAMPLES: &str = "\
Examples:
  flightline spans run.jfr                                  one line per span name
  flightline spans run.jfr --by endpoint
  flightline spans run.jfr --by label=tenant --span checkout
  flightline spans run.jfr --trace 4bf92f3577b34da6a3ce929d0e0e4736
  flightline spans run.jfr --trace 4bf92f3577b34da6a3ce929d0e0e4736 --inferred -o trace.html
  flightline spans run.jfr --slowest --span checkout -o diff.html
  flightline spans run.jfr --inferred --min-duration 5ms --not-inferred '^libc'
  flightline record -o - -- ./server | flightline spans -   until the program ends, or Ctrl-C
  flightline flame run.jfr --span checkout -o checkout.html

Spans come from the program (tracing, OpenTelemetry, flightline.h), from profiler.Span events, from the \
span ids of Datadog and Grafana, or from contextual events of a JDK. Costs of a span exclude its child \
spans. See docs/guide/tasks/spans.md.";

/// Arguments of `spans`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("kind").args(["trace", "slowest", "by"]))]
pub struct SpansArgs {
    /// Recordings, repositories or streams: `-`, a FIFO, fd:N, unix:PATH, tcp:HOST:PORT
    #[arg(required = true, value_name = "FILE|DIR|STREAM", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// One row per name, endpoint (the outermost span of the process), trace, or value of a label
    #[arg(long, value_name = "name|endpoint|trace|label=KEY", value_parser = by, default_value = "name")]
    by: GroupBy,
    /// Show one trace: its spans and their times; with -o FILE.html a page with the activity of its threads,
    /// otherwise its flame graph
    #[arg(long, value_name = "ID")]
    trace: Option<TraceId>,
    /// Compare the slowest spans of a name (that of --span, else the one with the most time) with the median
    /// ones; with -o a differential flame graph
    #[arg(long)]
    slowest: bool,
    /// Infer spans from samples: functions that ran for long within a span
    #[arg(long)]
    #[arg(help_heading = help::INFERRED)]
    inferred: bool,
    /// Minimum duration of an inferred span
    #[arg(long, value_name = "SPAN", default_value = "0ms", requires = "inferred")]
    #[arg(value_parser = flightline_recorder::settings::units::duration)]
    #[arg(help_heading = help::INFERRED)]
    min_duration: Duration,
    /// Exclude matching functions from inferred spans, as class.function or library.function; repeatable
    #[arg(long, value_name = "REGEX", requires = "inferred")]
    #[arg(help_heading = help::INFERRED)]
    not_inferred: Vec<Regex>,
    /// Flame graph: html, svg, else folded text, by the extension; `-` is folded text on standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Maximum number of lines
    #[arg(long, value_name = "N", default_value_t = 40)]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Selection of spans and samples, and appearance of the flame graph.
    #[command(flatten)]
    select: SelectArgs,
    /// The token for a recorder on TCP is in this file [default: FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::STREAM)]
    token_file: Option<PathBuf>,
}

/// Parses the grouping of spans.
///
/// # Errors
/// Returns an error if the text is none of them.
pub fn by(text: &str) -> Result<GroupBy, String> {
    match text {
        "name" | "span" => Ok(GroupBy::Name),
        "endpoint" => Ok(GroupBy::Endpoint),
        "trace" => Ok(GroupBy::Trace),
        _ => match text.strip_prefix("label=").filter(|key| !key.is_empty()) {
            Some(key) => Ok(GroupBy::Label(key.into())),
            None => Err("give span (or name), endpoint, trace or label=KEY".into()),
        },
    }
}

/// Prints a summary by span.
pub fn run(args: &SpansArgs) -> Result<Outcome> {
    if let Some(output) = &args.output {
        output::refuse_input(output, args.inputs.iter().map(PathBuf::as_path))?;
        output::refuse_picture(
            output,
            "the name of a flame graph must end in .html, .htm or .svg; other names get folded text",
        )?;
        if args.json && output.as_os_str() == "-" {
            bail!("--json and `-o -` cannot both go to standard output; give a file with -o");
        }
    }
    let (found, outcome) = read::read(args)?;
    let filter =
        Filter { names: args.select.spans.clone(), labels: args.select.labels.clone(), trace: args.trace };
    check(&args.inputs, &found.profile, &filter)?;
    if args.slowest {
        slowest(args, found, &filter)?;
    } else if let Some(trace) = args.trace {
        let most = if args.pictured().is_some() { render::trace::MOST_SPANS } else { MOST_LINES };
        let (mut lines, mut left_out) = lines(&found.profile, &found.inferred, trace, most);
        picture(args, &found, trace, &lines, left_out)?;
        left_out += lines.len().saturating_sub(MOST_LINES) as u64;
        lines.truncate(MOST_LINES);
        output::text(Path::new("-"), |out| match args.json {
            true => json::trace(&found, trace, &lines, out),
            false => text::trace(trace, &lines, left_out, out),
        })?;
        if args.pictured().is_none() {
            draw(args, found, &filter, &format!("trace {trace}"))?;
        }
    } else {
        let table = report::table(&found.profile, &args.by, &filter);
        output::text(Path::new("-"), |out| match args.json {
            true => json::table(&found, &table, &args.by, &filter, out),
            false => text::table(&found, &table, &args.by, args.limit, out),
        })?;
        if args.inferred && !args.json {
            let rows = report::inferred(&found.profile, &found.inferred, &filter);
            output::text(Path::new("-"), |out| text::inferred(&rows, args.limit, out))?;
        }
        draw(args, found, &filter, &all_shown(&args.inputs))?;
    }
    Ok(outcome)
}

/// Returns true if the output is a page.
fn is_page(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["html", "htm"].iter().any(|page| ending.eq_ignore_ascii_case(page)))
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"))
}

impl SpansArgs {
    /// Returns the trace for which a page was requested.
    fn pictured(&self) -> Option<TraceId> {
        self.trace.filter(|_| self.output.as_deref().is_some_and(is_page))
    }

    fn svg(&self, picture: &PictureOptions) -> SvgOptions {
        let svg = SvgOptions::new(picture);
        SvgOptions { min_width: self.select.min_width.unwrap_or(svg.min_width), ..svg }
    }

    /// Returns the purpose of the flame graph.
    fn what(&self) -> For {
        match &self.output {
            Some(path) if is_page(path) => For::Page,
            Some(path) if is_svg(path) => For::Svg,
            _ => For::Text,
        }
    }
}

/// Writes the page of a trace, if requested.
fn picture(
    args: &SpansArgs,
    found: &SpanReport,
    trace: TraceId,
    lines: &[Line],
    left_out: u64,
) -> Result<()> {
    let (Some(path), Some(moments)) = (&args.output, &found.moments) else { return Ok(()) };
    if !args.select.events.is_empty() || args.select.total {
        bail!(
            "-e and --total apply only to flame graphs; the page of a trace has all events, by time and bytes"
        );
    }
    let mut page = Vec::new();
    let view = TraceView { profile: &found.profile, trace, lines, left_out, moments };
    render::trace::write(&view, &mut page).with_context(|| format!("the page of trace {trace}"))?;
    output::document(path, &page)
}

/// Checks that there are spans and that some pass the filter.
///
/// # Errors
/// Returns an error that lists the alternatives if nothing matches.
pub fn check(inputs: &[PathBuf], profile: &Profile, filter: &Filter) -> Result<()> {
    let entries = profile.entries();
    if entries.is_empty() {
        bail!(
            "{} contains no spans. Programs emit them through `tracing`, OpenTelemetry or flightline.h \
             (see docs/guide/tasks/spans.md); `flightline record` stores them unless run with --spans off",
            all_shown(inputs)
        );
    }
    if !filter.is_all() && !entries.iter().any(|entry| filter.passes(profile, entry)) {
        let mut names: Vec<&str> = entries.iter().map(|entry| entry.name()).collect();
        names.sort_unstable();
        names.dedup();
        let more = if names.len() > 12 { format!(" and {} more", names.len() - 12) } else { String::new() };
        let what = match (filter.trace, &filter.names[..], &filter.labels[..]) {
            (Some(trace), [], []) => format!("no span of trace {trace} (--by trace lists the traces)"),
            _ => "no span that matches --span, --label and --trace".to_owned(),
        };
        bail!(
            "{} has {what}; its spans are {}{more}",
            all_shown(inputs),
            names[..names.len().min(12)].join(", ")
        );
    }
    Ok(())
}

fn slowest(args: &SpansArgs, found: SpanReport, filter: &Filter) -> Result<()> {
    let Some(extremes) = report::extremes(&found.profile, filter) else {
        bail!("--slowest needs at least three spans of the same name with a known duration");
    };
    output::text(Path::new("-"), |out| match args.json {
        true => json::extremes(&found.profile, &extremes, out),
        false => text::extremes(&found.profile, &extremes, out),
    })?;
    let Some(path) = &args.output else { return Ok(()) };
    let Extremes { name, slowest, median } = extremes;
    let sets = [&median, &slowest].map(|keys| report::with_descendants(&found.profile, keys));
    let models = found.profile.into_models(&sets);
    // Average per span of each kind.
    let counts = [median.len() as u64, slowest.len() as u64];
    let trees = both(args, &models)?;
    let scale = Scale::By(counts[1] as f64 / counts[0].max(1) as f64);
    let mut difference = Difference::new(&trees[0], &trees[1], scale);
    if args.select.total {
        let mut counting = args.clone();
        counting.select.total = false;
        let counted = both(&counting, &models)?;
        difference.per_sample =
            [0, 1].map(|side| trees[side].total as f64 / counted[side].total.max(1) as f64);
    }
    let options = PictureOptions {
        title: format!("{name}: {} slowest against {} median spans", counts[1], counts[0]),
        subtitle: Some(match is_page(path) {
            true => format!("median → slowest; {}, as many median spans as slow ones", trees[1].unit),
            false => format!("red: more than in median spans; blue: less; {} of slow spans", trees[1].unit),
        }),
        inverted: false,
    };
    let options = DifferenceOptions { svg: args.svg(&options), ..DifferenceOptions::default() };
    let mut picture = Vec::new();
    match is_svg(path) {
        true => render::difference::svg(&difference, &options, &mut picture)?,
        false if is_page(path) => render::difference::page(&difference, &options, &mut picture)?,
        false => render::difference::folded(&difference, &mut picture)?,
    }
    output::document(path, &picture)
}

/// Builds trees of the same events for both sides; a side without these events is empty.
fn both(args: &SpansArgs, models: &[Model; 2]) -> Result<[Tree; 2]> {
    let mut events = args.select.events.clone();
    // Slow spans are best explained by wall-clock time.
    let has_wall = |model: &Model| fold::fold(model, &of_events(args, &["wall".to_owned()])).is_ok();
    if events.is_empty() && models.iter().any(has_wall) {
        events.push("wall".into());
    }
    let reshape = stacks::reshape(&args.select, args.what())?;
    let [before, after] = models
        .each_ref()
        .map(|model| fold::fold(model, &of_events(args, &events)).map(|tree| reshape.tree(tree)));
    let empty = |tree: &Tree| Tree { nodes: Vec::new(), total: 0, ..tree.clone() };
    Ok(match (before, after) {
        (Err(Error::NoSuchEvent { .. }), Ok(after)) => [empty(&after), after],
        (Ok(before), Err(Error::NoSuchEvent { .. })) => {
            let after = empty(&before);
            [before, after]
        }
        (before, after) => [before?, after?],
    })
}

fn of_events(args: &SpansArgs, events: &[String]) -> FoldOptions {
    // Samples were selected when they were read.
    FoldOptions {
        events: events.to_vec(),
        filter: SampleFilter::default(),
        ..stacks::options(&args.select, args.what())
    }
}

fn tree(args: &SpansArgs, model: &Model) -> Result<Tree> {
    let tree = fold::fold(model, &of_events(args, &args.select.events))?;
    Ok(stacks::reshape(&args.select, args.what())?.tree(tree))
}

/// Writes the flame graph, if requested.
fn draw(args: &SpansArgs, found: SpanReport, filter: &Filter, title: &str) -> Result<()> {
    let Some(path) = &args.output else { return Ok(()) };
    let model = found.profile.into_model(|profile, entry| match entry {
        Some(entry) => filter.passes(profile, entry),
        None => filter.is_all(),
    });
    let tree = tree(args, &model)?;
    let selected = of_events(args, &args.select.events);
    let subtitle = picture::headline(&model, &selected, &[&tree], None, None, &[]);
    let options = PictureOptions { title: title.to_owned(), subtitle: Some(subtitle), inverted: false };
    let mut picture = Vec::new();
    match args.what() {
        For::Page => html::write(&tree, &options, &mut picture),
        For::Svg => svg::write(&tree, &args.svg(&options), &mut picture),
        For::Tool | For::Text | For::Comparison => folded::write(&tree, &mut picture),
    }
    .with_context(|| format!("the flame graph of {title}"))?;
    output::document(path, &picture)
}
