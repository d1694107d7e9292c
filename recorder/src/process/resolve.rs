//! Writes waiting samples when their symbols have been read, or when they use too much memory.

use std::collections::HashSet;

use super::process_state::ProcessState;
use super::sample::SampleSink;
use super::stack_resolver::Missing;
use super::waiting_samples::{Payload, WaitingSample};
use super::{thread::Thread, threads::ThreadIndex};
use crate::{names::modules::ModuleMap, recording::Recording};

impl ProcessState {
    /// Replaces the current map by `map` and saves the current one in `live`, or restores it.
    fn show(&mut self, map: &ModuleMap, live: &mut Option<ModuleMap>) {
        match live.take_if(|live| live.version == map.version) {
            Some(now) => self.modules = now,
            None => {
                let before = std::mem::replace(&mut self.modules, map.clone());
                live.get_or_insert(before);
            }
        }
    }

    /// Drops resolved stacks if addresses or trace indices have changed their meaning, and all stacks if they
    /// use too much memory.
    pub(super) fn check_versions(&mut self, recording: &Recording) {
        self.stacks.forget_outdated(&self.modules, recording);
        if self.stacks.exceeds(1) {
            if self.waiting() == 0 {
                self.stacks.clear();
            } else if self.waiting.wait_for_names() {
                // Names that never come must not keep all stacks in memory.
                self.stacks.frames.jit.give_up();
                self.waiting.names_came();
            }
        }
    }

    /// Returns the number of samples that wait for symbols.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if a sample from this time or earlier is waiting.
    pub fn waits_since(&self, before_ns: u64) -> bool {
        self.waiting.times_ns().any(|time_ns| time_ns <= before_ns)
    }

    /// Returns true if the waiting samples should be retried.
    pub fn has_news(&self) -> bool {
        self.waiting.has_news() || self.overdue()
    }

    /// Returns true if waiting samples use so much memory that they must be written with the symbols
    /// available now.
    pub(super) fn overdue(&self) -> bool {
        self.waiting() > 0
            && (self.waiting.are_too_many()
                || self.stacks.exceeds(2)
                || self.waiting.have_too_many_maps(self.modules.version))
    }

    /// Removes the threads that have been written completely and whose index is not in use; `report` receives
    /// them.
    pub fn forget_complete(&mut self, report: impl FnMut(&Thread)) {
        if !self.threads.list.iter().any(|thread| thread.reported.end) {
            return;
        }
        let mut used: HashSet<ThreadIndex> = self.engines.live.threads().collect();
        used.extend(self.waiting.threads());
        used.extend(self.open.threads());
        let Some(moved) = self.threads.forget_complete(&used, report) else { return };
        self.open.threads_moved(|index| moved.get(index).copied().flatten());
        let now = |index: ThreadIndex| moved.get(index).copied().flatten().unwrap_or(usize::MAX);
        self.engines.live.threads_moved(now);
        self.waiting.threads_moved(now);
    }

    /// Retries the samples that wait for symbols. `anyway`: writes them, with offsets instead of missing
    /// symbols.
    pub(super) fn resolve_waiting(&mut self, sink: &mut SampleSink<'_>, anyway: bool) {
        self.check_versions(sink.recording);
        let anyway = anyway || self.overdue();
        if anyway {
            self.waiting.names_came();
        }
        let mut live = None;
        for sample in self.waiting.take_for_symbols() {
            sink.recording.begin_record();
            if self.modules.version != sample.map.version {
                self.show(&sample.map, &mut live);
                self.check_versions(sink.recording);
            }
            match self.write_waiting(&sample, sink, anyway) {
                Ok(()) => sink.recording.queued(sample.entry),
                Err(missing) => self.waiting.add(sample, missing),
            }
        }
        if let Some(live) = live {
            self.modules = live;
            self.check_versions(sink.recording);
        }
    }

    /// Writes a sample unless it still has to wait.
    fn write_waiting(
        &mut self,
        sample: &WaitingSample,
        sink: &mut SampleSink<'_>,
        anyway: bool,
    ) -> Result<(), Missing> {
        if !anyway && self.waiting.must_follow(sample.payload.kind()) {
            return Err(Missing::Symbols);
        }
        let trace = match sample.stack {
            Some(stack) => Some(self.trace(stack, sink, anyway)?),
            None => None,
        };
        match (&sample.payload, trace) {
            (Payload::Cpu(events), Some(trace)) => self.write_cpu(sample.origin(), trace, *events, sink),
            (Payload::Cpu(_), None) => return Err(Missing::Symbols),
            (Payload::Event(event), trace) => {
                self.write_event(sample.origin(), trace, &event.borrowed(), sink);
            }
        }
        Ok(())
    }
}
