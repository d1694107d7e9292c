//! Copies of recordings that the drain makes on its own: at a signal, or when a condition holds.

use std::{
    collections::{HashMap, VecDeque},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitStatus,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Drain;
use crate::{
    error::Error,
    os::clock::{monotonic_ns, process_cpu_ns, realtime_ns},
    os::system::resident_bytes,
    output::dump::{Chunks, Condition, Dumped, Load, Policy, Runs, Waits, files},
    recording::Recording,
};

/// Time limit for symbols before a copy.
const NAMES_WAIT: Duration = Duration::from_secs(2);
/// How long a copy waits for the last samples of the other threads of a process that a signal ends.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// A process's report of its death and its parent's report describe the same death if they are at most this
/// far apart.
const SAME_DEATH_NS: u64 = 10_000_000_000;
/// Limit of copies that wait for their turn.
const WAITING: usize = 16;
/// Limit of ended processes whose recording is remembered.
const ENDED: usize = 16;
/// Number of checks of a thread's waits within the time after which it counts as stuck.
const LOOKS: u32 = 8;

/// A requested copy.
struct Job {
    /// The process whose recording is copied; 0 for the recording of all processes.
    pid: u32,
    path: PathBuf,
    word: &'static str,
    why: String,
    earliest: Instant,
    latest: Instant,
    /// The recording has a message about this copy.
    noted: bool,
}

/// The state of a process that conditions depend on.
#[derive(Default)]
struct Watched {
    load: Load,
    waits: Waits,
    waits_checked_ns: u64,
    /// By condition: whether it held, and when it last caused a copy.
    conditions: Vec<(bool, Option<u64>)>,
}

type Copying = JoinHandle<Result<(PathBuf, Dumped), Error>>;

/// The copies of a drain.
#[derive(Default)]
pub(super) struct Dumps {
    waiting: VecDeque<Job>,
    running: Option<(Copying, String)>,
    watched: HashMap<u32, Watched>,
    /// By recording: the panics seen in it, and when one last caused a copy.
    panics: HashMap<u32, (u64, Option<u64>)>,
    /// The same for signals that ended a process.
    fatal: HashMap<u32, (u64, Option<u64>)>,
    /// The program that we started, once a signal has ended it.
    program: Option<u32>,
    /// Processes that ended, and the paths of their recordings.
    ended: VecDeque<(u32, PathBuf)>,
}

impl Dumps {
    /// Returns true if a recording has recently reported the signal that ended the process, or one that
    /// shares the recording.
    fn has_reported_signal(&self, pid: u32, now: u64) -> bool {
        let reported = [pid, 0].into_iter().filter_map(|of| self.fatal.get(&of)?.1);
        reported.max().is_some_and(|last| now.saturating_sub(last) < SAME_DEATH_NS)
    }

    /// Notes that a process's recording is complete.
    pub fn ended(&mut self, pid: u32, recording: &Recording) {
        self.watched.remove(&pid);
        self.panics.remove(&pid);
        self.fatal.remove(&pid);
        if recording.can_be_copied() {
            self.ended.truncate(ENDED - 1);
            self.ended.push_front((pid, PathBuf::from(recording.name())));
        }
    }
}

impl Drain {
    /// Returns an empty record of running threads for a new process, if a condition needs one.
    pub(super) fn dumps_runs(&self) -> Option<Box<Runs>> {
        let policy = self.settings.output.dumps.as_ref()?;
        policy.on.iter().any(|c| matches!(c, Condition::Stuck(_))).then(Box::default)
    }

    /// Requests a copy because of a signal.
    pub(super) fn dump_signalled(&mut self, signal: i32) {
        let trigger = self.settings.output.dumps.as_ref().and_then(|policy| policy.signal);
        if let Some(trigger) = trigger.filter(|trigger| *trigger as i32 == signal) {
            let all: Vec<u32> = self.outputs.recordings.iter().map(|(_, pid, _)| pid).collect();
            for pid in all {
                self.want_dump(pid, "asked", format!("{} came", trigger.as_str()));
            }
        }
    }

    /// Requests a copy because the program that we started has ended.
    pub(super) fn dump_at_end(&mut self, pid: u32, status: ExitStatus) {
        let Some(policy) = &self.settings.output.dumps else { return };
        let reason = policy.on.iter().find_map(|condition| {
            let why = match (condition, status.code(), status.signal()) {
                (Condition::Exit { code, equal }, Some(exit), _) if (exit == *code) == *equal => {
                    format!("the program ended with exit code {exit}")
                }
                (Condition::Signal, _, Some(signal))
                    if !self.dumps.has_reported_signal(pid, monotonic_ns()) =>
                {
                    format!("signal {signal} ended the program")
                }
                _ => return None,
            };
            Some((condition.word(), why))
        });
        if let Some((word, why)) = reason {
            if word == Condition::Signal.word() {
                self.dumps.program = Some(pid);
            }
            self.want_dump(pid, word, why);
        }
    }

    fn want_dump(&mut self, pid: u32, word: &'static str, why: String) {
        self.want_dump_after(Duration::ZERO, pid, word, why);
    }

    fn want_dump_after(&mut self, wait: Duration, pid: u32, word: &'static str, why: String) {
        let open_for = |owner: u32| self.outputs.recordings.iter().find(|(_, pid, _)| *pid == owner);
        let open = open_for(pid).or_else(|| open_for(0)).filter(|(.., recording)| recording.can_be_copied());
        let open = open.map(|(_, pid, recording)| (pid, PathBuf::from(recording.name())));
        let Some((pid, path)) = open.or_else(|| self.dumps.ended.iter().find(|(p, _)| *p == pid).cloned())
        else {
            self.notices.push(format!("no dump although {why}: data sent to a pipe cannot be copied"));
            return;
        };
        if self.dumps.waiting.len() >= WAITING {
            self.notices.push(format!("no dump although {why}: {WAITING} dumps are already pending"));
            return;
        }
        let earliest = Instant::now() + wait;
        let latest = earliest + NAMES_WAIT;
        self.dumps.waiting.push_back(Job { pid, path, word, why, earliest, latest, noted: false });
    }

    /// Finds panics and last samples that were recorded since the last check. Their threads may be gone by
    /// now.
    fn note_ends(&mut self, now: u64) {
        let Some(policy) = &self.settings.output.dumps else { return };
        let every = u64::try_from(policy.every.as_nanos()).unwrap_or(u64::MAX);
        let [panics, signals] = [Condition::Panic, Condition::Signal].map(|c| policy.on.contains(&c));
        let (mut panicked, mut ended) = (Vec::new(), Vec::new());
        let is_new = |(seen, last): &mut (u64, Option<u64>), count: u64| {
            let new = count > std::mem::replace(seen, count);
            let due = new && last.is_none_or(|last| now.saturating_sub(last) >= every);
            if due {
                *last = Some(now);
            }
            due
        };
        let Dumps { panics: seen_panics, fatal: seen_fatal, program, .. } = &mut self.dumps;
        for (_, pid, recording) in self.outputs.recordings.iter() {
            if panics && is_new(seen_panics.entry(pid).or_default(), recording.counters().panics) {
                panicked.push(pid);
            }
            let (count, words) = &recording.counters().fatal;
            if signals && is_new(seen_fatal.entry(pid).or_default(), *count) {
                // The exit status of the program that we started shows how it ended.
                let known = program.is_some_and(|program| [program, 0].contains(&pid));
                ended.extend((!known).then(|| (pid, words.clone())));
            }
        }
        for pid in panicked {
            let name = self.processes.called(pid);
            self.want_dump(pid, Condition::Panic.word(), format!("{name} panicked"));
        }
        for (pid, words) in ended {
            let name = self.processes.called(pid);
            let why = format!("{words} ended {name}");
            self.want_dump_after(LAST_WAIT, pid, Condition::Signal.word(), why);
        }
    }

    /// Checks the conditions once a second.
    pub(super) fn dump_triggers(&mut self, now: u64) {
        let Some(policy) = self.settings.output.dumps.clone().filter(|policy| !policy.on.is_empty()) else {
            return;
        };
        self.note_ends(now);
        let live: Vec<usize> =
            (0..self.processes.list.len()).filter(|i| !self.processes.list[*i].state.over).collect();
        self.dumps.watched.retain(|pid, _| live.iter().any(|i| self.processes.list[*i].file.pid == *pid));
        for index in live {
            let pid = self.processes.list[index].file.pid;
            let mut watched = self.dumps.watched.remove(&pid).unwrap_or_default();
            watched.conditions.resize(policy.on.len(), (false, None));
            for (number, condition) in policy.on.iter().enumerate() {
                let holds = self.holds(index, condition, &mut watched, now);
                let (before, last) = &mut watched.conditions[number];
                let begins = holds.is_some() && !*before;
                *before = holds.is_some();
                let every = u64::try_from(policy.every.as_nanos()).unwrap_or(u64::MAX);
                let again = last.is_none_or(|last| now.saturating_sub(last) >= every);
                if let Some(why) = holds.filter(|_| begins && again) {
                    *last = Some(now);
                    self.want_dump(pid, condition.word(), why);
                }
            }
            self.dumps.watched.insert(pid, watched);
        }
    }

    /// Returns the reason why a condition on a running process holds, if it does.
    fn holds(
        &mut self,
        index: usize,
        condition: &Condition,
        watched: &mut Watched,
        now: u64,
    ) -> Option<String> {
        let process = &mut self.processes.list[index];
        let pid = process.file.pid;
        if !process.file.trusted_pid() {
            return None;
        }
        let name = process.file.info().called();
        match *condition {
            Condition::Cpu(most, over) => {
                let percent = watched.load.percent(now, process_cpu_ns(pid)?, over)?;
                (percent > most).then(|| format!("{name} ({pid}) used {percent:.0} % of a CPU for {over:?}"))
            }
            Condition::Rss(most) => {
                let resident = resident_bytes(pid);
                (resident > most).then(|| format!("{name} ({pid}) has {resident} bytes resident"))
            }
            Condition::Stuck(time) => {
                let runs = process.state.runs.as_mut().and_then(|runs| runs.stuck(now, time));
                let message = |(tid, ns): (u32, u64), doing: &str| {
                    format!("thread {tid} of {name} ({pid}) {doing} for {:.0} s", ns as f64 / 1e9)
                };
                if let Some(stuck) = runs {
                    return Some(message(stuck, "has run with the same callers"));
                }
                let every = u64::try_from((time / LOOKS).as_nanos()).unwrap_or(u64::MAX);
                let recent =
                    watched.waits_checked_ns != 0 && now.saturating_sub(watched.waits_checked_ns) < every;
                if recent {
                    // The state at the last check.
                    return watched
                        .waits
                        .last()
                        .map(|stuck| message(stuck, "has waited for a lock or a device"));
                }
                watched.waits_checked_ns = now;
                let stuck = watched.waits.stuck(pid, now, time)?;
                Some(message(stuck, "has waited for a lock or a device"))
            }
            Condition::Panic | Condition::Exit { .. } | Condition::Signal => None,
        }
    }

    /// Each round: starts the copy that is due, and reports the one that is done.
    pub(super) fn dump_round(&mut self, now: u64) {
        self.note_ends(now);
        if let Some((copying, why)) = self.dumps.running.take_if(|(copying, _)| copying.is_finished()) {
            self.report_dump(copying, &why);
        }
        if self.dumps.running.is_some() {
            return;
        }
        let Some(mut job) = self.dumps.waiting.pop_front() else { return };
        let id = self.outputs.recordings.find(job.pid);
        let waits = |p: &crate::process::Process| Some(p.state.recording) == id && p.state.waiting() > 0;
        let at = Instant::now();
        if at < job.earliest || at < job.latest && self.processes.iter().any(waits) {
            self.dumps.waiting.push_back(job);
            return;
        }
        if let Some(id) = id {
            if let Some(recording) = self.outputs.recordings.get_mut(id)
                && !std::mem::replace(&mut job.noted, true)
            {
                recording.notice(&format!("dump: {}", job.why), now);
            }
            self.flush(id, now);
            if let Some(recording) = self.outputs.recordings.get(id) {
                job.path = PathBuf::from(recording.name());
            }
        }
        self.begin_dump(job);
    }

    fn begin_dump(&mut self, job: Job) {
        let Some(policy) = self.settings.output.dumps.clone() else { return };
        let why = job.why.clone();
        // In a thread, because a disk may be slow and rings would fill up.
        match thread::Builder::new().name("dump".into()).spawn(move || copy(&policy, &job)) {
            Ok(copying) => self.dumps.running = Some((copying, why)),
            Err(error) => self.notices.push(format!("no dump although {why}: {error}")),
        }
    }

    fn report_dump(&mut self, copying: Copying, why: &str) {
        self.notices.push(match copying.join() {
            Ok(Ok((path, dumped))) => {
                format!(
                    "{why}: dumped to {}, {}",
                    path.display(),
                    crate::settings::units::format_bytes(dumped.bytes)
                )
            }
            Ok(Err(error)) => format!("no dump although {why}: {error}"),
            Err(_) => format!("no dump although {why}: the copy failed"),
        });
    }

    /// Makes the remaining copies when the recordings are complete.
    pub(super) fn dump_last(&mut self) {
        self.note_ends(monotonic_ns());
        loop {
            if let Some((copying, why)) = self.dumps.running.take() {
                self.report_dump(copying, &why);
            }
            let Some(job) = self.dumps.waiting.pop_front() else { return };
            self.begin_dump(job);
        }
    }
}

fn copy(policy: &Policy, job: &Job) -> Result<(PathBuf, Dumped), Error> {
    let back = policy.last.map(|last| i64::try_from(last.as_nanos()).unwrap_or(i64::MAX));
    let now = i64::try_from(realtime_ns()).unwrap_or(i64::MAX);
    let chunks = Chunks::open(&files(&job.path)?, back.map(|back| now.saturating_sub(back)))?;
    let path = policy.place(job.pid, job.word).map_err(|e| Error::io("write to", &policy.dir, e))?;
    let dumped = chunks.write_to(&path)?;
    policy.prune();
    Ok((path, dumped))
}
