//! `flightline store share`

use std::path::Path;

use anyhow::{Result, bail};
use flightline_store::query::function_share::{Question, shares};

use crate::args::ShareArgs;
use crate::choice::selection_condition;
use crate::{answer, output};

/// Prints the share of a function over time, as CSV.
pub async fn run(args: &ShareArgs) -> Result<()> {
    let session =
        answer::open_for(&args.store, args.select.table(), &args.select.condition, &args.by).await?;
    let select = &args.select;
    let condition = selection_condition(&session, select).await?;
    let question = Question { choice: select.choice(&condition), by: &args.by, every: args.every };
    let wanted = |label: &flightline_consumer::tree::Label| args.function.is_match(&label.text);
    let shares = shares(&session, &question, &select.names(false), wanted).await?;
    if shares.is_empty() {
        bail!("no sample in {} is one where {}", args.store.store, args.select.title());
    }
    output::text(Path::new("-"), |out| {
        writeln!(out, "begin,{},of_function,total,percent", quoted(&args.by))?;
        for ((begin, of_what), share) in &shares {
            let (of, total, percent) = (share.of_function, share.total, share.percent());
            writeln!(out, "{begin},{},{of},{total},{percent:.4}", quoted(of_what))?;
        }
        Ok(())
    })
}

/// Quotes a CSV field if necessary.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
