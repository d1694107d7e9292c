//! `flightline diff`

mod json;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::amount;
use flightline_consumer::difference::{self, Change, CompareBy, Difference, Limits, Row, SIGMAS, Scale};
use flightline_consumer::fold;
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::difference::{self as picture, DifferenceOptions};
use flightline_consumer::tree::Tree;

use crate::select::SelectArgs;
use crate::stacks::{For, Profile};
use crate::svg::SvgArgs;
use crate::talk::{self, shown};
use crate::{Outcome, help, output, stacks};

pub const EXAMPLES: &str = "\
Examples:
  flightline diff before.jfr after.jfr                         the functions that changed most
  flightline diff before.jfr after.jfr -o diff.html            a flame graph: red more, blue less; \
      removed frames on the right
  flightline diff main.jfr branch.jfr --fail-total 10% --fail-above 5 --fail-relative 50%
                                                               for CI: exit status 3 if a limit is exceeded
  flightline diff old.jfr new.jfr --per 20,11500               per transaction: each recording's number of transactions
  flightline diff a.folded b.folded --no-normalize --by inclusive
  flightline diff both.folded -o diff.svg                      differential text, such as that of difffolded.pl
  flightline diff monday.jfr tuesday.jfr -e cpu --total -I handle_request

The first profile is scaled to the total of the second, so that shares are compared. --no-normalize \
compares weights as recorded, and --per compares weights per unit of work. A change within 2 standard \
deviations of sampling noise (--sigma) is marked ~. Percentages refer to the second profile; with \
--no-normalize or --per, they refer to the scaled first profile.

Limits: --fail-above and --fail-relative apply to each function, in percentage points of the profile and \
in percent of the function's earlier weight. Only changes above sampling noise count. --fail-total \
applies to the total, such as the CPU time of a program that does the same work twice. For a server, use \
it with --per.

Exit status: 0 if no limit was exceeded; 3 if a limit was exceeded; 1 for an error, or if an input could \
only be read in part; 2 for wrong usage.";

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The first profile: a recording, a repository or folded text
    #[arg(value_name = "BEFORE", value_hint = ValueHint::AnyPath)]
    before: PathBuf,
    /// The second profile; `-` is standard input. Not needed for differential text, which has both weights
    #[arg(value_name = "AFTER", value_hint = ValueHint::AnyPath)]
    after: Option<PathBuf>,
    #[command(flatten)]
    select: SelectArgs,
    /// Compare absolute weights instead of shares
    #[arg(long)]
    no_normalize: bool,
    /// Compare weights per unit of work, given the amount of work in both recordings, such as requests or
    /// transactions
    #[arg(long, value_name = "BEFORE,AFTER", value_parser = work, conflicts_with = "no_normalize")]
    per: Option<Work>,
    /// Weight for sorting, limits and colours [default: table and --fail-above by the larger change, flame
    /// graphs by inclusive weight]
    #[arg(long, value_enum)]
    by: Option<ByArg>,
    /// Standard deviations that a change must exceed to count as more than noise
    #[arg(long, value_name = "N", default_value_t = SIGMAS, value_parser = sigmas)]
    sigma: f64,
    /// Exit with status 3 if a function grew by more than this many percentage points of the profile
    #[arg(long, value_name = "POINTS", value_parser = percent)]
    #[arg(help_heading = help::LIMITS)]
    fail_above: Option<f64>,
    /// Fail if a function of at least 1% of the profile grew by more than this percentage
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    #[arg(help_heading = help::LIMITS)]
    fail_relative: Option<f64>,
    /// Fail if the total grew by more than this percentage: as recorded, or per unit of work with --per
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    #[arg(help_heading = help::LIMITS)]
    fail_total: Option<f64>,
    /// Print JSON, with the verdict
    #[arg(long)]
    json: bool,
    /// Maximum number of lines; for JSON, of functions
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,
    /// Write a differential flame graph, or folded text with both weights, to this file; the table is still
    /// printed unless this is `-`, standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Output format [default: by the output's extension, else the table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Flame graph: draw frames as wide as before; frames that are new are separate
    #[arg(long)]
    widths_before: bool,
    /// Flame graph: use orange for more and purple for less
    #[arg(long)]
    color_blind: bool,
    #[command(flatten)]
    picture: SvgArgs,
}

/// Weights of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    /// Stacks that end in it
    #[value(name = "self")]
    Own,
    /// Stacks that contain it
    Inclusive,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Functions that changed
    Table,
    /// An image with script
    Svg,
    /// A page with all views of a flame graph
    Html,
    /// `frame;frame before after`
    Folded,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number.filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(|| "give a percentage, such as 5%".into())
}

/// Amounts of work before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work([f64; 2]);

fn work(text: &str) -> Result<Work, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    let pair = text.split_once(',').and_then(|(before, after)| Some(Work([number(before)?, number(after)?])));
    pair.ok_or_else(|| "give two positive numbers, such as 20,11500".into())
}

fn sigmas(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| "give a number of standard deviations, such as 2".into())
}

/// A comparison with limits.
struct Verdict {
    limits: Limits,
    /// Percent by which the total may grow.
    total_limit: Option<f64>,
    /// The functions that exceed a limit.
    grown: Vec<Row>,
    /// The growth of the total in percent, if it exceeds its limit.
    total: Option<f64>,
}

impl Verdict {
    fn failed(&self) -> bool {
        !self.grown.is_empty() || self.total.is_some()
    }
}

/// Compares two profiles.
pub fn run(args: &DiffArgs) -> Result<Outcome> {
    let inputs = [args.before.as_path(), args.after()];
    if args.after.is_some() && inputs.iter().all(|input| input.as_os_str() == "-") {
        bail!("only one profile can be standard input; give the other as a file");
    }
    let format = args.format()?;
    if let Some(output) = &args.output {
        output::refuse_input(output, inputs)?;
    }
    let (difference, outcome) = read(args)?;
    let by = args
        .by
        .map_or(CompareBy::Either, |by| if by == ByArg::Own { CompareBy::Own } else { CompareBy::Total });
    let verdict = verdict(args, &difference, by);
    let to_stdout =
        format == Format::Table || args.output.as_deref().is_some_and(|path| !output::is_stdout(path));
    if format != Format::Table {
        let picture = draw(args, &difference, format, by)?;
        output::document(args.output.as_deref().unwrap_or(Path::new("-")), &picture)?;
    }
    if to_stdout {
        let path = match format {
            Format::Table => args.output.as_deref().unwrap_or(Path::new("-")),
            _ => Path::new("-"),
        };
        output::text(path, |out| match args.json {
            true => json::write(args, &difference, verdict.as_ref(), by, out),
            false => text::write(args, &difference, by, out),
        })?;
    }
    let Some(verdict) = verdict.filter(Verdict::failed) else { return Ok(outcome) };
    tell(&verdict, &difference, by);
    Ok(Outcome::Differs)
}

impl DiffArgs {
    /// The second input, or the only one if it is differential text.
    fn after(&self) -> &Path {
        self.after.as_deref().unwrap_or(&self.before)
    }

    fn format(&self) -> Result<Format> {
        let by_name = |path: &PathBuf| {
            let ending = path.extension()?.to_ascii_lowercase();
            match ending.to_str()? {
                "svg" => Some(Format::Svg),
                "html" | "htm" => Some(Format::Html),
                "folded" | "collapsed" => Some(Format::Folded),
                _ => None,
            }
        };
        let format = self.format.or_else(|| self.output.as_ref().and_then(by_name)).unwrap_or(Format::Table);
        if let (None, Format::Table, Some(path)) = (self.format, format, &self.output) {
            output::refuse_picture(
                path,
                "the output must end in .html, .htm or .svg; for other names, give --format",
            )?;
        }
        let stdout = self.output.as_deref().is_none_or(output::is_stdout);
        if self.json && format != Format::Table && stdout {
            bail!("--json and the flame graph cannot both go to standard output; give a file with -o");
        }
        Ok(format)
    }
}

fn read(args: &DiffArgs) -> Result<(Difference, Outcome)> {
    let of = |path: &PathBuf| {
        stacks::read(std::slice::from_ref(path), &args.select, For::Comparison).with_context(|| shown(path))
    };
    let before = of(&args.before)?;
    let (mut before, mut after) = match &args.after {
        Some(path) => {
            let after = of(path)?;
            for (side, path) in [(&before, &args.before), (&after, path)] {
                if side.before.is_some() {
                    bail!(
                        "{} is differential text with both profiles; give it as the only input",
                        shown(path)
                    );
                }
            }
            (before, after)
        }
        None => both(args, before)?,
    };
    if let (Some(first), Some(second)) = (&before.model, &after.model) {
        let [first, second] =
            [first, second].map(|model| fold::events(model, &stacks::options(&args.select, For::Comparison)));
        let (first, second) = (first?, second?);
        // Aliases cover the different event types of the recordings.
        if args.select.events.is_empty() && first != second {
            let names = |events: &std::collections::BTreeSet<String>| {
                events.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            };
            bail!(
                "{} has samples of {}, but {} has samples of {}; choose an event with -e",
                shown(&args.before),
                names(&first),
                shown(args.after()),
                names(&second)
            );
        }
    }
    let decimals = |side: &Profile| amount::decimals(&side.tree.unit).1;
    let most = decimals(&before).max(decimals(&after));
    for side in [&mut before, &mut after] {
        side.tree.scale_to(most);
    }
    let [first, second] = [&before, &after].map(|side| side.tree.unit.as_str());
    if first != second {
        bail!("{} is in {first}, but {} is in {second}", shown(&args.before), shown(args.after()));
    }
    if before.tree.total == 0 && after.tree.total == 0 {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let scale = match args.per {
        Some(Work(work)) => Scale::PerWork(work),
        None if args.no_normalize => Scale::By(1.0),
        None => Scale::Normalized,
    };
    let mut difference = Difference::new(&before.tree, &after.tree, scale);
    difference.per_sample = [&before, &after].map(|side| side.per_sample(&args.select));
    difference.sigmas = args.sigma;
    if let Some(hint) = hint(scale != Scale::Normalized, &before.tree, &after.tree) {
        talk::note(format_args!("{hint}"));
    }
    let partial = [before.outcome, after.outcome].contains(&Outcome::Partial);
    Ok((difference, if partial { Outcome::Partial } else { Outcome::Whole }))
}

/// Splits differential text into its two profiles.
fn both(args: &DiffArgs, mut input: Profile) -> Result<(Profile, Profile)> {
    let Some(before) = input.before.take() else {
        bail!(
            "{} is one profile; give a second one. Only differential text can be a single input",
            shown(&args.before)
        );
    };
    let before = Profile {
        tree: before,
        outcome: input.outcome,
        model: None,
        is_total: false,
        missing: None,
        before: None,
    };
    Ok((before, input))
}

/// Returns a hint if the totals differ much: a user who made a program twice as fast wants to compare
/// amounts, not shares.
fn hint(as_recorded: bool, before: &Tree, after: &Tree) -> Option<String> {
    let (less, more) = (before.total.min(after.total), before.total.max(after.total));
    (!as_recorded && less > 0 && more / 2 > less).then(|| {
        let (first, second) = (before.total, after.total);
        let unit = &after.unit;
        format!(
            "comparing shares of {first} and {second} {unit}; use --no-normalize to compare amounts, \
            or --per to compare amounts per unit of work"
        )
    })
}

/// Checks the limits; `None` if none were given.
fn verdict(args: &DiffArgs, difference: &Difference, by: CompareBy) -> Option<Verdict> {
    let limits = Limits { points: args.fail_above, relative: args.fail_relative };
    let total_limit = args.fail_total;
    if limits == Limits::default() && total_limit.is_none() {
        return None;
    }
    let total = difference.total();
    let grew = total.relative();
    let total = total_limit.filter(|limit| !total.noise && grew > *limit).map(|_| grew);
    let grown = if limits == Limits::default() { Vec::new() } else { difference.grown(&limits, by) };
    Some(Verdict { limits, total_limit, grown, total })
}

/// Prints which limits were exceeded, on standard error.
fn tell(verdict: &Verdict, difference: &Difference, by: CompareBy) {
    const TOLD: usize = 5;
    if let (Some(grew), Some(limit)) = (verdict.total, verdict.total_limit) {
        let more = difference::percent_more(grew);
        talk::warning(format_args!("the total grew by {more}; the limit is {limit} % (--fail-total)"));
    }
    let share = |weight: f64| weight / difference.whole() * 100.0;
    for row in verdict.grown.iter().take(TOLD) {
        // Either weight may be the one that exceeds a limit.
        let exceeded = |change: &Change| verdict.limits.exceeded(*change, difference.whole());
        let change = Some(row.by(by))
            .filter(exceeded)
            .unwrap_or_else(|| if exceeded(&row.own) { row.own } else { row.total });
        let weight = if change == row.own { "self" } else { "inclusive" };
        let mut exceeded = Vec::new();
        if let Some(limit) = verdict.limits.points.filter(|limit| share(change.delta()) > *limit) {
            exceeded.push(format!("{limit} points (--fail-above)"));
        }
        if let Some(limit) = verdict.limits.relative.filter(|limit| change.relative() > *limit) {
            exceeded.push(format!("{limit} % of its weight (--fail-relative)"));
        }
        talk::warning(format_args!(
            "{} grew from {:.2} % to {:.2} % of the profile ({weight}): {:+.2} points, {}; the limit is {}",
            row.label.text,
            share(change.before),
            share(change.after),
            share(change.delta()),
            difference::percent_more(change.relative()),
            exceeded.join(" and ")
        ));
    }
    if let Some(more) = verdict.grown.len().checked_sub(TOLD).filter(|&more| more > 0) {
        talk::warning(format_args!("{more} more functions exceed a limit"));
    }
}

fn draw(args: &DiffArgs, difference: &Difference, format: Format, by: CompareBy) -> Result<Vec<u8>> {
    let name = |path: &PathBuf| talk::file_names(std::slice::from_ref(path));
    let title = match &args.after {
        Some(after) => format!("{} → {}", name(&args.before), name(after)),
        None => name(&args.before),
    };
    let colors = if args.color_blind { "orange: more, purple: less" } else { "red: more, blue: less" };
    let totals = difference.totals();
    // A page explains its colours itself.
    let subtitle = match format {
        Format::Html => totals,
        _ => format!("{totals} · {colors}, grey: within noise"),
    };
    let common = PictureOptions { title, subtitle: Some(subtitle), inverted: false };
    let options = DifferenceOptions {
        svg: args.picture.options(common, args.select.min_width),
        before: args.widths_before,
        own: by == CompareBy::Own,
        color_blind: args.color_blind,
        ratio: None,
    };
    let mut written = Vec::new();
    match format {
        Format::Table => {}
        Format::Folded => picture::folded(difference, &mut written)?,
        Format::Svg => picture::svg(difference, &options, &mut written)?,
        Format::Html => {
            if args.select.min_width.is_some() {
                talk::note("--min-width applies only to SVG");
            }
            picture::page(difference, &options, &mut written)?;
        }
    }
    Ok(written)
}
