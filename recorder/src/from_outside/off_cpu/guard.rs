//! Limits the cost of recording switches. If there are more switches than the limit, recording stops for the
//! rest of each tenth of a second, and the skipped switches are counted. Waits that span such a pause are not
//! lost: the scheduler's statistics show that the thread did not run in it.

use std::collections::HashMap;

use super::{OffCpu, ledger::Cause, open};
use crate::{from_outside::outputs::Outputs, os::clock::monotonic_ns, process::wall::schedstat::Files};

/// The window to which the limit applies, ns.
const WINDOW_NS: u64 = 100_000_000;
/// Limit of threads whose statistics are read before and after a pause.
const MANY: usize = 512;

/// Counts the switches in a window.
#[derive(Debug, Default)]
pub struct Guard {
    /// Limit per window; 0: unlimited.
    most: u64,
    began_ns: u64,
    samples: u64,
    /// If recording is held back: how often threads had run at the start of the pause.
    run_counts: Option<HashMap<u32, u64>>,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Hold,
    Release,
}

impl Guard {
    /// Returns a guard with a limit of switches per second; 0: unlimited.
    pub fn new(rate: u32) -> Guard {
        let most = u64::from(rate) * WINDOW_NS / 1_000_000_000;
        Guard { most: if rate == 0 { 0 } else { most.max(1) }, ..Guard::default() }
    }

    /// Counts a sample.
    pub fn took(&mut self) {
        self.samples += 1;
    }

    /// Returns true if recording is held back now.
    pub fn holds(&self) -> bool {
        self.run_counts.is_some()
    }

    fn step(&mut self, now_ns: u64) -> Step {
        let over = now_ns.saturating_sub(self.began_ns) >= WINDOW_NS;
        if over {
            self.began_ns = now_ns;
            self.samples = 0;
        }
        match (self.run_counts.is_some(), over) {
            (true, true) => Step::Release,
            (false, false) if self.most > 0 && self.samples > self.most => Step::Hold,
            _ => Step::Nothing,
        }
    }
}

/// Returns how often a thread was put on a processor.
fn slices(pid: u32, tid: u32) -> Option<u64> {
    Files::open(pid, tid).and_then(|files| files.schedstat()).ok().map(|stat| stat.slices)
}

impl OffCpu {
    /// Applies the limit once per round.
    pub(super) fn guard(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        if self.stopped || self.paused {
            return;
        }
        match self.guard.step(now_ns) {
            Step::Nothing => {}
            Step::Hold => self.hold(outputs),
            Step::Release => self.release(outputs, now_ns),
        }
    }

    fn hold(&mut self, outputs: &mut dyn Outputs) {
        // Read the statistics first: a thread that is still off CPU after the rings are read has not run
        // since.
        let asked: Vec<(u32, u32)> = match self.kernel.points {
            Some(_) => {
                let asleep = self.intervals.all_out().filter(|(_, out)| !out.runnable);
                asleep.map(|(tid, out)| (out.pid, tid)).take(MANY).collect()
            }
            // Without tracepoints, there is no other way to count switches.
            None => self.tasks.recorded_pairs().take(MANY).collect(),
        };
        let ran = asked.into_iter().filter_map(|(pid, tid)| Some((tid, slices(pid, tid)?))).collect();
        let blind_ns = monotonic_ns();
        open::stop_and_count(&self.kernel.sources);
        self.read(outputs, u64::MAX);
        self.io_blind(outputs, Cause::CallGuard, blind_ns);
        self.guard.run_counts = Some(ran);
    }

    /// Resumes recording.
    pub(super) fn release(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let Some(ran) = self.guard.run_counts.take() else { return };
        let counted = open::resume_and_counted(&self.kernel.sources);
        let mut by_account = 0;
        let mut awake = Vec::new();
        for (tid, before) in &ran {
            let now = self.tasks.process_id(*tid).and_then(|pid| slices(pid, *tid));
            by_account += now.map_or(0, |now| now.saturating_sub(*before));
            if now != Some(*before) {
                awake.push(*tid);
            }
        }
        let slept = |tid: u32| ran.contains_key(&tid) && !awake.contains(&tid);
        let gone: Vec<u32> =
            self.intervals.all_out().map(|(tid, _)| tid).filter(|tid| !slept(*tid)).collect();
        for tid in gone {
            if let Some(out) = self.intervals.ended(tid) {
                self.lose(outputs, out.pid, Cause::Guard, now_ns.saturating_sub(out.since_ns));
            }
        }
        self.ledger.hold_back(counted.unwrap_or(by_account));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_records_are_held_until_next_window() {
        let mut guard = Guard::new(30);
        assert_eq!(guard.step(WINDOW_NS), Step::Nothing, "a window begins");
        for _ in 0..3 {
            guard.took();
            assert_eq!(guard.step(WINDOW_NS + 1), Step::Nothing);
        }
        guard.took();
        assert_eq!(guard.step(WINDOW_NS + 2), Step::Hold);
        guard.run_counts = Some(HashMap::new());
        assert_eq!(guard.step(2 * WINDOW_NS - 1), Step::Nothing);
        assert_eq!(guard.step(2 * WINDOW_NS), Step::Release);
        guard.run_counts = None;
        assert_eq!(guard.step(2 * WINDOW_NS + 1), Step::Nothing);
        let mut any = Guard::new(0);
        (0..1000).for_each(|_| any.took());
        assert_eq!(any.step(0), Step::Nothing);
    }

    #[test]
    fn thread_schedstat_counts_slices() {
        let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw() as u32);
        let before = slices(pid, tid).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(slices(pid, tid).unwrap() > before);
        assert_eq!(slices(u32::MAX, 1), None);
    }
}
