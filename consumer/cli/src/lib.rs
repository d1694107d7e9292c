//! The `flightline` command. It parses arguments and calls the libraries. Data goes to standard output,
//! messages to standard error.
//!
//! It is a library so that the test package can build the command as a program of its own.

#![forbid(unsafe_code)]

mod args;
mod command;
mod control;
mod diagnostics;
mod discovery;
mod draw;
mod edit;
mod fleet;
mod input;
mod off_cpu;
mod output;
mod record;
mod send;
mod signals;
mod spans;
mod tables;
mod usage_error;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use flightline_consumer::off_cpu::Graph;

use command::{Cli, Command, man, suggestion};
use control::{ctl, dump, recover, repositories, tail};
use draw::{convert, diff, flame, fold};
use edit::{assemble, cut, disassemble, repair, scrub};
use fleet::store;
#[cfg(feature = "service")]
use fleet::{agent, remote, serve};
use off_cpu::{graph, latency, slower};
use record::{drain, list};
#[cfg(feature = "export")]
use send::export;
use send::{collect, relay};
use tables::{annotate, metadata, print, report, summary, symbolize, view};

/// How a command ended, unless with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of the input was read.
    Whole,
    /// Some of the input could not be read; warnings were printed.
    Partial,
    /// The compared inputs differ by more than the given limit.
    Differs,
}

/// Returns true for the name or an alias of a command, `help` included.
fn is_subcommand(word: &OsStr) -> bool {
    let mut command = Cli::command();
    command.build();
    command.find_subcommand(word).is_some()
}

/// Runs the command with the arguments of this process, and returns its exit status.
pub fn main() -> ExitCode {
    if let Some(status) = store::store_flame() {
        return status;
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // For a file or folder without a command, run `summary`.
    if let [_, file] = &words[..]
        && Path::new(file).exists()
        && !is_subcommand(file)
    {
        diagnostics::note(
            "printing the summary; draw a flame graph with `flightline flame FILE`, list tables with \
             `flightline view --list FILE`",
        );
        words.insert(1, "summary".into());
    }
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| suggestion::exit(error));
    let outcome = match cli.command {
        Command::Record(args) => return record::run(&args),
        Command::Ctl(args) => return ctl::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Repositories(args) => repositories::run(&args),
        Command::List => list::run(),
        Command::Drain(args) => return drain::run(&args),
        Command::Flame(mut args) => {
            args.stacks = args.stacks.with_names();
            flame::run(&args)
        }
        Command::Annotate(args) => annotate::run(&args),
        Command::Offcpu(args) => graph::run(&args, Graph::OffCpu),
        Command::Wakeup(args) => graph::run(&args, Graph::Wakeup),
        Command::Offwake(args) => graph::run(&args, Graph::OffWake),
        Command::Threadtime(args) => graph::run(&args, Graph::Time),
        Command::Chain(args) => graph::run(&args, Graph::Chain),
        Command::Convert(args) => convert::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Slower(args) => slower::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Fold(mut args) => {
            args.stacks = args.stacks.with_names();
            fold::run(args)
        }
        Command::Summary(args) => summary::run(args),
        Command::Print(args) => print::run(*args),
        Command::Tail(args) => tail::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::Metadata(args) => metadata::run(args),
        Command::View(args) => view::run(args),
        #[cfg(feature = "export")]
        Command::Export(args) => export::run(&args),
        Command::Spans(args) => spans::run(&args),
        Command::Sql(args) => return store::run(Some("sql"), &args),
        Command::Store(args) => return store::run(None, &args),
        #[cfg(feature = "service")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "service")]
        Command::Remote(args) => remote::run(&args),
        #[cfg(feature = "service")]
        Command::Agent(args) => return agent::run(&args),
        Command::Relay(args) => relay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Repair(args) => repair::run(args),
        Command::Recover(args) => recover::run(&args),
        Command::Cut(args) => cut::run(args),
        Command::Scrub(args) => scrub::run(args),
        Command::Symbolize(args) => symbolize::run(args),
        Command::Assemble(args) => assemble::run(args),
        Command::Disassemble(args) => disassemble::run(args),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "flightline", &mut script);
            output::text(Path::new("-"), |out| out.write_all(&script)).map(|()| Outcome::Whole)
        }
    };
    match outcome {
        Ok(Outcome::Whole) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) => ExitCode::FAILURE,
        Ok(Outcome::Differs) => ExitCode::from(3),
        // The reader of the output has closed it.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::error(&error);
            ExitCode::from(usage_error::status(&error))
        }
    }
}
