//! `flightline recover`: completes recordings whose recorder was killed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_recorder::{
    recover::{self, Recovered},
    session,
};
use serde_json::json;

use crate::Outcome;
use crate::diagnostics::{self, shown};
use crate::input::unfinished::{concerns, description};

pub const EXAMPLES: &str = "\
Examples:
  flightline recover                 all recordings of this user whose recorder was killed
  flightline recover /var/lib/fl     the recordings of this repository
  flightline recover run.jfr --json

When a recorder is killed (SIGKILL, out of memory), the file ends at the last flush, and later data \
remains in shared memory for a day. `recover` appends that data to the file, with function names. \
Commands that read a recording or a repository recover it automatically.";

/// Arguments of `recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Recordings or repositories; by default all that can be found
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Print a report as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Recovers recordings.
pub fn run(args: &RecoverArgs) -> Result<Outcome> {
    let mut all = Recovered::default();
    let sessions = session::abandoned();
    // The output of a recording may not exist yet. A path that neither exists nor was being written is a
    // typing error.
    let slip = |path: &&PathBuf| !path.exists() && !sessions.iter().any(|session| concerns(session, path));
    if let Some(path) = args.paths.iter().find(slip) {
        bail!("{} does not exist, and no killed recorder was writing to it", shown(path));
    }
    for session in sessions {
        if args.paths.is_empty() || args.paths.iter().any(|path| concerns(&session, path)) {
            let done = match recover::recover(&session) {
                Ok(done) => done,
                // Continue with the other sessions.
                Err(error) => {
                    all.problems.push(error.to_string());
                    continue;
                }
            };
            all.outputs.extend(done.outputs);
            all.problems.extend(done.problems);
            all.records += done.records;
            all.torn += done.torn;
            all.lost = all.lost.saturating_add(done.lost);
        }
    }
    all.problems.iter().for_each(diagnostics::warning);
    if args.json {
        let outputs: Vec<_> = all.outputs.iter().map(|p| p.to_string_lossy()).collect();
        println!(
            "{}",
            json!({
                "outputs": outputs, "records": all.records, "torn": all.torn, "lost": all.lost,
                "problems": all.problems,
            })
        );
    } else if all.outputs.is_empty() && all.problems.is_empty() {
        diagnostics::note("nothing to recover: no recorder was killed");
    } else {
        for output in &all.outputs {
            println!("{}", output.display());
        }
        diagnostics::note(description(&all));
    }
    Ok(if all.problems.is_empty() { Outcome::Whole } else { Outcome::Partial })
}
