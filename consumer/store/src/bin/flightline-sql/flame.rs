//! `flightline flame --store`

use std::path::Path;

use anyhow::{Result, bail};
use flightline_consumer::convert::d3;
use flightline_consumer::fold::FoldOptions;
use flightline_consumer::folded;
use flightline_consumer::format::amount;
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::render::{PictureOptions, html, svg};
use flightline_consumer::tree::Tree;
use flightline_store::layout::Table;
use flightline_store::query::Session;
use flightline_store::query::dialect;
use flightline_store::query::hdps;
use flightline_store::query::prune::prune;
use flightline_store::query::tree::{MISSING, grow};
use flightline_store::query::weights::{Choice, Measure};

use crate::args::{FlameArgs, SelectArgs, Sums, TreeFormat};
use crate::choice::{condition_alone, selection_condition};
use crate::{answer, output};

impl SelectArgs {
    /// Returns how samples are weighed.
    pub fn measure(&self) -> Measure {
        if self.total { Measure::Value } else { Measure::Samples }
    }

    /// Returns the table to query.
    pub fn table(&self) -> &'static str {
        self.sums.map_or(Table::Samples, Sums::table).name()
    }

    /// Returns the selection of samples where `filter` holds.
    pub fn choice<'q>(&self, filter: &'q str) -> Choice<'q> {
        Choice { table: self.table(), filter, measure: self.measure() }
    }

    /// Options for frame names, as in `flightline flame` and `fold`. A page distinguishes functions by
    /// library.
    pub fn names(&self, page: bool) -> FoldOptions {
        let (lines, modules) = (self.lines, self.modules);
        FoldOptions { lines, modules, split_modules: page && !modules, ..FoldOptions::default() }
    }

    /// Description of the condition for people.
    pub fn title(&self) -> &str {
        if self.condition.is_empty() { "all samples" } else { &self.condition }
    }
}

/// Returns the tree of the samples where `condition` holds, with frames named as in `names`.
pub async fn tree(
    session: &Session,
    condition: &str,
    select: &SelectArgs,
    names: &FoldOptions,
) -> Result<Tree> {
    let unit = select.measure().unit();
    let grown = grow(session, select.choice(condition), names).await?;
    if grown.missing > 0 {
        output::note(format_args!(
            "{} are of stacks that the store does not have: {MISSING} in what is drawn",
            amount(grown.missing, unit)
        ));
    }
    Ok(grown.tree)
}

/// Writes a flame graph.
pub async fn run(args: &FlameArgs) -> Result<()> {
    let select = &args.select;
    if args.sql {
        let sql =
            dialect::flame(args.engine.into(), select.choice(&condition_alone(select)?), args.min_percent)?;
        return output::text(&args.output, |out| Ok(writeln!(out, "{sql}")?));
    }
    let format = args.format.unwrap_or_else(|| output_format(&args.output));
    let session = answer::open_for(&args.store, select.table(), &select.condition, "1").await?;
    let mut names = select.names(format == TreeFormat::Html);
    names.lines |= format == TreeFormat::Hdps;
    let condition = selection_condition(&session, select).await?;
    let tree = tree(&session, &condition, select, &names).await?;
    let mut told = vec![amount(tree.total, &tree.unit)];
    let tree = if args.min_percent > 0.0 {
        let (left, pruned) = prune(&tree, args.min_percent);
        told.push(format!(
            "pruned {:.1} %: {} boxes narrower than {} %",
            pruned.percent, pruned.boxes, args.min_percent
        ));
        left
    } else {
        tree
    };
    if tree.total == 0 {
        bail!("no sample in {} is one where {}", args.store.store, select.title());
    }
    let (read, passed_over) = session.tables().files();
    output::note(format_args!("{}; {read} files read, {passed_over} passed over", told.join("; ")));
    let options = PictureOptions {
        title: select.title().to_owned(),
        subtitle: Some(told.join(" · ")),
        inverted: false,
    };
    let mut picture = Vec::new();
    match format {
        TreeFormat::Html => html::write(&tree, &options, &mut picture)?,
        TreeFormat::Svg => {
            let options = SvgOptions { picture: options, ..SvgOptions::default() };
            svg::write(&tree, &options, &mut picture)?;
        }
        TreeFormat::D3 => d3::write(&tree, &mut picture)?,
        TreeFormat::Hdps => d3::write_under("<ROOT>", &hdps::named(tree), &mut picture)?,
        TreeFormat::Folded => folded::write(&tree, &mut picture)?,
    }
    match format {
        TreeFormat::Html | TreeFormat::Svg => output::document(&args.output, &picture),
        TreeFormat::D3 | TreeFormat::Hdps | TreeFormat::Folded => {
            output::text(&args.output, |out| Ok(out.write_all(&picture)?))
        }
    }
}

fn output_format(path: &Path) -> TreeFormat {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_ref().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => TreeFormat::Html,
        Some("svg") => TreeFormat::Svg,
        Some("json") => TreeFormat::D3,
        _ => TreeFormat::Folded,
    }
}
