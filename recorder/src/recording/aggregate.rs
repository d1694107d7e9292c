//! Merges equal CPU time samples of an interval into one event, with their number and the CPU time that they
//! represent.
//!
//! The event is a `profiler.WallClockSample`, the only sample event with a weight that other readers support.
//! Merged samples count as not written yet: if the recorder is killed, they are recovered from the journal.
//!
//! Sums are written before their chunk ends, because their keys are not valid afterwards. Until then the
//! records stay in the journal.

use std::collections::HashMap;

use jfr_format::schema::{WALL_CLOCK_SAMPLE, thread_state};

use super::Recording;
use crate::{names::intern::TraceIndex, shared_memory::journal::Entry};

/// Limit of distinct samples.
const MAX_HELD: usize = 1 << 16;

/// Samples that are held back.
pub(super) struct Aggregate {
    every_ns: u64,
    since_ns: u64,
    period_ns: u64,
    /// Number of samples and time of the first, by thread and trace.
    samples: HashMap<(usize, TraceIndex), (u64, u64)>,
    /// Their records in the journal.
    entries: Vec<Entry>,
    /// True if the newest sample is held back.
    pub(super) newest: bool,
    /// The samples are being written.
    pub(super) writing: bool,
}

impl Aggregate {
    pub(super) fn new(every_ns: u64, period_ns: u64, now_ns: u64) -> Aggregate {
        Aggregate {
            every_ns,
            since_ns: now_ns,
            period_ns,
            samples: HashMap::new(),
            entries: Vec::new(),
            newest: false,
            writing: false,
        }
    }

    pub(super) fn add(&mut self, thread: usize, trace: TraceIndex, time_ns: u64, count: u32) {
        let sample = self.samples.entry((thread, trace)).or_insert((0, time_ns));
        sample.0 += u64::from(count);
        sample.1 = sample.1.min(time_ns);
        self.newest = true;
    }

    pub(super) fn full(&self) -> bool {
        self.samples.len() >= MAX_HELD
    }

    /// Drops the samples that are held back. Returns their number.
    pub(super) fn forget(&mut self) -> u64 {
        self.entries.clear();
        self.samples.drain().map(|(_, (count, _))| count).sum()
    }

    pub(super) fn hold(&mut self, entry: Entry) {
        self.entries.push(entry);
    }
}

impl Recording {
    /// Sets the CPU time that each sample represents from now on. Call this at the start of a chunk.
    pub fn change_period(&mut self, period_ns: u64) {
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.period_ns = period_ns;
        }
    }

    /// Returns true if the interval in which samples are merged is over.
    pub fn sums_due(&self, now_ns: u64) -> bool {
        self.aggregate.as_ref().is_some_and(|a| now_ns.saturating_sub(a.since_ns) >= a.every_ns)
    }

    /// Writes the merged samples. Keys of threads and stacks are valid only within a chunk, so this is also
    /// called before a chunk ends.
    pub fn write_sums(&mut self, now_ns: u64) {
        let Some(aggregate) = &mut self.aggregate else { return };
        aggregate.since_ns = now_ns;
        if aggregate.samples.is_empty() || aggregate.writing {
            return;
        }
        aggregate.writing = true;
        let period_ns = aggregate.period_ns;
        let mut samples: Vec<_> = std::mem::take(&mut aggregate.samples).into_iter().collect();
        let entries = std::mem::take(&mut aggregate.entries);
        samples.sort_unstable_by_key(|((thread, trace), (_, first_ns))| (*first_ns, *thread, *trace));
        for ((thread, trace), (count, first_ns)) in samples {
            let time = self.ticks(first_ns);
            let span = self.span(count.saturating_mul(period_ns));
            let samples = i32::try_from(count).unwrap_or(i32::MAX);
            let before = self.output.has_failed();
            self.event_with_stack(WALL_CLOCK_SAMPLE, thread, Some(trace), 16, |e, thread, stack| {
                e.ticks(time).key(thread).key(stack).key(thread_state::DEFAULT).int(samples).ticks(span);
            });
            if before || self.output.has_failed() {
                self.counters.unwritten += count;
            } else {
                self.counters.events += count;
                self.counters.unsent += count;
            }
        }
        entries.into_iter().for_each(|entry| self.output.queued(Some(entry)));
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.writing = false;
        }
    }
}
