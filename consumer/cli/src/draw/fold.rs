//! `flightline fold`

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use flightline_consumer::folded;

use crate::args::selection::StackArgs;
use crate::input::profile::{self, For};
use crate::{Outcome, diagnostics, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline fold run.jfr > run.folded
  flightline fold run.jfr -e wall --total                      wall-clock time instead of CPU samples
  flightline fold run.jfr --from 10 --to 20 -X epoll_wait      ten seconds, without waiting stacks";

/// Arguments of `fold`.
#[derive(Debug, Args)]
pub struct FoldArgs {
    /// The inputs and their selection.
    #[command(flatten)]
    pub stacks: StackArgs,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    pub output: PathBuf,
}

/// Writes folded stacks.
pub fn run(args: FoldArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.stacks.inputs.iter().map(PathBuf::as_path))?;
    let profile = profile::read(&args.stacks.inputs, &args.stacks.select, For::Text)?;
    if profile.tree.total == 0 {
        diagnostics::note(match args.stacks.select.is_filtered() {
            true => "no sample passes the filters",
            false => "the input has no samples",
        });
    }
    if profile.before.is_some() {
        diagnostics::note(
            "the input is differential text; only the second value is counted. To compare both values, use `flightline diff`",
        );
    }
    output::text(&args.output, |mut out| folded::write(&profile.tree, &mut out))?;
    Ok(profile.outcome)
}
