//! Stacks from their sample to their event. A stack is walked where it lies in the ring; only what has to wait for unwind rows or
//! the kernel's names is copied.

use flightline_in_signal::layout::walk_end;

use super::{OffCpu, kernel_part::Parts, open::WITH_STACK, thread_polls::Looked};
use crate::{
    from_outside::outputs::Outputs,
    perf_events::record::{self, Record},
    remote_unwinder::stacks::{Copied, Stack},
};

/// A stack of a thread that is out, or of one that woke it.
#[derive(Debug, Default)]
pub struct SampledStack {
    /// Once it is walked.
    pub stack: Option<Stack>,
    /// The sample until then.
    bytes: Vec<u8>,
    /// It was not sampled, but seen while the thread slept.
    pub looked: Option<Looked>,
}

impl SampledStack {
    /// A stack that was walked while the thread slept.
    pub fn looked(stack: Stack) -> SampledStack {
        SampledStack { stack: Some(stack), bytes: Vec::new(), looked: Some(Looked::now()) }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + self.stack.as_ref().map_or(0, |stack| stack.frames.len() * 8)
    }

    /// What was seen of a thread after it came back is not where it slept.
    pub fn check(&mut self, end_ns: u64) {
        if self.looked.take().is_some_and(|looked| looked.at_ns >= end_ns) {
            self.stack = None;
        }
    }
}

/// Memory of samples that are done with.
#[derive(Default)]
struct Spare(Vec<Vec<u8>>);

/// Samples whose memory is kept, and bytes of each.
const SPARE: [usize; 2] = [256, 16 << 10];
/// With more threads out than this, samples that have to wait are not kept: then they have no stack.
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

/// What samples need until their stacks are walked.
#[derive(Default)]
pub struct StackCaches {
    parts: Parts,
    spare: Spare,
}

impl OffCpu {
    /// The stack of a sample in a process; `interrupt`: of what came in there, not of the thread.
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

    /// Walks what is not walked yet. `false`, unless it is wanted `anyway`, if files have to be read first.
    pub(super) fn walk(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        kept: &mut SampledStack,
        interrupt: bool,
        anyway: bool,
    ) -> bool {
        if kept.stack.is_none() && !kept.bytes.is_empty() {
            kept.stack = self.walk_sample(outputs, pid, &kept.bytes, interrupt, anyway);
            if kept.stack.is_none() {
                return false;
            }
            self.stack_caches.spare.take_back(std::mem::take(&mut kept.bytes));
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
