//! Off-CPU, wake-up, off-wake and chain graphs: where threads were off CPU, and which threads woke them.
//!
//! ```text
//! flightline.OffCpu ─► interval ─► [chain: wakers of wakers] ─► graph: composed stacks ─► model ─► fold ─► render
//! ```
//! If spans are requested, intervals and CPU samples pass through `within`, which splits intervals where
//! spans change.
//!
//! The graphs are those of Brendan Gregg (*Off-CPU Flame Graphs*). Lines of folded text have the format
//! of bcc's `offcputime`, `wakeuptime` and `offwaketime`. All times are integer nanoseconds, so sums are
//! exact: a sleep consists of the wait for the wake-up and the wait for a processor after it, and the
//! off-wake and chain graphs of a recording have the same total as its off-CPU graph.

mod chain;
mod graph;
mod idle;
mod interval;
mod kind;
mod state;
mod within;

use std::sync::Arc;

use crate::decode::losses::SAMPLE_LOSS;
use crate::latency::{Histogram, Summary};
use crate::live::{self, Item, Loss, Sample};
use crate::model::{EventKind, Id, Model, SampleKey, Stack, Thread, Unit, Weight};
use chain::{Chains, Path};
use graph::Composer;
pub use interval::{EVENT, OPEN_EVENT};
use interval::{Interval, Reader};
use kind::Doing;
pub use state::{States, StatesError};
use within::{Due, PendingRecord, Spanned, Sums, Within};
pub use within::{OfSpans, SpanCounts};

/// The type of graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// Stacks of waiting threads.
    OffCpu,
    /// Stacks of wakers, from falling asleep to the wake-up.
    Wakeup,
    /// Stacks of waiting threads, with the stacks of their wakers above them in reverse order.
    OffWake,
    /// The same, with the waker's waker and so on.
    Chain,
    /// Time that runnable threads waited for a processor, by stack.
    RunQueue,
    /// The whole time of threads, on and off CPU. The width is wall time, divided by the threads'
    /// activities.
    Time,
}

impl Graph {
    /// The title of the graph.
    pub fn title(self) -> &'static str {
        match self {
            Self::OffCpu => "Off-CPU time",
            Self::Wakeup => "Wake-ups",
            Self::OffWake => "Off-CPU time and what ended it",
            Self::Chain => "Chains of wake-ups",
            Self::RunQueue => "Waiting for a processor",
            Self::Time => "Threads' time",
        }
    }

    /// The palette of the SVG, as in Gregg's graphs.
    pub fn palette(self) -> &'static str {
        match self {
            Self::OffCpu | Self::RunQueue => "io",
            Self::Time => "auto",
            Self::Wakeup => "wakeup",
            Self::OffWake | Self::Chain => "chain",
        }
    }

    /// The palette of the HTML page, which has more palettes than the SVG.
    pub fn page_palette(self) -> &'static str {
        if self == Self::Time { "doing" } else { self.palette() }
    }

    /// The event types for the graph, for [`live::Options::samples`].
    pub fn events(self) -> Vec<String> {
        let running = (self == Self::Time).then(|| "cpu".to_owned());
        [EVENT, OPEN_EVENT].map(str::to_owned).into_iter().chain(running).collect()
    }
}

/// Options of a graph.
#[derive(Clone, Debug)]
pub struct Options {
    /// Type of the graph.
    pub graph: Graph,
    /// Thread states to include. [`Graph::RunQueue`] includes all.
    pub states: States,
    /// Minimum duration of an interval in ns, inclusive.
    pub least: u64,
    /// Maximum duration of an interval in ns, inclusive.
    pub most: u64,
    /// Earliest start of an interval in ns since 1970, inclusive.
    pub from: i64,
    /// Latest start of an interval in ns since 1970, inclusive.
    pub to: i64,
    /// Omit kernel frames.
    pub user_only: bool,
    /// Omit user frames.
    pub kernel_only: bool,
    /// Add a frame `-` between kernel and user frames.
    pub delimited: bool,
    /// Exclude idle threads.
    pub hide_idle: bool,
    /// Also include waits that had not ended at the end of the recording, up to that time. If no wait had
    /// ended, they are always included.
    pub open: bool,
    /// Divide the time of threads with the same name by their number.
    pub per_thread: bool,
    /// Maximum number of wakers in a chain graph.
    pub depth: usize,
    /// For [`Graph::Time`]: show activities at the leaves instead of at the roots.
    pub at_leaves: bool,
    /// Add thread names as first and last frames. False if the caller adds them when folding.
    pub names: bool,
    /// Group or filter by tracing spans.
    pub spans: Option<OfSpans>,
}

impl Options {
    /// Default options: each waiting thread of the recording, for any duration.
    pub fn new(graph: Graph) -> Self {
        Self {
            graph,
            states: if matches!(graph, Graph::RunQueue | Graph::Time) {
                States::ALL
            } else {
                States::BLOCKED
            },
            least: 0,
            most: u64::MAX,
            from: i64::MIN,
            to: i64::MAX,
            user_only: false,
            kernel_only: false,
            delimited: false,
            hide_idle: false,
            open: false,
            per_thread: false,
            depth: DEPTH,
            at_leaves: false,
            names: true,
            spans: None,
        }
    }
}

/// Levels of a chain graph, as in Gregg's prototype.
pub const DEPTH: usize = 6;

/// Totals of the input, also of parts that are not shown. Times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputTotals {
    /// Number of intervals in which a thread was off CPU.
    pub intervals: u64,
    /// Time of blocked threads.
    pub blocked: u64,
    /// Time of running threads according to CPU samples, only if the graph shows it.
    pub running: u64,
    /// Time of blocked threads after their wake-up.
    pub run_queue: u64,
    /// Time of threads that were preempted while runnable.
    pub involuntary: u64,
    /// Time of idle threads, if they are excluded.
    pub idle: u64,
    /// Time that is shown.
    pub drawn: u64,
    /// Weight that is excluded because it is not in a requested span.
    pub elsewhere: Weight,
    /// Shown time in spans, if spans are requested.
    pub in_spans: u64,
    /// Shown time outside spans.
    pub in_no_span: u64,
    /// Shown time in spans that are unknown because there were too many.
    pub in_spans_left_out: u64,
    /// Threads that were still waiting at the end of their recording.
    pub open: u64,
    /// Number of these waits that are shown, up to that end.
    pub open_drawn: u64,
    /// Sleeps with an unknown waker.
    pub without_waker: u64,
    /// Sleeps with a known waker. 0: wake-ups were not recorded.
    pub with_waker: u64,
    /// Intervals beyond the limit for chains, which are not shown.
    pub beyond: u64,
    /// Wall time from the start of the first interval to the end of the last one.
    pub window: u64,
    /// Number of threads shown.
    pub threads: u64,
    /// Lost scheduler records, and intervals that are unknown because of them, in the shown time range.
    pub lost: u64,
}

/// Builds a graph from the items of one or more recordings.
#[derive(Debug)]
pub struct OffCpu {
    options: Options,
    reader: Reader,
    sums: Sums,
    spanned: Option<Spanned>,
    chains: Chains,
    paths: chain::Paths,
    /// Waits that had not ended, up to [`MOST_OPEN`].
    open: Vec<Interval>,
    seen: InputTotals,
    durations: Histogram,
    range: Option<(i64, i64)>,
}

/// The properties by which intervals are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    thread: Id<Thread>,
    state: Id<Arc<str>>,
    stack: Option<Id<Stack>>,
    path: Path,
    /// Only for [`Graph::Time`].
    doing: Option<Doing>,
}

impl OffCpu {
    /// Creates a builder with these options.
    pub fn new(options: Options) -> Self {
        Self {
            spanned: options.spans.as_ref().map(|_| Spanned::new(options.graph)),
            options,
            reader: Reader::default(),
            sums: Sums::default(),
            chains: Chains::default(),
            paths: chain::Paths::default(),
            open: Vec::new(),
            seen: InputTotals::default(),
            durations: Histogram::default(),
            range: None,
        }
    }

    /// Processes an item.
    pub fn take(&mut self, item: &Item) {
        if let Some(spanned) = &mut self.spanned {
            spanned.take_item(item);
            if spanned.is_full() {
                self.settle(Due::Excess);
            }
        }
        match item {
            Item::ChunkStart(_) => self.reader.next_chunk(),
            Item::Sample(sample) if *sample.event == *EVENT => self.sample(sample),
            Item::Sample(sample) if *sample.event == *OPEN_EVENT => self.still_out(sample),
            Item::Loss(loss) => self.lost(loss),
            Item::Sample(sample) if self.options.graph == Graph::Time && sample.kind == live::Kind::Cpu => {
                self.ran(sample)
            }
            _ => {}
        }
    }

    fn lost(&mut self, loss: &Loss) {
        // A loss without a type concerns all types.
        let ours = loss.event_type.as_deref().is_none_or(|of| of.starts_with("off-cpu") || *of == *EVENT);
        let of_samples = *loss.told_by == *SAMPLE_LOSS;
        if ours && !of_samples && (self.options.from..=self.options.to).contains(&loss.time.epoch_nanos) {
            self.seen.lost = self.seen.lost.saturating_add(loss.events.unwrap_or(1));
        }
    }

    /// Stores a wait that had not ended.
    fn still_out(&mut self, sample: &Sample) {
        self.seen.open += 1;
        if self.open.len() < MOST_OPEN
            && let Some(interval) = self.reader.read(sample)
            && (self.options.from..=self.options.to).contains(&interval.start)
        {
            self.open.push(interval);
        }
    }

    /// Includes waits that had not ended, if they are requested or no wait had ended.
    fn put_open(&mut self) {
        // Only these graphs can show waits without a known end.
        let fits = matches!(self.options.graph, Graph::OffCpu | Graph::Time);
        if !fits || !(self.options.open || self.seen.intervals == 0) {
            return;
        }
        for interval in std::mem::take(&mut self.open) {
            if self.wants(&interval) {
                let (first, last) = self.range.unwrap_or((interval.start, interval.end()));
                self.range = Some((first.min(interval.start), last.max(interval.end())));
                self.seen.open_drawn += 1;
                self.put(&interval, Path::NONE);
            }
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(interval) = self.reader.read(sample) else { return };
        let begins = interval.start;
        let ends = interval.end();
        if !(self.options.from..=self.options.to).contains(&begins) {
            return;
        }
        let (first, last) = self.range.unwrap_or((begins, ends));
        self.range = Some((first.min(begins), last.max(ends)));
        let blocked = self.reader.states.is_blocked(interval.state);
        let seen = &mut self.seen;
        seen.intervals += 1;
        match blocked {
            true => {
                seen.blocked = seen.blocked.saturating_add(interval.nanos);
                seen.run_queue = seen.run_queue.saturating_add(interval.run_queue);
                let by_unknown = interval.waker.is_unknown();
                seen.without_waker += u64::from(by_unknown);
                seen.with_waker += u64::from(!by_unknown);
            }
            false => seen.involuntary = seen.involuntary.saturating_add(interval.nanos),
        }
        if self.options.graph == Graph::Chain {
            // Any sleep may be a link of a chain, even if it is not shown.
            seen.beyond += u64::from(!self.chains.keep(interval));
            return;
        }
        if self.wants(&interval) {
            let path = match self.options.graph {
                Graph::OffWake | Graph::Wakeup => self.paths.intern(&[interval.waker]),
                _ => Path::NONE,
            };
            self.put(&interval, path);
        }
    }

    /// Includes an interval, once its spans are known.
    fn put(&mut self, interval: &Interval, path: Path) {
        let blocked = self.reader.states.is_blocked(interval.state);
        match self.options.graph {
            Graph::OffCpu | Graph::OffWake | Graph::Chain => self.durations.add(interval.nanos),
            Graph::Wakeup => self.durations.add(interval.nanos - interval.run_queue),
            Graph::RunQueue if !blocked => self.durations.add(interval.nanos),
            Graph::RunQueue if interval.run_queue > 0 => self.durations.add(interval.run_queue),
            Graph::RunQueue | Graph::Time => {}
        }
        match &mut self.spanned {
            Some(spanned) => {
                spanned.off(self.reader.model.threads.get(interval.thread), *interval, path);
            }
            None => self.add(interval, path, (interval.start, interval.end()), Within::Unasked),
        }
    }

    /// Assigns pending records to their spans.
    fn settle(&mut self, due: Due) {
        let Some(mut spanned) = self.spanned.take() else { return };
        spanned.settle(due, |part, within| match part.sample.of {
            PendingRecord::Off(interval, path) => {
                let to = part.time.saturating_add(part.lasts);
                self.add(&interval, path, (part.time, to), within);
            }
            PendingRecord::Ran(thread, stack) => self.add_run(thread, stack, part.weight, within),
        });
        self.spanned = Some(spanned);
    }

    /// Includes a CPU sample. Without a period it has no duration.
    fn ran(&mut self, sample: &Sample) {
        let (Some(thread), Unit::Nanoseconds) = (&sample.thread, sample.weight.unit) else { return };
        let Options { from, to, .. } = self.options;
        if !(from..=to).contains(&sample.time.epoch_nanos) {
            return;
        }
        let (id, stack) = self.reader.intern_sample(thread, sample.stack.as_ref());
        self.seen.running = self.seen.running.saturating_add(sample.weight.value);
        match &mut self.spanned {
            Some(spanned) => spanned.ran(sample, thread, (id, stack)),
            None => self.add_run(id, stack, sample.weight, Within::Unasked),
        }
    }

    fn add_run(
        &mut self,
        thread: Id<Thread>,
        stack: Option<Id<Stack>>,
        weight: live::Weight,
        within: Within,
    ) {
        let state = self.reader.states.intern(&"".into());
        let entry = Entry { thread, state, stack, path: Path::NONE, doing: Some(Doing::Running) };
        self.add_weight(entry, within, weight.value, weight.samples);
    }

    fn add_weight(&mut self, entry: Entry, within: Within, value: u64, count: u64) {
        if value == 0 && count == 0 {
            return;
        }
        self.seen.drawn = self.seen.drawn.saturating_add(value);
        self.sums.add(entry, within, Weight { count, value });
    }

    fn wants(&mut self, interval: &Interval) -> bool {
        let Options { graph, states, least, most, hide_idle, .. } = &self.options;
        let wanted = (*graph == Graph::RunQueue || self.reader.states.are(states, interval.state))
            && (*least..=*most).contains(&interval.nanos);
        if wanted && *hide_idle && self.reader.is_idle(interval) {
            self.seen.idle = self.seen.idle.saturating_add(interval.nanos);
            return false;
        }
        wanted
    }

    /// Adds the part of an interval between two times. The weights of all parts add up to that of the
    /// interval. The interval is counted once: in the part with its start, or with the wake-up if the
    /// graph shows the time after it.
    fn add(&mut self, interval: &Interval, path: Path, (from, to): (i64, i64), within: Within) {
        let blocked = self.reader.states.is_blocked(interval.state);
        let Interval { thread, state, stack, start, .. } = *interval;
        let entry = Entry { thread, state, stack, path, doing: None };
        // Returns the time before and after `at` in this part, and whether `at` is in it.
        let split = |at: i64| {
            let within = at.clamp(from, to);
            (within.abs_diff(from), to.abs_diff(within), from <= at && (at < to || to == interval.end()))
        };
        let (waited, _, _) = split(interval.woken());
        let (blocked_for, ready, woken) = split(if blocked { interval.woken() } else { start });
        let begins = u64::from(from == start);
        match self.options.graph {
            Graph::RunQueue => self.add_weight(entry, within, ready, u64::from(woken)),
            Graph::Wakeup => self.add_weight(Entry { stack: None, ..entry }, within, waited, begins),
            Graph::Time => {
                if ready > 0 {
                    let entry = Entry { doing: Some(Doing::Runnable), ..entry };
                    self.add_weight(entry, within, ready, u64::from(woken));
                }
                if blocked {
                    let kind = self.reader.kind(interval);
                    let entry = Entry { doing: Some(Doing::Blocked(kind)), ..entry };
                    self.add_weight(entry, within, blocked_for, begins);
                }
            }
            Graph::OffCpu | Graph::OffWake | Graph::Chain => {
                self.add_weight(entry, within, to.abs_diff(from), begins);
            }
        }
    }

    /// Follows the chains of the intervals, all of which are known now.
    fn follow(&mut self) {
        let chains = std::mem::take(&mut self.chains).sorted();
        let all = chains.all();
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        if self.spanned.is_some() {
            order.sort_unstable_by_key(|&at| all[at as usize].start);
        }
        for (done, &at) in order.iter().enumerate() {
            let interval = &all[at as usize];
            if done % AT_A_TIME == AT_A_TIME - 1 {
                self.settle(Due::Before(interval.start));
            }
            if self.wants(interval) {
                let links = chains.follow(interval, self.options.depth, &self.reader.states);
                let path = self.paths.intern(&links);
                self.put(interval, path);
            }
        }
    }

    /// Returns the graph as a model with its composed stacks, and the totals.
    pub fn finish(mut self) -> Drawn {
        if self.options.graph == Graph::Chain {
            self.follow();
        }
        self.put_open();
        self.settle(Due::All);
        let (first, last) = self.range.unwrap_or_default();
        self.seen.window = last.abs_diff(first);
        let Self { options, reader, sums, paths, mut seen, spanned, durations, .. } = self;
        let spans = spanned.map(Spanned::finish);
        let mut model = Model { states: reader.states.into_names(), ..reader.model };
        let kind = model.kinds.intern(EventKind {
            name: EVENT.into(),
            variant: None,
            unit: Unit::Nanoseconds,
            period_nanos: None,
        });
        let (mut sums, groups) = sums.grouped(spans.as_ref(), options.spans.as_ref(), &mut seen);
        let mut threads: Vec<Id<Thread>> = sums.iter().map(|(entry, ..)| entry.thread).collect();
        threads.sort_unstable_by_key(|id| id.index());
        threads.dedup();
        seen.threads = threads.len() as u64;
        if options.per_thread {
            let of = sums.iter_mut().map(|(entry, _, weight)| (entry.thread, weight));
            graph::share(of, &threads, &model);
        }
        let mut composer = Composer::new(&options, model);
        for (Entry { thread, state, stack, path, doing }, group, weight) in sums {
            let stack = composer.stack(group.name(&groups), thread, stack, paths.links(path), doing);
            let key = SampleKey {
                kind,
                thread: Some(thread),
                stack: Some(stack),
                state: Some(state),
                class: None,
                title: None,
            };
            composer.model.samples.entry(key).or_default().add(weight);
        }
        Drawn { model: composer.model, seen, spans, latency: durations.summary() }
    }
}

/// Maximum number of stored waits that had not ended; more threads than a machine has.
const MOST_OPEN: usize = 1 << 16;
/// Number of chains to follow before the intervals are assigned to their spans.
const AT_A_TIME: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// A graph and its totals.
#[derive(Debug)]
pub struct Drawn {
    /// The composed stacks, to be folded.
    pub model: Model,
    /// Totals.
    pub seen: InputTotals,
    /// The recorded spans, if [`Options::spans`] is set.
    pub spans: Option<SpanCounts>,
    /// The durations in the graph, each interval once; `None` for [`Graph::Time`]. Durations outside the
    /// requested spans are included.
    pub latency: Option<Summary>,
}

#[cfg(test)]
mod tests;
