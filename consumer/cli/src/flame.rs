//! `flightline flame`

mod page;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::missing;
use flightline_consumer::model::Model;
use flightline_consumer::picture;
use flightline_consumer::render::difference::{self, DifferenceOptions, Ratio};
use flightline_consumer::render::java::Java;
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::render::{PictureOptions, chart, svg};
use flightline_consumer::tree::Tree;

use crate::args::{FlameArgs, PictureFormat};
use crate::select::{Counters, SelectArgs};
use crate::stacks::{For, Measures, PageReader, Profile};
use crate::talk;
use crate::{Outcome, output, png, stacks, tracks};

/// Draws a flame graph.
pub fn run(args: &FlameArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.stacks.inputs.iter().map(PathBuf::as_path))?;
    let format = match args.format {
        Some(format) => format,
        None => format_of(&args.output).map_err(|why| anyhow!("{why}; for other names, give --format"))?,
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
    let (inputs, select) = (args.stacks.inputs.clone(), args.stacks.select.clone());
    let (options, reshape) = (stacks::options(&select, as_what), stacks::reshape(&select, as_what)?);
    let mut page = match is_page {
        true => Some(PageReader::new(&inputs, &select, &options, &reshape)?),
        false => None,
    };
    let mut profile = stacks::read_with_times(&inputs, &select, as_what, page.as_mut())?;
    args.stacks.select.total = profile.is_total;
    let args = &args;
    if let Some(before) = profile.before.take() {
        return differential(args, &before, &profile.tree, format);
    }
    let mut picture = Vec::new();
    match format {
        PictureFormat::Html => {
            let outcome = profile.outcome;
            let times = page.and_then(|page| page.times);
            let page = page::events(args, profile, times.as_ref())?;
            page::write(args, page, times, &mut picture)?;
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
        picture = png::of(&picture)?;
    }
    output::document(&args.output, &picture)?;
    Ok(profile.outcome)
}

/// Returns the subtitle of a flame graph of one event.
fn subtitle(args: &FlameArgs, profile: &Profile) -> Option<String> {
    let model = profile.model.as_ref()?;
    let options = stacks::options(&args.stacks.select, For::Svg);
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
            let reshape = stacks::reshape(select, For::Svg)?;
            picture::java(model, &stacks::options(select, For::Svg), &reshape)
        }
        None => Java::default(),
    };
    Ok(args.picture.java(recorded))
}

/// Draws several events: on one page, or one file each.
fn measures(args: &FlameArgs, format: PictureFormat) -> Result<Outcome> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    let what = if format == PictureFormat::Html { For::Page } else { For::Svg };
    let (options, reshape) = (stacks::options(select, what), stacks::reshape(select, what)?);
    let mut reader = match what {
        For::Page => Some(PageReader::new(inputs, select, &options, &reshape)?),
        _ => None,
    };
    let measures = stacks::measures(inputs, select, what, &args.measure, reader.as_mut())?;
    let Measures { trees: measures, outcome, model } = measures;
    if format == PictureFormat::Html {
        let mut page = Vec::new();
        let times = reader.and_then(|reader| reader.times);
        page::write(args, page::selected(args, measures, model)?, times, &mut page)?;
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
                let options = stacks::options(&event, For::Svg);
                let missing = missing::selected_losses(model, &options);
                picture::headline(model, &options, &[tree], missing.as_ref(), None, &[])
            }
            None => format!("{name}: {}", talk::amount(tree.total, &tree.unit)),
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
            picture = png::of(&picture)?;
        }
        output::document(&beside(&args.output, name), &picture)?;
    }
    Ok(outcome)
}

/// `x.svg` for `wall` becomes `x.wall.svg`.
fn beside(output: &Path, name: &str) -> PathBuf {
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
    let (difference, outcome) = stacks::counters(&args.stacks.inputs, &args.stacks.select, counters)?;
    let ratio = Ratio { of: counters.of.clone(), over: counters.over.clone() };
    let (told, colors) =
        (ratio.total_line(&difference), "red: above average, blue: below average, grey: within noise");
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
        picture = png::of(&picture)?;
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
    Ok(chart::svg(&tracks::read(inputs, select, profile, For::Svg)?, options, picture)?)
}

/// Returns the format for an output name; without an extension a page.
///
/// # Errors
/// Returns an error if the extension belongs to another format.
pub fn format_of(path: &Path) -> Result<PictureFormat, String> {
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
    talk::file_names(&args.stacks.inputs)
}
