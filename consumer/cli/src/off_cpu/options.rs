//! Options of the commands for off-CPU time, calls and latencies.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, Args, ValueEnum, ValueHint};
use flightline_consumer::live::{self, Choice};
use flightline_consumer::off_cpu::{DEPTH, Graph, States};
use flightline_consumer::spans::TraceId;
use flightline_consumer::spans::report::GroupBy;

use crate::args::{
    appearance::SvgArgs,
    help,
    selection::{SampleArgs, StackArgs},
    time_range, values,
};
use crate::input::{
    event_reader::{self, Taker},
    repository,
};
use crate::{Outcome, spans};

/// Arguments of `offcpu`, `wakeup`, `offwake`, `chain` and `threadtime`.
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The inputs and their selection.
    #[command(flatten)]
    pub stacks: StackArgs,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    pub output: PathBuf,
    /// folded, html, svg or png [default: by the output's extension, else folded]
    #[arg(long, value_enum, display_order = 2)]
    pub format: Option<Format>,
    /// Omit waits shorter than this: 500us, 1ms; without a unit µs
    #[arg(short = 'm', long = "min", value_name = "TIME", value_parser = values::micros)]
    pub least: Option<Duration>,
    /// Omit waits longer than this
    #[arg(short = 'M', long = "max", value_name = "TIME", value_parser = values::micros)]
    pub most: Option<Duration>,
    /// Select thread states: letters such as S,D, a mask as in bcc (2), blocked, or all [default: blocked: all
    /// except R]
    #[arg(long, value_name = "STATES")]
    #[arg(help_heading = help::FILTERS)]
    pub state: Option<States>,
    /// Show only user-space frames
    #[arg(short = 'U', long)]
    #[arg(help_heading = help::FRAMES)]
    pub user_only: bool,
    /// Show only kernel frames
    #[arg(short = 'K', long, conflicts_with = "user_only")]
    #[arg(help_heading = help::FRAMES)]
    pub kernel_only: bool,
    /// Put a frame `-` between user-space and kernel frames
    #[arg(short, long)]
    #[arg(help_heading = help::FRAMES)]
    pub delimited: bool,
    /// Show waits for a CPU instead: after a wake-up or a preemption
    #[arg(long)]
    pub run_queue: bool,
    /// Omit idle threads: those that wait in poll, epoll, select, accept, sleep, wait, and idle kernel
    /// threads
    #[arg(long)]
    pub hide_idle: bool,
    /// offcpu, threadtime: also draw waits that had not ended when the recording did, with their duration
    /// until then
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    pub open: bool,
    /// Divide waits by the number of threads with the same name and process
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    pub per_thread: bool,
    /// Weigh by number of waits instead of time
    #[arg(long)]
    pub count: bool,
    /// Put stacks on top of the tracing span that was active, split where it changes: by its name, its
    /// endpoint (the outermost span of the process), its trace, or the value of a label
    #[arg(long, value_name = "span|endpoint|trace|label=KEY", value_parser = spans::by)]
    pub by: Option<GroupBy>,
    /// Keep only waits in spans of this trace
    #[arg(long, value_name = "ID")]
    #[arg(help_heading = help::FILTERS)]
    pub trace: Option<TraceId>,
    /// chain: number of wakers on top of each other
    #[arg(long, value_name = "LEVELS", default_value_t = DEPTH as u8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub depth: u8,
    /// threadtime: put the thread's state at the leaves instead of at the roots
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub at_leaves: bool,
    /// Text: use nanoseconds
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    pub ns: bool,
    /// Appearance.
    #[command(flatten)]
    pub picture: SvgArgs,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folded stacks
    Folded,
    /// One self-contained page
    Html,
    /// An image with script
    Svg,
    /// The same as pixels, rendered by Chromium
    Png,
}

/// Adapts the arguments of a graph's command: hides those that do not apply to it.
pub fn arg(arg: Arg, graph: Graph) -> Arg {
    let applies = match arg.get_id().as_str() {
        "inputs" => return arg.help(INPUTS),
        "events" | "total" | "process_title" | "only_state" => false,
        "run_queue" => graph == Graph::OffCpu,
        "open" => matches!(graph, Graph::OffCpu | Graph::Time),
        "depth" => graph == Graph::Chain,
        "at_leaves" => graph == Graph::Time,
        _ => return arg,
    };
    if applies { arg } else { arg.hide(true) }
}

const INPUTS: &str = "Recordings or repositories; `-` is standard input";

/// Inputs of the commands that list or count events, and the selection of their samples.
#[derive(Debug, Args)]
pub struct EventInputs {
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath, help = INPUTS)]
    pub inputs: Vec<PathBuf>,
    /// Selection of samples.
    #[command(flatten)]
    pub samples: SampleArgs,
}

impl EventInputs {
    /// Returns the files of the inputs.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        repository::expand(&self.inputs, self.samples.range.last)
    }

    /// Returns the selection of samples in these files.
    pub fn choice(&self, files: &[PathBuf]) -> Result<Choice> {
        Ok(Choice::new(self.samples.filter(), time_range::nanos(files, &self.samples.range)?))
    }

    /// Reads the events.
    pub fn read(&self, files: &[PathBuf], events: &live::Options, taker: &mut impl Taker) -> Result<Outcome> {
        event_reader::read_files(files, &self.inputs, events, taker)
    }
}
