//! The drain: a separate process that finds recorded processes, reads their rings and writes the recording.

use std::{os::fd::BorrowedFd, path::Path, time::Duration};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

use crate::{
    drain::metrics::Metrics,
    error::Error,
    loss::Report,
    names::allocators::Allocators,
    names::images::Images,
    os::clock::monotonic_ns,
    output::dump::Condition,
    output::exposition::Exposition,
    output::sink::{StreamSink, Target, per_process},
    process::Process,
    process::wall::PollTimer,
    recording::Recording,
    session::Session,
    settings::Settings,
};

mod child_attach;
mod control;
mod cost;
mod dumps;
mod engine_outputs;
mod exit_status;
mod exposition;
mod finish;
mod memory_limits;
pub(crate) mod metrics;
mod off_cpu;
mod output_set;
mod outputs;
mod outside;
mod pacing;
mod process_table;
mod processes;
mod round;
mod startup;
mod user_notices;

use control::Steering;
use cost::Costs;
use dumps::Dumps;
use output_set::OutputSet;
use outside::OutsideEngines;
use pacing::{PAUSE, Pacing};
use process_table::ProcessTable;
use user_notices::UserNotices;

/// How long the drain waits for symbols at the end of a recording.
const SYMBOLS_WAIT: Duration = Duration::from_secs(20);
/// How long a slow reader of the pipe may take to read the rest at the end of a recording.
const READER_WAIT: Duration = Duration::from_secs(60);

/// The drain of a session.
///
/// Each part has its own type; [`Drain`] handles work that concerns several of them. [`Drain::round`] is in
/// `round.rs`.
pub struct Drain {
    session: Session,
    settings: Settings,
    /// Interval at which programs sample CPU time.
    period_ns: u64,
    processes: ProcessTable,
    outside: OutsideEngines,
    outputs: OutputSet,
    symbols: Symbols,
    pacing: Pacing,
    steering: Steering,
    costs: Costs,
    metrics: Metrics,
    exposition: Exposition,
    dumps: Dumps,
    report: Report,
    notices: UserNotices,
}

/// Symbols of the files with code, and the thread that reads them.
struct Symbols {
    images: Images,
    allocators: Allocators,
}

impl Drain {
    /// Creates the session. Opens the output as well, unless each process gets its own.
    pub fn start(mut settings: Settings, target: Target) -> Result<Drain, Error> {
        settings.check()?;
        let on_signal =
            settings.output.dumps.as_ref().is_some_and(|policy| policy.on.contains(&Condition::Signal));
        settings.processes.fatal_signals.get_or_insert(on_signal || matches!(target, Target::Repository(_)));
        let session = Session::create(&settings)?;
        let mut images = Images::new();
        images.without_lines = settings.stacks.addresses;
        let mut drain = Drain {
            period_ns: settings.period_ns(),
            processes: ProcessTable::new(session.dir()),
            outside: OutsideEngines::default(),
            outputs: OutputSet::new(target, settings.output.sync)?,
            symbols: Symbols { images, allocators: Allocators::default() },
            pacing: Pacing::new(settings.wall_ns(), monotonic_ns()),
            exposition: Exposition::open(&settings.metrics.exposition)?,
            costs: Costs::new(&settings, monotonic_ns()),
            steering: Steering::new(&settings, session.dir()),
            metrics: Metrics::new(settings.metrics.interval),
            dumps: Dumps::default(),
            report: Report::default(),
            notices: UserNotices::default(),
            session,
            settings,
        };
        if let Target::Repository(repository) = &drain.outputs.target {
            // A session without this note works; only recovery after a kill misses it.
            let _ = drain.session.note_root(&repository.root);
        }
        if !per_process(&drain.outputs.target) {
            drain.open_recording(0)?;
        }
        Ok(drain)
    }

    /// Returns the settings of the recording.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the session directory, for `FLIGHTLINE_SESSION`.
    pub fn session_dir(&self) -> &Path {
        self.session.dir()
    }

    /// Returns true if a program (C API) or [`Drain::stop_sampling`] requested the end of the recording.
    pub fn is_stop_requested(&self) -> bool {
        self.session.stopped()
    }

    /// Returns true if a process has joined and still runs.
    pub fn records(&self, pid: u32) -> bool {
        self.processes.iter().any(|p| p.file.pid == pid && !p.state.over)
    }

    /// Returns the number of recorded processes that still run.
    pub fn running(&self) -> usize {
        self.processes.live().count() + self.watched() + self.off_cpu_running()
    }

    /// Returns true if a recorded process still runs. Unlike [`Drain::running`], this does not count processes that have ended since the
    /// last round.
    pub fn any_alive(&self) -> bool {
        self.processes.iter().any(|p| !p.state.over && p.file.alive())
            || self.outside.watch.as_ref().is_some_and(|watch| watch.any_alive())
            || self.off_cpu_running() > 0
    }

    /// Returns true if any process was ever recorded.
    pub fn ever_recorded(&self) -> bool {
        self.report.processes > 0
    }

    /// Makes every program stop sampling.
    pub fn stop_sampling(&mut self) {
        self.session.stop();
        self.steering.stopped = true;
    }

    /// Takes the messages to print for the user: children that cannot be recorded, an output that failed.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.notices.take()
    }

    /// Sleeps until there is work, at most for the current pause. A readable descriptor in `wake` ends the
    /// sleep.
    pub fn wait(&mut self, wake: &[BorrowedFd<'_>]) {
        self.wait_at_most(self.pacing.pause, wake);
    }

    /// Like [`Drain::wait`], with an upper limit on the sleep.
    pub fn wait_at_most(&mut self, limit: Duration, wake: &[BorrowedFd<'_>]) {
        let short = self.steering.flush.is_some().then_some(PAUSE[0]);
        let short = short.or(self.outside.starting.is_some().then_some(startup::PAUSE));
        let limit = limit.min(short.unwrap_or(self.pacing.pause)).min(self.outputs.next_flush());
        let pause = self.steering.pause().map_or(limit, |due| due.min(limit));
        let end_ns = monotonic_ns() + pause.as_nanos() as u64;
        while !self.wait_until(wake, self.pacing.wall.next_ns().map_or(end_ns, |next| next.min(end_ns))) {
            let now = monotonic_ns();
            if self.pacing.wall.next_ns().is_some_and(|next| next <= now) {
                self.look_at_threads(now);
            }
            if now >= end_ns {
                return;
            }
        }
    }

    /// Returns true if there is work before `until_ns`. While it waits, writes to streams whose readers
    /// accept more.
    fn wait_until(&mut self, wake: &[BorrowedFd<'_>], until_ns: u64) -> bool {
        let mut fds: Vec<PollFd<'_>> = wake.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        fds.extend(self.processes.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.watch_wakes().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.off_cpu_wakes().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.steering.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let streams = self.outputs.recordings.all().filter_map(Recording::stream).map(StreamSink::wakes);
        let (come, behind): (Vec<_>, Vec<_>) = streams.unzip();
        fds.extend(come.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let news = fds.len();
        fds.extend(behind.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        // An error of ppoll must not turn the caller into a busy loop.
        let Ok(ready) = ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None) else { return true };
        let ready_of = |fds: &[PollFd<'_>]| fds.iter().any(|fd| fd.any().unwrap_or(true));
        let (news, room) = (ready_of(&fds[..news]), ready_of(&fds[news..]));
        if ready > 0 && room && !news {
            drop(fds);
            self.outputs.push();
            return false;
        }
        ready > 0
    }

    /// After a pause or a change of engines: writes the waits up to `now`. What follows starts a new
    /// interval.
    fn change_wall(&mut self, now: u64) {
        let (wall_ns, cpu) = (self.settings.wall_ns(), self.settings.cpu.enabled);
        for process in self.processes.live_mut() {
            let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else { continue };
            finish_waits(process, recording, &mut self.symbols.images, &mut self.session, now);
            match wall_ns {
                Some(wall_ns) => process.watch(wall_ns, cpu),
                None => process.unwatch(),
            }
            if let Some(wall) = &mut process.wall {
                wall.restart(now);
                process.state.begin_wall(now);
            }
        }
        self.pacing.wall = PollTimer::new(wall_ns);
    }

    /// Samples the state of all threads for the wall clock.
    fn look_at_threads(&mut self, now: u64) {
        let mut any = false;
        if !self.steering.stopped && !self.paused() {
            let rows = self.session.rows().words();
            for process in self.processes.live_mut() {
                let Some(recording) = self.outputs.recordings.get_mut(process.state.recording) else {
                    continue;
                };
                if let Some((sampler, mut out)) = process.wall(recording, &mut self.symbols.images, rows, now)
                {
                    any |= sampler.tick(&mut out);
                    self.notices.extend(sampler.notice());
                }
            }
            any |= self.watch_waits(now);
        }
        self.pacing.wall.done(now, any);
    }
}

/// Writes the last wall-clock samples of a process that has ended.
fn finish_waits(
    process: &mut Process,
    recording: &mut Recording,
    images: &mut Images,
    session: &mut Session,
    now: u64,
) {
    if let Some((sampler, mut out)) = process.wall(recording, images, session.rows().words(), now) {
        sampler.finish(&mut out, true);
    }
}
