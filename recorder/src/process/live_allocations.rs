//! Live allocations: recorded while the process runs, and when it has ended.

use super::process_state::ProcessState;
use super::waiting_samples::{Payload, WaitingSample};
use crate::recording::{Recording, events};

impl ProcessState {
    /// Records the allocations that were not freed when the process ended. They wait for symbols like other
    /// events.
    pub(super) fn record_live(&mut self, recording: &mut Recording, now_ns: u64) {
        let (left, untracked) = self.engines.live.take();
        if untracked > 0 {
            let message = format!(
                "{untracked} more sampled allocations were not tracked, because too many were live; some may not have been freed"
            );
            recording.notice(&message, now_ns);
        }
        self.record_left_allocations(left, now_ns);
    }

    /// Records the allocations that are live now.
    pub(super) fn record_alive(&mut self, now_ns: u64) {
        let alive = self.engines.live.alive();
        self.record_left_allocations(alive, now_ns);
    }

    fn record_left_allocations(&mut self, left: Vec<events::alloc::Left>, now_ns: u64) {
        if left.is_empty() {
            return;
        }
        let map = self.waiting.map(&self.modules);
        let stacks = &mut self.stacks;
        let samples = left.into_iter().map(|(thread, stack, event)| WaitingSample {
            map: map.clone(),
            thread,
            stack: Some(stacks.intern(&stack)),
            time_ns: now_ns,
            payload: Payload::Event(Box::new(event)),
            context: None,
            entry: None,
        });
        self.waiting.add_live_allocations(samples);
    }
}
