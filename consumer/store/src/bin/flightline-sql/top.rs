//! `flightline store top`

use std::path::Path;

use anyhow::{Result, bail};

use crate::args::TopArgs;
use crate::choice::selection_condition;
use crate::{answer, flame, output};

/// Prints the functions with the most samples.
pub async fn run(args: &TopArgs) -> Result<()> {
    let session = answer::open_for(&args.store, args.select.table(), &args.select.condition, "1").await?;
    let select = &args.select;
    let condition = selection_condition(&session, select).await?;
    let tree = flame::tree(&session, &condition, select, &select.names(false)).await?;
    if tree.total == 0 {
        bail!("no sample in {} is one where {}", args.store.store, args.select.title());
    }
    let mut rows = tree.by_label();
    rows.retain(|&(_, _, total)| total > 0);
    rows.sort_by(|&(a, own_a, total_a), &(b, own_b, total_b)| {
        let by = if args.inclusive { total_b.cmp(&total_a) } else { own_b.cmp(&own_a) };
        let [a, b] = [a, b].map(|label| &tree.labels[label.index()]);
        by.then(total_b.cmp(&total_a)).then_with(|| a.in_order(b))
    });
    let share = |weight: u64| weight as f64 * 100.0 / tree.total as f64;
    output::text(Path::new("-"), |out| {
        writeln!(out, "{} {} where {}", tree.total, tree.unit, args.select.title())?;
        writeln!(out, "{:>12} {:>8} {:>12} {:>8}  function", "self", "", "inclusive", "")?;
        for &(label, own, total) in rows.iter().take(args.limit) {
            let name = output::plain(&tree.labels[label.index()].text);
            writeln!(out, "{own:>12} {:>7.2}% {total:>12} {:>7.2}%  {name}", share(own), share(total))?;
        }
        Ok(())
    })
}
