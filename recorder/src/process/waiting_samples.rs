//! Samples and events of a process that wait for symbols, or for names of code that the program generated.
//!
//! Allocations and frees are written in the order in which they were recorded, since readers match them by
//! address.

use std::sync::Arc;

use flightline_in_signal::layout::event_kind;

use super::{sample::Origin, stack_resolver::Missing, threads::ThreadIndex};
use crate::{
    names::modules::ModuleMap,
    recording::{Worked, events},
    settings::PENDING_SAMPLES,
    shared_memory::journal::Entry,
};

/// Maps of a process that may be stored for samples that wait; each has a few ten thousand bytes.
const MAPS_WAITING: u64 = 256;

/// A sample or event whose stack waits for a module's symbols.
pub(super) struct WaitingSample {
    /// The mappings when it came: another module may lie there by now.
    pub map: Arc<ModuleMap>,
    pub thread: ThreadIndex,
    /// `None`: it has no stack, but comes after an event that waits.
    pub stack: Option<u32>,
    pub time_ns: u64,
    pub payload: Payload,
    /// The span and labels that were active.
    pub context: Option<Arc<Worked>>,
    /// Its record in the journal.
    pub entry: Option<Entry>,
}

impl WaitingSample {
    /// Its thread, time and context.
    pub fn origin(&self) -> Origin<'_> {
        Origin { thread: self.thread, time_ns: self.time_ns, context: self.context.as_ref() }
    }
}

/// The events to write once the stack is resolved.
pub(super) enum Payload {
    /// So many equal samples of CPU time.
    Cpu(u32),
    /// An event of another engine.
    Event(Box<events::Owned>),
}

impl Payload {
    /// The kind of the event; 0 for CPU time.
    pub fn kind(&self) -> u16 {
        match self {
            Payload::Cpu(_) => 0,
            Payload::Event(event) => event.borrowed().head.kind,
        }
    }
}

/// Samples that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct WaitingSamples {
    /// Those that wait for symbols, or are to be tried again.
    for_symbols: Vec<WaitingSample>,
    /// Samples in code whose name the program has not written down yet.
    for_names: Vec<WaitingSample>,
    /// Allocations among both.
    allocations: usize,
    /// Frees behind those.
    frees: usize,
    /// A copy of the present mappings for samples that wait.
    map: Option<Arc<ModuleMap>>,
    /// There are names that were not there when samples were added.
    news: bool,
}

impl WaitingSamples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.for_symbols.len() + self.for_names.len()
    }

    fn iter(&self) -> impl Iterator<Item = &WaitingSample> {
        self.for_symbols.iter().chain(&self.for_names)
    }

    /// Times of all samples.
    pub fn times_ns(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|sample| sample.time_ns)
    }

    /// Threads of all samples.
    pub fn threads(&self) -> impl Iterator<Item = ThreadIndex> {
        self.iter().map(|sample| sample.thread)
    }

    /// Gives all samples the present indices of their threads.
    pub fn threads_moved(&mut self, now: impl Fn(ThreadIndex) -> ThreadIndex) {
        for sample in self.for_symbols.iter_mut().chain(&mut self.for_names) {
            sample.thread = now(sample.thread);
        }
    }

    /// Mappings that samples refer to.
    pub fn maps(&self) -> Vec<&Arc<ModuleMap>> {
        // Samples that came one after the other mostly have the same map.
        let mut maps: Vec<&Arc<ModuleMap>> = self.iter().map(|sample| &sample.map).chain(&self.map).collect();
        maps.dedup_by(|a, b| Arc::ptr_eq(a, b));
        maps
    }

    /// The present mappings, copied once for all samples that wait since they changed.
    pub fn map(&mut self, modules: &ModuleMap) -> Arc<ModuleMap> {
        match &self.map {
            Some(map) if map.version == modules.version => map.clone(),
            _ => self.map.insert(Arc::new(modules.as_it_is())).clone(),
        }
    }

    /// Adds a sample that lacks symbols or names.
    pub fn add(&mut self, sample: WaitingSample, missing: Missing) {
        self.count(&sample.payload);
        match missing {
            Missing::Symbols => self.for_symbols.push(sample),
            Missing::Names => self.for_names.push(sample),
        }
    }

    /// Adds reports of live allocations, which no allocation or free has to follow. They are tried soon: most have symbols
    /// already, and a program that does nothing more causes no other attempt.
    pub fn add_live_allocations(&mut self, samples: impl Iterator<Item = WaitingSample>) {
        let before = self.for_symbols.len();
        self.for_symbols.extend(samples);
        self.news |= self.for_symbols.len() > before;
    }

    fn count(&mut self, payload: &Payload) {
        let kind = payload.kind();
        self.allocations += usize::from(kind == event_kind::ALLOC);
        self.frees += usize::from(kind == event_kind::FREE);
    }

    /// Returns true if an event would overtake an allocation or free that waits, and was before it at the same address. Readers
    /// sort by time, and as both may have the same tick, the order in the file decides.
    pub fn must_follow(&self, kind: u16) -> bool {
        let follows = match kind {
            event_kind::FREE => self.allocations + self.frees > 0,
            event_kind::ALLOC => self.frees > 0,
            _ => false,
        };
        follows && !self.are_too_many()
    }

    /// Returns true if no more samples may wait.
    pub fn are_too_many(&self) -> bool {
        self.len() >= PENDING_SAMPLES
    }

    /// Returns true if any sample waits for names.
    pub fn wait_for_names(&self) -> bool {
        !self.for_names.is_empty()
    }

    /// Returns true if there is a reason to try the samples again.
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Returns true if the oldest samples need too many copies of the mappings, which have version `version` now.
    pub fn have_too_many_maps(&self, version: u64) -> bool {
        let first = self.for_names.first().into_iter().chain(self.for_symbols.first());
        first.map(|sample| sample.map.version).min().is_some_and(|oldest| version > oldest + MAPS_WAITING)
    }

    /// Names came: samples that wait for them are tried again.
    pub fn names_came(&mut self) {
        // They came first: frees and allocations keep their order.
        self.for_names.append(&mut self.for_symbols);
        std::mem::swap(&mut self.for_symbols, &mut self.for_names);
        self.news = !self.for_symbols.is_empty();
    }

    /// Takes out the samples that are to be tried. Those that wait for names stay.
    pub fn take_for_symbols(&mut self) -> Vec<WaitingSample> {
        self.news = false;
        let samples = std::mem::take(&mut self.for_symbols);
        (self.allocations, self.frees) = (0, 0);
        let for_names = std::mem::take(&mut self.for_names);
        for_names.iter().for_each(|sample| self.count(&sample.payload));
        self.for_names = for_names;
        samples
    }
}
