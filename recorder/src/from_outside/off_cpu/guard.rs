//! What the recording of switches may cost is bounded: where threads are switched more often than asked for, nothing is looked at
//! for the rest of each tenth of a second, and what passes meanwhile is counted. What sleeps through such a pause is not lost: the
//! scheduler's own account says that the thread did not run in it.

use std::collections::HashMap;

use super::{OffCpu, ledger::Cause, open};
use crate::{from_outside::outputs::Outputs, os::clock::monotonic_ns, process::wall::schedstat::Files};

/// Time in which so many switches are looked at as may be, ns.
const WINDOW_NS: u64 = 100_000_000;
/// Threads whose account is asked at most, before and after a pause.
const MANY: usize = 512;

/// How many switches are looked at.
#[derive(Debug, Default)]
pub struct Guard {
    /// At most in a window; 0: any number.
    most: u64,
    began_ns: u64,
    taken: u64,
    /// Nothing is looked at, and how often threads had run when that began.
    held: Option<HashMap<u32, u64>>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Hold,
    Release,
}

impl Guard {
    /// So many switches a second; 0: any number.
    pub fn new(rate: u32) -> Guard {
        let most = u64::from(rate) * WINDOW_NS / 1_000_000_000;
        Guard { most: if rate == 0 { 0 } else { most.max(1) }, ..Guard::default() }
    }

    /// A sample was looked at.
    pub fn took(&mut self) {
        self.taken += 1;
    }

    /// Whether nothing is looked at now.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    fn step(&mut self, now_ns: u64) -> Step {
        let over = now_ns.saturating_sub(self.began_ns) >= WINDOW_NS;
        if over {
            self.began_ns = now_ns;
            self.taken = 0;
        }
        match (self.held.is_some(), over) {
            (true, true) => Step::Release,
            (false, false) if self.most > 0 && self.taken > self.most => Step::Hold,
            _ => Step::Nothing,
        }
    }
}

/// How often a thread was put on a processor.
fn slices(pid: u32, tid: u32) -> Option<u64> {
    Files::open(pid, tid).and_then(|files| files.schedstat()).ok().map(|stat| stat.slices)
}

impl OffCpu {
    /// Once a round.
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
        // First: whoever is still out when all is read has not run since.
        let asked: Vec<(u32, u32)> = match self.kernel.points {
            Some(_) => {
                let asleep = self.intervals.all_out().filter(|(_, out)| !out.runnable);
                asleep.map(|(tid, out)| (out.pid, tid)).take(MANY).collect()
            }
            // There is nothing else to count by.
            None => self.tasks.recorded_pairs().take(MANY).collect(),
        };
        let ran = asked.into_iter().filter_map(|(pid, tid)| Some((tid, slices(pid, tid)?))).collect();
        let blind_ns = monotonic_ns();
        open::stop_and_count(&self.kernel.sources);
        self.read(outputs, u64::MAX);
        self.io_blind(outputs, Cause::CallGuard, blind_ns);
        self.guard.held = Some(ran);
    }

    /// Looks again.
    pub(super) fn release(&mut self, outputs: &mut dyn Outputs, now_ns: u64) {
        let Some(ran) = self.guard.held.take() else { return };
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
    fn windows() {
        let mut guard = Guard::new(30);
        assert_eq!(guard.step(WINDOW_NS), Step::Nothing, "a window begins");
        for _ in 0..3 {
            guard.took();
            assert_eq!(guard.step(WINDOW_NS + 1), Step::Nothing);
        }
        guard.took();
        assert_eq!(guard.step(WINDOW_NS + 2), Step::Hold);
        guard.held = Some(HashMap::new());
        assert_eq!(guard.step(2 * WINDOW_NS - 1), Step::Nothing);
        assert_eq!(guard.step(2 * WINDOW_NS), Step::Release);
        guard.held = None;
        assert_eq!(guard.step(2 * WINDOW_NS + 1), Step::Nothing);
        let mut any = Guard::new(0);
        (0..1000).for_each(|_| any.took());
        assert_eq!(any.step(0), Step::Nothing);
    }

    #[test]
    fn thread_accounts_count_slices() {
        let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw() as u32);
        let before = slices(pid, tid).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(slices(pid, tid).unwrap() > before);
        assert_eq!(slices(u32::MAX, 1), None);
    }
}
