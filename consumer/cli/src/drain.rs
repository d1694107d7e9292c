//! `flightline drain`: writes the recording of a program that records itself (linked library or bare
//! preload).

use std::{
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error, Target,
    helper::{self, Program},
};

use crate::record::{DEFAULT_OUTPUT, RepositoryArgs, SamplingArgs, say};

/// Arguments of `drain`, which is started by programs, not by people.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Descriptor on which the program waits for the session directory
    #[arg(long, value_name = "FD")]
    ready_fd: i32,
    /// The program
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// The program is already running and waits for the command to join
    #[arg(long)]
    join: bool,
    /// Permit interrupting system calls of the program, which may then return EINTR
    #[arg(long)]
    interrupt: bool,
    /// Output of the recording
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Send messages to the system log
    #[arg(long)]
    syslog: bool,
    /// Print totals at the end
    #[arg(short, long)]
    verbose: bool,
}

/// Runs until the program ends or requests the end.
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
    let target = match args.repository.repository()? {
        Some(repository) => Target::Repository(repository),
        None => Target::parse(args.output.as_deref().unwrap_or(Path::new(DEFAULT_OUTPUT)))?,
    };
    let program = Program { pid: args.pid, waiting: args.join, interrupt: args.interrupt };
    let mut tell = |message: &str| if args.syslog { syslog(message, args.pid) } else { say(message) };
    let report = helper::serve(&program, Some(args.ready_fd), args.sampling.settings()?, target, &mut tell)?;
    if args.verbose {
        tell(&report.to_string());
    }
    Ok(())
}

/// Sends a warning to the system log; without a log it is dropped.
fn syslog(message: &str, pid: u32) {
    const DAEMON_WARNING: u32 = 3 << 3 | 4;
    let line = format!("<{DAEMON_WARNING}>flightline[{}]: process {pid}: {message}", std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(line.as_bytes(), "/dev/log");
    }
}
