//! Startup samples: a program is sampled from outside until it samples itself: see
//! [`crate::from_outside::attach::startup`].

use std::time::Duration;

use super::Drain;
use crate::{
    from_outside::attach::startup::Startup, os::clock::monotonic_ns,
    process::pre_registration_samples::Before, remote_unwinder::RemoteUnwinder, settings::Engine,
};

/// How long to wait for a program to sample itself, ns.
const WAIT_NS: u64 = 5_000_000_000;
/// Pause between two rounds while waiting for it.
pub(super) const PAUSE: Duration = Duration::from_millis(4);
/// How often to wait 10 ms for the unwind tables of a program that has ended.
const ROUNDS: usize = 50;

/// The program that was just started.
pub(super) struct Starting {
    startup: Startup,
    until_ns: u64,
}

impl Drain {
    /// Prepares to sample a program that the calling thread is about to start and that will sample its CPU
    /// time itself.
    pub fn expect_program(&mut self) -> Option<Startup> {
        let by_perf = matches!(self.settings.cpu.engine, Engine::Auto | Engine::Perf | Engine::PerfUser);
        let needed = self.settings.cpu.enabled && by_perf && !self.paused();
        needed.then(|| Startup::open(self.period_ns))?
    }

    /// Notes the PID of the program that was started.
    pub fn program_started(&mut self, startup: Option<Startup>, pid: u32) {
        self.outside.starting = startup.map(|mut startup| {
            startup.pid = pid;
            Starting { startup, until_ns: monotonic_ns() + WAIT_NS }
        });
    }

    /// If the program samples itself by now, adds its startup samples to its totals.
    pub(super) fn hand_over(&mut self, now: u64) {
        let Some(starting) = &mut self.outside.starting else { return };
        starting.startup.read();
        let pid = starting.startup.pid;
        let process = self.processes.iter_mut().find(|p| p.file.pid == pid && !p.state.over);
        let begun = process.and_then(|process| Some((process.begun_ns(pid)?, process)));
        let Some(((index, begun_ns), process)) = begun else {
            if now > starting.until_ns || self.steering.stopped {
                self.outside.starting = None;
            }
            return;
        };
        let Some(starting) = self.outside.starting.take() else { return };
        let samples = starting.startup.end(begun_ns);
        process.refresh_modules(&mut self.symbols.images, now);
        let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else { return };
        let mut before = Before::new(process, index);
        let mut walker = RemoteUnwinder::new();
        let (mut rounds, depth) = (ROUNDS, self.settings.stacks.depth as usize);
        for early in &samples {
            loop {
                let rows = self.session.rows().words();
                let whole = before.walk(process, &mut walker, early, &mut self.symbols.images, rows, depth);
                // While the program runs, its mapped unwind information serves as well.
                if whole || rounds == 0 || process.file.alive() || self.symbols.images.outstanding() == 0 {
                    break;
                }
                rounds -= 1;
                self.symbols.images.take_loaded(self.session.rows(), Duration::from_millis(10));
            }
            before.book(process, early, recording, &mut self.symbols.images);
        }
    }
}
