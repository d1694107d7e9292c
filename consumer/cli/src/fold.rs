//! `flightline fold`

use std::path::PathBuf;

use anyhow::Result;
use flightline_consumer::folded;

use crate::args::FoldArgs;
use crate::stacks::For;
use crate::{Outcome, output, stacks, talk};

/// Writes folded stacks.
pub fn run(args: FoldArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.stacks.inputs.iter().map(PathBuf::as_path))?;
    let profile = stacks::read(&args.stacks.inputs, &args.stacks.select, For::Text)?;
    if profile.tree.total == 0 {
        talk::note(match args.stacks.select.is_filtered() {
            true => "no sample passes the filters",
            false => "the input has no samples",
        });
    }
    if profile.before.is_some() {
        talk::note(
            "the input is differential text; only the second value is counted. To compare both values, use `flightline diff`",
        );
    }
    output::text(&args.output, |mut out| folded::write(&profile.tree, &mut out))?;
    Ok(profile.outcome)
}
