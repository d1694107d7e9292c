//! Where threads were without a processor, and who woke them: off-CPU, wake-up, off-wake and chain graphs.
//!
//! ```text
//! flightline.OffCpu ─► interval ─► [chain: who woke the waker?] ─► graph: stacks as each picture has them ─► model ─► fold ─► render
//! ```
//! Where spans are asked for, intervals and samples of CPU time go through `within`, which cuts them where spans change.
//!
//! The graphs are Gregg's (*Off-CPU Flame Graphs*); lines of folded text have the shapes of bcc's `offcputime`, `wakeuptime` and
//! `offwaketime`. All times are whole nanoseconds, so that sums hold exactly: a sleep is its wait for the wake-up and the wait for a
//! processor after it, and off-wake and chain graphs of one recording weigh what its off-CPU graph does.

mod chain;
mod graph;
mod idle;
mod interval;
mod kind;
mod state;
mod within;

use std::sync::Arc;

use crate::latency::{Histogram, Summary};
use crate::live::{self, Item, Loss, Sample};
use crate::load::losses::SAMPLE_LOSS;
use crate::model::{EventKind, Id, Model, SampleKey, Stack, Thread, Unit, Weight};
use chain::{Chains, Path};
use graph::Composer;
pub use interval::{EVENT, OPEN_EVENT};
use interval::{Interval, Reader};
use kind::Doing;
pub use state::{States, StatesError};
use within::{Due, Piece, Spanned, Sums, Within};
pub use within::{OfSpans, Told};

/// Which graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// Where threads waited.
    OffCpu,
    /// Who woke them, from falling asleep to the wake-up.
    Wakeup,
    /// Where threads waited and, the other way round, where their waker was.
    OffWake,
    /// The same with the waker's waker and so on.
    Chain,
    /// How long threads that could run waited for a processor, by where they were.
    RunQueue,
    /// All of threads' time, running and not: its width is wall time, split into what threads did with it.
    Time,
}

impl Graph {
    /// What it is called.
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

    /// Its colours as Gregg's pictures have them.
    pub fn palette(self) -> &'static str {
        match self {
            Self::OffCpu | Self::RunQueue => "io",
            Self::Time => "auto",
            Self::Wakeup => "wakeup",
            Self::OffWake | Self::Chain => "chain",
        }
    }

    /// The same on a page, which has more of them than a picture without script.
    pub fn page_palette(self) -> &'static str {
        if self == Self::Time { "doing" } else { self.palette() }
    }

    /// The types of events that it is drawn of, for [`live::Options::samples`].
    pub fn events(self) -> Vec<String> {
        let running = (self == Self::Time).then(|| "cpu".to_owned());
        [EVENT, OPEN_EVENT].map(str::to_owned).into_iter().chain(running).collect()
    }
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which graph.
    pub graph: Graph,
    /// Of threads in these states; [`Graph::RunQueue`] has all.
    pub states: States,
    /// Shortest and longest time that is looked at, in ns, both included.
    pub least: u64,
    /// See [`least`](Self::least).
    pub most: u64,
    /// Earliest and latest beginning, in ns since 1970, both included.
    pub from: i64,
    /// See [`from`](Self::from).
    pub to: i64,
    /// Without frames of the kernel.
    pub user_only: bool,
    /// Without frames of programs.
    pub kernel_only: bool,
    /// A frame `-` between the two.
    pub delimited: bool,
    /// Leave out threads that wait for something to do.
    pub hide_idle: bool,
    /// Draw also waits that had not ended when the recording did, up to then. They are drawn in any case if no wait had ended.
    pub open: bool,
    /// Divide what threads of one name waited by their number.
    pub per_thread: bool,
    /// Wakers on top of each other in a chain graph.
    pub depth: usize,
    /// [`Graph::Time`]: what threads did at the leaves instead of at the roots.
    pub at_leaves: bool,
    /// Whether threads' names are to be frames, first and last. Not, if whoever folds puts them there.
    pub names: bool,
    /// By or of which spans of tracing.
    pub spans: Option<OfSpans>,
}

impl Options {
    /// All of a recording: each thread that waited, however long.
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

/// Levels of a chain graph, as Gregg's prototype had.
pub const DEPTH: usize = 6;

/// How much was met, whatever is drawn. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Times that a thread was without a processor.
    pub intervals: u64,
    /// Of threads that waited for something.
    pub blocked: u64,
    /// Of threads that ran, as samples of CPU time say; only if that is drawn.
    pub running: u64,
    /// Of those that were blocked, after the wake-up.
    pub run_queue: u64,
    /// Of threads that were put aside while they could run.
    pub involuntary: u64,
    /// Of threads that waited for something to do, as far as that is left out.
    pub idle: u64,
    /// Of those that are drawn.
    pub drawn: u64,
    /// Of what else would be drawn, what was in no span that is wanted.
    pub elsewhere: Weight,
    /// Of those that are drawn, in spans; only if these are asked for.
    pub in_spans: u64,
    /// In no span.
    pub in_no_span: u64,
    /// In spans of which nothing is known any more, as there are too many.
    pub in_spans_left_out: u64,
    /// Threads that were still waiting at the end of their recording.
    pub open: u64,
    /// How many of these waits are drawn, up to that end.
    pub open_drawn: u64,
    /// Sleeps whose waker is not known.
    pub without_waker: u64,
    /// Sleeps whose waker is known. 0: recorded without wake-ups.
    pub with_waker: u64,
    /// Intervals beyond those that chains are followed through; none of them is drawn.
    pub beyond: u64,
    /// Wall time from the first interval's start to the last one's end.
    pub window: u64,
    /// Threads that are drawn.
    pub threads: u64,
    /// Records of the scheduler that are missing, and intervals that are therefore not known, in the range of times that is drawn.
    pub lost: u64,
}

/// Takes the items of recordings, one after the other.
#[derive(Debug)]
pub struct OffCpu {
    options: Options,
    reader: Reader,
    sums: Sums,
    spanned: Option<Spanned>,
    chains: Chains,
    paths: chain::Paths,
    /// Waits that had not ended, [`MOST_OPEN`] at most.
    open: Vec<Interval>,
    seen: Seen,
    durations: Histogram,
    range: Option<(i64, i64)>,
}

/// What intervals are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    thread: Id<Thread>,
    state: Id<Arc<str>>,
    stack: Option<Id<Stack>>,
    path: Path,
    /// Only of [`Graph::Time`].
    doing: Option<Doing>,
}

impl OffCpu {
    /// Draws what `options` say.
    pub fn new(options: Options) -> Self {
        Self {
            spanned: options.spans.as_ref().map(|_| Spanned::new(options.graph)),
            options,
            reader: Reader::default(),
            sums: Sums::default(),
            chains: Chains::default(),
            paths: chain::Paths::default(),
            open: Vec::new(),
            seen: Seen::default(),
            durations: Histogram::default(),
            range: None,
        }
    }

    /// Takes an item.
    pub fn take(&mut self, item: &Item) {
        if let Some(spanned) = &mut self.spanned {
            spanned.told(item);
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
        // What concerns all concerns this, too.
        let ours = loss.event_type.as_deref().is_none_or(|of| of.starts_with("off-cpu") || *of == *EVENT);
        let of_samples = *loss.told_by == *SAMPLE_LOSS;
        if ours && !of_samples && (self.options.from..=self.options.to).contains(&loss.time.epoch_nanos) {
            self.seen.lost = self.seen.lost.saturating_add(loss.events.unwrap_or(1));
        }
    }

    /// A wait that had not ended.
    fn still_out(&mut self, sample: &Sample) {
        self.seen.open += 1;
        if self.open.len() < MOST_OPEN
            && let Some(interval) = self.reader.read(sample)
            && (self.options.from..=self.options.to).contains(&interval.start)
        {
            self.open.push(interval);
        }
    }

    /// Draws waits that had not ended, if they are requested or no wait had ended.
    fn put_open(&mut self) {
        // Only these graphs are of waits whose end is not known.
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
            // Whoever sleeps may be a link, whether it is drawn or not.
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

    /// An interval that is drawn, once it is known in which spans.
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

    /// Gives to their spans what is due.
    fn settle(&mut self, due: Due) {
        let Some(mut spanned) = self.spanned.take() else { return };
        spanned.settle(due, |part, within| match part.sample.of {
            Piece::Off(interval, path) => {
                let to = part.time.saturating_add(part.lasts);
                self.add(&interval, path, (part.time, to), within);
            }
            Piece::Ran(thread, stack) => self.tell_ran(thread, stack, part.weight, within),
        });
        self.spanned = Some(spanned);
    }

    /// A sample of CPU time. Without a period it says nothing of time.
    fn ran(&mut self, sample: &Sample) {
        let (Some(thread), Unit::Nanoseconds) = (&sample.thread, sample.weight.unit) else { return };
        let Options { from, to, .. } = self.options;
        if !(from..=to).contains(&sample.time.epoch_nanos) {
            return;
        }
        let (id, stack) = self.reader.of_sample(thread, sample.stack.as_ref());
        self.seen.running = self.seen.running.saturating_add(sample.weight.value);
        match &mut self.spanned {
            Some(spanned) => spanned.ran(sample, thread, (id, stack)),
            None => self.tell_ran(id, stack, sample.weight, Within::Unasked),
        }
    }

    fn tell_ran(
        &mut self,
        thread: Id<Thread>,
        stack: Option<Id<Stack>>,
        weight: live::Weight,
        within: Within,
    ) {
        let state = self.reader.states.intern(&"".into());
        let entry = Entry { thread, state, stack, path: Path::NONE, doing: Some(Doing::Running) };
        self.tell(entry, within, weight.value, weight.samples);
    }

    fn tell(&mut self, entry: Entry, within: Within, value: u64, count: u64) {
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

    /// Adds the part of an interval from one moment to another. All of its parts together weigh what it does, and count once: with its
    /// beginning, or with the wake-up where it is about what came after.
    fn add(&mut self, interval: &Interval, path: Path, (from, to): (i64, i64), within: Within) {
        let blocked = self.reader.states.is_blocked(interval.state);
        let Interval { thread, state, stack, start, .. } = *interval;
        let entry = Entry { thread, state, stack, path, doing: None };
        // Before and after a moment, and whether that is in this part.
        let split = |at: i64| {
            let within = at.clamp(from, to);
            (within.abs_diff(from), to.abs_diff(within), from <= at && (at < to || to == interval.end()))
        };
        let (waited, _, _) = split(interval.woken());
        let (blocked_for, ready, woken) = split(if blocked { interval.woken() } else { start });
        let begins = u64::from(from == start);
        match self.options.graph {
            Graph::RunQueue => self.tell(entry, within, ready, u64::from(woken)),
            Graph::Wakeup => self.tell(Entry { stack: None, ..entry }, within, waited, begins),
            Graph::Time => {
                if ready > 0 {
                    let entry = Entry { doing: Some(Doing::Runnable), ..entry };
                    self.tell(entry, within, ready, u64::from(woken));
                }
                if blocked {
                    let kind = self.reader.kind(interval);
                    let entry = Entry { doing: Some(Doing::Blocked(kind)), ..entry };
                    self.tell(entry, within, blocked_for, begins);
                }
            }
            Graph::OffCpu | Graph::OffWake | Graph::Chain => {
                self.tell(entry, within, to.abs_diff(from), begins);
            }
        }
    }

    /// Follows the chains of intervals, all of which are known.
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

    /// All that was taken, as a model whose stacks are those of the picture; and how much there was.
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

/// Waits that had not ended that are kept: more threads than a machine has.
const MOST_OPEN: usize = 1 << 16;
/// Intervals whose chains are followed before they are given to their spans.
const AT_A_TIME: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// A graph.
#[derive(Debug)]
pub struct Drawn {
    /// Its stacks, to be folded.
    pub model: Model,
    /// How much there was.
    pub seen: Seen,
    /// What was told of spans, if [`Options::spans`] asks for them.
    pub spans: Option<Told>,
    /// The durations that the graph adds up, each time off CPU once; none of [`Graph::Time`]. Those outside the requested spans are
    /// included.
    pub latency: Option<Summary>,
}

#[cfg(test)]
mod tests;
