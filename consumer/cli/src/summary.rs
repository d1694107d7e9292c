//! `flightline summary`

use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::summary;

use crate::args::SummaryArgs;
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, output};

/// Tells what is in a recording.
pub fn run(args: SummaryArgs) -> Result<Outcome> {
    let path = &args.input;
    let mut input = input::recording(path)?;
    let progress = Progress::new(input.size());
    let told = match input.size() {
        Some(_) => summary::of_file(path, args.top, |at| progress.at(at)),
        None => summary::of_stream(&mut input, args.top, |at| progress.at(at)),
    };
    let (report, warnings) = told.with_context(|| shown(path))?;
    drop(progress);
    let outcome = talk::warnings(path, &warnings);
    output::text(
        Path::new("-"),
        |out| if args.json { report.write_json(out) } else { report.write_text(out) },
    )?;
    Ok(outcome)
}
