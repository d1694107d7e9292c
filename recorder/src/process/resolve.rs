//! Stacks of addresses become traces, at once or when symbols have been read.

use std::{collections::HashSet, sync::Arc};

use flightline_in_signal::layout::event_kind;

use super::book::{Book, Pending, STACK_HEAD, What};
use super::{thread::Thread, threads::ThreadIndex};
use crate::{
    names::frames::Resolved, names::images::Images, names::kernel, names::modules::ModuleMap,
    recording::Recording, settings::PENDING_SAMPLES,
};

/// Maps of a process that may be kept for samples that wait; each has a few ten thousand bytes.
const MAPS_WAITING: u64 = 256;

impl Book {
    /// The present map, copied once for all that wait since it changed.
    pub(super) fn map_now(&mut self) -> Arc<ModuleMap> {
        match &self.map {
            Some(map) if map.version == self.modules.version => map.clone(),
            _ => self.map.insert(Arc::new(self.modules.as_it_is())).clone(),
        }
    }

    /// Puts `map` in the place of the present one, which goes to `live`, or back.
    pub(super) fn show(&mut self, map: &ModuleMap, live: &mut Option<ModuleMap>) {
        match live.take_if(|live| live.version == map.version) {
            Some(now) => self.modules = now,
            None => {
                let before = std::mem::replace(&mut self.modules, map.clone());
                live.get_or_insert(before);
            }
        }
    }

    /// Forgets resolved stacks if addresses or trace indices mean something else now.
    pub(super) fn check_versions(&mut self, recording: &Recording) {
        let versions = (self.modules.version, recording.interner.generation, self.frames.jit.version);
        if versions != self.versions || self.frames.bytes() > self.stack_bytes {
            self.versions = versions;
            self.frames.clear();
            self.traces.iter_mut().for_each(|t| *t = 0);
        }
        if self.stacks.bytes() > self.stack_bytes {
            if self.waiting() == 0 {
                self.stacks.clear();
                self.traces = Vec::new();
            } else if !self.unnamed.is_empty() {
                // Names that do not come must not keep all stacks in memory.
                self.frames.jit.give_up();
                self.names_came();
            }
        }
    }

    /// The trace of a raw stack; `None` while symbols are being read.
    #[inline]
    pub(super) fn trace(
        &mut self,
        stack: u32,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Option<u32> {
        match self.traces.get(stack as usize) {
            Some(&known) if known != 0 => Some(known - 1),
            _ => self.resolve(stack, recording, images, anyway),
        }
    }

    #[cold]
    fn resolve(
        &mut self,
        stack: u32,
        recording: &mut Recording,
        images: &mut Images,
        anyway: bool,
    ) -> Option<u32> {
        let mut sequence = std::mem::take(&mut self.sequence);
        sequence.clear();
        let raw = self.stacks.get(stack);
        let (&truncated, &exact) = (raw.first()?, raw.get(1)?);
        sequence.push(u32::from(truncated != 0));
        let (mut complete, mut lasting, mut unnamed) = (true, true, false);
        for (i, &address) in raw.get(STACK_HEAD..).unwrap_or(&[]).iter().enumerate() {
            let is_exact = i < 64 && exact >> i & 1 == 1;
            // A return address may already belong to the next function.
            let address = if is_exact { address } else { address.wrapping_sub(1) };
            let interner = &mut recording.interner;
            match self.frames.resolve(address, &self.modules, interner, images, anyway, &mut sequence) {
                Resolved::Known => continue,
                Resolved::ForNow => lasting = false,
                Resolved::Waiting => complete = false,
                Resolved::Unnamed => unnamed = true,
            }
            self.unknown |= !kernel::is_kernel(address) && !self.modules.holds(address);
        }
        self.names_missing = complete && unnamed;
        let trace = (complete && !unnamed).then(|| recording.interner.trace(&sequence));
        self.sequence = sequence;
        if let (Some(trace), Some(known), true) = (trace, self.traces.get_mut(stack as usize), lasting) {
            *known = trace + 1;
        }
        trace
    }

    /// Samples waiting for symbols.
    pub fn waiting(&self) -> usize {
        self.pending.len() + self.unnamed.len()
    }

    /// Whether any of them was taken before this moment.
    pub fn waits_since(&self, before_ns: u64) -> bool {
        self.unnamed.iter().chain(&self.pending).any(|sample| sample.time_ns <= before_ns)
    }

    /// Whether it is worth while to try those again.
    pub fn has_news(&self) -> bool {
        self.news || self.overdue()
    }

    /// What waits takes so much memory that it is written as it is known now.
    pub(super) fn overdue(&self) -> bool {
        let oldest =
            self.unnamed.first().into_iter().chain(self.pending.first()).map(|s| s.map.version).min();
        oldest.is_some_and(|oldest| {
            self.waiting() >= PENDING_SAMPLES
                || self.stacks.bytes() > 2 * self.stack_bytes
                || self.modules.version > oldest + MAPS_WAITING
        })
    }

    pub(super) fn put_aside(&mut self, sample: Pending) {
        self.count_waiting(&sample);
        if self.names_missing { self.unnamed.push(sample) } else { self.pending.push(sample) }
    }

    /// Whether an event would overtake an allocation or free that waits, and was before it at the same address. Readers sort
    /// by time, and as both may have the same tick, the order in the file decides.
    pub(super) fn must_follow(&self, kind: u16) -> bool {
        let [allocations, frees] = self.allocations_waiting;
        let follows = match kind {
            event_kind::FREE => allocations + frees > 0,
            event_kind::ALLOC => frees > 0,
            _ => false,
        };
        follows && self.waiting() < PENDING_SAMPLES
    }

    /// Puts something behind all that waits.
    pub(super) fn wait(&mut self, sample: Pending) {
        self.count_waiting(&sample);
        self.pending.push(sample);
    }

    fn count_waiting(&mut self, sample: &Pending) {
        let kind = if let What::Event(event) = &sample.what { event.borrowed().head.kind } else { 0 };
        self.allocations_waiting[0] += usize::from(kind == event_kind::ALLOC);
        self.allocations_waiting[1] += usize::from(kind == event_kind::FREE);
    }

    /// Drops the threads that are told to the end and whose index nobody keeps; `report` gets them.
    pub fn forget_complete(&mut self, report: impl FnMut(&Thread)) {
        if !self.threads.list.iter().any(|thread| thread.told.end) {
            return;
        }
        let mut held: HashSet<ThreadIndex> = self.engines.live.threads().collect();
        held.extend(self.pending.iter().chain(&self.unnamed).map(|sample| sample.thread));
        held.extend(self.open.threads());
        let Some(moved) = self.threads.forget_complete(&held, report) else { return };
        self.open.threads_moved(|index| moved.get(index).copied().flatten());
        let now = |index: ThreadIndex| moved.get(index).copied().flatten().unwrap_or(usize::MAX);
        self.engines.live.threads_moved(now);
        for sample in self.pending.iter_mut().chain(&mut self.unnamed) {
            sample.thread = now(sample.thread);
        }
    }

    /// What waits for symbols was taken out: only what waits for names counts.
    pub(super) fn count_allocations(&mut self) {
        self.allocations_waiting = [0; 2];
        let unnamed = std::mem::take(&mut self.unnamed);
        unnamed.iter().for_each(|sample| self.count_waiting(sample));
        self.unnamed = unnamed;
    }

    /// Samples that waited for names are tried again.
    pub(super) fn names_came(&mut self) {
        // They came first: frees and allocations keep their order.
        self.unnamed.append(&mut self.pending);
        std::mem::swap(&mut self.pending, &mut self.unnamed);
        self.news = !self.pending.is_empty();
    }
}
