//! `flightline flame`

mod page;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::missing;
use flightline_consumer::model::Model;
use flightline_consumer::picture;
use flightline_consumer::render::difference::{self, DifferenceOptions, Ratio};
use flightline_consumer::render::java::Java;
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::render::{PictureOptions, chart, svg};
use flightline_consumer::tree::Tree;

use crate::args::{
    appearance::SvgArgs,
    selection::{Counters, SelectArgs, StackArgs, counters},
};
use crate::input::{
    profile::{self, For, Measures, Profile},
    timeline,
};
use crate::output::{self, png};
use crate::{Outcome, diagnostics};

pub const EXAMPLES: &str = "\
Examples:
  flightline flame run.jfr -o flame.html
  flightline flame run.jfr --threads -o threads.svg             one tower per thread
  flightline flame run.jfr --measure cpu,wall,alloc -o all.html one page for CPU time, wall-clock time, bytes
  flightline flame run.jfr --measure cycles,page-faults -o x.svg  x.cycles.svg and x.page-faults.svg
  flightline flame run.jfr --cpi -o cpi.html                    cycles, coloured by cycles per instruction
  perf record -e cycles,instructions -g ./prog; perf script | flightline flame - --cpi -o cpi.svg
  flightline record -o - -- ./server | flightline flame - -o x.svg
  flightline flame --store DIR --where \"service = 'api'\" -o api.html   samples of a store; for its options add --help
  perf script | stackcollapse-perf.pl | flightline flame - -o x.html";

/// Arguments of `flame`.
#[derive(Clone, Debug, Args)]
pub struct FlameArgs {
    /// The inputs and their selection.
    #[command(flatten)]
    pub stacks: StackArgs,
    /// Count samples. By default allocations and live memory are weighed in bytes; waits, reads and writes by
    /// time
    #[arg(long, conflicts_with_all = ["total", "measure", "cpi"])]
    pub count: bool,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    pub output: PathBuf,
    /// html, svg or png [default: by the output's extension, else html]
    #[arg(long, value_enum, display_order = 2)]
    pub format: Option<PictureFormat>,
    /// SVG and PNG: draw stacks of a recording in order of time with one part per thread; merge only adjacent
    /// equal frames
    #[arg(long, conflicts_with_all = ["reverse", "threads", "process"])]
    pub flame_chart: bool,
    /// Draw several events, named as for --event, by time or bytes if available, else by count. The HTML page
    /// switches between them (V); SVG and PNG write one file each, such as FILE.cpu.svg. Without --measure
    /// and --event, the page of a recording offers up to 12 events
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', conflicts_with_all = ["events", "total", "flame_chart", "cpi"])]
    pub measure: Vec<String>,
    /// Draw the ratio of two counters that were sampled together: widths are the first counter; red frames
    /// have more of it per unit of the second than the whole, blue frames less. For folded text, give two
    /// inputs instead, the first counter first
    #[arg(long, value_name = "CYCLES,INSTRUCTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "cycles,instructions", value_parser = counters,
          conflicts_with_all = ["events", "total", "flame_chart"])]
    pub cpi: Option<Counters>,
    /// HTML: omit the samples' timestamps; the page then has no heat map, chart or selection of threads
    #[arg(long)]
    pub no_time: bool,
    /// Appearance.
    #[command(flatten)]
    pub picture: SvgArgs,
}

impl FlameArgs {
    /// Returns the default arguments for one recording.
    pub fn new(recording: PathBuf, output: PathBuf, title: String) -> Self {
        Self {
            stacks: StackArgs { inputs: vec![recording], select: SelectArgs::default() },
            count: false,
            output,
            format: None,
            flame_chart: false,
            measure: Vec::new(),
            cpi: None,
            no_time: false,
            picture: SvgArgs::titled(title),
        }
    }
}

/// Image and page formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PictureFormat {
    /// One self-contained page
    Html,
    /// An image with script
    Svg,
    /// The same as pixels, rendered by Chromium
    Png,
}

/// Draws a flame graph.
pub fn run(args: &FlameArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.stacks.inputs.iter().map(PathBuf::as_path))?;
    let format = match args.format {
        Some(format) => format,
        None => {
            output_format(&args.output).map_err(|why| anyhow!("{why}; for other names, give --format"))?
        }
    };
    if args.flame_chart && format == PictureFormat::Html {
        bail!("--flame-chart applies to SVG and PNG; give an output that ends in .svg or .png");
    }
    if let Some(counters) = &args.cpi {
        return ratio(args, counters, format);
    }
    if !args.measure.is_empty() {
        return measures(args, format);
    }
    let is_page = format == PictureFormat::Html;
    let as_what = if is_page { For::Page } else { For::Svg };
    let mut args = args.clone();
    args.stacks.select.count = args.count || args.flame_chart;
    let mut profile = profile::read(&args.stacks.inputs, &args.stacks.select, as_what)?;
    args.stacks.select.total = profile.is_total;
    let args = &args;
    if let Some(before) = profile.before.take() {
        return differential(args, &before, &profile.tree, format);
    }
    let mut picture = Vec::new();
    match format {
        PictureFormat::Html => {
            let outcome = profile.outcome;
            page::write(args, page::events(args, profile)?, &mut picture)?;
            output::document(&args.output, &picture)?;
            return Ok(outcome);
        }
        PictureFormat::Svg | PictureFormat::Png => {
            let options =
                PictureOptions { title: title(args), subtitle: subtitle(args, &profile), inverted: false };
            let mut options = args.picture.options(options, args.stacks.select.min_width);
            options.java = java(args, profile.model.as_ref(), &args.stacks.select)?;
            if format == PictureFormat::Png {
                png::fit(&mut options, args.stacks.select.min_width);
            }
            draw(args, &profile, &options, &mut picture)?;
        }
    }
    if format == PictureFormat::Png {
        picture = png::render(&picture)?;
    }
    output::document(&args.output, &picture)?;
    Ok(profile.outcome)
}

/// Returns the subtitle of a flame graph of one event.
fn subtitle(args: &FlameArgs, profile: &Profile) -> Option<String> {
    let model = profile.model.as_ref()?;
    let options = profile::options(&args.stacks.select, For::Svg);
    let others = picture::also_recorded(model, &options);
    let about = picture::headline(model, &options, &[&profile.tree], profile.missing.as_ref(), None, &others);
    // The axis of a chart: gaps between samples have no width.
    let axis = " · left to right: the samples of each thread in order of time";
    Some(if args.flame_chart { about + axis } else { about })
}

/// Returns the Java categories for SVG and PNG.
fn java(args: &FlameArgs, model: Option<&Model>, select: &SelectArgs) -> Result<Java> {
    let recorded = match model {
        Some(model) => {
            let reshape = profile::reshape(select, For::Svg)?;
            picture::java(model, &profile::options(select, For::Svg), &reshape)
        }
        None => Java::default(),
    };
    Ok(args.picture.java(recorded))
}

/// Draws several events: on one page, or one file each.
fn measures(args: &FlameArgs, format: PictureFormat) -> Result<Outcome> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    let what = if format == PictureFormat::Html { For::Page } else { For::Svg };
    let Measures { trees: measures, outcome, model } =
        profile::measures(inputs, select, what, &args.measure)?;
    if format == PictureFormat::Html {
        let mut page = Vec::new();
        page::write(args, page::selected(args, measures, model.as_ref())?, &mut page)?;
        output::document(&args.output, &page)?;
        return Ok(outcome);
    }
    if output::is_stdout(&args.output) && measures.len() > 1 {
        bail!("several events with --measure write one file each; give the name with -o");
    }
    for (name, tree) in &measures {
        let event = SelectArgs { events: vec![name.clone()], ..select.clone() };
        let subtitle = match &model {
            Some(model) => {
                let options = profile::options(&event, For::Svg);
                let missing = missing::of(model, &options);
                picture::headline(model, &options, &[tree], missing.as_ref(), None, &[])
            }
            None => format!("{name}: {}", diagnostics::amount(tree.total, &tree.unit)),
        };
        let options = PictureOptions { title: title(args), subtitle: Some(subtitle), inverted: false };
        let mut svg = args.picture.options(options, select.min_width);
        if format == PictureFormat::Png {
            png::fit(&mut svg, select.min_width);
        }
        svg.java = java(args, model.as_ref(), &event)?;
        let mut picture = Vec::new();
        svg::write(tree, &svg, &mut picture)?;
        if format == PictureFormat::Png {
            picture = png::render(&picture)?;
        }
        output::document(&measure_path(&args.output, name), &picture)?;
    }
    Ok(outcome)
}

/// `x.svg` for `wall` becomes `x.wall.svg`.
fn measure_path(output: &Path, name: &str) -> PathBuf {
    if output::is_stdout(output) {
        return output.to_owned();
    }
    let plain = name.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "_");
    match output.extension() {
        Some(ending) => output.with_extension(format!("{plain}.{}", ending.to_string_lossy())),
        None => output.with_added_extension(plain),
    }
}

/// Draws the ratio of two counters.
fn ratio(args: &FlameArgs, counters: &Counters, format: PictureFormat) -> Result<Outcome> {
    let (difference, outcome) = profile::counters(&args.stacks.inputs, &args.stacks.select, counters)?;
    let ratio = Ratio { of: counters.of.clone(), over: counters.over.clone() };
    let (told, colors) =
        (ratio.told(&difference), "red: above average, blue: below average, grey: within noise");
    draw_difference(args, &difference, Some(ratio), &told, colors, format)?;
    Ok(outcome)
}

/// Draws differential text: widths represent the second profile, colours the change of shares.
fn differential(args: &FlameArgs, before: &Tree, after: &Tree, format: PictureFormat) -> Result<Outcome> {
    if before.total == 0 && after.total == 0 {
        return Err(flightline_consumer::Error::NoSamples.into());
    }
    let difference = Difference::new(before, after, Scale::Normalized);
    let (totals, colors) = (difference.totals(), "red: more, blue: less, grey: within noise");
    draw_difference(args, &difference, None, &totals, colors, format)?;
    Ok(Outcome::Whole)
}

fn draw_difference(
    args: &FlameArgs,
    difference: &Difference,
    ratio: Option<Ratio>,
    told: &str,
    colors: &str,
    format: PictureFormat,
) -> Result<()> {
    // A page explains its colours itself.
    let subtitle = match format {
        PictureFormat::Html => told.to_owned(),
        _ => format!("{told} · {colors}"),
    };
    let common = PictureOptions { title: title(args), subtitle: Some(subtitle), inverted: false };
    let mut svg = args.picture.options(common, args.stacks.select.min_width);
    if format == PictureFormat::Png {
        png::fit(&mut svg, args.stacks.select.min_width);
    }
    let options = DifferenceOptions { svg, ratio, ..DifferenceOptions::default() };
    let mut picture = Vec::new();
    match format {
        PictureFormat::Html => difference::page(difference, &options, &mut picture)?,
        PictureFormat::Svg | PictureFormat::Png => difference::svg(difference, &options, &mut picture)?,
    }
    if format == PictureFormat::Png {
        picture = png::render(&picture)?;
    }
    output::document(&args.output, &picture)
}

fn draw(args: &FlameArgs, profile: &Profile, options: &SvgOptions, picture: &mut Vec<u8>) -> Result<()> {
    if !args.flame_chart {
        return Ok(svg::write(&profile.tree, options, picture)?);
    }
    if profile.model.is_none() {
        bail!("--flame-chart needs a recording: folded text has no timestamps");
    }
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    Ok(chart::svg(&timeline::read(inputs, select, profile, For::Svg)?, options, picture)?)
}

/// Returns the format for an output name; without an extension a page.
///
/// # Errors
/// Returns an error if the extension belongs to another format.
pub fn output_format(path: &Path) -> Result<PictureFormat, String> {
    let Some(ending) = path.extension() else { return Ok(PictureFormat::Html) };
    match ending.to_ascii_lowercase().to_str() {
        Some("html" | "htm") => Ok(PictureFormat::Html),
        Some("svg") => Ok(PictureFormat::Svg),
        Some("png") => Ok(PictureFormat::Png),
        _ => Err(format!(
            "{}: the name of a flame graph must end in .html, .htm, .svg or .png",
            path.display()
        )),
    }
}

fn title(args: &FlameArgs) -> String {
    diagnostics::file_names(&args.stacks.inputs)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn new_arguments_equal_parsed_defaults() {
        let mut command = FlameArgs::augment_args(clap::Command::new("flame"));
        let words = ["flame", "--title=t", "-o=x.svg", "run.jfr"];
        let parsed = FlameArgs::from_arg_matches(&command.try_get_matches_from_mut(words).unwrap()).unwrap();
        let new = FlameArgs::new("run.jfr".into(), "x.svg".into(), "t".into());
        assert_eq!(format!("{new:?}"), format!("{parsed:?}"));
    }
}
