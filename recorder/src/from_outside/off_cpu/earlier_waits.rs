//! Waits that began before the recording. People attach to programs that hang; threads of such a program are
//! not switched, so no event reports them. A thread whose scheduler statistics have not changed since the
//! attach is waiting: its wait counts from the attach on.

use std::time::Duration;

use flightline_in_signal::layout::walk_end;

use super::{OffCpu, intervals::Out, pending_stacks::SampledStack, thread_polls};
use crate::{
    from_outside::outputs::Outputs,
    os::clock::monotonic_ns,
    process::wall::schedstat::{Files, SchedStat, SyscallState},
};

/// Delay before threads are examined, ns. Events of threads that ran have been read by then.
const WAIT_NS: u64 = 100_000_000;
/// Limit of threads examined in one round.
const MANY: usize = 64;
/// Time limit for reading the files that a stack needs, ns. After it, the stack is recorded as far as it can
/// be walked.
const PATIENCE_NS: u64 = 5_000_000_000;
/// The same at the end of the recording, ns. The thread that reads files has a low priority.
const LAST_PATIENCE_NS: u64 = 10_000_000_000;
/// Longest pause between two attempts at the end.
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// A thread that existed at the attach.
pub(super) struct Before {
    pid: u32,
    tid: u32,
    since_ns: u64,
    account: SchedStat,
}

impl Before {
    /// Returns `None` if the thread is gone.
    pub fn observe(pid: u32, tid: u32) -> Option<Before> {
        let account = Files::open(pid, tid).and_then(|files| files.schedstat()).ok()?;
        Some(Before { pid, tid, since_ns: monotonic_ns(), account })
    }

    /// Returns where the thread waits, if it has not run since.
    fn place(&self) -> Option<(u64, u64)> {
        let mut files = Files::open(self.pid, self.tid).ok()?;
        let Ok(SyscallState::Waiting { sp, pc, .. }) = files.place() else { return None };
        (files.schedstat().ok()? == self.account).then_some((pc, sp))
    }
}

impl OffCpu {
    /// Examines the threads that may have been waiting at the attach.
    pub(super) fn find_earlier_waits(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let due = |before: &Before| now_ns.saturating_sub(before.since_ns) >= WAIT_NS;
        let from = self.before.iter().position(due).unwrap_or(self.before.len());
        let end = self.before.len().min(from + MANY);
        let looked_at: Vec<Before> = self.before.drain(from..end).collect();
        let patient = |before: &Before| now_ns.saturating_sub(before.since_ns) < PATIENCE_NS;
        self.look_at_earlier_waits(outputs, looked_at, &patient);
    }

    /// Examines all remaining threads when the recording ends. In a short recording or on a busy machine, the
    /// files that their stacks need are still being read.
    pub(super) fn find_last_earlier_waits(&mut self, outputs: &mut dyn Outputs) {
        let end_ns = monotonic_ns().saturating_add(LAST_PATIENCE_NS);
        while !self.before.is_empty() {
            let patient = monotonic_ns() < end_ns;
            let looked_at = std::mem::take(&mut self.before);
            self.look_at_earlier_waits(outputs, looked_at, &|_| patient);
            if !self.before.is_empty() {
                outputs.load_images(LAST_PAUSE);
            }
        }
    }

    /// Examines threads. Those whose stacks need files that are still being read are retained if `patient`
    /// allows it.
    fn look_at_earlier_waits(
        &mut self,
        outputs: &mut dyn Outputs,
        threads: Vec<Before>,
        patient: &dyn Fn(&Before) -> bool,
    ) {
        for before in threads {
            let Before { pid, tid, since_ns, .. } = before;
            if self.intervals.is_out(tid) || !self.tasks.recorded(pid) {
                continue;
            }
            let Some(place) = before.place() else { continue };
            let Ok((id, _)) = outputs.recording_for(pid) else { continue };
            let Some((_, images, rows)) = outputs.parts(id) else { continue };
            let process = self.tasks.process(pid);
            let stack = process.stacks.walk_asleep(pid, place, self.options.depth, images, rows);
            let waits_for_files = stack.truncated.is_some_and(|reason| reason != walk_end::DEPTH)
                && images.outstanding() > 0
                && patient(&before);
            if waits_for_files {
                self.before.push(before);
                continue;
            }
            let name = self.tasks.seen(pid, tid, None);
            let stack = SampledStack::looked(stack);
            let state = thread_polls::read_state(pid, tid);
            self.out(outputs, tid, Out { pid, name, since_ns, state, runnable: false, stack, wake: None });
        }
    }
}
