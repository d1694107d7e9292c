//! Where threads were without a processor, and who woke them: off-CPU, wake-up, off-wake and chain graphs.
//!
//! ```text
//! flightline.OffCpu ─► interval ─► [chain: who woke the waker?] ─► graph: stacks as each picture has them ─► model ─► fold ─► render
//! ```
//! The graphs are Gregg's (*Off-CPU Flame Graphs*); lines of folded text have the shapes of bcc's `offcputime`, `wakeuptime` and
//! `offwaketime`. All times are whole nanoseconds, so that sums hold exactly: a sleep is its wait for the wake-up and the wait for a
//! processor after it, and off-wake and chain graphs of one recording weigh what its off-CPU graph does.

mod chain;
mod graph;
mod idle;
mod interval;
mod kind;
mod state;

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use crate::live::{self, Item, Sample};
use crate::model::{EventKind, Id, Model, SampleKey, Stack, Thread, Unit, Weight};
use chain::{Chains, Path};
use graph::Composer;
pub use interval::{EVENT, OPEN_EVENT};
use interval::{Interval, Reader};
use kind::Doing;
pub use state::{States, StatesError};

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
    /// Divide what threads of one name waited by their number.
    pub per_thread: bool,
    /// Wakers on top of each other in a chain graph.
    pub depth: usize,
    /// [`Graph::Time`]: what threads did at the leaves instead of at the roots.
    pub at_leaves: bool,
    /// Whether threads' names are to be frames, first and last. Not, if whoever folds puts them there.
    pub names: bool,
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
            per_thread: false,
            depth: DEPTH,
            at_leaves: false,
            names: true,
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
    /// Threads still waiting at the end of their recording, in no graph.
    pub open: u64,
    /// Sleeps whose waker is not known.
    pub without_waker: u64,
    /// Intervals beyond those that chains are followed through; none of them is drawn.
    pub beyond: u64,
    /// Wall time from the first interval's start to the last one's end.
    pub window: u64,
    /// Threads that are drawn.
    pub threads: u64,
}

/// Takes the items of recordings, one after the other.
#[derive(Debug)]
pub struct OffCpu {
    options: Options,
    reader: Reader,
    sums: HashMap<Entry, Weight, KeyHash>,
    chains: Chains,
    paths: chain::Paths,
    seen: Seen,
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
            options,
            reader: Reader::default(),
            sums: HashMap::default(),
            chains: Chains::default(),
            paths: chain::Paths::default(),
            seen: Seen::default(),
            range: None,
        }
    }

    /// Takes an item.
    pub fn take(&mut self, item: &Item) {
        match item {
            Item::ChunkStart(_) => self.reader.next_chunk(),
            Item::Sample(sample) if *sample.event == *EVENT => self.sample(sample),
            Item::Sample(sample) if *sample.event == *OPEN_EVENT => self.seen.open += 1,
            Item::Sample(sample) if self.options.graph == Graph::Time && sample.kind == live::Kind::Cpu => {
                self.ran(sample)
            }
            _ => {}
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
                seen.without_waker += u64::from(interval.waker.is_unknown());
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
            self.add(&interval, path);
        }
    }

    /// A sample of CPU time. Without a period it says nothing of time.
    fn ran(&mut self, sample: &Sample) {
        let (Some(thread), Unit::Nanoseconds) = (&sample.thread, sample.weight.unit) else { return };
        let Options { from, to, .. } = self.options;
        if !(from..=to).contains(&sample.time.epoch_nanos) {
            return;
        }
        let (thread, stack) = self.reader.of_sample(thread, sample.stack.as_ref());
        let state = self.reader.states.intern(&"".into());
        let value = sample.weight.value;
        self.seen.running = self.seen.running.saturating_add(value);
        self.tell(
            Entry { thread, state, stack, path: Path::NONE, doing: Some(Doing::Running) },
            value,
            sample.weight.samples,
        );
    }

    fn tell(&mut self, entry: Entry, value: u64, count: u64) {
        self.seen.drawn = self.seen.drawn.saturating_add(value);
        self.sums.entry(entry).or_default().add(Weight { count, value });
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

    fn add(&mut self, interval: &Interval, path: Path) {
        let blocked = self.reader.states.is_blocked(interval.state);
        let Interval { thread, state, stack, nanos, .. } = *interval;
        let entry = Entry { thread, state, stack, path, doing: None };
        match self.options.graph {
            Graph::RunQueue => self.tell(entry, interval.ready(blocked), 1),
            Graph::Wakeup => self.tell(Entry { stack: None, ..entry }, nanos - interval.run_queue, 1),
            Graph::Time => {
                let ready = interval.ready(blocked);
                if ready > 0 {
                    self.tell(Entry { doing: Some(Doing::Runnable), ..entry }, ready, 1);
                }
                if blocked {
                    let kind = self.reader.kind(interval);
                    self.tell(Entry { doing: Some(Doing::Blocked(kind)), ..entry }, nanos - ready, 1);
                }
            }
            Graph::OffCpu | Graph::OffWake | Graph::Chain => self.tell(entry, nanos, 1),
        }
    }

    /// All that was taken, as a model whose stacks are those of the picture; and how much there was.
    pub fn finish(mut self) -> (Model, Seen) {
        if self.options.graph == Graph::Chain {
            let chains = std::mem::take(&mut self.chains).sorted();
            for interval in chains.all() {
                if self.wants(interval) {
                    let links = chains.follow(interval, self.options.depth, &self.reader.states);
                    let path = self.paths.intern(&links);
                    self.add(interval, path);
                }
            }
        }
        let (first, last) = self.range.unwrap_or_default();
        self.seen.window = last.abs_diff(first);
        let Self { options, reader, sums, paths, mut seen, .. } = self;
        let mut model = Model { states: reader.states.into_names(), ..reader.model };
        let kind = model.kinds.intern(EventKind {
            name: EVENT.into(),
            variant: None,
            unit: Unit::Nanoseconds,
            period_nanos: None,
        });
        let mut sums: Vec<(Entry, Weight)> = sums.into_iter().collect();
        let mut threads: Vec<Id<Thread>> = sums.iter().map(|(entry, _)| entry.thread).collect();
        threads.sort_unstable_by_key(|id| id.index());
        threads.dedup();
        seen.threads = threads.len() as u64;
        if options.per_thread {
            graph::share(&mut sums, &threads, &model);
        }
        let mut composer = Composer::new(&options, model);
        for (Entry { thread, state, stack, path, doing }, weight) in sums {
            let stack = composer.stack(thread, stack, paths.links(path), doing);
            let key = SampleKey { kind, thread: Some(thread), stack: Some(stack), state: Some(state) };
            composer.model.samples.entry(key).or_default().add(weight);
        }
        (composer.model, seen)
    }
}

#[cfg(test)]
mod tests;
