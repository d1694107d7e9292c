//! Allocations that were not freed: told while the process runs, and when it has ended.

use super::book::{Book, Pending, What};
use crate::{
    recording::{Recording, events},
    settings::PENDING_SAMPLES,
};

impl Book {
    /// Tells what was not freed, when nothing more will be. It waits for symbols like anything else.
    pub(super) fn record_live(&mut self, recording: &mut Recording, now_ns: u64) {
        let (left, unkept) = self.engines.live.take();
        if unkept > 0 {
            let message =
                format!("{unkept} sampled allocations more may not have been freed: too many at a time");
            recording.notice(&message, now_ns);
        }
        self.record_left_allocations(left, now_ns);
    }

    /// Records what is alive, if this was last recorded `every_ns` ago. The first interval begins at `start_ns`, with the process.
    pub fn record_alive(&mut self, start_ns: u64, every_ns: u64, now_ns: u64) {
        if self.alive_told_ns == 0 {
            self.alive_told_ns = start_ns;
        }
        if now_ns - self.alive_told_ns.min(now_ns) >= every_ns && self.waiting() < PENDING_SAMPLES {
            self.alive_told_ns = now_ns;
            let alive = self.engines.live.alive();
            self.record_left_allocations(alive, now_ns);
        }
    }

    fn record_left_allocations(&mut self, left: Vec<events::alloc::Left>, now_ns: u64) {
        // Most have symbols already: a program that does nothing more would never be asked again.
        self.news |= !left.is_empty();
        for (thread, stack, what) in left {
            let (stack, new) = self.stacks.intern(&stack);
            if new {
                self.traces.push(0);
            }
            let what = What::Event(Box::new(what));
            let map = self.map_now();
            self.pending.push(Pending {
                map,
                thread,
                stack: Some(stack),
                time_ns: now_ns,
                what,
                worked: None,
                entry: None,
            });
        }
    }
}
