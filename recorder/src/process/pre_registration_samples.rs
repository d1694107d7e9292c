//! Startup samples: samples of a thread from before it samples itself.
//!
//! Perf events sample a program that the recorder starts until its first thread is armed. These samples
//! are added to the totals of that thread and subtracted from its losses, so no time counts twice. The
//! same time of programs that this program starts is reported as lost.

use std::sync::atomic::AtomicU64;

use flightline_in_signal::layout::{loss, sample_flags, walk_end};
use flightline_in_signal::unwind::interrupted::Regs;

use super::{
    Process,
    sample::{Origin, RawSample, SampleSink},
    threads::ThreadIndex,
    waiting_samples::Payload,
};
use crate::{
    names::images::Images,
    perf_events::record::Sample,
    recording::Recording,
    remote_unwinder::{RemoteUnwinder, Stopped},
};

/// A startup sample that waits for the hand-over.
pub struct Early {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// CPU time since the previous sample, ns.
    pub weight_ns: u64,
    /// Return addresses in the kernel, leaf first.
    pub kernel: Vec<u64>,
    /// User registers.
    pub regs: Option<Regs>,
    /// The user stack from the stack pointer on. Empty during exec, after the old program was removed and
    /// before the new one starts.
    pub stack: Box<[u8]>,
}

impl Early {
    /// Converts a perf sample. `weight_ns` is the CPU time since the previous sample.
    pub fn new(sample: Sample<'_>, weight_ns: u64) -> Early {
        let Sample { time_ns, kernel, regs, stack, .. } = sample;
        Early { time_ns, weight_ns, kernel, regs, stack: stack.into() }
    }
}

/// Adds the startup samples of a thread to its totals. They have their own random first expiry and their own
/// carry, which do not affect the program's samples.
pub struct Before {
    index: ThreadIndex,
    carry_ns: i64,
    /// The raw stack that was walked last.
    stack: Vec<u64>,
    /// The reason why that stack was cut.
    reason: Option<u16>,
}

impl Process {
    /// Returns the index of thread `tid`, and the time since when it samples itself.
    pub fn begun_ns(&mut self, tid: u32) -> Option<(ThreadIndex, u64)> {
        let Process { file, state, .. } = self;
        state.threads.read_slots(file, state.sampling.period_ns);
        let index = state.threads.by_id(file, tid, state.sampling.period_ns)?;
        let thread = state.threads.list.get(index)?;
        (thread.armed_ns() != 0).then_some((index, thread.start_ns))
    }
}

impl Before {
    /// Returns the state for samples of thread `index`.
    pub fn new(process: &Process, index: ThreadIndex) -> Before {
        let period = process.state.sampling.period_ns.max(1);
        let seed = process.state.threads.list.get(index).map_or(0, |thread| thread.seed());
        let random = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let carry_ns = (random % period) as i64 - (period / 2) as i64;
        Before { index, carry_ns, stack: Vec::new(), reason: None }
    }

    /// Walks a copied stack. Returns false if it does not reach the root, or if the walk is uncertain because
    /// the process is gone and its files have not been read yet.
    pub fn walk(
        &mut self,
        process: &mut Process,
        walker: &mut RemoteUnwinder,
        early: &Early,
        images: &mut Images,
        rows: &[AtomicU64],
        depth: usize,
    ) -> bool {
        let state = &process.state;
        let kernel = &early.kernel;
        self.stack.clear();
        self.stack.extend([0, 1]);
        self.stack.extend_from_slice(kernel);
        self.reason = None;
        let Some(regs) = early.regs.as_ref().filter(|_| kernel.is_empty() || !early.stack.is_empty()) else {
            // During exec, only kernel frames exist.
            self.reason = kernel.is_empty().then_some(walk_end::NO_INFO);
            self.stack[0] = u64::from(self.reason.is_some());
            return true;
        };
        let stopped = Stopped {
            pid: process.file.pid,
            regs,
            stack: (regs.sp(), regs.sp().saturating_add(early.stack.len() as u64)),
            copied: (regs.sp(), &early.stack),
            runs_on: true,
            jvm: None,
        };
        let (walked, frames) = walker.walk(&stopped, &state.modules, images, rows, depth);
        let mut exact = walked.exact_frames;
        if !kernel.is_empty() {
            exact = exact.checked_shl(kernel.len() as u32).unwrap_or(0) | 1;
        }
        let truncated = walked.flags & sample_flags::TRUNCATED != 0;
        self.reason = truncated.then_some(walked.end);
        self.stack[..2].copy_from_slice(&[u64::from(truncated), exact]);
        self.stack.extend_from_slice(frames);
        let image = |address: &u64| state.modules.find(*address).map(|mapping| mapping.image);
        let unread =
            !process.file.alive() && frames.iter().filter_map(image).any(|image| !images.want(image));
        !truncated && !unread
    }

    /// Records the sample walked last. Its CPU time had been counted as lost.
    pub fn book(
        &mut self,
        process: &mut Process,
        early: &Early,
        recording: &mut Recording,
        images: &mut Images,
    ) {
        let Process { file, state, .. } = process;
        let selection = state.threads.selection.as_ref();
        let Some(thread) = state.threads.list.get_mut(self.index) else { return };
        // The program reported how much CPU time there was before it sampled itself.
        let unarmed_ns = thread.ledger.lost_ns[loss::UNARMED];
        let weight_ns = early.weight_ns.min(unarmed_ns);
        if weight_ns == 0 || recording.full() || !thread.selected(file, selection) {
            return;
        }
        thread.ledger.unlose(loss::UNARMED, weight_ns);
        let events = thread.ledger.sample_before(weight_ns, &mut self.carry_ns);
        if let Some(reason) = self.reason {
            thread.stacks.add_truncated(reason);
            state.ring.cut += 1;
        }
        state.ring.samples += 1;
        if events == 0 || !state.sampling.cpu_samples {
            return;
        }
        state.check_versions(recording);
        let sink = &mut SampleSink { file, recording, images };
        let stack = state.stacks.intern(&self.stack);
        let anyway = state.waiting.are_too_many();
        let origin = Origin { thread: self.index, time_ns: early.time_ns, context: None };
        match state.trace(stack, sink, anyway) {
            Ok(trace) => state.write_cpu(origin, trace, events, sink),
            Err(missing) => {
                let entry = &mut None;
                let mut raw = RawSample { origin, stack: &self.stack, truncation: self.reason, entry };
                state.put_aside(&mut raw, Some(stack), Payload::Cpu(events), missing);
            }
        }
    }
}
