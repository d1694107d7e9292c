//! The `flightline` command. It parses arguments and calls the libraries. Data goes to standard output,
//! messages to standard error.
//!
//! It is a library so that the test package can build the command as a program of its own.

#![forbid(unsafe_code)]

#[cfg(feature = "service")]
mod agent;
mod annotate;
mod args;
mod assemble;
mod attach;
mod collect;
mod convert;
mod ctl;
mod cut;
mod diff;
mod disassemble;
mod drain;
mod dump;
mod dump_policy;
mod edit;
#[cfg(feature = "export")]
mod export;
mod flame;
mod fold;
mod help;
mod input;
mod items;
mod labelled;
mod latency;
mod list;
mod man;
mod metadata;
mod off_cpu;
mod off_cpu_graph;
mod output;
mod png;
mod print;
mod processes;
mod range;
mod record;
mod recover;
mod redact;
mod relay;
#[cfg(feature = "service")]
mod remote;
mod repair;
mod report;
mod repositories;
mod repository;
mod scrub;
mod select;
#[cfg(feature = "service")]
mod serve;
mod signals;
mod slower;
mod spans;
mod stacks;
mod status;
mod store;
mod stream;
mod stream_args;
mod summary;
mod svg;
mod symbol_files;
mod symbolize;
mod tail;
mod talk;
mod targets;
mod tracks;
mod unknown;
mod usage_error;
mod view;
mod wanted;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use flightline_consumer::off_cpu::Graph;

use args::{Cli, Command};

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
    if let Some(status) = store::flame_of_store() {
        return status;
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // For a file or folder without a command, run `summary`.
    if let [_, file] = &words[..]
        && Path::new(file).exists()
        && !is_subcommand(file)
    {
        talk::note(
            "printing the summary; draw a flame graph with `flightline flame FILE`, list tables with \
             `flightline view --list FILE`",
        );
        words.insert(1, "summary".into());
    }
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| unknown::exit(error));
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
        Command::Offcpu(args) => off_cpu_graph::run(&args, Graph::OffCpu),
        Command::Wakeup(args) => off_cpu_graph::run(&args, Graph::Wakeup),
        Command::Offwake(args) => off_cpu_graph::run(&args, Graph::OffWake),
        Command::Threadtime(args) => off_cpu_graph::run(&args, Graph::Time),
        Command::Chain(args) => off_cpu_graph::run(&args, Graph::Chain),
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
            talk::error(&error);
            ExitCode::from(usage_error::status(&error))
        }
    }
}
