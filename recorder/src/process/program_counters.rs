//! The program's own counters: the drain saves which of them have been reported, and a recovery reports the
//! rest.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use flightline_in_signal::layout::{
    event_kind::KINDS,
    loss::{CAUSES, NAMES},
    slot_state,
};

use super::{Process, program_account::Counted};
use crate::{
    recording::Recording,
    shared_memory::journal::reported_counters::{self, COUNTS, CounterOwner, Counts},
};

impl Process {
    /// Saves, for a recovery, the counters that are reported with the batch being queued.
    pub fn save_reported(&mut self, recording: &Recording) {
        let Some(batches) = recording.batches() else { return };
        let Process { file, state, reported, .. } = self;
        let (path, events) = (file.reported_path(), state.engines.reported);
        reported.keep(
            &path,
            batches,
            CounterOwner::Process,
            &from_process_counts([events.of_program, events.short]),
        );
        for thread in state.threads.list.iter().filter(|t| !t.moved) {
            if let Some((slot, generation)) = thread.slot() {
                let counts = from_thread_counts(&thread.reported.counted);
                reported.keep(&path, batches, CounterOwner::Thread(slot, generation), &counts);
            }
        }
    }

    /// Records the losses that the program counted after those reported with batch `committed`. Returns the
    /// number of lost samples and events.
    pub fn record_remaining(&mut self, committed: u64, recording: &mut Recording, now_ns: u64) -> u64 {
        let Process { file, state, .. } = self;
        let found = reported_counters::read(&file.reported_path(), committed);
        let counts = found.get(CounterOwner::Process);
        let kinds =
            |from: usize| std::array::from_fn(|kind| (counts[from + 2 * kind], counts[from + 2 * kind + 1]));
        let before: [(u64, u64); KINDS] = kinds(0);
        state.engines.resume(before, kinds(2 * KINDS));
        let counted = file.events_lost();
        state.engines.write_losses(recording, &counted, now_ns);
        state.engines.write_short_events(recording, &file.events_short(), now_ns);
        let more = counted.iter().zip(before).map(|(now, before)| now.0.saturating_sub(before.0));
        let mut sum = more.fold(0, u64::saturating_add);
        for number in 0..file.slots() {
            let Some(slot) = file.slot(number) else { break };
            let word = slot.state.load(Acquire);
            // After a thread ends, its counters remain in the slot until another thread uses it.
            if word & slot_state::MASK == slot_state::INIT
                || slot.ledger.lost.iter().all(|n| n.load(Relaxed) == 0)
            {
                continue;
            }
            let holder = (number, word & !slot_state::MASK);
            let known = state.threads.list.iter().position(|t| t.slot() == Some(holder));
            let index = known.or_else(|| state.threads.at_slot(file, number, state.sampling.period_ns));
            let Some(thread) = index.and_then(|index| state.threads.list.get_mut(index)) else { continue };
            let constant = thread.constant(file, state.group, recording);
            let (ns, samples) = thread.counted();
            let before = found.get(CounterOwner::Thread(holder.0, holder.1));
            for (cause, name) in NAMES.iter().enumerate() {
                let samples = samples[cause].saturating_sub(before[CAUSES + cause]);
                let ns = ns[cause].saturating_sub(before[cause]);
                if samples > 0 || ns > 0 {
                    recording.sample_loss(constant, name, (samples, ns), now_ns);
                    sum = sum.saturating_add(samples);
                }
            }
        }
        sum
    }
}

fn from_process_counts(counts: [[(u64, u64); KINDS]; 2]) -> Counts {
    let counts = counts.as_flattened();
    std::array::from_fn(|i| if i % 2 == 0 { counts[i / 2].0 } else { counts[i / 2].1 })
}

fn from_thread_counts((ns, samples): &Counted) -> Counts {
    let mut counts = [0; COUNTS];
    counts[..CAUSES].copy_from_slice(ns);
    counts[CAUSES..2 * CAUSES].copy_from_slice(samples);
    counts
}
