//! Definitions of the command line for clap.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use flightline_consumer::time_range::Bound;

use crate::help;
use crate::select::{Counters, StackArgs, counters};
use crate::svg::SvgArgs;

/// Find out where programs spend time and memory: record them, draw flame graphs, read JFR recordings
#[derive(Debug, Parser)]
#[command(name = "flightline", version, arg_required_else_help = true, subcommand_required = true)]
#[command(before_help = FIRST_STEPS, after_help = EXAMPLES, help_template = help::EXAMPLES_FIRST)]
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
  flightline print run.jfr --events ExecutionSample --json
  flightline view hot-methods run.jfr             one of many predefined tables

Exit status: 0 for success; 1 for an error, or if the recording could only be read in part; 2 for wrong \
usage. `diff`: 3 if a limit (--fail-above, --fail-relative, --fail-total) was exceeded. `record`: the \
status of the program; see `flightline record --help`.";

const FLAME_EXAMPLES: &str = "\
Examples:
  flightline flame run.jfr -o flame.html                 open the page in a browser
  flightline flame run.jfr -e alloc -o memory.html       allocated memory instead of CPU time
  flightline flame run.jfr --threads -o threads.svg      an image with one tower per thread
  flightline flame run.jfr --measure cpu,wall,alloc -o all.html one page for CPU time, wall-clock time, bytes
  flightline flame run.jfr --measure cycles,page-faults -o x.svg  x.cycles.svg and x.page-faults.svg
  flightline flame run.jfr --cpi -o cpi.html                    cycles, coloured by cycles per instruction
  perf record -e cycles,instructions -g ./prog; perf script | flightline flame - --cpi -o cpi.svg
  flightline record -o - -- ./server | flightline flame - -o x.svg
  flightline flame --store DIR --where \"service = 'api'\" -o api.html   samples of a store; for its options add --help
  perf script | stackcollapse-perf.pl | flightline flame - -o x.html";

const FOLD_EXAMPLES: &str = "\
Examples:
  flightline fold run.jfr > run.folded
  flightline fold run.jfr -e wall --total                      wall-clock time instead of CPU samples
  flightline fold run.jfr --from 10 --to 20 -X epoll_wait      ten seconds, without waiting stacks";

const SUMMARY_EXAMPLES: &str = "\
Examples:
  flightline summary run.jfr
  flightline summary run.jfr --json | jq .
  flightline summary /var/recordings              one line per recording in the folder
  flightline summary a.jfr b.jfr --sum            one summary of both

The chunk files in a repository's folder are read as one recording. Secrets in arguments are replaced as \
with `flightline scrub --redact`.

Exit status: 1 if a recording is damaged or cannot be read.";

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
    #[command(before_help = help::first_examples(crate::ctl::EXAMPLES), after_help = help::details(crate::ctl::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Ctl(Box<crate::ctl::CtlArgs>),
    /// Copy the last minutes of a recording in progress, or of a repository, to a file
    #[command(before_help = help::first_examples(crate::dump::EXAMPLES), after_help = help::details(crate::dump::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Dump(crate::dump::DumpArgs),
    /// List recordings in progress on this machine, and unfinished ones of killed recorders
    #[command(before_help = help::first_examples(crate::repositories::EXAMPLES), after_help = help::details(crate::repositories::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Repositories(crate::repositories::RepositoriesArgs),
    /// List which engines and events work on this machine, and why others do not
    #[command(before_help = help::first_examples(crate::list::EXAMPLES), after_help = help::details(crate::list::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    List,
    /// Write the recording of a program that records itself
    #[command(hide = true)]
    Drain(Box<crate::drain::DrainArgs>),
    /// Convert profiles to and from other tools' formats: pprof, speedscope, Firefox Profiler, Chrome and
    /// Perfetto, d3-flame-graph, folded
    #[command(before_help = help::first_examples(crate::convert::EXAMPLES), after_help = help::details(crate::convert::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("convert", arg)))]
    Convert(Box<crate::convert::ConvertArgs>),
    /// Draw a flame graph, which shows the functions that use the most time: an HTML page, SVG or PNG
    #[command(before_help = help::first_examples(FLAME_EXAMPLES), after_help = help::details(FLAME_EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("flame", arg)))]
    Flame(Box<FlameArgs>),
    /// Compare two recordings: the functions that changed most, a verdict, a differential flame graph
    #[command(before_help = help::first_examples(crate::diff::EXAMPLES), after_help = help::details(crate::diff::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("diff", arg)))]
    Diff(Box<crate::diff::DiffArgs>),
    /// Show the source lines of a function with their samples, and its instructions
    #[command(before_help = help::first_examples(crate::annotate::EXAMPLES), after_help = help::details(crate::annotate::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("annotate", arg)))]
    Annotate(Box<crate::annotate::AnnotateArgs>),
    /// Draw where threads waited and how long: off-CPU time by stack
    #[command(before_help = crate::off_cpu_graph::first_examples("offcpu"), after_help = crate::off_cpu_graph::details(), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("offcpu", crate::off_cpu_graph::arg(arg))))]
    Offcpu(Box<crate::off_cpu_graph::OffCpuArgs>),
    /// Draw which threads woke waiting threads, weighted by the time they had waited
    #[command(before_help = crate::off_cpu_graph::first_examples("wakeup"), after_help = crate::off_cpu_graph::details(), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("offcpu", crate::off_cpu_graph::arg(arg))))]
    Wakeup(Box<crate::off_cpu_graph::OffCpuArgs>),
    /// Draw where threads waited, with the waker's stack on top
    #[command(before_help = crate::off_cpu_graph::first_examples("offwake"), after_help = crate::off_cpu_graph::details(), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("offcpu", crate::off_cpu_graph::arg(arg))))]
    Offwake(Box<crate::off_cpu_graph::OffCpuArgs>),
    /// Draw where threads waited, with the chain of wakers on top
    #[command(before_help = crate::off_cpu_graph::first_examples("chain"), after_help = crate::off_cpu_graph::details(), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("offcpu", crate::off_cpu_graph::arg(arg))))]
    Chain(Box<crate::off_cpu_graph::OffCpuArgs>),
    /// Draw all of threads' time by stack: running, waiting for a CPU, blocked
    #[command(before_help = crate::off_cpu_graph::first_examples("threadtime"), after_help = crate::off_cpu_graph::details(), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("offcpu", crate::off_cpu_graph::arg(arg))))]
    Threadtime(Box<crate::off_cpu_graph::OffCpuArgs>),
    /// List slow reads, writes, syncs and similar calls
    #[command(before_help = help::first_examples(crate::slower::EXAMPLES), after_help = help::details(crate::slower::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("slower", arg)))]
    Slower(Box<crate::slower::SlowerArgs>),
    /// Print latency histograms with percentiles: I/O, locks, traced functions, off-CPU time
    #[command(before_help = help::first_examples(crate::latency::EXAMPLES), after_help = help::details(crate::latency::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Latency(Box<crate::latency::LatencyArgs>),
    /// Write stacks as text (folded stacks), one per line: `main;parse;read 42`
    #[command(before_help = help::first_examples(FOLD_EXAMPLES), after_help = help::details(FOLD_EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("fold", arg)))]
    Fold(FoldArgs),
    /// Summarize recordings: JVM, time, events by type, top functions, losses
    #[command(before_help = help::first_examples(SUMMARY_EXAMPLES), after_help = help::details(SUMMARY_EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Summary(SummaryArgs),
    /// Report what is unusual in a recording: CPU time, allocation, locks, garbage collection, exceptions,
    /// I/O
    #[command(before_help = help::first_examples(crate::report::EXAMPLES), after_help = help::details(crate::report::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Report(crate::report::ReportArgs),
    /// Print the events of a recording as text, JSON or CSV
    #[command(before_help = help::first_examples(crate::print::EXAMPLES), after_help = help::details(crate::print::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("print", arg)))]
    Print(Box<crate::print::PrintArgs>),
    /// Follow a recording, a repository or a program while it is recorded: events, or a live table of
    /// functions
    #[command(before_help = help::first_examples(crate::tail::EXAMPLES), after_help = help::details(crate::tail::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("tail", arg)))]
    Tail(Box<crate::tail::TailArgs>),
    /// Write a live stream to a file or a repository
    #[command(before_help = help::first_examples(crate::collect::EXAMPLES), after_help = help::details(crate::collect::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Collect(Box<crate::collect::CollectArgs>),
    /// List the event types that a recording declares, with their fields
    #[command(before_help = help::first_examples(crate::metadata::EXAMPLES), after_help = help::details(crate::metadata::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Metadata(crate::metadata::MetadataArgs),
    /// Print predefined tables: hot methods, pauses, allocation, contention, I/O, …
    #[command(before_help = help::first_examples(crate::view::EXAMPLES), after_help = help::details(crate::view::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("view", arg)))]
    View(crate::view::ViewArgs),
    /// Export profiles and traces to other systems: OpenTelemetry (file, HTTP, gRPC), pprof
    #[cfg(feature = "export")]
    #[command(before_help = help::first_examples(crate::export::EXAMPLES), after_help = help::details(crate::export::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("export", arg)))]
    Export(Box<crate::export::ExportArgs>),
    /// Show the cost of tracing spans by name, endpoint, trace or label; one trace; slow spans compared with
    /// typical ones
    #[command(before_help = help::first_examples(crate::spans::EXAMPLES), after_help = help::details(crate::spans::EXAMPLES), help_template = help::EXAMPLES_FIRST, mut_args(|arg| help::arrange("spans", arg)))]
    Spans(Box<crate::spans::SpansArgs>),
    /// Query a profile store in SQL
    #[command(before_help = help::first_examples(crate::store::EXAMPLES), after_help = help::details(crate::store::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Sql(crate::store::PassedOn),
    /// Add to, query, compare and maintain a profile store: `flightline store --help`
    #[command(before_help = help::first_examples(crate::store::EXAMPLES), after_help = help::details(crate::store::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Store(crate::store::PassedOn),
    /// Run the profiling service: record any of many processes from a web page
    #[cfg(feature = "service")]
    #[command(before_help = help::first_examples(crate::serve::EXAMPLES), after_help = help::details(crate::serve::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Serve(Box<crate::serve::ServeArgs>),
    /// Let a profiling service record a process: a new program or running ones
    #[cfg(feature = "service")]
    #[command(before_help = help::first_examples(crate::agent::EXAMPLES), after_help = help::details(crate::agent::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Agent(Box<crate::agent::AgentArgs>),
    /// Use a profiling service: list targets, run profiles, fetch results
    #[cfg(feature = "service")]
    #[command(before_help = help::first_examples(crate::remote::EXAMPLES), after_help = help::details(crate::remote::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Remote(Box<crate::remote::RemoteArgs>),
    /// Forward one stream to many readers
    #[command(before_help = help::first_examples(crate::relay::EXAMPLES), after_help = help::details(crate::relay::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Relay(crate::relay::RelayArgs),
    /// Save the readable part of a truncated, unfinished or damaged recording as a standard file
    #[command(before_help = help::first_examples(crate::repair::EXAMPLES), after_help = help::details(crate::repair::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Repair(crate::repair::RepairArgs),
    /// Complete recordings whose recorder was killed, from its data in shared memory
    #[command(before_help = help::first_examples(crate::recover::EXAMPLES), after_help = help::details(crate::recover::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Recover(crate::recover::RecoverArgs),
    /// Extract a time range of a recording
    #[command(before_help = help::first_examples(crate::cut::EXAMPLES), after_help = help::details(crate::cut::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Cut(crate::cut::CutArgs),
    /// Remove events by name, category or thread, or replace secrets
    #[command(before_help = help::first_examples(crate::scrub::EXAMPLES), after_help = help::details(crate::scrub::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Scrub(crate::scrub::ScrubArgs),
    /// Add function names, source lines and inlined frames to a recording made without debug files
    #[command(before_help = help::first_examples(crate::symbolize::EXAMPLES), after_help = help::details(crate::symbolize::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Symbolize(crate::symbolize::SymbolizeArgs),
    /// Join recordings, or the chunks of a repository
    #[command(before_help = help::first_examples(crate::assemble::EXAMPLES), after_help = help::details(crate::assemble::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Assemble(crate::assemble::AssembleArgs),
    /// Split a recording at chunk boundaries
    #[command(before_help = help::first_examples(crate::disassemble::EXAMPLES), after_help = help::details(crate::disassemble::EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Disassemble(crate::disassemble::DisassembleArgs),
    /// Write a completion script for a shell
    #[command(before_help = help::first_examples(COMPLETIONS_EXAMPLES), after_help = help::details(COMPLETIONS_EXAMPLES), help_template = help::EXAMPLES_FIRST)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man(crate::man::ManArgs),
}

/// Arguments of `flame`.
#[derive(Clone, Debug, Args)]
pub struct FlameArgs {
    /// The inputs and their selection.
    #[command(flatten)]
    pub stacks: StackArgs,
    /// Count samples. By default allocations and live memory are weighed in bytes; waits, reads and writes by
    /// time
    #[arg(long, conflicts_with_all = ["total", "measure", "cpi"])]
    pub count: bool,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    pub output: PathBuf,
    /// html, svg or png [default: by the output's extension, else html]
    #[arg(long, value_enum, display_order = 2)]
    pub format: Option<PictureFormat>,
    /// SVG and PNG: draw stacks of a recording in order of time with one part per thread; merge only adjacent
    /// equal frames
    #[arg(long, conflicts_with_all = ["reverse", "threads", "process"])]
    pub flame_chart: bool,
    /// Draw several events, named as for --event, by time or bytes if available, else by count. The HTML page
    /// switches between them (V); SVG and PNG write one file each, such as FILE.cpu.svg. Without --measure
    /// and --event, the page of a recording offers up to 12 events
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', conflicts_with_all = ["events", "total", "flame_chart", "cpi"])]
    pub measure: Vec<String>,
    /// Draw the ratio of two counters that were sampled together: widths are the first counter; red frames
    /// have more of it per unit of the second than the whole, blue frames less. For folded text, give two
    /// inputs instead, the first counter first
    #[arg(long, value_name = "CYCLES,INSTRUCTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "cycles,instructions", value_parser = counters,
          conflicts_with_all = ["events", "total", "flame_chart"])]
    pub cpi: Option<Counters>,
    /// HTML: omit the samples' timestamps; the page then has no heat map, chart or selection of threads
    #[arg(long)]
    pub no_time: bool,
    /// Appearance.
    #[command(flatten)]
    pub picture: SvgArgs,
}

/// Image and page formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PictureFormat {
    /// One self-contained page
    Html,
    /// An image with script
    Svg,
    /// The same as pixels, rendered by Chromium
    Png,
}

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

/// Arguments of `summary`.
#[derive(Debug, Args)]
pub struct SummaryArgs {
    /// Recordings, repositories or folders of recordings; `-` is standard input
    #[arg(value_name = "FILE|DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// Print one summary of all recordings together instead of a line for each
    #[arg(long)]
    pub sum: bool,
    /// Also print the application's arguments, with secrets removed
    #[arg(long)]
    pub arguments: bool,
    /// Read only the chunks of a repository that overlap this span before its end: 30s, 10m, 2h
    #[arg(long, value_name = "SPAN", value_parser = crate::range::last)]
    pub last: Option<Bound>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Number of functions to list; with 0 no samples are read, which is fastest
    #[arg(long, default_value_t = 15, value_name = "N")]
    pub top: usize,
    /// Number of threads for a recording of several chunks [default: one per 16 MB, at most 4 and at most the
    /// number of CPUs]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// Ends with the usage of this command.
pub fn usage(command: &str, kind: ErrorKind, message: &str) -> ! {
    let mut all = Cli::command();
    // The name by which the whole command calls it.
    all.build();
    match all.find_subcommand_mut(command) {
        Some(command) => command.error(kind, message).exit(),
        None => all.error(kind, message).exit(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::select::{SampleArgs, SelectArgs};

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
            for refused in ["--event ", "--total", "perf script"] {
                assert!(!help.contains(refused), "{command} tells of {refused}");
            }
        }
    }
}
