//! Samples of a thread from before it began to sample itself.

use std::sync::atomic::AtomicU64;

use flightline_in_signal::interrupted::Regs;
use flightline_in_signal::layout::{loss, sample_flags, walk_end};

use super::{
    Process,
    book::{Pending, What},
    thread::WALK_ENDS,
    threads::ThreadIndex,
};
use crate::{
    names::images::Images,
    perf_events::record::Sample,
    recording::Recording,
    remote_unwinder::{RemoteUnwinder, Stopped},
    settings::PENDING_SAMPLES,
};

/// A sample that waits for the hand-over.
pub struct Early {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// CPU time since the one before.
    pub weight_ns: u64,
    /// Return addresses in the kernel, leaf first.
    pub kernel: Vec<u64>,
    /// Registers in the program.
    pub regs: Option<Regs>,
    /// The stack from the stack pointer on. Empty while the kernel has taken the old program away and not begun the new.
    pub stack: Box<[u8]>,
}

impl Early {
    /// `weight_ns`: CPU time since the sample before.
    pub fn new(sample: Sample<'_>, weight_ns: u64) -> Early {
        let Sample { time_ns, kernel, regs, stack, .. } = sample;
        Early { time_ns, weight_ns, kernel, regs, stack: stack.into() }
    }
}

/// They are samples of their own: their first event comes after a random part of a period, and what rounding leaves of them is
/// not the program's.
pub struct Before {
    index: ThreadIndex,
    carry_ns: i64,
    /// Why the stack walked last was cut.
    reason: Option<u16>,
}

impl Process {
    /// Its first thread, and since when that samples itself.
    pub fn begun_ns(&mut self, tid: u32) -> Option<(ThreadIndex, u64)> {
        let Process { file, book, .. } = self;
        book.threads.read_slots(file, book.period_ns);
        let index = book.threads.by_id(file, tid, book.period_ns)?;
        let thread = book.threads.list.get(index)?;
        (thread.armed_ns() != 0).then_some((index, thread.start_ns))
    }
}

impl Before {
    /// Samples of thread `index`.
    pub fn new(process: &Process, index: ThreadIndex) -> Before {
        let period = process.book.period_ns.max(1);
        let seed = process.book.threads.list.get(index).map_or(0, |thread| thread.seed());
        let random = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        Before { index, carry_ns: (random % period) as i64 - (period / 2) as i64, reason: None }
    }

    /// Walks a copied stack into the process's words. `false` if it does not reach the root, or by a guess only as the process
    /// is gone and its files are not read yet.
    pub fn walk(
        &mut self,
        process: &mut Process,
        walker: &mut RemoteUnwinder,
        early: &Early,
        images: &mut Images,
        rows: &[AtomicU64],
        depth: usize,
    ) -> bool {
        let book = &mut process.book;
        let kernel = &early.kernel;
        book.words.clear();
        book.words.extend([0, 1]);
        book.words.extend_from_slice(kernel);
        self.reason = None;
        let Some(regs) = early.regs.as_ref().filter(|_| kernel.is_empty() || !early.stack.is_empty()) else {
            // In exec the kernel's frames are all there is.
            self.reason = kernel.is_empty().then_some(walk_end::NO_INFO);
            book.words[0] = u64::from(self.reason.is_some());
            return true;
        };
        let stopped = Stopped {
            pid: process.file.pid,
            regs,
            stack: (regs.sp(), regs.sp().saturating_add(early.stack.len() as u64)),
            copied: (regs.sp(), &early.stack),
            runs_on: true,
        };
        let (walked, frames) = walker.walk(&stopped, &book.modules, images, rows, depth);
        let mut exact = walked.exact_frames;
        if !kernel.is_empty() {
            exact = exact.checked_shl(kernel.len() as u32).unwrap_or(0) | 1;
        }
        let truncated = walked.flags & sample_flags::TRUNCATED != 0;
        self.reason = truncated.then_some(walked.end);
        book.words[..2].copy_from_slice(&[u64::from(truncated), exact]);
        book.words.extend_from_slice(frames);
        let image = |address: &u64| book.modules.find(*address).map(|mapping| mapping.image);
        let unread =
            !process.file.alive() && frames.iter().filter_map(image).any(|image| !images.want(image));
        !truncated && !unread
    }

    /// Books the sample walked last: its time was down as lost.
    pub fn book(
        &mut self,
        process: &mut Process,
        early: &Early,
        recording: &mut Recording,
        images: &mut Images,
    ) {
        let Process { file, book, .. } = process;
        let selection = book.threads.selection.as_ref();
        let Some(thread) = book.threads.list.get_mut(self.index) else { return };
        // The program says how much there was.
        let unarmed_ns = thread.ledger.lost_ns[loss::UNARMED];
        let weight_ns = early.weight_ns.min(unarmed_ns);
        if weight_ns == 0 || recording.full() || !thread.selected(file, selection) {
            return;
        }
        thread.ledger.unlose(loss::UNARMED, weight_ns);
        let events = thread.ledger.sample_before(weight_ns, &mut self.carry_ns);
        if let Some(reason) = self.reason {
            thread.cut[usize::from(reason).min(WALK_ENDS - 1)] += 1;
            book.cut += 1;
        }
        book.samples += 1;
        if events == 0 || !book.cpu_samples {
            return;
        }
        book.check_versions(recording);
        let (stack, new) = book.stacks.intern(&book.words);
        if new {
            book.traces.push(0);
        }
        let anyway = book.waiting() >= PENDING_SAMPLES;
        let (thread, time_ns) = (self.index, early.time_ns);
        match book.trace(stack, recording, images, anyway) {
            Some(trace) => {
                book.worked = None;
                book.write(file, thread, trace, time_ns, events, recording);
            }
            None => {
                let (map, what) = (book.map_now(), What::Cpu(events));
                let (stack, worked, entry) = (Some(stack), None, None);
                book.put_aside(Pending { map, thread, stack, time_ns, what, worked, entry });
            }
        }
    }
}
