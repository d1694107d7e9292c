//! `flightline flame`

use std::path::{Path, PathBuf};

use anyhow::Result;
use flightline_consumer::model::Model;
use flightline_consumer::render::{PictureOptions, html, svg};

use crate::args::{FlameArgs, PictureFormat};
use crate::stacks::For;
use crate::talk::shown;
use crate::{Outcome, output, stacks};

/// Draws a flame graph.
pub fn run(args: &FlameArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.stacks.inputs.iter().map(PathBuf::as_path))?;
    let format = args.format.unwrap_or_else(|| format_of(&args.output));
    let as_what = if format == PictureFormat::Html { For::Page } else { For::Svg };
    let profile = stacks::read(&args.stacks.inputs, &args.stacks.select, as_what)?;
    let options = PictureOptions {
        title: title(args),
        subtitle: profile.model.as_ref().map(|model| subtitle(model, profile.tree.total, &profile.tree.unit)),
        inverted: false,
    };
    let mut picture = Vec::new();
    match format {
        PictureFormat::Html => {
            let other = profile.otherwise(&args.stacks.select, For::Page)?;
            let measures: Vec<_> = [&profile.tree].into_iter().chain(&other).collect();
            html::write_measures(&measures, &args.picture.common(options), &mut picture)?;
        }
        PictureFormat::Svg => svg::write(
            &profile.tree,
            &args.picture.options(options, args.stacks.select.min_width),
            &mut picture,
        )?,
    }
    output::document(&args.output, &picture)?;
    Ok(profile.outcome)
}

fn format_of(path: &Path) -> PictureFormat {
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => PictureFormat::Svg,
        _ => PictureFormat::Html,
    }
}

fn title(args: &FlameArgs) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(|| shown(path), |n| shown(Path::new(n)));
    let names: Vec<String> = args.stacks.inputs.iter().map(name).collect();
    names.join(", ")
}

/// What the widths mean.
fn subtitle(model: &Model, total: u64, unit: &str) -> String {
    let chunks = if model.chunks == 1 { "1 chunk".into() } else { format!("{} chunks", model.chunks) };
    format!("{total} {unit} · {chunks}")
}
