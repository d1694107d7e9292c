//! `flightline offcpu`, `wakeup`, `offwake`, `chain`, `threadtime`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Arg, Args, ValueEnum, ValueHint};
use flightline_consumer::fold;
use flightline_consumer::folded;
use flightline_consumer::latency::Summary;
use flightline_consumer::live::{self, Feed, Item};
use flightline_consumer::off_cpu::{
    DEPTH, Drawn, Graph, InputTotals, OfSpans, OffCpu, Options, SpanCounts, States,
};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::svg::Colors;
use flightline_consumer::render::{html, svg};
use flightline_consumer::spans::report::{Filter, GroupBy};
use flightline_consumer::spans::{Counts, TraceId};
use flightline_consumer::tree::Tree;

use crate::items::{self, Taker};
use crate::select::{SelectArgs, StackArgs};
use crate::stacks::{self, For};
use crate::svg::SvgArgs;
use crate::talk::{self, all_shown};
use crate::{Outcome, help, output, png, range, repository, spans, tracks};

pub const EXAMPLES: &str = "\
Examples:
  sudo flightline record --off-cpu --wakeups -o run.jfr -p 4711
  flightline offcpu run.jfr -o offcpu.html
  flightline offcpu run.jfr --state D -o disk.svg       only uninterruptible waits: mostly disks
  flightline offcpu run.jfr -I do_command --min 1ms     folded text: waits in requests, in µs
  flightline offcpu run.jfr --run-queue -o cpu.html     how long threads waited for a CPU
  flightline offcpu run.jfr --state R                   where threads were preempted
  flightline wakeup run.jfr -o wakeup.svg               wakers, their stacks, and the woken threads
  flightline offwake run.jfr --hide-idle -o offwake.html
  flightline chain run.jfr -o chain.svg                 wakers of wakers, up to six levels
  flightline threadtime run.jfr -t -o time.html         all time of each thread: running, runnable, blocked
  flightline threadtime run.jfr --by span -o spans.html the same by tracing span; also endpoint, trace, label=KEY
  flightline offcpu run.jfr --span checkout             waits in these spans; also --label, --trace

Text has the format of bcc's offcputime, wakeuptime and offwaketime, in whole µs; --ns is exact. Waits \
of threads add up: ten threads that wait for one second waited for ten seconds (one second with \
--per-thread).";

/// Arguments of `offcpu`, `wakeup`, `offwake`, `chain` and `threadtime`.
#[derive(Debug, Args)]
pub struct OffCpuArgs {
    /// The inputs and their selection.
    #[command(flatten)]
    stacks: StackArgs,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 1)]
    output: PathBuf,
    /// folded, html, svg or png [default: by the output's extension, else folded]
    #[arg(long, value_enum, display_order = 2)]
    format: Option<Format>,
    /// Omit waits shorter than this: 500us, 1ms; without a unit µs
    #[arg(short = 'm', long = "min", value_name = "TIME", value_parser = range::micros)]
    least: Option<Duration>,
    /// Omit waits longer than this
    #[arg(short = 'M', long = "max", value_name = "TIME", value_parser = range::micros)]
    most: Option<Duration>,
    /// Show only user-space frames
    #[arg(short = 'U', long)]
    #[arg(help_heading = help::FRAMES)]
    user_only: bool,
    /// Show only kernel frames
    #[arg(short = 'K', long, conflicts_with = "user_only")]
    #[arg(help_heading = help::FRAMES)]
    kernel_only: bool,
    /// Put a frame `-` between user-space and kernel frames
    #[arg(short, long)]
    #[arg(help_heading = help::FRAMES)]
    delimited: bool,
    /// Show waits for a CPU instead: after a wake-up or a preemption
    #[arg(long)]
    run_queue: bool,
    /// Omit idle threads: those that wait in poll, epoll, select, accept, sleep, wait, and idle kernel
    /// threads
    #[arg(long)]
    hide_idle: bool,
    /// offcpu, threadtime: also draw waits that had not ended when the recording did, with their duration
    /// until then
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    open: bool,
    /// Divide waits by the number of threads with the same name and process
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    per_thread: bool,
    /// Weigh by number of waits instead of time
    #[arg(long)]
    count: bool,
    /// Put stacks on top of the tracing span that was active, split where it changes: by its name, its
    /// endpoint (the outermost span of the process), its trace, or the value of a label
    #[arg(long, value_name = "span|endpoint|trace|label=KEY", value_parser = spans::by)]
    by: Option<GroupBy>,
    /// Keep only waits in spans of this trace
    #[arg(long, value_name = "ID")]
    #[arg(help_heading = help::FILTERS)]
    trace: Option<TraceId>,
    /// chain: number of wakers on top of each other
    #[arg(long, value_name = "LEVELS", default_value_t = DEPTH as u8, value_parser = clap::value_parser!(u8).range(1..=64))]
    depth: u8,
    /// threadtime: put the thread's state at the leaves instead of at the roots
    #[arg(long)]
    #[arg(help_heading = help::FRAMES)]
    at_leaves: bool,
    /// Text: use nanoseconds
    #[arg(long)]
    #[arg(help_heading = help::ADVANCED)]
    ns: bool,
    /// Appearance.
    #[command(flatten)]
    picture: SvgArgs,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Folded stacks
    Folded,
    /// One self-contained page
    Html,
    /// An image with script
    Svg,
    /// The same as pixels, rendered by Chromium
    Png,
}

/// Adapts the common arguments; hides those that do not apply to off-CPU time.
pub fn arg(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "inputs" => arg.help("Recordings or repositories; `-` is standard input"),
        // State names of the scheduler instead of an expression.
        "state" => arg.value_name("STATES").help(
            "Select thread states: letters such as S,D, a mask as in bcc (2), blocked, or all [default: blocked: all except R]",
        ),
        "events" | "total" | "process_title" => arg.hide(true),
        _ => arg,
    }
}

/// Draws or writes a graph.
pub fn run(args: &OffCpuArgs, graph: Graph) -> Result<Outcome> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    output::refuse_input(&args.output, inputs.iter().map(PathBuf::as_path))?;
    if args.run_queue && graph != Graph::OffCpu {
        bail!("--run-queue applies only to `flightline offcpu`");
    }
    if !select.events.is_empty() {
        bail!("--event does not apply to off-CPU time; select with -I, --span, --only-thread or --from");
    }
    if select.process_title {
        bail!("--process-title does not apply to off-CPU time; use --process");
    }
    let graph = if args.run_queue { Graph::RunQueue } else { graph };
    let format = args.format.unwrap_or_else(|| format_of(&args.output));
    if format == Format::Folded && args.format.is_none() {
        output::refuse_picture(
            &args.output,
            "the output must end in .html, .htm, .svg or .png; for other names, give --format",
        )?;
    }
    let Read { tree, latency, seen, all, outcome } = read(args, graph)?;
    warnings(&seen, graph).iter().for_each(talk::warning);
    notes(&seen, graph, select.samples.state.is_none()).iter().for_each(talk::note);
    if tree.total == 0 {
        bail!("no wait passes the filters; see --state, --min, --only-thread, --span, -I and -X");
    }
    let kept = Kept { of: all, kept: tree.total };
    if kept.is_part() {
        talk::note(format_args!("{} are drawn: {}", kept.of_all(args), kept.share()));
    }
    if format == Format::Folded {
        let tree = if args.ns || args.count { tree } else { tree.in_micros() };
        output::text(&args.output, |mut out| folded::write(&tree, &mut out))?;
        return Ok(outcome);
    }
    let options = PictureOptions {
        title: format!("{}{}: {}", graph.title(), by_what(args), all_shown(inputs)),
        subtitle: Some(subtitle(&kept, &seen, args)),
        inverted: false,
    };
    let mut picture = Vec::new();
    match format {
        Format::Html => {
            // Stacks are selected after their times were added up.
            let latency = latency.filter(|_| !kept.is_part());
            let options = args.picture.common(options);
            html::write_colored(&tree, graph.page_palette(), latency.as_ref(), &options, &mut picture)?;
        }
        _ => {
            let mut options = args.picture.options(options, select.min_width);
            if options.colors == Colors::Auto {
                options.colors = graph.palette().parse().map_err(anyhow::Error::msg)?;
            }
            if format == Format::Png {
                png::fit(&mut options, select.min_width);
            }
            svg::write(&tree, &options, &mut picture)?;
        }
    }
    if format == Format::Png {
        picture = png::of(&picture)?;
    }
    output::document(&args.output, &picture)?;
    Ok(outcome)
}

impl Taker for OffCpu {
    fn take(&mut self, item: &Item, _feed: &Feed) {
        OffCpu::take(self, item);
    }
}

/// The data for a graph.
struct Read {
    tree: Tree,
    latency: Option<Summary>,
    seen: InputTotals,
    /// Weight of the tree without filters.
    all: u64,
    outcome: Outcome,
}

/// How much of the weight remains after filtering.
struct Kept {
    of: u64,
    kept: u64,
}

impl Kept {
    fn is_part(&self) -> bool {
        self.kept < self.of
    }

    fn share(&self) -> String {
        format!("{:.1} %", 100.0 * self.kept as f64 / self.of.max(1) as f64)
    }

    fn of_all(&self, args: &OffCpuArgs) -> String {
        match args.count {
            true => format!("{} of {} times", self.kept, self.of),
            false => format!("{} of {}", seconds(self.kept), seconds(self.of)),
        }
    }
}

impl OffCpuArgs {
    /// Returns the span options, if any are set.
    fn of_spans(&self) -> Option<OfSpans> {
        let SelectArgs { spans, labels, .. } = &self.stacks.select;
        let only = Filter { names: spans.clone(), labels: labels.clone(), trace: self.trace };
        (self.by.is_some() || !only.is_all()).then(|| OfSpans { by: self.by.clone(), only })
    }
}

fn read(args: &OffCpuArgs, graph: Graph) -> Result<Read> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    let [from, to] = tracks::range(inputs, select)?;
    let mut options = Options::new(graph);
    if let Some(state) = &select.samples.state {
        options.states = state.as_str().parse::<States>()?;
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    options.least = args.least.map_or(0, nanos);
    options.most = args.most.map_or(u64::MAX, nanos);
    (options.from, options.to) = (from, to);
    (options.user_only, options.kernel_only) = (args.user_only, args.kernel_only);
    (options.delimited, options.hide_idle, options.open) = (args.delimited, args.hide_idle, args.open);
    (options.per_thread, options.depth) = (args.per_thread, usize::from(args.depth));
    options.names = !select.threads;
    options.at_leaves = args.at_leaves;
    let of_spans = args.of_spans();
    options.spans = of_spans.clone();
    let mut off_cpu = OffCpu::new(options);
    let wanted = live::Options {
        samples: graph.events(),
        others: of_spans.is_some(),
        lasting: of_spans.is_some(),
        ..live::Options::default()
    };
    let mut outcome = Outcome::Whole;
    for path in &repository::expand(inputs, select.samples.range.last)? {
        match items::of_file(path, &wanted, &mut off_cpu) {
            Ok(Outcome::Whole) => {}
            Ok(other) => outcome = other,
            Err(_) if repository::rolled_away(path, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    let Drawn { model, seen, spans, latency } = off_cpu.finish();
    if seen.intervals == 0 && seen.open_drawn == 0 {
        bail!(
            "{} has no off-CPU time (flightline.OffCpu events); record with --off-cpu, and with --wakeups for wakers",
            all_shown(inputs)
        );
    }
    if let (Some(told), Some(of)) = (&spans, &of_spans) {
        spans::check(inputs, &told.profile, &of.only)?;
        note_spans(told, &seen, of);
    }
    let all = model.samples.values().chain([&seen.elsewhere]);
    let all = all.map(|weight| if args.count { weight.count } else { weight.value }).sum();
    let mut chosen = select.clone();
    chosen.samples.state = None;
    chosen.total = !args.count;
    let tree = match model.samples.is_empty() {
        true => Tree { labels: Vec::new(), nodes: Vec::new(), total: 0, unit: String::new() },
        false => fold::fold(&model, &stacks::options(&chosen, For::Text))?,
    };
    let what = match args.format.unwrap_or_else(|| format_of(&args.output)) {
        Format::Folded => For::Text,
        Format::Html => For::Page,
        Format::Svg | Format::Png => For::Svg,
    };
    Ok(Read { tree: stacks::reshape(&chosen, what)?.tree(tree), latency, seen, all, outcome })
}

/// Reports what the recording lacks about spans.
fn note_spans(told: &SpanCounts, seen: &InputTotals, of: &OfSpans) {
    if told.activations == 0 {
        talk::warning(
            "the recording has spans of samples, but not the times when spans were active; off-CPU time is in no span",
        );
    }
    let Counts { unwaited, .. } = told.counts;
    if unwaited > 0 {
        talk::warning(format_args!(
            "{unwaited} records were assigned before all data for their time had been read, because too \
             many were pending; select a part with --from and --to"
        ));
    }
    if seen.in_spans_left_out > 0 {
        talk::warning(format_args!(
            "{} belong to spans that were omitted because there are too many; select a part with --from and --to",
            seconds(seen.in_spans_left_out)
        ));
    }
    if of.only.is_all() {
        let all = seen.drawn;
        let kept = Kept { of: all, kept: all - seen.in_no_span.min(all) };
        talk::note(format_args!("{} of {} are in spans: {}", seconds(kept.kept), seconds(all), kept.share()));
    }
}

/// Returns the warnings about events that the graph lacks.
fn warnings(seen: &InputTotals, graph: Graph) -> Vec<String> {
    let mut all = Vec::new();
    if seen.lost > 0 {
        let advice = match graph {
            Graph::OffCpu => {
                "; to lose fewer, use a larger --off-cpu-ring, a higher --off-cpu-rate, a smaller --off-cpu-stack or --off-cpu=MIN"
            }
            _ => "",
        };
        all.push(format!(
            "{} scheduler records and intervals were lost, {} intervals were recorded; `flightline \
             summary` lists the causes{advice}",
            seen.lost, seen.intervals
        ));
    }
    if seen.beyond > 0 {
        all.push(format!(
            "{} of {} intervals are omitted, because the number of intervals in chains is limited; \
             select a part with --from and --to",
            seen.beyond, seen.intervals
        ));
    }
    all
}

/// Returns the notes about data that the graph does not show. Each applies to some graphs only, since several
/// graphs are usually drawn from one recording. `all_states`: no states were selected.
fn notes(seen: &InputTotals, graph: Graph, all_states: bool) -> Vec<String> {
    let mut all = Vec::new();
    if seen.open_drawn > 0 {
        all.push(format!(
            "{} still waiting when the recording ended; {} of these waits are drawn up to the end",
            threads_were(seen.open),
            seen.open_drawn
        ));
    } else if seen.open > 0 && matches!(graph, Graph::OffCpu | Graph::Time) {
        let were = threads_were(seen.open);
        all.push(format!("{were} still waiting when the recording ended; use --open to draw these waits"));
    }
    if seen.involuntary > 0 && all_states && graph == Graph::OffCpu {
        all.push(format!(
            "{} of preemption are not drawn; use --state R to draw it, or --run-queue to draw all waits for a CPU",
            seconds(seen.involuntary)
        ));
    }
    if seen.idle > 0 {
        all.push(format!("{} of idle waits are omitted", seconds(seen.idle)));
    }
    if seen.without_waker > 0 && matches!(graph, Graph::Wakeup | Graph::OffWake | Graph::Chain) {
        all.push(without_waker(seen.without_waker, seen.with_waker, seen.lost));
    }
    all
}

fn threads_were(count: u64) -> String {
    if count == 1 { "1 thread was".to_owned() } else { format!("{count} threads were") }
}

/// Returns how many sleeps have no known waker, and why.
fn without_waker(unknown: u64, known: u64, lost: u64) -> String {
    let why = match (known, lost) {
        (0, _) => "record with --wakeups, as root to see wakers in other processes",
        (_, 0) => "record as root to see wakers in other processes",
        _ => "their wake-up records were lost",
    };
    format!("{unknown} of {} sleeps have no known waker: {why}", unknown.saturating_add(known))
}

fn seconds(nanos: u64) -> String {
    format!("{:.3} s", nanos as f64 / 1e9)
}

fn subtitle(kept: &Kept, seen: &InputTotals, args: &OffCpuArgs) -> String {
    let part = match kept.is_part() {
        true => format!(", {} of all: {}", kept.share(), kept.of_all(args)),
        false => String::new(),
    };
    let lost = if seen.lost > 0 { format!(", {} records lost", seen.lost) } else { String::new() };
    if args.count {
        return format!("{} times in {}{part}{lost}", kept.kept, seconds(seen.window));
    }
    let each = if args.per_thread { ", each thread's share of those of its name" } else { "" };
    let threads = if seen.threads == 1 { "thread" } else { "threads" };
    let (time, window) = (seconds(kept.kept), seconds(seen.window));
    format!("{time} of {} {threads} in {window}{each}{part}{lost}", seen.threads)
}

fn by_what(args: &OffCpuArgs) -> String {
    match &args.by {
        None => String::new(),
        Some(GroupBy::Name) => " by span".into(),
        Some(GroupBy::Endpoint) => " by endpoint".into(),
        Some(GroupBy::Trace) => " by trace".into(),
        Some(GroupBy::Label(key)) => format!(" by {key}"),
    }
}

fn format_of(path: &Path) -> Format {
    let is = |ending: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending));
    match () {
        () if is("html") || is("htm") => Format::Html,
        () if is("svg") => Format::Svg,
        () if is("png") => Format::Png,
        () => Format::Folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPHS: [Graph; 6] =
        [Graph::OffCpu, Graph::Wakeup, Graph::OffWake, Graph::Chain, Graph::RunQueue, Graph::Time];

    /// Returns the graphs whose notes contain the text.
    fn noted(seen: &InputTotals, text: &str) -> Vec<Graph> {
        let has = |graph: &Graph| notes(seen, *graph, true).iter().any(|note| note.contains(text));
        GRAPHS.into_iter().filter(has).collect()
    }

    #[test]
    fn note_is_printed_only_by_affected_graphs() {
        let seen =
            InputTotals { open: 3, involuntary: 5_000_000, without_waker: 2, ..InputTotals::default() };
        assert_eq!(noted(&seen, "3 threads were still waiting"), [Graph::OffCpu, Graph::Time]);
        assert_eq!(noted(&seen, "0.005 s of preemption are not drawn"), [Graph::OffCpu]);
        assert_eq!(
            noted(&seen, "2 of 2 sleeps have no known waker"),
            [Graph::Wakeup, Graph::OffWake, Graph::Chain]
        );
        assert!(notes(&seen, Graph::OffCpu, false).iter().all(|note| !note.contains("preempted")));
        let drawn = InputTotals { open: 1, open_drawn: 1, ..InputTotals::default() };
        assert_eq!(noted(&drawn, "1 thread was still waiting"), GRAPHS);
        assert_eq!(
            noted(&InputTotals { idle: 2_000_000_000, ..InputTotals::default() }, "2.000 s of idle waits"),
            GRAPHS
        );
    }

    #[test]
    fn losses_are_reported_by_all_graphs_and_advice_only_by_offcpu() {
        let seen = InputTotals { lost: 9, intervals: 40, ..InputTotals::default() };
        for graph in GRAPHS {
            let text = warnings(&seen, graph).concat();
            assert!(
                text.starts_with("9 scheduler records and intervals were lost, 40 intervals were"),
                "{text}"
            );
            assert_eq!(text.contains("--off-cpu-ring"), graph == Graph::OffCpu, "{text}");
        }
    }

    #[test]
    fn missing_waker_note_names_matching_reason() {
        for (known, lost, expected) in [
            (0, 9, "3 of 3 sleeps have no known waker: record with --wakeups"),
            (7, 0, "3 of 10 sleeps have no known waker: record as root"),
            (7, 9, "3 of 10 sleeps have no known waker: their wake-up records were lost"),
        ] {
            let text = without_waker(3, known, lost);
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
