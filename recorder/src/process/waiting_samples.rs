//! Samples and events of a process that wait for symbols, or for names of JIT-compiled code.
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

/// Limit of maps of a process that are stored for waiting samples. Each has a few ten thousand bytes.
const MAPS_WAITING: u64 = 256;

/// A sample or event whose stack waits for a module's symbols.
pub(super) struct WaitingSample {
    /// The mappings when it was read, because another module may be mapped there by now.
    pub map: Arc<ModuleMap>,
    pub thread: ThreadIndex,
    /// `None` if it has no stack, but must follow a waiting event.
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
    /// This number of equal CPU time samples.
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

/// Waiting samples, in the order in which they were read.
#[derive(Default)]
pub(super) struct WaitingSamples {
    /// Samples that wait for symbols, or should be retried.
    for_symbols: Vec<WaitingSample>,
    /// Samples in code for which the program has not written a name yet.
    for_names: Vec<WaitingSample>,
    /// Number of allocations in both lists.
    allocations: usize,
    /// Number of frees that follow them.
    frees: usize,
    /// A copy of the current mappings for waiting samples.
    map: Option<Arc<ModuleMap>>,
    /// Names have been added since these samples were.
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

    /// Updates the thread indices of all samples.
    pub fn threads_moved(&mut self, now: impl Fn(ThreadIndex) -> ThreadIndex) {
        for sample in self.for_symbols.iter_mut().chain(&mut self.for_names) {
            sample.thread = now(sample.thread);
        }
    }

    /// Returns the mappings that samples refer to.
    pub fn maps(&self) -> Vec<&Arc<ModuleMap>> {
        // Consecutive samples mostly have the same map.
        let mut maps: Vec<&Arc<ModuleMap>> = self.iter().map(|sample| &sample.map).chain(&self.map).collect();
        maps.dedup_by(|a, b| Arc::ptr_eq(a, b));
        maps
    }

    /// Returns a copy of the current mappings, shared by all samples that wait since the last change.
    pub fn map(&mut self, modules: &ModuleMap) -> Arc<ModuleMap> {
        match &self.map {
            Some(map) if map.version == modules.version => map.clone(),
            _ => self.map.insert(Arc::new(modules.as_it_is())).clone(),
        }
    }

    /// Adds a sample without symbols or names.
    pub fn add(&mut self, sample: WaitingSample, missing: Missing) {
        self.count(&sample.payload);
        match missing {
            Missing::Symbols => self.for_symbols.push(sample),
            Missing::Names => self.for_names.push(sample),
        }
    }

    /// Adds reports of live allocations, which need no order relative to allocations and frees. They are
    /// tried soon: most have symbols already, and an idle program would cause no other attempt.
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

    /// Returns true if an event must wait behind an allocation or free that may concern the same address.
    /// Readers sort by time, and if both have the same tick, the order in the file decides.
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

    /// Returns true if the samples should be retried.
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Returns true if the oldest samples need too many copies of the mappings, which now have version
    /// `version`.
    pub fn have_too_many_maps(&self, version: u64) -> bool {
        let first = self.for_names.first().into_iter().chain(self.for_symbols.first());
        first.map(|sample| sample.map.version).min().is_some_and(|oldest| version > oldest + MAPS_WAITING)
    }

    /// Makes samples that wait for names ready to be retried, because names were added.
    pub fn names_came(&mut self) {
        // These came first, so frees and allocations remain in order.
        self.for_names.append(&mut self.for_symbols);
        std::mem::swap(&mut self.for_symbols, &mut self.for_names);
        self.news = !self.for_symbols.is_empty();
    }

    /// Removes and returns the samples to retry. Those that wait for names remain.
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
