//! `flightline offcpu`, `wakeup`, `offwake`, `chain`, `threadtime`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Arg, Args, ValueEnum, ValueHint};
use flightline_consumer::fold;
use flightline_consumer::folded;
use flightline_consumer::live::{self, Feed, Item};
use flightline_consumer::off_cpu::{DEPTH, EVENT, Graph, OPEN_EVENT, OffCpu, Options, Seen, States};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::svg::Colors;
use flightline_consumer::render::{html, svg};
use flightline_consumer::tree::Tree;

use crate::args::StackArgs;
use crate::items::{self, Taker};
use crate::stacks::{self, For};
use crate::svg::SvgArgs;
use crate::talk::{self, all_shown};
use crate::{Outcome, output, png, range, repository, tracks};

pub const EXAMPLES: &str = "\
Examples:
  sudo flightline record --off-cpu --wakeups -o run.jfr -p 4711
  flightline offcpu run.jfr -o offcpu.html
  flightline offcpu run.jfr --state D -o disk.svg       only what could not be interrupted: mostly disks
  flightline offcpu run.jfr -I do_command --min 1ms     folded text of requests' waits, in µs
  flightline offcpu run.jfr --run-queue -o cpu.html     for how long threads waited for a processor
  flightline offcpu run.jfr --state R                   where threads were put aside while they could run
  flightline wakeup run.jfr -o wakeup.svg               waker, its stack, and whom it woke
  flightline offwake run.jfr --hide-idle -o offwake.html
  flightline chain run.jfr -o chain.svg                 who woke the waker, up to six levels
  flightline threadtime run.jfr -t -o time.html         all of each thread's time: running, runnable, blocked by kind

Lines of text are those of bcc's offcputime, wakeuptime and offwaketime, in whole µs; --ns is exact. What threads waited adds up over \
threads: ten that wait for a second waited ten seconds (--per-thread tells one).";

/// Arguments of `offcpu`, `wakeup`, `offwake`, `chain` and `threadtime`.
#[derive(Debug, Args)]
pub struct OffCpuArgs {
    /// What to draw.
    #[command(flatten)]
    stacks: StackArgs,
    /// Where to; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// folded, html, svg or png [default: by the name of the output, else folded]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Leave out what was shorter: 500us, 1ms; without a unit µs
    #[arg(short = 'm', long = "min", value_name = "TIME", value_parser = range::micros)]
    least: Option<Duration>,
    /// Leave out what was longer
    #[arg(short = 'M', long = "max", value_name = "TIME", value_parser = range::micros)]
    most: Option<Duration>,
    /// Only the program's part of stacks
    #[arg(short = 'U', long)]
    user_only: bool,
    /// Only the kernel's part of stacks
    #[arg(short = 'K', long, conflicts_with = "user_only")]
    kernel_only: bool,
    /// A frame `-` between the program's part and the kernel's
    #[arg(short, long)]
    delimited: bool,
    /// Wait for a processor instead: after the wake-up, or after having been put aside
    #[arg(long)]
    run_queue: bool,
    /// Leave out threads that wait for something to do: in poll, epoll, select, accept, sleep, wait, and idle ones of the kernel
    #[arg(long)]
    hide_idle: bool,
    /// Divide what threads of one name and process waited by their number
    #[arg(long)]
    per_thread: bool,
    /// How often, not how long
    #[arg(long)]
    count: bool,
    /// chain: wakers on top of each other
    #[arg(long, value_name = "LEVELS", default_value_t = DEPTH as u8, value_parser = clap::value_parser!(u8).range(1..=64))]
    depth: u8,
    /// threadtime: what threads did at the leaves instead of at the roots
    #[arg(long)]
    at_leaves: bool,
    /// Text: nanoseconds
    #[arg(long)]
    ns: bool,
    /// How it looks.
    #[command(flatten)]
    picture: SvgArgs,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Folded stacks
    Folded,
    /// One self-contained page
    Html,
    /// A picture with script
    Svg,
    /// The same as pixels, drawn by Chromium
    Png,
}

/// Arguments of all commands that draw, as these have them: what is not for off-CPU time is not told of.
pub fn arg(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "inputs" => arg.help("Recordings or repositories; `-` is standard input"),
        // Not an expression, but states as the scheduler names them.
        "state" => arg.value_name("STATES").help(
            "Of threads in these states: letters as S,D, a mask as bcc takes it (2), blocked, or all [default: blocked, which is all but R]",
        ),
        "events" | "total" | "spans" | "labels" => arg.hide(true),
        _ => arg,
    }
}

/// Draws or writes one of the graphs.
pub fn run(args: &OffCpuArgs, graph: Graph) -> Result<Outcome> {
    let (inputs, select) = (&args.stacks.inputs, &args.stacks.select);
    output::refuse_input(&args.output, inputs.iter().map(PathBuf::as_path))?;
    if args.run_queue && graph != Graph::OffCpu {
        bail!("--run-queue is for flightline offcpu");
    }
    if !select.events.is_empty() || !select.spans.is_empty() || !select.labels.is_empty() {
        bail!(
            "--event, --span and --label are not for graphs of off-CPU time; -I, --only-thread and --from select of it"
        );
    }
    let graph = if args.run_queue { Graph::RunQueue } else { graph };
    let format = args.format.unwrap_or_else(|| format_of(&args.output));
    let (tree, seen, outcome) = read(args, graph)?;
    note(&seen, args, graph);
    if tree.total == 0 {
        bail!("nothing is left to draw: see --state, --min, --only-thread, -I and -X");
    }
    if format == Format::Folded {
        let tree = if args.ns || args.count { tree } else { in_micros(tree) };
        output::text(&args.output, |mut out| folded::write(&tree, &mut out))?;
        return Ok(outcome);
    }
    let options = PictureOptions {
        title: format!("{}: {}", title(graph), all_shown(inputs)),
        subtitle: Some(subtitle(&tree, &seen, args)),
        inverted: false,
    };
    let mut picture = Vec::new();
    match format {
        Format::Html => {
            // A page has more of them than a picture without script.
            let palette = if graph == Graph::Time { "doing" } else { palette(graph) };
            html::write_colored(&tree, palette, &args.picture.common(options), &mut picture)?;
        }
        _ => {
            let mut options = args.picture.options(options, select.min_width);
            if options.colors == Colors::Auto {
                options.colors = palette(graph).parse().map_err(anyhow::Error::msg)?;
            }
            if format == Format::Png {
                options.width.get_or_insert(png::WIDTH);
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

fn read(args: &OffCpuArgs, graph: Graph) -> Result<(Tree, Seen, Outcome)> {
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
    (options.delimited, options.hide_idle) = (args.delimited, args.hide_idle);
    (options.per_thread, options.depth) = (args.per_thread, usize::from(args.depth));
    options.names = !select.threads;
    options.at_leaves = args.at_leaves;
    let mut off_cpu = OffCpu::new(options);
    let running = (graph == Graph::Time).then(|| "cpu".to_owned());
    let wanted = live::Options {
        samples: [EVENT, OPEN_EVENT].map(str::to_owned).into_iter().chain(running).collect(),
        others: false,
        ..live::Options::default()
    };
    let mut outcome = Outcome::Whole;
    for path in &repository::expand(inputs, select.samples.last)? {
        match items::of_file(path, &wanted, &mut off_cpu) {
            Ok(Outcome::Whole) => {}
            Ok(other) => outcome = other,
            Err(_) if repository::rolled_away(path, inputs) => {}
            Err(error) => return Err(error),
        }
    }
    let (model, seen) = off_cpu.finish();
    if seen.intervals == 0 {
        bail!(
            "{} has no times without a processor (flightline.OffCpu): record with --off-cpu, and --wakeups for who woke whom",
            all_shown(inputs)
        );
    }
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
    Ok((stacks::reshape(&chosen, what)?.tree(tree), seen, outcome))
}

/// What the picture does not show.
fn note(seen: &Seen, args: &OffCpuArgs, graph: Graph) {
    if seen.beyond > 0 {
        talk::warning(format_args!(
            "{} of {} intervals are left out, as chains are followed through so many at most: --from and --to draw a part",
            seen.beyond, seen.intervals
        ));
    }
    if seen.open > 0 {
        talk::note(format_args!(
            "{} still waiting when the recording ended, which is not drawn",
            if seen.open == 1 { "1 thread was".to_owned() } else { format!("{} threads were", seen.open) }
        ));
    }
    if seen.involuntary > 0
        && args.stacks.select.samples.state.is_none()
        && !matches!(graph, Graph::RunQueue | Graph::Time)
    {
        talk::note(format_args!(
            "{} in which threads were put aside while they could run are not drawn: --state R draws them, --run-queue all waiting for a \
             processor",
            seconds(seen.involuntary)
        ));
    }
    if seen.idle > 0 {
        talk::note(format_args!("{} of waiting for something to do are left out", seconds(seen.idle)));
    }
    let wakers = matches!(graph, Graph::Wakeup | Graph::OffWake | Graph::Chain);
    if wakers && seen.without_waker > 0 {
        talk::note(format_args!(
            "of {} sleeps it is not known what ended them: record with --wakeups, as root to see wakers of other processes",
            seen.without_waker
        ));
    }
}

fn seconds(nanos: u64) -> String {
    format!("{:.3} s", nanos as f64 / 1e9)
}

fn subtitle(tree: &Tree, seen: &Seen, args: &OffCpuArgs) -> String {
    if args.count {
        return format!("{} times in {}", tree.total, seconds(seen.window));
    }
    let each = if args.per_thread { ", each thread's share of those of its name" } else { "" };
    let threads = if seen.threads == 1 { "thread" } else { "threads" };
    format!("{} of {} {threads} in {}{each}", seconds(tree.total), seen.threads, seconds(seen.window))
}

fn title(graph: Graph) -> &'static str {
    match graph {
        Graph::OffCpu => "Off-CPU time",
        Graph::Wakeup => "Wake-ups",
        Graph::OffWake => "Off-CPU time and what ended it",
        Graph::Chain => "Chains of wake-ups",
        Graph::RunQueue => "Waiting for a processor",
        Graph::Time => "Threads' time",
    }
}

/// As Gregg's pictures have them.
fn palette(graph: Graph) -> &'static str {
    match graph {
        Graph::OffCpu | Graph::RunQueue => "io",
        Graph::Time => "auto",
        Graph::Wakeup => "wakeup",
        Graph::OffWake | Graph::Chain => "chain",
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

/// Weights of single boxes rounded to whole µs; those below add up from them.
fn in_micros(mut tree: Tree) -> Tree {
    let mut sums: Vec<u64> = vec![0; tree.nodes.len()];
    for at in (0..tree.nodes.len()).rev() {
        let node = &mut tree.nodes[at];
        node.own = (node.own + 500) / 1000;
        let (end, own) = (node.end as usize, node.own);
        let mut child = at + 1;
        let mut total = own;
        while child < end {
            total += sums[child];
            child = tree.nodes[child].end as usize;
        }
        sums[at] = total;
        tree.nodes[at].total = total;
    }
    let roots = tree.nodes.iter().filter(|node| node.depth == 0);
    tree.total = roots.map(|node| node.total).sum();
    "us".clone_into(&mut tree.unit);
    tree
}
