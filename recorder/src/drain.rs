//! The loop of the separate process: finds recorded processes, empties their rings, writes the recording.

use std::{
    collections::HashSet,
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use flightline_in_signal::layout::{PROC_SUFFIX, proc_state};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};

use crate::{
    clock::monotonic_ns,
    error::Error,
    images::Images,
    loss::{Report, unrecorded},
    proc_file::ProcFile,
    process::Process,
    recording::Recording,
    session::Session,
    settings::Settings,
    sink::{Target, per_process},
    system::Load,
    tell,
    threads::Account,
};

/// Shortest and longest pause between two rounds.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
/// Time between two comparisons of a process's CPU clock with what its threads' samples account for, ns.
const SEARCH_NS: u64 = 90_000_000;
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
    processes: Vec<Process>,
    recordings: Vec<(u32, Recording)>,
    inotify: Option<Inotify>,
    seen: HashSet<PathBuf>,
    told_libraries: HashSet<(usize, u64, u32)>,
    load: Load,
    pause: Duration,
    second_ns: u64,
    search_ns: u64,
    report: Report,
    seen_failures: HashSet<usize>,
    notices: Vec<String>,
    notice_seq: std::collections::HashMap<PathBuf, u32>,
    stopped: bool,
}

impl Drain {
    /// Makes the session and, unless each process gets its own, opens the output.
    pub fn start(settings: Settings, target: Target) -> Result<Drain, Error> {
        settings.check()?;
        let session = Session::create(&settings)?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let inotify = inotify.filter(|i| i.add_watch(session.dir(), AddWatchFlags::IN_MOVED_TO).is_ok());
        let mut drain = Drain {
            session,
            settings,
            target,
            images: Images::new(),
            processes: Vec::new(),
            recordings: Vec::new(),
            inotify,
            seen: HashSet::new(),
            told_libraries: HashSet::new(),
            load: Load::default(),
            pause: PAUSE[0],
            second_ns: monotonic_ns(),
            search_ns: 0,
            report: Report::default(),
            seen_failures: HashSet::new(),
            notices: Vec::new(),
            notice_seq: std::collections::HashMap::new(),
            stopped: false,
        };
        if !per_process(&drain.target) {
            drain.open_recording(0)?;
        }
        Ok(drain)
    }

    /// The session directory, for `FLIGHTLINE_SESSION`.
    pub fn session_dir(&self) -> &Path {
        self.session.dir()
    }

    /// Whether something asked for the end: a program by the C API, or [`Drain::stop_sampling`].
    pub fn stop_wanted(&self) -> bool {
        self.session.stopped()
    }

    /// Recorded processes that still run.
    pub fn running(&self) -> usize {
        self.processes.iter().filter(|p| !p.book.over).count()
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

    fn open_recording(&mut self, pid: u32) -> Result<usize, Error> {
        if let Some(index) = self.recordings.iter().position(|(p, _)| *p == pid) {
            return Ok(index);
        }
        let mut recording = Recording::open(&self.target, pid, &self.settings)?;
        tell::setting(&mut recording, &self.settings, monotonic_ns());
        self.recordings.push((pid, recording));
        Ok(self.recordings.len() - 1)
    }

    /// Sleeps until there is something to do, at most the present pause; `wake` ends it early.
    pub fn wait(&self, wake: &[BorrowedFd<'_>]) {
        let mut fds: Vec<PollFd<'_>> = wake.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        if let Some(inotify) = &self.inotify {
            fds.push(PollFd::new(inotify.as_fd(), PollFlags::POLLIN));
        }
        let ends = self.processes.iter().filter(|p| !p.book.over).filter_map(|p| p.file.pidfd());
        fds.extend(ends.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let millis = u16::try_from(self.pause.as_millis()).unwrap_or(u16::MAX);
        let _ = poll(&mut fds, PollTimeout::from(millis));
    }

    /// One round.
    pub fn round(&mut self) {
        let now = monotonic_ns();
        self.find_processes(now);
        let fill = self.drain_all(now);
        self.adapt(fill);
        if self.images.take_loaded(self.session.rows(), Duration::ZERO) {
            self.resolve_all(false);
        }
        if now.saturating_sub(self.search_ns) >= SEARCH_NS {
            self.search_ns = now;
            let period = self.settings.period_ns();
            for process in self.processes.iter_mut().filter(|p| !p.book.over) {
                process.book.threads.search_blocked(&process.file, period, false);
            }
        }
        if now.saturating_sub(self.second_ns) >= 1_000_000_000 {
            self.second_ns = now;
            self.each_second(now);
        }
        let wanted = self.session.flush_wanted();
        let flush = wanted != self.report.flushes_done;
        for index in 0..self.recordings.len() {
            if flush || self.recordings[index].1.flush_due(now) {
                self.flush(index, now);
            }
            let recording = &mut self.recordings[index].1;
            recording.settle(now);
            recording.push();
        }
        if flush {
            self.report.flushes_done = wanted;
            self.session.flush_done(wanted);
        }
        self.note_failures();
    }

    /// Rings that fill up are looked at more often, empty ones less.
    fn adapt(&mut self, fill: u32) {
        self.pause = match fill {
            64.. => PAUSE[0],
            24.. => self.pause / 2,
            0..8 => self.pause * 2,
            _ => self.pause,
        }
        .clamp(PAUSE[0], PAUSE[1]);
    }

    fn find_processes(&mut self, now: u64) {
        if let Some(inotify) = &self.inotify {
            match inotify.read_events() {
                Ok(events) if !events.is_empty() => {}
                _ if !self.seen.is_empty() && !self.stopped => return,
                _ => {}
            }
        }
        let Ok(entries) = fs::read_dir(self.session.dir()) else { return };
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.to_str().is_some_and(|n| n.ends_with(PROC_SUFFIX)) && !self.seen.contains(p))
            .collect();
        paths.sort_by_key(|p| order(p));
        for path in paths {
            self.seen.insert(path.clone());
            match ProcFile::open(&path) {
                Ok(file) => self.add_process(file, now),
                Err(error) => self.notices.push(error.to_string()),
            }
        }
    }

    fn add_process(&mut self, file: ProcFile, now: u64) {
        let pid = if per_process(&self.target) { file.pid } else { 0 };
        let index = match self.open_recording(pid) {
            Ok(index) => index,
            Err(error) => return self.notices.push(error.to_string()),
        };
        let recording = &mut self.recordings[index].1;
        let name = called(&file);
        let group = recording.add_group(format!("{name} ({})", file.pid));
        let mut process = Process::new(file, index, group, self.settings.period_ns());
        process.book.threads.resume(self.end_image(process.file.pid, now));
        let recording = &mut self.recordings[index].1;
        process.refresh_modules(&mut self.images, now);
        tell::process(recording, &process, self.settings.redact_args, now);
        self.report.processes += 1;
        self.report.engine(process.file.engine());
        self.processes.push(process);
    }

    fn drain_all(&mut self, now: u64) -> u32 {
        let mut fill = 0;
        for process in &mut self.processes {
            if process.book.over {
                continue;
            }
            let recording = &mut self.recordings[process.book.recording].1;
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
            }
        }
        self.remove_settled(now);
        fill
    }

    /// After exec the same pid writes a new file: the old one gets nothing any more. Returns the account of the
    /// thread that goes on in the new image.
    fn end_image(&mut self, pid: u32, now: u64) -> Option<(u32, Box<Account>)> {
        let process = self.processes.iter_mut().rev().find(|p| p.file.pid == pid && !p.book.over)?;
        let recording = &mut self.recordings[process.book.recording].1;
        process.close_image(recording, &mut self.images, now);
        // Tell what is known by now: the account goes on from there.
        tell::threads(recording, process, now);
        process.book.threads.take_account(pid)
    }

    fn remove_settled(&mut self, now: u64) {
        let mut i = 0;
        while i < self.processes.len() {
            if !self.processes[i].settled() {
                i += 1;
                continue;
            }
            let mut process = self.processes.remove(i);
            let recording = &mut self.recordings[process.book.recording].1;
            libraries(&process, recording, &self.images, &mut self.told_libraries, now);
            tell::threads(recording, &mut process, now);
            self.note(&process);
            self.report.engine(process.file.engine());
            self.report.add(&process);
            let _ = fs::remove_file(&process.file.path);
        }
    }

    fn resolve_all(&mut self, anyway: bool) {
        for process in &mut self.processes {
            if process.book.waiting() > 0 {
                let recording = &mut self.recordings[process.book.recording].1;
                process.resolve_pending(recording, &mut self.images, anyway);
            }
        }
    }

    fn each_second(&mut self, now: u64) {
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if !process.book.over {
                process.book.threads.look(&process.file);
                process.book.threads.search_blocked(&process.file, self.settings.period_ns(), true);
                self.report.engine(process.file.engine());
            }
            self.note_at(i);
        }
        let pids = self.processes.iter().filter(|p| !p.book.over).map(|p| p.file.pid);
        if let Some(load) = self.load.look(pids, now) {
            for (_, recording) in self.recordings.iter_mut().filter(|(_, r)| !r.full()) {
                tell::load(recording, load, now);
            }
        }
    }

    fn note_at(&mut self, index: usize) {
        let process = &self.processes[index];
        let (seq, path, reason) = process.file.notice();
        let old = self.notice_seq.insert(process.file.path.clone(), seq).unwrap_or(0);
        if seq != old {
            let message = unrecorded(&path, reason, process.file.pid);
            let recording = &mut self.recordings[process.book.recording].1;
            tell::notice(recording, &message, monotonic_ns());
            self.notices.push(message);
        }
    }

    fn note(&mut self, process: &Process) {
        let (seq, path, reason) = process.file.notice();
        let old = self.notice_seq.remove(&process.file.path).unwrap_or(0);
        if seq != old {
            let message = unrecorded(&path, reason, process.file.pid);
            let recording = &mut self.recordings[process.book.recording].1;
            tell::notice(recording, &message, monotonic_ns());
            self.notices.push(message);
        }
        if process.book.damaged {
            let message =
                format!("process {} damaged its shared memory; its later samples are lost", process.file.pid);
            self.notices.push(message);
        }
    }

    fn note_failures(&mut self) {
        for (index, (_, recording)) in self.recordings.iter().enumerate() {
            if let Some(reason) = recording.failure()
                && self.seen_failures.insert(index)
            {
                self.notices.push(format!("{reason}; recording stopped, the program runs on"));
            }
        }
        // With no output left there is nothing to sample for.
        if !self.recordings.is_empty() && self.seen_failures.len() == self.recordings.len() && !self.stopped {
            self.stop_sampling();
        }
    }

    /// Writes the accounts and whatever is queued.
    fn flush(&mut self, index: usize, now: u64) {
        // While a reader is too far behind not even accounts are written: they carry totals, nothing is lost by waiting.
        if self.recordings[index].1.full() {
            return;
        }
        for process in self.processes.iter_mut().filter(|p| p.book.recording == index) {
            let recording = &mut self.recordings[index].1;
            if !process.book.over {
                process.book.threads.read_slots(&process.file, self.settings.period_ns());
            }
            libraries(process, recording, &self.images, &mut self.told_libraries, now);
            tell::threads(recording, process, now);
            if process.book.waiting() == 0 {
                for thread in process.book.threads.list.iter().filter(|t| t.told.end) {
                    self.report.add_thread(thread);
                }
                process.book.threads.forget_told();
            }
        }
        self.recordings[index].1.flush(now);
    }

    /// Ends everything: rings read for the last time, symbols waited for, chunks closed, directory removed.
    /// `hurry` is asked from time to time whether to go without the last symbols and slow readers.
    pub fn finish(mut self, hurry: &dyn Fn() -> bool) -> Report {
        self.stop_sampling();
        // Handlers that began before the stop are done in microseconds, or lose their sample.
        std::thread::sleep(Duration::from_millis(2));
        let now = monotonic_ns();
        self.find_processes(now);
        for process in self.processes.iter_mut().filter(|p| !p.book.over) {
            let recording = &mut self.recordings[process.book.recording].1;
            let alive = process.file.alive();
            process.drain(recording, &mut self.images, now, true);
            if alive {
                process.book.threads.search_blocked(&process.file, self.settings.period_ns(), true);
            }
            self.report.engine(process.file.engine());
            process.close(recording, &mut self.images, now, alive);
        }
        let deadline = std::time::Instant::now() + SYMBOLS_WAIT;
        while self.images.outstanding() > 0 && self.processes.iter().any(|p| p.book.waiting() > 0) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || hurry() {
                break;
            }
            self.images.take_loaded(self.session.rows(), left.min(Duration::from_millis(100)));
            self.resolve_all(false);
            self.push_all();
        }
        self.resolve_all(true);
        self.remove_settled(now);
        for (_, recording) in &mut self.recordings {
            recording.finish();
        }
        let deadline = std::time::Instant::now() + READER_WAIT;
        while self.recordings.iter().any(|(_, r)| r.waiting() > 0) {
            if std::time::Instant::now() >= deadline || hurry() {
                break;
            }
            self.push_all();
            std::thread::sleep(Duration::from_millis(2));
        }
        self.note_failures();
        for (_, recording) in &self.recordings {
            self.report.add_recording(recording);
        }
        self.report.notices = std::mem::take(&mut self.notices);
        self.report.own_cpu_ns = crate::clock::process_cpu_ns(std::process::id()).unwrap_or(0);
        self.report
    }

    fn push_all(&mut self) {
        for (_, recording) in &mut self.recordings {
            recording.push();
        }
    }
}

/// Tells libraries that were mapped since the last call.
fn libraries(
    process: &Process,
    recording: &mut Recording,
    images: &Images,
    told: &mut HashSet<(usize, u64, u32)>,
    now: u64,
) {
    for mapping in process.book.modules.current() {
        if mapping.image != crate::images::ANONYMOUS
            && told.insert((process.book.recording, mapping.start, mapping.image))
        {
            let name = images.get(mapping.image).path.to_string_lossy();
            tell::library(recording, &name, (mapping.start, mapping.end), now);
        }
    }
}

/// What a process is called: as it was started (one file may have several names), else by its file.
fn called(file: &ProcFile) -> String {
    let started_as = file.arguments().into_iter().next().unwrap_or_default();
    let last = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    last(Path::new(&started_as)).or_else(|| last(&file.exe())).unwrap_or_default()
}

/// Process files in the order in which they were made: by their number.
fn order(path: &Path) -> u64 {
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
    name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
}
