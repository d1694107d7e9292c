//! `flightline store diff`

use std::io::Write;

use anyhow::{Result, bail};
use flightline_consumer::difference::{Change, CompareBy, Difference, Row, Scale};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::difference::{self, DifferenceOptions};
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::reshape::with_stable_names;
use flightline_store::query::session::condition;
use flightline_store::query::weights::weights;

use crate::args::{DiffArgs, SelectArgs};
use crate::choice::selection_condition;
use crate::{answer, flame, output};

/// Compares two filters.
pub async fn run(args: &DiffArgs) -> Result<()> {
    let either = format!("({}) OR ({})", args.before, args.after);
    let asked = match args.select.condition.as_str() {
        "" => either,
        of_both => format!("({of_both}) AND ({either})"),
    };
    let session = answer::open_for(&args.store, args.select.table(), &asked, "1").await?;
    let of_type = selection_condition(&session, &args.select).await?;
    let both = |one: &str| anyhow::Ok(format!("{of_type} AND {}", condition(one)?));
    let names = args.select.names(false);
    let before = flame::tree(&session, &both(&args.before)?, &args.select, &names).await?;
    let after = flame::tree(&session, &both(&args.after)?, &args.select, &names).await?;
    for (tree, which) in [(&before, &args.before), (&after, &args.after)] {
        if tree.total == 0 {
            bail!("no sample in {} is one where {which}", args.store.store);
        }
    }
    let [before, after] = [before, after].map(with_stable_names);
    let scale = if args.no_normalize { Scale::By(1.0) } else { Scale::Normalized };
    let mut difference = Difference::new(&before, &after, scale);
    if args.select.total {
        let counted = SelectArgs { total: false, ..args.select.clone() };
        for (at, (which, tree)) in [(&args.before, &before), (&args.after, &after)].into_iter().enumerate() {
            let samples = weights(&session, counted.choice(&both(which)?)).await?;
            difference.per_sample[at] = tree.total as f64 / samples.total.max(1) as f64;
        }
    }
    let title = format!("{} → {}", args.before, args.after);
    let totals = difference.totals();
    let common = PictureOptions { title, subtitle: Some(totals), inverted: false };
    let options = DifferenceOptions {
        svg: SvgOptions { picture: common, ..SvgOptions::default() },
        ..DifferenceOptions::default()
    };
    let mut picture = Vec::new();
    match args.output.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => difference::page(&difference, &options, &mut picture)?,
        Some("svg") => difference::svg(&difference, &options, &mut picture)?,
        Some("folded" | "collapsed") => difference::folded(&difference, &mut picture)?,
        _ => return output::text(&args.output, |out| table(args, &difference, out)),
    }
    output::document(&args.output, &picture)
}

/// Prints the functions with the largest changes.
fn table(args: &DiffArgs, difference: &Difference, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{} → {}", args.before, args.after)?;
    writeln!(out, "{}", difference.totals())?;
    let rows = difference.functions(CompareBy::Either);
    let changed = |row: &&Row| row.own.delta() != 0.0 || row.total.delta() != 0.0;
    let share = |weight: f64| weight / difference.whole() * 100.0;
    let part = |change: Change| {
        let mark = if change.noise && change.delta() != 0.0 { '~' } else { ' ' };
        let [before, after, delta] = [change.before, change.after, change.delta()].map(share);
        format!("{before:>7.2}% {after:>7.2}% {delta:>+7.2}%{mark}")
    };
    let heading = format!("{:>8} {:>8} {:>8} ", "before", "after", "change");
    writeln!(out, "\n{:^27}  {:^27}\n{heading}  {heading}  function", "self", "inclusive")?;
    for row in rows.iter().filter(changed).take(args.limit) {
        writeln!(out, "{}  {}  {}", part(row.own), part(row.total), output::plain(&row.label.text))?;
    }
    let left = rows.iter().filter(changed).count().saturating_sub(args.limit);
    if left > 0 {
        writeln!(out, "{left} more functions changed (see --limit)")?;
    }
    writeln!(out, "~ within {} standard deviations of sampling noise", difference.sigmas)?;
    Ok(())
}
