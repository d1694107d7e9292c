//! The data model: threads, frames, stacks and weighted samples of a recording, each interned once.

mod frame;
mod interner;
mod jvm;
mod losses;
mod sample;
mod thread;

pub use frame::{CodeFile, CodePlace, Frame, FrameKind, Stack};
pub use interner::{Id, Interner};
pub use jvm::Jvm;
pub(crate) use jvm::cut;
pub use losses::Losses;
pub(crate) use losses::Lost;
pub use sample::{ASLEEP, COVERED, CPU_TIME_SAMPLE, EXECUTION_SAMPLE, EventKind, SampleKey, Unit, Weight};
pub(crate) use sample::{SLEEPING, WALL_CLOCK_SAMPLE, is_asleep};
pub use thread::Thread;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

/// The data of a profile.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Model {
    /// Threads of all chunks.
    pub threads: Interner<Thread>,
    /// Frames of all chunks.
    pub frames: Interner<Frame>,
    /// Stacks of all chunks.
    pub stacks: Interner<Stack>,
    /// Thread states by name.
    pub states: Interner<Arc<str>>,
    /// Classes of objects by name.
    pub classes: Interner<Arc<str>>,
    /// Titles of processes, such as `postgres: bench [local] UPDATE`.
    pub titles: Interner<Arc<str>>,
    /// Event types that carry stack traces.
    pub kinds: Interner<EventKind>,
    /// Weights by the properties of samples.
    pub samples: HashMap<SampleKey, Weight, KeyHash>,
    /// Event types with stack traces that were not requested, and their numbers of events.
    pub passed_over: BTreeMap<String, u64>,
    /// Chunks read.
    pub chunks: u32,
    /// Start of the first chunk, in ns since 1970.
    pub start_nanos: Option<i64>,
    /// The earliest start and the latest end in the headers of the chunks, within the selected time, ns since 1970.
    pub range_nanos: Option<(i64, i64)>,
    /// Time in ns that one event of a type represents, from the first chunk that states it.
    pub periods: BTreeMap<Arc<str>, u64>,
    /// Losses that the recording reports.
    pub losses: Losses,
    /// The recorded virtual machines, up to a limit.
    pub jvms: BTreeSet<Jvm>,
    /// The recorded hosts, from the environment or the labels of programs, up to a limit.
    pub hosts: BTreeSet<String>,
}

/// Maximum number of stored virtual machines and hosts.
const MOST_PROGRAMS: usize = 16;

impl Model {
    /// Extends the time range.
    pub(crate) fn widen(&mut self, (start, end): (i64, i64)) {
        let (first, last) = self.range_nanos.unwrap_or((start, end));
        self.range_nanos = Some((first.min(start), last.max(end)));
    }

    /// Merges the model of a later part. The result is the same as for a model built from both parts in
    /// order.
    pub fn merge(&mut self, later: Self) {
        let threads = self.threads.absorb(later.threads, |thread| thread);
        let frames = self.frames.absorb(later.frames, |frame| frame);
        let stacks = self.stacks.absorb(later.stacks, |mut stack| {
            stack.frames.iter_mut().for_each(|frame| *frame = frames[frame.index()]);
            stack
        });
        let states = self.states.absorb(later.states, |state| state);
        let classes = self.classes.absorb(later.classes, |class| class);
        let titles = self.titles.absorb(later.titles, |title| title);
        let kinds = self.kinds.absorb(later.kinds, |kind| kind);
        for (key, weight) in later.samples {
            let key = SampleKey {
                kind: kinds[key.kind.index()],
                thread: key.thread.map(|id| threads[id.index()]),
                stack: key.stack.map(|id| stacks[id.index()]),
                state: key.state.map(|id| states[id.index()]),
                class: key.class.map(|id| classes[id.index()]),
                title: key.title.map(|id| titles[id.index()]),
            };
            self.samples.entry(key).or_default().add(weight);
        }
        for (name, events) in later.passed_over {
            *self.passed_over.entry(name).or_default() += events;
        }
        self.chunks = self.chunks.saturating_add(later.chunks);
        self.start_nanos = self.start_nanos.or(later.start_nanos);
        if let Some(range) = later.range_nanos {
            self.widen(range);
        }
        for (event, period) in later.periods {
            self.periods.entry(event).or_insert(period);
        }
        self.losses.merge(later.losses);
        later.jvms.into_iter().for_each(|jvm| self.add_jvm(jvm));
        later.hosts.into_iter().for_each(|host| self.add_host(host));
    }

    /// Adds a virtual machine, if there is room.
    pub(crate) fn add_jvm(&mut self, jvm: Jvm) {
        if self.jvms.len() < MOST_PROGRAMS {
            self.jvms.insert(jvm);
        }
    }

    /// Adds a host, if there is room.
    pub(crate) fn add_host(&mut self, host: String) {
        if self.hosts.len() < MOST_PROGRAMS {
            self.hosts.insert(host);
        }
    }
}
