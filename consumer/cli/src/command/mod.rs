//! Definitions of the command line for clap.

pub mod man;
pub mod suggestion;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use flightline_consumer::off_cpu::Graph;

use crate::args::help;
use crate::off_cpu::options;

/// Find out where programs spend time and memory: record them, draw flame graphs, read JFR recordings
#[derive(Debug, Parser)]
#[command(name = "flightline", version, arg_required_else_help = true, subcommand_required = true)]
#[command(before_help = FIRST_STEPS, after_help = EXAMPLES, help_template = help::EXAMPLES_FIRST)]
#[command(mut_subcommands(help::lay_out))]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const FIRST_STEPS: &str = "\
Flightline interrupts a program many times per second and notes which functions are running: a sample. \
Functions with many samples take much of the time.

First steps:
  flightline record --flame flame.html -- ./program    run a program, draw where its CPU time goes
  flightline record -o run.jfr -p 1234 --duration 30s  record a running process for 30 seconds
  flightline summary run.jfr                           print the functions with the most samples

Open flame.html in a browser: each box is a function, its width is its share of the time, and the boxes \
above it are the functions that it called. `flightline COMMAND --help` explains a command.";

const EXAMPLES: &str = "\
More examples:
  flightline flame run.jfr -o flame.html          draw a flame graph of a recording
  flightline flame run.jfr -o flame.svg           the same graph as SVG
  flightline fold run.jfr | grep parse            folded stacks as text
  flightline annotate parse run.jfr               source lines of a function with their samples
  flightline print run.jfr --event ExecutionSample --json
  flightline view hot-methods run.jfr             one of many predefined tables

Exit status: 0 for success; 1 for an error, or if the recording could only be read in part; 2 for wrong \
usage. `diff`: 3 if a limit (--fail-above, --fail-relative, --fail-total) was exceeded. `record`: the \
status of the program; see `flightline record --help`.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  flightline completions bash > ~/.local/share/bash-completion/completions/flightline
  flightline completions zsh > ~/.zfunc/_flightline               in a folder of $fpath
  flightline completions fish > ~/.config/fish/completions/flightline.fish";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and record it, or record a running process
    Record(Box<crate::record::RecordArgs>),
    /// Start, stop, pause or change the recording of a running program
    #[command(after_help = crate::control::ctl::EXAMPLES)]
    Ctl(Box<crate::control::ctl::CtlArgs>),
    /// Copy the last minutes of a recording in progress, or of a repository, to a file
    #[command(after_help = crate::control::dump::EXAMPLES)]
    Dump(crate::control::dump::DumpArgs),
    /// List recordings in progress on this machine, and unfinished ones of killed recorders
    #[command(after_help = crate::control::repositories::EXAMPLES)]
    Repositories(crate::control::repositories::RepositoriesArgs),
    /// List which engines and events work on this machine, and why others do not
    #[command(after_help = crate::record::list::EXAMPLES)]
    List,
    /// Write the recording of a program that records itself
    #[command(hide = true)]
    Drain(Box<crate::record::drain::DrainArgs>),
    /// Convert profiles to and from other tools' formats: pprof, speedscope, Firefox Profiler, Chrome and
    /// Perfetto, d3-flame-graph, folded
    #[command(after_help = crate::draw::convert::EXAMPLES)]
    Convert(Box<crate::draw::convert::ConvertArgs>),
    /// Draw a flame graph, which shows the functions that use the most time: an HTML page, SVG or PNG
    #[command(after_help = crate::draw::flame::EXAMPLES)]
    Flame(Box<crate::draw::flame::FlameArgs>),
    /// Compare two recordings: the functions that changed most, a verdict, a differential flame graph
    #[command(after_help = crate::draw::diff::EXAMPLES)]
    Diff(Box<crate::draw::diff::DiffArgs>),
    /// Show the source lines of a function with their samples, and its instructions
    #[command(after_help = crate::tables::annotate::EXAMPLES)]
    Annotate(Box<crate::tables::annotate::AnnotateArgs>),
    /// Draw where threads waited and how long: off-CPU time by stack
    #[command(after_help = crate::off_cpu::graph::examples("offcpu"), mut_args(|arg| options::arg(arg, Graph::OffCpu)))]
    Offcpu(Box<options::GraphArgs>),
    /// Draw which threads woke waiting threads, weighted by the time they had waited
    #[command(after_help = crate::off_cpu::graph::examples("wakeup"), mut_args(|arg| options::arg(arg, Graph::Wakeup)))]
    Wakeup(Box<options::GraphArgs>),
    /// Draw where threads waited, with the waker's stack on top
    #[command(after_help = crate::off_cpu::graph::examples("offwake"), mut_args(|arg| options::arg(arg, Graph::OffWake)))]
    Offwake(Box<options::GraphArgs>),
    /// Draw where threads waited, with the chain of wakers on top
    #[command(after_help = crate::off_cpu::graph::examples("chain"), mut_args(|arg| options::arg(arg, Graph::Chain)))]
    Chain(Box<options::GraphArgs>),
    /// Draw all of threads' time by stack: running, waiting for a CPU, blocked
    #[command(after_help = crate::off_cpu::graph::examples("threadtime"), mut_args(|arg| options::arg(arg, Graph::Time)))]
    Threadtime(Box<options::GraphArgs>),
    /// List slow reads, writes, syncs and similar calls
    #[command(after_help = crate::off_cpu::slower::EXAMPLES)]
    Slower(Box<crate::off_cpu::slower::SlowerArgs>),
    /// Print latency histograms with percentiles: I/O, locks, traced functions, off-CPU time
    #[command(after_help = crate::off_cpu::latency::EXAMPLES)]
    Latency(Box<crate::off_cpu::latency::LatencyArgs>),
    /// Write stacks as text (folded stacks), one per line: `main;parse;read 42`
    #[command(after_help = crate::draw::fold::EXAMPLES)]
    Fold(crate::draw::fold::FoldArgs),
    /// Summarize recordings: JVM, time, events by type, top functions, losses
    #[command(after_help = crate::tables::summary::EXAMPLES)]
    Summary(crate::tables::summary::SummaryArgs),
    /// Report what is unusual in a recording: CPU time, allocation, locks, garbage collection, exceptions,
    /// I/O
    #[command(after_help = crate::tables::report::EXAMPLES)]
    Report(crate::tables::report::ReportArgs),
    /// Print the events of a recording as text, JSON or CSV
    #[command(after_help = crate::tables::print::EXAMPLES)]
    Print(Box<crate::tables::print::PrintArgs>),
    /// Follow a recording, a repository or a program while it is recorded: events, or a live table of
    /// functions
    #[command(after_help = crate::control::tail::EXAMPLES)]
    Tail(Box<crate::control::tail::TailArgs>),
    /// Write a live stream to a file or a repository
    #[command(after_help = crate::send::collect::EXAMPLES)]
    Collect(Box<crate::send::collect::CollectArgs>),
    /// List the event types that a recording declares, with their fields
    #[command(after_help = crate::tables::metadata::EXAMPLES)]
    Metadata(crate::tables::metadata::MetadataArgs),
    /// Print predefined tables: hot methods, pauses, allocation, contention, I/O, …
    #[command(after_help = crate::tables::view::EXAMPLES)]
    View(crate::tables::view::ViewArgs),
    /// Export profiles and traces to other systems: OpenTelemetry (file, HTTP, gRPC), pprof
    #[cfg(feature = "export")]
    #[command(after_help = crate::send::export::EXAMPLES)]
    Export(Box<crate::send::export::ExportArgs>),
    /// Show the cost of tracing spans by name, endpoint, trace or label; one trace; slow spans compared with
    /// typical ones
    #[command(after_help = crate::spans::EXAMPLES)]
    Spans(Box<crate::spans::SpansArgs>),
    #[command(about = crate::fleet::store::SQL, after_help = crate::fleet::store::EXAMPLES)]
    Sql(crate::fleet::store::PassedOn),
    #[command(about = crate::fleet::store::STORE, after_help = crate::fleet::store::EXAMPLES)]
    Store(crate::fleet::store::PassedOn),
    /// Run the profiling service: record any of many processes from a web page
    #[cfg(feature = "service")]
    #[command(after_help = crate::fleet::serve::EXAMPLES)]
    Serve(Box<crate::fleet::serve::ServeArgs>),
    /// Let a profiling service record a process: a new program or running ones
    #[cfg(feature = "service")]
    #[command(after_help = crate::fleet::agent::EXAMPLES)]
    Agent(Box<crate::fleet::agent::AgentArgs>),
    /// Use a profiling service: list targets, run profiles, fetch results
    #[cfg(feature = "service")]
    #[command(after_help = crate::fleet::remote::EXAMPLES)]
    Remote(Box<crate::fleet::remote::RemoteArgs>),
    /// Forward one stream to many readers
    #[command(after_help = crate::send::relay::EXAMPLES)]
    Relay(crate::send::relay::RelayArgs),
    /// Save the readable part of a truncated, unfinished or damaged recording as a standard file
    #[command(after_help = crate::edit::repair::EXAMPLES)]
    Repair(crate::edit::repair::RepairArgs),
    /// Complete recordings whose recorder was killed, from its data in shared memory
    #[command(after_help = crate::control::recover::EXAMPLES)]
    Recover(crate::control::recover::RecoverArgs),
    /// Extract a time range of a recording
    #[command(after_help = crate::edit::cut::EXAMPLES)]
    Cut(crate::edit::cut::CutArgs),
    /// Remove events by name, category or thread, or replace secrets
    #[command(after_help = crate::edit::scrub::EXAMPLES)]
    Scrub(crate::edit::scrub::ScrubArgs),
    /// Add function names, source lines and inlined frames to a recording made without debug files
    #[command(after_help = crate::tables::symbolize::EXAMPLES)]
    Symbolize(crate::tables::symbolize::SymbolizeArgs),
    /// Join recordings, or the chunks of a repository
    #[command(after_help = crate::edit::assemble::EXAMPLES)]
    Assemble(crate::edit::assemble::AssembleArgs),
    /// Split a recording at chunk boundaries
    #[command(after_help = crate::edit::disassemble::EXAMPLES)]
    Disassemble(crate::edit::disassemble::DisassembleArgs),
    /// Write a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man(crate::command::man::ManArgs),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Args, CommandFactory};

    use super::*;
    use crate::args::selection::{SampleArgs, SelectArgs};

    fn names(command: clap::Command) -> BTreeSet<String> {
        command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
    }

    /// All commands that read samples have the same selection options.
    #[test]
    fn sample_commands_share_selection_options() {
        let samples = names(SampleArgs::augment_args(clap::Command::new("samples")));
        let select = names(SelectArgs::augment_args(clap::Command::new("select")));
        assert!(samples.len() >= 8 && select.is_superset(&samples));
        let has = |command: &str| {
            let cli = Cli::command();
            names(cli.find_subcommand(command).unwrap_or_else(|| panic!("no {command}")).clone())
        };
        for command in ["flame", "fold", "convert", "diff", "spans"] {
            let missing: Vec<_> = select.difference(&has(command)).cloned().collect();
            assert!(missing.is_empty(), "{command} lacks {missing:?}");
        }
        // Export writes stacks unchanged.
        #[cfg(feature = "export")]
        {
            let missing: Vec<_> = samples.difference(&has("export")).cloned().collect();
            assert!(missing.is_empty(), "export lacks {missing:?}");
        }
    }

    /// Graphs of off-CPU time hide options that they reject.
    #[test]
    fn off_cpu_graph_help_hides_rejected_options() {
        for command in ["offcpu", "wakeup", "offwake", "chain", "threadtime"] {
            let mut cli = Cli::command();
            let help = cli.find_subcommand_mut(command).unwrap().render_long_help().to_string();
            assert!(help.contains("--only-thread") && help.contains("--span "), "{help}");
            assert!(help.contains("Recordings or repositories"), "{help}");
            for refused in ["--event ", "--total", "--only-state", "perf script"] {
                assert!(!help.contains(refused), "the help of {command} has {refused}");
            }
            let only = [("--run-queue", "offcpu"), ("--depth", "chain"), ("--at-leaves", "threadtime")];
            for (option, of) in only {
                let is_listed = help.lines().any(|line| line.trim_start().starts_with(option));
                assert_eq!(is_listed, command == of, "{command} {option}");
            }
        }
    }
}
