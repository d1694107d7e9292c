//! Options that select samples and name frames, shared by all commands that read samples.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::fold::Filter;
use flightline_consumer::render::svg::MinWidth;
use regex::Regex;

use crate::args::{help, time_range::RangeArgs, values};

/// Inputs and selection of stacks.
#[derive(Clone, Debug, Args)]
pub struct StackArgs {
    /// Recordings, repositories, folded text, perf script, pprof, OTLP or speedscope files; `-` is standard
    /// input
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// Selection and names.
    #[command(flatten)]
    pub select: SelectArgs,
}

impl StackArgs {
    /// With several inputs, defaults to stable names, which runs have in common.
    pub fn with_names(mut self) -> Self {
        if self.inputs.len() > 1 {
            self.select.names.get_or_insert(NameStyle::Stable);
        }
        self
    }
}

/// Selection, measure and names, shared by commands that draw, fold, compare and convert.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    /// Event type: cpu, wall, alloc, live, lock, io, throw, trace, a perf event as it was recorded
    /// (page-faults), or the name of a type; repeatable [default: CPU samples, else wall-clock samples, else
    /// the most frequent]
    #[arg(short, long = "event", alias = "events", value_name = "NAME", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Measure the time or bytes that samples represent instead of their number
    #[arg(long)]
    pub total: bool,
    /// Count samples even for events with a time or size.
    #[arg(skip)]
    pub count: bool,
    /// Keep files and addresses of frames.
    #[arg(skip)]
    pub places: bool,
    /// Separate the stacks by thread: the thread becomes the root frame
    #[arg(short, long)]
    #[arg(help_heading = help::FRAMES)]
    pub threads: bool,
    /// Show each virtual thread of Java, as `[virtual #31]` [default: all of them are one thread]
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub virtual_threads: bool,
    /// Add the process as the root frame
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub process: bool,
    /// Add the process's title at the time of the sample as the root frame, such as `postgres: bench [local]
    /// UPDATE`, or the process if it has none; -I and -X match it
    #[arg(long, conflicts_with_all = ["spans", "labels"])]
    #[arg(help_heading = help::FRAMES)]
    pub process_title: bool,
    /// Prefix native functions with their library: lib.so`function
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub modules: bool,
    /// Append the source line to functions
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub lines: bool,
    /// Do not add the class of the allocated, locked or thrown object as the leaf frame
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub no_class: bool,
    /// Selection of samples.
    #[command(flatten)]
    pub samples: SampleArgs,
    /// Start stacks at their first frame that matches; drop those without one
    #[arg(long, value_name = "REGEX")]
    #[arg(help_heading = help::FRAMES)]
    pub focus: Option<Regex>,
    /// Remove frames that match, but not what they call; repeatable
    #[arg(long, value_name = "REGEX")]
    #[arg(help_heading = help::FRAMES)]
    pub hide: Vec<Regex>,
    /// Group frames; for modules and packages, adjacent equal frames are merged
    #[arg(long, value_enum, value_name = "WHAT", default_value = "function", conflicts_with_all = ["modules", "lines"])]
    #[arg(help_heading = help::FRAMES)]
    pub group_by: GroupBy,
    /// Style of function names [default: full; in comparisons and with several inputs stable]
    #[arg(long, value_enum, value_name = "HOW")]
    #[arg(help_heading = help::FRAMES)]
    pub names: Option<NameStyle>,
    /// Merge a function and its direct recursive calls into one frame; calls through other functions stay
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub collapse_recursion: bool,
    /// Merge stacks from their leaves: shows the callers of functions
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    pub reverse: bool,
    /// Omit frames narrower than a share of the total, such as 0.1%, in SVG also than pixels, such as 0.5px.
    /// Flame graphs report how much was omitted; elsewhere frames `[thin]` replace it [default: none; in SVG
    /// 0.01%, in PNG 4px]
    #[arg(long, value_name = "PERCENT|PIXELS")]
    #[arg(help_heading = help::FRAMES)]
    pub min_width: Option<MinWidth>,
    /// Keep samples in spans of this name and their descendants (`flightline spans` lists them); repeatable
    #[arg(long = "span", value_name = "NAME")]
    #[arg(help_heading = help::FILTERS)]
    pub spans: Vec<String>,
    /// Keep samples in spans with this label and their descendants, or pprof samples with this label (numbers
    /// in decimal); repeatable, then all labels must match
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = values::label)]
    #[arg(help_heading = help::FILTERS)]
    pub labels: Vec<(String, String)>,
    /// Number of threads for a recording of several chunks [default: one per 16 MB, at most 4 and at most the
    /// number of CPUs]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

impl SelectArgs {
    /// Returns true if an option may exclude samples.
    pub fn is_filtered(&self) -> bool {
        let samples = &self.samples;
        let names =
            samples.only_thread.is_some() || samples.only_process.is_some() || samples.only_state.is_some();
        let times = !samples.range.is_everything();
        let frames = !samples.include.is_empty() || !samples.exclude.is_empty() || self.focus.is_some();
        names || times || frames || !self.spans.is_empty() || !self.labels.is_empty()
    }
}

/// Selection of samples, shared by all commands that read them.
#[derive(Clone, Debug, Default, Args)]
pub struct SampleArgs {
    /// Use only stacks that contain a function that matches; repeatable, then all must match
    #[arg(short = 'I', long, value_name = "REGEX")]
    #[arg(help_heading = help::FILTERS)]
    pub include: Vec<Regex>,
    /// Ignore stacks that contain a function that matches; repeatable
    #[arg(short = 'X', long, value_name = "REGEX")]
    #[arg(help_heading = help::FILTERS)]
    pub exclude: Vec<Regex>,
    /// Keep threads that match, as `[name tid=1]`
    #[arg(long, value_name = "REGEX")]
    #[arg(help_heading = help::FILTERS)]
    pub only_thread: Option<Regex>,
    /// Keep processes that match, as `name (pid)`
    #[arg(long, value_name = "REGEX")]
    #[arg(help_heading = help::FILTERS)]
    pub only_process: Option<Regex>,
    /// Keep samples in a thread state that matches
    #[arg(long, value_name = "REGEX")]
    #[arg(help_heading = help::FILTERS)]
    pub only_state: Option<Regex>,
    #[command(flatten)]
    pub range: RangeArgs,
}

impl SampleArgs {
    /// Converts to the library's filter.
    pub fn filter(&self) -> Filter {
        Filter {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            thread: self.only_thread.clone(),
            process: self.only_process.clone(),
            state: self.only_state.clone(),
        }
    }
}

/// Grouping of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// Functions
    #[default]
    Function,
    /// Libraries; for Java, packages
    Module,
    /// Packages, namespaces, crates; libraries for names without any
    Package,
}

/// The style of function names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NameStyle {
    /// Unchanged
    #[default]
    Full,
    /// In full, without the numbers of lambdas, hidden classes and proxies that differ between runs of a JVM
    Stable,
    /// Without packages, outer namespaces, parameters and template arguments
    Simple,
    /// Java with dots instead of slashes
    Dotted,
}

/// Names of two counters.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Counter that determines the widths.
    pub of: String,
    /// Divisor.
    pub over: String,
}

/// Parses `COUNTER,COUNTER`.
///
/// # Errors
/// Returns an error unless there are two different names.
pub fn counters(text: &str) -> Result<Counters, String> {
    let names = text.split_once(',').filter(|(of, over)| !of.is_empty() && !over.is_empty() && of != over);
    let counters = names.map(|(of, over)| Counters { of: of.into(), over: over.into() });
    counters.ok_or_else(|| "give the names of two counters, such as cycles,instructions".into())
}
