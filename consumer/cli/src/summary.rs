//! `flightline summary`

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::summary;

use crate::args::SummaryArgs;
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, output};

/// Tells what is in a recording.
pub fn run(args: SummaryArgs) -> Result<Outcome> {
    let path = &args.input;
    let told = match input::whole(path)? {
        Some(recording) => {
            let jobs = args.jobs.map_or_else(|| recording.jobs(), NonZeroUsize::get);
            let progress = Progress::new(Some(recording.size()));
            summary::of_recording(&recording, args.top, jobs, |at| progress.at(at))
        }
        None => {
            let mut input = input::recording(path)?;
            let progress = Progress::new(input.size());
            summary::of_stream(&mut input, args.top, |at| progress.at(at))
        }
    };
    let (report, warnings) = told.with_context(|| shown(path))?;
    let outcome = talk::warnings(path, &warnings);
    output::text(
        Path::new("-"),
        |out| if args.json { report.write_json(out) } else { report.write_text(out) },
    )?;
    Ok(outcome)
}
