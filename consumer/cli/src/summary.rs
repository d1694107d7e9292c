//! `flightline summary`

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::summary;
use jfr_format::read::Recording;

use crate::args::SummaryArgs;
use crate::talk::{self, Progress, shown};
use crate::{Outcome, input, output, repository};

/// Tells what is in a recording.
pub fn run(args: SummaryArgs) -> Result<Outcome> {
    let path = &args.input;
    let paths = repository::expand(std::slice::from_ref(path), args.last)?;
    let mut recordings = Vec::new();
    for part in &paths {
        match input::whole(part) {
            Err(_) if repository::rolled_away(part, std::slice::from_ref(path)) => {}
            recording => recordings.extend(recording?),
        }
    }
    let told = match recordings.is_empty() {
        false => {
            let most = recordings.iter().map(Recording::jobs).max().unwrap_or(1);
            let jobs = args.jobs.map_or(most, NonZeroUsize::get);
            let progress = Progress::new(Some(recordings.iter().map(Recording::size).sum()));
            summary::of_recordings(&recordings, args.top, jobs, |at| progress.at(at))
        }
        true => {
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
