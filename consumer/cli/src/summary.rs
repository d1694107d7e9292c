//! `flightline summary`

use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::summary::Summary;

use crate::args::SummaryArgs;
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, output};

/// Tells what is in a recording.
pub fn run(args: SummaryArgs) -> Result<Outcome> {
    let mut input = input::recording(&args.input)?;
    let mut summary = Summary::new();
    let progress = Progress::new(input.size());
    loop {
        progress.at(input.consumed());
        let Some(item) = input.next().with_context(|| shown(&args.input))? else { break };
        summary.take(item).with_context(|| shown(&args.input))?;
    }
    drop(progress);
    let outcome = talk::warnings(&args.input, &summary.take_warnings());
    let report = summary.finish(args.top)?;
    output::text(
        Path::new("-"),
        |out| if args.json { report.write_json(out) } else { report.write_text(out) },
    )?;
    Ok(outcome)
}
