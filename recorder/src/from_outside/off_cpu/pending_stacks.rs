//! Stacks between their sample and their event. A stack is walked directly in the ring. It is copied only if
//! it has to wait for unwind tables or kernel symbols.

use flightline_in_signal::layout::walk_end;

use super::{OffCpu, kernel_part::Parts, open::WITH_STACK, thread_polls::Looked};
use crate::{
    from_outside::outputs::Outputs,
    perf_events::record::{self, Record},
    remote_unwinder::stacks::{Copied, Stack},
};

/// The stack of a thread that is off CPU, or of its waker.
#[derive(Debug, Default)]
pub struct SampledStack {
    /// The stack, once it is walked.
    pub stack: Option<Stack>,
    /// A copy of the sample until then.
    bytes: Vec<u8>,
    /// Set if the stack was not sampled, but read while the thread slept.
    pub looked: Option<Looked>,
}

impl SampledStack {
    /// Returns a stack that was read while the thread slept.
    pub fn looked(stack: Stack) -> SampledStack {
        SampledStack { stack: Some(stack), bytes: Vec::new(), looked: Some(Looked::now()) }
    }

    /// Returns the memory that it uses, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + self.stack.as_ref().map_or(0, |stack| stack.frames.len() * 8)
    }

    /// Drops a stack that was read after the thread came back, because that is not where it slept.
    pub fn check(&mut self, end_ns: u64) {
        if self.looked.take().is_some_and(|looked| looked.at_ns >= end_ns) {
            self.stack = None;
        }
    }
}

/// Buffers of processed samples, for reuse.
#[derive(Default)]
struct Spare(Vec<Vec<u8>>);

/// Limits of the number of buffers, and of the bytes of each.
const SPARE: [usize; 2] = [256, 16 << 10];
/// With more threads off CPU than this, samples that have to wait are dropped, and their intervals have no
/// stack.
const MANY_OUT: usize = 8192;

impl Spare {
    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.0.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn take_back(&mut self, bytes: Vec<u8>) {
        if self.0.len() < SPARE[0] && bytes.capacity() <= SPARE[1] {
            self.0.push(bytes);
        }
    }
}

/// Caches for walking the stacks of samples.
#[derive(Default)]
pub struct StackCaches {
    parts: Parts,
    spare: Spare,
}

impl OffCpu {
    /// Returns the stack of a sample in a process. `interrupt`: the stack of the interrupt handler, not of
    /// the thread.
    pub(super) fn keep(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        bytes: &[u8],
        interrupt: bool,
    ) -> SampledStack {
        if let Some(stack) = self.walk_sample(outputs, pid, bytes, interrupt, false) {
            return SampledStack { stack: Some(stack), ..SampledStack::default() };
        }
        match self.intervals.len() < MANY_OUT {
            true => SampledStack { bytes: self.stack_caches.spare.copy(bytes), ..SampledStack::default() },
            false => SampledStack::default(),
        }
    }

    /// Walks the stack if that has not been done. Returns false if files have to be read first, unless
    /// `anyway` is set.
    pub(super) fn walk(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        sample: &mut SampledStack,
        interrupt: bool,
        anyway: bool,
    ) -> bool {
        if sample.stack.is_none() && !sample.bytes.is_empty() {
            sample.stack = self.walk_sample(outputs, pid, &sample.bytes, interrupt, anyway);
            if sample.stack.is_none() {
                return false;
            }
            self.stack_caches.spare.take_back(std::mem::take(&mut sample.bytes));
        }
        true
    }

    fn walk_sample(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        bytes: &[u8],
        interrupt: bool,
        anyway: bool,
    ) -> Option<Stack> {
        let Some(Record::Sample(sample)) = record::parse(bytes, WITH_STACK) else {
            return Some(Stack { truncated: Some(walk_end::NO_INFO), ..Stack::default() });
        };
        let (images, rows) = outputs.files();
        let seen = self.stack_caches.parts.look(&sample.kernel, anyway, images)?;
        let end = if interrupt { seen.entry } else { None }.unwrap_or(sample.kernel.len());
        let kernel = sample.kernel.get(seen.tracer.min(end)..end).unwrap_or(&[]);
        let in_thread = !interrupt && pid != 0 && pid != u32::MAX;
        let regs = sample.regs.as_ref().filter(|_| in_thread);
        let process = self.tasks.process(pid);
        if regs.is_some() && !process.mapped {
            process.mapped = true;
            process.stacks.read_maps(pid, images);
        }
        let copied = Copied { regs, copy: sample.stack, kernel, user: &sample.user };
        let mut stack = process.stacks.walk(pid, &copied, !anyway, self.options.depth, images, rows)?;
        if regs.is_none() {
            stack.truncated = None;
        }
        Some(stack)
    }
}
