//! Records processes that nothing was loaded into: static programs, Go, set-user-id, whatever already runs.
//!
//! ```text
//! attr.rs    perf events of CPU time, one per thread and processor, inherited by what a thread starts
//! ring.rs    one ring per processor, mapped here; samples carry registers and a copy of the stack
//! open.rs    opens them, with less where the kernel allows less
//! record.rs  what the kernel writes into them
//! target.rs  a process: its accounts; stacks.rs: its modules and stacks (walked by crate::outside); watched.rs: a thread
//! chain.rs   what is beyond the copy of a stack, by frame pointers
//! refused.rs why the kernel refuses, and what to do
//! startup.rs a preloaded program up to where it samples itself
//! ```
//! The recorded program notices nothing: no signal, no memory, no descriptor of its own.
//!
//! **Weights.** A sample carries what its thread's event of its processor has counted; the difference to the sample before
//! is its weight, so that samples which the kernel leaves out (a full ring, throttling) leave no gap: they are
//! counted as lost. An event begins with a whole period on each processor; what a thread used
//! after its last sample is told by the kernel when it ends.

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use flightline_in_signal::layout::loss;

use crate::{
    drain::Drain, loss::Report, names::images::ImageId, off_cpu::Known, process::thread::Thread,
    recording::Recording, settings::ThreadSelection, tell,
};

pub(crate) mod attr;
mod chain;
pub(crate) mod machine;
mod open;
pub(crate) mod record;
pub(crate) mod refused;
pub(crate) mod ring;
pub(crate) mod stacks;
pub mod startup;
mod target;
pub(crate) mod watched;

use attr::Sampling;
use record::Record;
use ring::Ring;
use target::{Place, Target};

/// A record may appear in its ring this long after the time it carries, ns.
const SETTLE_NS: u64 = 2_000_000;

/// A ring and how many records it had no room for since the last sample that told.
struct Source {
    ring: Ring,
    /// The thread of its event (0: our own); when that has ended there is no waking by it.
    owner: u32,
    deaf: bool,
    cpu: u32,
    missing: u64,
}

/// A record in a ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    time_ns: u64,
    source: usize,
    at: u64,
    len: usize,
}

/// Everything recorded from outside.
pub struct Watch {
    sampling: Sampling,
    ring_bytes: usize,
    cpus: Vec<u32>,
    sources: Vec<Source>,
    /// Events beside those that own rings: they live as long as their descriptors.
    events: Vec<OwnedFd>,
    targets: Vec<Target>,
    /// Processes that record themselves, and since when.
    themselves: HashMap<u32, u64>,
    found: Vec<Found>,
    told_libraries: HashSet<(usize, u64, u32)>,
    depth: usize,
    /// Which threads are recorded.
    threads: Option<ThreadSelection>,
    stopped: bool,
    paused: bool,
    /// A ring had no room left when it was read last: what came after is lost, and nothing says how much.
    overflowed: bool,
}

/// A ring with less room than this for another record counts as full, bytes.
const FULL_ROOM: u64 = 64 << 10;

impl Watch {
    /// Whether time in the kernel is seen.
    pub fn sees_kernel(&self) -> bool {
        self.sampling.kernel
    }

    /// For waiting: readable when a ring fills up.
    pub fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().filter(|s| !s.deaf).map(|s| s.ring.event())
    }

    /// Processes whose samples are taken, and their recordings.
    pub fn processes(&self) -> Vec<(u32, usize)> {
        let live = self.targets.iter().filter(|t| !t.over && t.records_itself_ns.is_none());
        live.map(|t| (t.pid(), t.recording)).collect()
    }

    /// Processes that still run.
    pub fn running(&self) -> usize {
        self.targets.iter().filter(|t| !t.over).count()
    }

    /// Returns true if a process still runs. Unlike [`Self::running`], this does not count processes that have ended since the last look.
    pub fn any_alive(&self) -> bool {
        let exists = |pid: u32| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), None).is_ok();
        self.targets.iter().any(|t| !t.over && exists(t.pid()))
    }

    fn add(&mut self, drain: &mut Drain, mut target: Target, now_ns: u64) {
        let themselves = self.themselves.get(&target.pid()).copied();
        target.records_itself_ns = themselves.filter(|from| *from >= target.about.start_mono_ns);
        drain.tell_about(&target.about, target.recording, now_ns);
        self.targets.push(target);
    }

    /// A process begins to record itself (the preloaded kind): what it does from `from_ns` on is not ours.
    pub fn give_up(&mut self, pid: u32, from_ns: u64) {
        // Its first records may still be in the rings.
        self.themselves.insert(pid, from_ns);
        for target in self.targets.iter_mut().filter(|t| !t.over && t.pid() == pid) {
            target.records_itself_ns = Some(from_ns);
        }
    }

    /// A process that could not record itself after all (Go). `false` if it is not watched yet.
    pub fn take_back(&mut self, pid: u32) -> bool {
        self.themselves.remove(&pid);
        let mut targets = self.targets.iter_mut().filter(|t| !t.over && t.pid() == pid);
        targets.any(|target| {
            target.records_itself_ns = None;
            true
        })
    }

    /// Whether samples of `pid` are taken.
    pub fn samples(&self, pid: u32) -> bool {
        self.targets.iter().any(|t| !t.over && t.pid() == pid && t.records_itself_ns.is_none())
    }

    /// The processes whose samples are taken: id, name and threads.
    pub fn sampled(&self) -> impl Iterator<Item = (u32, String, Vec<&Thread>)> {
        let live = self.targets.iter().filter(|t| !t.over && t.records_itself_ns.is_none());
        live.map(|target| {
            let threads = target.threads.values().map(|watched| &watched.thread).collect();
            (target.pid(), target.about.called(), threads)
        })
    }

    /// The constant of a thread in output `index`, and the group of its process; `name` is its newest.
    pub fn known_thread(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        index: usize,
        recording: &mut Recording,
    ) -> Option<Known> {
        let mut live = self.targets.iter_mut().filter(|t| t.pid() == pid && t.recording == index);
        let target = live.next_back()?;
        let group = target.group();
        let thread = target.threads.get_mut(&tid).and_then(|watched| {
            if !name.is_empty() {
                watched.thread.rename(name.to_owned());
            }
            watched.thread.named_constant(group, recording);
            watched.thread.constant
        });
        Some(Known { thread, group: Some(group) })
    }

    /// Takes in what the rings hold. Returns how full the fullest was, in 1/256.
    pub fn round(&mut self, drain: &mut Drain, now_ns: u64) -> u32 {
        self.read(drain, now_ns, now_ns.saturating_sub(SETTLE_NS))
    }

    fn read(&mut self, drain: &mut Drain, now_ns: u64, until_ns: u64) -> u32 {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut fill = 0;
        self.overflowed = false;
        for (number, source) in self.sources.iter().enumerate() {
            let head = source.ring.head();
            let mut at = source.ring.tail();
            let size = source.ring.size() as u64;
            fill = fill.max((head.saturating_sub(at).saturating_mul(256) / size.max(1)).min(256) as u32);
            self.overflowed |= head.saturating_sub(at) + FULL_ROOM.min(size / 2) >= size;
            let mut last_ns = 0;
            while let Some((len, time_ns)) = source.ring.look(at, head, record::time_at) {
                // Within a ring the order is that of writing.
                last_ns = time_ns.max(last_ns);
                if last_ns > until_ns {
                    break;
                }
                found.push(Found { time_ns: last_ns, source: number, at, len });
                at += len as u64;
            }
        }
        found.sort_unstable();
        for one in &found {
            self.take(drain, *one, now_ns);
            if let Some(source) = self.sources.get(one.source) {
                source.ring.release(one.at + one.len as u64);
            }
        }
        self.found = found;
        let (period_ns, cause) = (self.sampling.period_ns, self.cause());
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            // The counts of a thread that ended come right behind its end.
            target.settle(until_ns.saturating_sub(SETTLE_NS), period_ns, cause);
        }
        self.read_names(drain, now_ns);
        self.remove_settled(drain, now_ns);
        fill
    }

    fn read_names(&mut self, drain: &mut Drain, now_ns: u64) {
        let (period_ns, depth, threads) = (self.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in &mut self.targets {
            let (recording, images, rows) = drain.parts(target.recording);
            if target.read_names(images, now_ns) && target.waiting() > 0 {
                target.resolve(false, &mut Place { recording, images, rows, period_ns, depth, threads });
            }
        }
    }

    /// Why CPU time at the end of a thread is in no sample.
    fn cause(&self) -> usize {
        match (self.overflowed, self.stopped) {
            (true, _) => loss::RING_FULL,
            (false, true) => loss::STOPPED,
            (false, false) => loss::UNSEEN,
        }
    }

    fn take(&mut self, drain: &mut Drain, one: Found, now_ns: u64) {
        let Watch { sources, targets, sampling, depth, threads, .. } = self;
        let Some(source) = sources.get_mut(one.source) else { return };
        let Source { ring, missing, .. } = source;
        let Some(record) = record::parse(ring.record(one.at, one.len), sampling.sample_type()) else {
            return;
        };
        let live = |targets: &[Target], pid: u32| targets.iter().rposition(|t| !t.over && t.pid() == pid);
        let period_ns = sampling.period_ns;
        let earlier = |t: &Target, pid: u32| !t.over && t.pid() == pid && one.time_ns < t.since_ns;
        if record.pid().is_some_and(|pid| targets.iter().any(|t| earlier(t, pid))) {
            return;
        }
        match record {
            Record::Sample(sample) => {
                let Some(at) = live(targets, sample.pid) else { return };
                let target = &mut targets[at];
                let (recording, images, rows) = drain.parts(target.recording);
                let threads = threads.as_ref();
                let mut place = Place { recording, images, rows, period_ns, depth: *depth, threads };
                target.take(&sample, one.source, missing, !sampling.kernel, &mut place);
            }
            Record::Mapped(mapped) => {
                if let Some(at) = live(targets, mapped.pid) {
                    targets[at].mapped(&mapped, drain.images());
                }
            }
            Record::Lost(count) => {
                *missing += count;
                // A mapping may have been among them.
                for target in targets.iter_mut().filter(|t| !t.over) {
                    target.read_maps(drain.images());
                }
            }
            Record::Counted { pid, tid, count_ns } => {
                if let Some(at) = live(targets, pid) {
                    targets[at].counted(tid, one.source, count_ns);
                }
            }
            Record::Ended { pid, tid, time_ns } => {
                sources.iter_mut().filter(|s| s.owner == tid).for_each(|s| s.deaf = true);
                if let Some(at) = live(targets, pid) {
                    targets[at].ended(tid, time_ns);
                }
            }
            Record::Begun { pid, parent, tid, time_ns, .. } => {
                if let Some(at) = live(targets, pid) {
                    let name = targets[at].name_of_first();
                    targets[at].begin(tid, name, 0, time_ns, period_ns);
                } else {
                    let parent = live(targets, parent);
                    self.begun(drain, pid, parent, time_ns, now_ns);
                }
            }
            Record::Name { pid, tid, name, exec } => {
                let name = String::from_utf8_lossy(name).into_owned();
                match live(targets, pid) {
                    Some(at) if !exec => targets[at].thread(tid, one.time_ns, period_ns).thread.rename(name),
                    before if exec => self.executed(drain, pid, before, &name, one.time_ns, now_ns),
                    _ => {}
                }
            }
            Record::Switched { .. } | Record::Other => {}
        }
    }

    /// A process forked.
    fn begun(&mut self, drain: &mut Drain, pid: u32, parent: Option<usize>, time_ns: u64, now_ns: u64) {
        let Some(parent) = parent.and_then(|p| self.targets.get(p)) else { return };
        let about = tell::About {
            pid,
            exe: parent.about.exe.clone(),
            arguments: parent.about.arguments.clone(),
            start_mono_ns: time_ns,
        };
        let Ok((index, recording)) = drain.recording_of(pid) else { return };
        let mut target = Target::new(about, index, recording);
        target.inherit(parent);
        target.begin(pid, parent.name_of_first(), 0, time_ns, self.sampling.period_ns);
        self.add(drain, target, now_ns);
    }

    /// A process executed a program: the old image is done with, its first thread's account goes on.
    fn executed(
        &mut self,
        drain: &mut Drain,
        pid: u32,
        before: Option<usize>,
        name: &str,
        time_ns: u64,
        now_ns: u64,
    ) {
        let about = watched::about(pid, now_ns).filter(|a| !a.arguments.is_empty());
        let mut about = about.unwrap_or_else(|| watched::about_name(pid, name, time_ns));
        about.start_mono_ns = time_ns;
        let Ok((index, recording)) = drain.recording_of(pid) else { return };
        let mut target = Target::new(about, index, recording);
        let period_ns = self.sampling.period_ns;
        match before.and_then(|at| self.targets.get_mut(at)) {
            Some(old) => {
                old.hand_over(&mut target, name, time_ns);
                old.close(time_ns, period_ns, loss::STOPPED);
            }
            None => target.begin(pid, name.to_owned(), 0, time_ns, period_ns),
        }
        target.read_maps(drain.images());
        self.add(drain, target, now_ns);
    }

    /// Once a second: clocks, names, processes that went without a word.
    pub fn look(&mut self, now_ns: u64) {
        for source in self.sources.iter_mut().filter(|s| s.owner != 0 && !s.deaf) {
            // Its end may have been among lost records.
            source.deaf = !Path::new(&format!("/proc/{}", source.owner)).exists();
        }
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.look(now_ns);
        }
    }

    /// Files were read: what waited for them goes on.
    pub fn resolve(&mut self, drain: &mut Drain, anyway: bool) {
        let (period_ns, depth, threads) = (self.sampling.period_ns, self.depth, self.threads.as_ref());
        for target in self.targets.iter_mut().filter(|t| t.waiting() > 0) {
            let (recording, images, rows) = drain.parts(target.recording);
            target.resolve(anyway, &mut Place { recording, images, rows, period_ns, depth, threads });
        }
    }

    /// Whether a process is recorded into this output.
    pub fn uses(&self, recording: usize) -> bool {
        self.targets.iter().any(|t| t.recording == recording)
    }

    /// Samples that wait for files being read.
    pub fn waiting(&self) -> usize {
        self.targets.iter().map(Target::waiting).sum()
    }

    /// Writes the accounts of the processes of a recording.
    pub fn tell(&mut self, drain: &mut Drain, index: usize, report: &mut Report, now_ns: u64) {
        for target in self.targets.iter_mut().filter(|t| t.recording == index) {
            let (recording, images, _) = drain.parts(index);
            tell::libraries(target.modules(), index, recording, images, &mut self.told_libraries, now_ns);
            target.tell(recording, self.threads.as_ref(), now_ns);
            for thread in target.take_told() {
                report.add_thread(&thread);
            }
        }
    }

    /// Keeps in mind only which of the processes that `run` record themselves.
    pub fn forget_others(&mut self, run: impl Fn(u32) -> bool) {
        self.themselves.retain(|pid, _| run(*pid));
    }

    /// The images that samples may name.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.targets.iter().flat_map(Target::images)
    }

    /// Forgets which libraries of these outputs were told, if they are many.
    pub fn tell_libraries_again(&mut self) {
        tell::forget_libraries(
            &mut self.told_libraries,
            self.targets.iter().map(|t| (t.recording, t.modules())),
        );
    }

    fn remove_settled(&mut self, drain: &mut Drain, now_ns: u64) {
        let mut i = 0;
        while i < self.targets.len() {
            if !self.targets[i].over || self.targets[i].waiting() > 0 {
                i += 1;
                continue;
            }
            let mut target = self.targets.remove(i);
            let index = target.recording;
            let (recording, images, _) = drain.parts(index);
            tell::libraries(target.modules(), index, recording, images, &mut self.told_libraries, now_ns);
            target.tell(recording, self.threads.as_ref(), now_ns);
            recording.end_group(target.group());
            drain.report_threads(target.threads.values().map(|w| &w.thread));
        }
    }

    /// Switches sampling off for a while, or on again. CPU time used meanwhile is lost.
    pub fn pause(&mut self, paused: bool) {
        if paused == self.paused || self.stopped {
            return;
        }
        self.paused = paused;
        for event in self.events.iter().map(AsFd::as_fd).chain(self.sources.iter().map(|s| s.ring.event())) {
            let _ = if paused { attr::disable(event) } else { attr::enable(event) };
        }
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.paused(paused, self.sampling.period_ns);
        }
    }

    /// Stops sampling.
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            // The threads run on. CPU time that they use from here on is no part of the recording. The clocks are read first, so that no
            // sample is due that did not come.
            for target in self.targets.iter_mut().filter(|t| !t.over) {
                target.read_last_clocks();
            }
            for event in
                self.events.iter().map(AsFd::as_fd).chain(self.sources.iter().map(|s| s.ring.event()))
            {
                let _ = attr::disable(event);
            }
        }
    }

    /// The end: reads the rest and closes all accounts.
    pub fn close(&mut self, drain: &mut Drain, now_ns: u64) {
        self.stop();
        self.read(drain, now_ns, u64::MAX);
        let (period_ns, cause) = (self.sampling.period_ns, self.cause());
        for target in self.targets.iter_mut().filter(|t| !t.over) {
            target.close(now_ns, period_ns, cause);
        }
        self.read_names(drain, now_ns);
        self.remove_settled(drain, now_ns);
    }

    /// After the last symbols.
    pub fn finish(&mut self, drain: &mut Drain, now_ns: u64) {
        self.remove_settled(drain, now_ns);
        self.sources.clear();
        self.events.clear();
    }
}
