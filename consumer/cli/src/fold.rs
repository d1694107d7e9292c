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
    if profile.tree.nodes.is_empty() {
        talk::note("nothing is left to fold: no sample in the input passes the filters");
    }
    output::text(&args.output, |mut out| folded::write(&profile.tree, &mut out))?;
    Ok(profile.outcome)
}
