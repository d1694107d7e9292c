//! The loop of the separate process: finds recorded processes, empties their rings, writes the recording.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flightline_in_signal::layout::proc_state;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
    sys::time::TimeSpec,
};

use crate::{
    drain::metrics::Metrics,
    error::Error,
    loss::Report,
    names::allocators::Allocators,
    names::images::Images,
    os::clock::{monotonic_ns, thread_cpu_ns},
    output::dump::Condition,
    output::exposition::Exposition,
    output::repository::tidy,
    output::sink::{StreamSink, Syncer, Target, per_process},
    process::Process,
    process::wall::PollTimer,
    recording::{Recording, RecordingId, RecordingSlots},
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
mod outputs;

mod outside;
mod processes;
mod startup;

/// Shortest and longest pause between two rounds.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
/// Time between two comparisons of a process's CPU clock with what its threads' samples account for, ns.
const SEARCH_NS: u64 = 90_000_000;
/// Ended processes whose names are remembered.
const GONE: usize = 64;
/// Time for symbols still being read when everything else is done.
const SYMBOLS_WAIT: Duration = Duration::from_secs(20);
/// Time a reader of the pipe gets to take the rest when everything else is done.
const READER_WAIT: Duration = Duration::from_secs(60);

/// The drain of a session.
pub struct Drain {
    session: Session,
    settings: Settings,
    target: Target,
    images: Images,
    allocators: Allocators,
    processes: Vec<Process>,
    /// What is recorded from outside.
    watch: Option<Box<crate::from_outside::attach::Watch>>,
    /// Off-CPU time.
    off_cpu: Option<Box<crate::from_outside::off_cpu::OffCpu>>,
    /// A program that does not sample itself yet.
    starting: Option<startup::Starting>,
    recordings: RecordingSlots,
    inotify: Option<Inotify>,
    seen: HashSet<PathBuf>,
    told_libraries: HashSet<(RecordingId, u64, u32)>,
    told_refusals: HashSet<(String, i32)>,
    metrics: Metrics,
    /// Period with which programs sample CPU time.
    period_ns: u64,
    pause: Duration,
    /// A flush that waits for symbols: its number, and since when.
    flush_asked: Option<(u64, u64)>,
    beat: PollTimer,
    second_ns: u64,
    /// Processes that had joined a second ago.
    joined: u64,
    search_ns: u64,
    tidy_ns: u64,
    /// Journals made so far.
    journals: u64,
    syncer: Option<Arc<Syncer>>,
    report: Report,
    seen_failures: HashSet<RecordingId>,
    notices: Vec<String>,
    /// Programs announced that are not there yet.
    wanted: Vec<child_attach::Wanted>,
    /// Processes recorded from outside that may have children without events, and when to look for these, ns.
    parents: Vec<(u32, u64)>,
    notice_seq: std::collections::HashMap<PathBuf, u32>,
    stopped: bool,
    steering: control::Steering,
    costs: cost::Costs,
    exposition: Exposition,
    dumps: dumps::Dumps,
    killed: Option<exit_status::Killed>,
    /// Names of processes that ended lately, by id.
    gone: VecDeque<(u32, String)>,
}

impl Drain {
    /// Makes the session and, unless each process gets its own, opens the output.
    pub fn start(mut settings: Settings, target: Target) -> Result<Drain, Error> {
        settings.check()?;
        let asked = settings.dumps.as_ref().is_some_and(|policy| policy.on.contains(&Condition::Signal));
        settings.fatal_signals.get_or_insert(asked || matches!(target, Target::Repository(_)));
        let session = Session::create(&settings)?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let inotify = inotify.filter(|i| {
            let calls = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ATTRIB;
            i.add_watch(session.dir(), calls).is_ok()
        });
        let beat = PollTimer::new(settings.wall_ns());
        let metrics = Metrics::new(settings.metrics);
        let period_ns = settings.period_ns();
        let syncer = settings.sync.then(Syncer::start).transpose();
        let syncer = syncer.map_err(|e| Error::io("start", Path::new("a thread"), e))?.map(Arc::new);
        let exposition = Exposition::open(&settings.exposition)?;
        let costs = cost::Costs::new(&settings, monotonic_ns());
        let steering = control::Steering::new(&settings, session.dir());
        let mut images = Images::new();
        images.without_lines = settings.addresses;
        let mut drain = Drain {
            session,
            settings,
            target,
            images,
            allocators: Allocators::default(),
            processes: Vec::new(),
            watch: None,
            off_cpu: None,
            starting: None,
            recordings: RecordingSlots::default(),
            inotify,
            seen: HashSet::new(),
            told_libraries: HashSet::new(),
            told_refusals: HashSet::new(),
            metrics,
            period_ns,
            pause: PAUSE[0],
            flush_asked: None,
            beat,
            second_ns: monotonic_ns(),
            joined: 0,
            search_ns: 0,
            tidy_ns: 0,
            journals: 0,
            syncer,
            report: Report::default(),
            seen_failures: HashSet::new(),
            notices: Vec::new(),
            wanted: Vec::new(),
            parents: Vec::new(),
            notice_seq: std::collections::HashMap::new(),
            stopped: false,
            steering,
            costs,
            exposition,
            dumps: dumps::Dumps::default(),
            killed: None,
            gone: VecDeque::new(),
        };
        if let Target::Repository(repository) = &drain.target {
            // Without it everything else works.
            let _ = drain.session.note_root(&repository.root);
        }
        if !per_process(&drain.target) {
            drain.open_recording(0)?;
        }
        Ok(drain)
    }

    /// What is recorded.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The session directory, for `FLIGHTLINE_SESSION`.
    pub fn session_dir(&self) -> &Path {
        self.session.dir()
    }

    /// Whether something asked for the end: a program by the C API, or [`Drain::stop_sampling`].
    pub fn is_stop_requested(&self) -> bool {
        self.session.stopped()
    }

    /// Whether a process has joined and still runs.
    pub fn records(&self, pid: u32) -> bool {
        self.processes.iter().any(|p| p.file.pid == pid && !p.book.over)
    }

    /// Recorded processes that still run.
    pub fn running(&self) -> usize {
        self.processes.iter().filter(|p| !p.book.over).count() + self.watched() + self.off_cpu_running()
    }

    /// Returns true if a recorded process still runs. Unlike [`Drain::running`], this does not count processes that have ended since the
    /// last round.
    pub fn any_alive(&self) -> bool {
        self.processes.iter().any(|p| !p.book.over && p.file.alive())
            || self.watch.as_ref().is_some_and(|watch| watch.any_alive())
            || self.off_cpu_running() > 0
    }

    /// Processes that were recorded at all.
    pub fn ever_recorded(&self) -> bool {
        self.report.processes > 0
    }

    /// Tells every program to stop sampling.
    pub fn stop_sampling(&mut self) {
        self.session.stop();
        self.stopped = true;
    }

    /// What there is to tell the user at once: children that cannot be recorded, an output that failed.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Sleeps until there is something to do, at most the present pause; `wake` ends it early.
    pub fn wait(&mut self, wake: &[BorrowedFd<'_>]) {
        self.wait_at_most(self.pause, wake);
    }

    /// The same with a shorter limit.
    pub fn wait_at_most(&mut self, limit: Duration, wake: &[BorrowedFd<'_>]) {
        let short = self.flush_asked.is_some().then_some(PAUSE[0]);
        let short = short.or(self.starting.is_some().then_some(startup::PAUSE));
        let limit = limit.min(short.unwrap_or(self.pause)).min(self.next_flush());
        let pause = self.steering.pause().map_or(limit, |due| due.min(limit));
        let end_ns = monotonic_ns() + pause.as_nanos() as u64;
        while !self.wait_until(wake, self.beat.next_ns().map_or(end_ns, |next| next.min(end_ns))) {
            let now = monotonic_ns();
            if self.beat.next_ns().is_some_and(|next| next <= now) {
                self.look_at_threads(now);
            }
            if now >= end_ns {
                return;
            }
        }
    }

    /// `true` if something happened before `until_ns`. Readers of streams that take more get it meanwhile.
    fn wait_until(&mut self, wake: &[BorrowedFd<'_>], until_ns: u64) -> bool {
        let mut fds: Vec<PollFd<'_>> = wake.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        if let Some(inotify) = &self.inotify {
            fds.push(PollFd::new(inotify.as_fd(), PollFlags::POLLIN));
        }
        let ends = self.processes.iter().filter(|p| !p.book.over).filter_map(|p| p.file.pidfd());
        fds.extend(ends.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.watch_wakes().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.off_cpu_wakes().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.steering.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let streams = self.recordings.all().filter_map(Recording::stream).map(StreamSink::wakes);
        let (come, behind): (Vec<_>, Vec<_>) = streams.unzip();
        fds.extend(come.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let news = fds.len();
        fds.extend(behind.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        // Whatever goes wrong with waiting must not make a loop of it without pause.
        let Ok(ready) = ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None) else { return true };
        let ready_of = |fds: &[PollFd<'_>]| fds.iter().any(|fd| fd.any().unwrap_or(true));
        let (news, room) = (ready_of(&fds[..news]), ready_of(&fds[news..]));
        if ready > 0 && room && !news {
            drop(fds);
            self.push_all();
            return false;
        }
        ready > 0
    }

    /// After a pause or a change of engines: tells the waits up to now; what is recorded from now on begins here.
    fn change_wall(&mut self, now: u64) {
        let (wall_ns, cpu) = (self.settings.wall_ns(), self.settings.cpu);
        for process in self.processes.iter_mut().filter(|p| !p.book.over) {
            let Some(recording) = self.recordings.get_mut(process.book.recording) else { continue };
            finish_waits(process, recording, &mut self.images, &mut self.session, now);
            match wall_ns {
                Some(wall_ns) => process.watch(wall_ns, cpu),
                None => process.unwatch(),
            }
            if let Some(wall) = &mut process.wall {
                wall.restart(now);
                process.book.begin_wall(now);
            }
        }
        self.beat = PollTimer::new(wall_ns);
    }

    /// Lets the wall clock look at the threads of all processes.
    fn look_at_threads(&mut self, now: u64) {
        let mut any = false;
        if !self.stopped && !self.paused() {
            let rows = self.session.rows().words();
            for process in self.processes.iter_mut().filter(|p| !p.book.over) {
                let Some(recording) = self.recordings.get_mut(process.book.recording) else { continue };
                if let Some((sampler, mut out)) = process.wall(recording, &mut self.images, rows, now) {
                    any |= sampler.tick(&mut out);
                    self.notices.extend(sampler.notice());
                }
            }
            any |= self.watch_waits(now);
        }
        self.beat.done(now, any);
    }

    /// One round.
    pub fn round(&mut self) {
        // First: the time of what is flushed below is later than the asking.
        self.note_flush();
        let now = monotonic_ns();
        self.steer();
        self.find_processes(now);
        self.hand_over(now);
        // Before processes that are over are let go with their threads.
        let off_cpu = self.off_cpu_round(now);
        let fill = self.drain_all(now).max(self.watch_round(now)).max(off_cpu);
        self.costs.ring_peak = self.costs.ring_peak.max(fill);
        self.adapt(fill);
        for index in 0..self.processes.len() {
            self.note_at(index);
        }
        self.reach(now);
        let begun_ns = thread_cpu_ns();
        let loaded = self.images.take_loaded(self.session.rows(), Duration::ZERO);
        self.costs.loading_ns += thread_cpu_ns().saturating_sub(begun_ns);
        if loaded || self.processes.iter().any(|p| p.book.has_news()) {
            self.resolve_all(false);
        }
        if now.saturating_sub(self.search_ns) >= SEARCH_NS {
            self.search_ns = now;
            // Programs that join, names of code made at run time.
            self.off_cpu_resolve(false);
            let period = self.period_ns;
            for process in self.processes.iter_mut().filter(|p| !p.book.over) {
                process.book.threads.search_blocked(&process.file, period, false);
            }
        }
        if now.saturating_sub(self.second_ns) >= 1_000_000_000 {
            self.second_ns = now;
            self.each_second();
        }
        if self.metrics.due(now) {
            let outside = self.watch.as_ref().map_or_else(Vec::new, |watch| watch.processes());
            self.metrics.read(&mut self.processes, &outside, &mut self.recordings, now);
        }
        let flushed = self.may_flush(now);
        for id in self.recordings.ids() {
            self.write_recording(id, flushed.is_some(), now);
        }
        if let Some(number) = flushed {
            self.report.flushes_done = number;
            self.session.flush_done(number);
            self.flush_asked = None;
            // Who asks once asks again.
            self.pause = PAUSE[0];
        }
        self.dump_round(now);
        self.note_failures();
    }

    /// Writes what is due of a recording; all that is queued if a client requested a flush.
    fn write_recording(&mut self, id: RecordingId, flush_requested: bool, now: u64) {
        let Some(recording) = self.recordings.get_mut(id) else { return };
        if let Some(message) = recording.retry(now) {
            recording.notice(&message, now);
            self.seen_failures.remove(&id);
            if self.seen_failures.is_empty() {
                self.notices.push(message);
            }
        }
        self.repeat_info_events(id, now);
        let Some(recording) = self.recordings.get_mut(id) else { return };
        if flush_requested {
            recording.write_sums(now);
            recording.mark_flush();
        }
        if flush_requested || recording.flush_due(now) {
            self.flush(id, now);
        }
        if let Some(recording) = self.recordings.get_mut(id) {
            recording.settle(now);
            recording.push();
        }
        // At once: the process may have ended by the next round.
        self.repeat_info_events(id, now);
    }

    /// Rings that fill up are looked at more often, empty ones less.
    fn adapt(&mut self, fill: u32) {
        self.pause = match fill {
            64.. => PAUSE[0],
            24.. => self.pause / 2,
            0..8 => self.pause * 2,
            _ => self.pause,
        }
        .clamp(PAUSE[0], self.longest_pause());
    }

    fn drain_all(&mut self, now: u64) -> u32 {
        let mut fill = 0;
        for process in &mut self.processes {
            if process.book.over {
                continue;
            }
            let Some(recording) = self.recordings.get_mut(process.book.recording) else { continue };
            // First whether it lives, then the ring: what it wrote last is in there.
            // A process that is not ours by its map may be ours while it ends or after it executed another image.
            let dead = !process.file.alive();
            let dead = dead || process.file.state() == proc_state::EXITED && !process.file.trusted_pid();
            // Before: modules loaded since the last round have samples already. After: addresses that were unknown.
            process.refresh_modules(&mut self.images, now);
            fill = fill.max(process.drain(recording, &mut self.images, now, self.stopped));
            process.refresh_modules(&mut self.images, now);
            if dead {
                process.close(recording, &mut self.images, now, self.stopped);
                finish_waits(process, recording, &mut self.images, &mut self.session, now);
            }
        }
        self.remove_settled(now);
        fill
    }

    fn resolve_all(&mut self, anyway: bool) {
        for process in &mut self.processes {
            if process.book.waiting() > 0 {
                let Some(recording) = self.recordings.get_mut(process.book.recording) else { continue };
                let begun_ns = thread_cpu_ns();
                process.resolve_pending(recording, &mut self.images, anyway);
                process.book.reading_ns += thread_cpu_ns().saturating_sub(begun_ns);
            }
        }
        self.watch_resolve(anyway);
        self.off_cpu_resolve(anyway);
    }

    fn each_second(&mut self) {
        self.note_rate();
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if !process.book.over {
                process.book.threads.look(&process.file);
                process.book.threads.search_blocked(&process.file, self.period_ns, true);
                self.report.engine(process.file.engine());
                if self.settings.live {
                    let every_ns = u64::try_from(self.settings.live_interval.as_nanos()).unwrap_or(u64::MAX);
                    process.book.record_alive(process.file.start_mono_ns, every_ns, monotonic_ns());
                }
            }
        }
        let now = monotonic_ns();
        self.report_direct_calls(now);
        self.watch_second(now);
        self.off_cpu_second();
        self.keep_budget(now);
        self.expose(false);
        self.dump_triggers(now);
        self.trim();
        self.count_processes(now);
        self.retire();
        if let Target::Repository(repository) = &self.target
            && now.saturating_sub(self.tidy_ns) >= repository.tidy_ns()
        {
            self.tidy_ns = now;
            tidy(repository);
        }
    }
}

/// Tells what the wall clock still has to say of a process that is over.
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
