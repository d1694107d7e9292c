//! `flightline drain`: writes the recording of a program that records itself (linked library, bare preload).

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueHint};
use flightline_recorder::{Error, Target, helper};

use crate::record::{SamplingArgs, say};

/// Arguments of `drain`; programs, not people, give them.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Descriptor on which the program waits for the session directory
    #[arg(long, value_name = "FD")]
    ready_fd: i32,
    /// The program
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Where the recording goes
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Tell the sum at the end
    #[arg(short, long)]
    verbose: bool,
}

/// Runs until the program ends or asks for the end.
pub fn run(args: &DrainArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &DrainArgs) -> Result<(), Error> {
    let target = Target::Path(args.output.clone());
    let report = helper::serve(args.pid, args.ready_fd, args.sampling.settings()?, target, &mut say)?;
    if args.verbose {
        say(&report.to_string());
    }
    Ok(())
}
