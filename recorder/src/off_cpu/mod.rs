//! Records when, where and why threads are without a processor, by the scheduler's tracepoints.
//!
//! ```text
//! points.rs      the tracepoints' records
//! open.rs        their events on every processor; filter.rs: which threads pass in the kernel
//! intervals.rs   switches and wake-ups → times without a processor
//! tasks.rs       whose they are
//! kernel_part.rs frames that say nothing
//! ready.rs       intervals that wait for names; write.rs: their events
//! ```
//! At a switch the sample is of the thread that goes: its stack is where it waits, and belongs to the thread that the record
//! names (a thread that ends is nobody by then). A wake-up is sampled in the context of who wakes. Records of all processors are taken
//! in order of time.

use std::{collections::HashSet, io, os::fd::BorrowedFd};

use crate::{
    attach::{
        attr::Telling,
        machine::threads_of,
        record::{self, Record, Traced},
    },
    drain::Drain,
    names::images::{ImageId, Images},
    recording::Recording,
    settings::{self, Settings, ThreadSelection},
};

mod filter;
mod intervals;
mod kernel_part;
mod ledger;
mod open;
mod points;
mod ready;
mod tasks;
mod write;

use intervals::{Intervals, Out, Wake};
use kernel_part::Parts;
use ledger::{Cause, Ledger};
use open::{Kind, Pass, Points, Source};
use ready::Ready;
pub use tasks::Known;
use tasks::Tasks;

/// A record may appear in its ring this long after the time it carries, ns.
const SETTLE_NS: u64 = 2_000_000;
/// Lists of a process's threads read at most until no new one shows up.
const MAX_LISTS: usize = 50;
/// A thread that ended is forgotten by then at the latest, ns: until its last switch it may be switched out and in.
const ENDING_NS: u64 = 1_000_000_000;

/// A sample as it was in the ring.
#[derive(Debug, Default)]
pub struct Raw {
    bytes: Vec<u8>,
}

/// Memory of samples that are done with.
#[derive(Default)]
struct Spare(Vec<Vec<u8>>);

/// Samples whose memory is kept, and bytes of each.
const SPARE: [usize; 2] = [256, 16 << 10];

impl Spare {
    fn copy(&mut self, bytes: &[u8]) -> Raw {
        let mut copy = self.0.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        Raw { bytes: copy }
    }

    fn take_back(&mut self, raw: &mut Raw) {
        let bytes = std::mem::take(&mut raw.bytes);
        if self.0.len() < SPARE[0] && bytes.capacity() <= SPARE[1] {
            self.0.push(bytes);
        }
    }
}

/// With more threads out than this their samples are not kept: then they have no stack.
const MANY_OUT: usize = 8192;

/// A record in a ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    time_ns: u64,
    source: usize,
    at: u64,
    len: usize,
}

/// The recording of off-CPU time.
pub struct OffCpu {
    settings: settings::OffCpu,
    depth: usize,
    threads: Option<ThreadSelection>,
    follow: bool,
    /// The program is started by us and joins the recording by itself.
    joins: bool,
    points: Points,
    sources: Vec<Source>,
    pass: Option<Pass>,
    intervals: Intervals<Raw>,
    tasks: Tasks,
    ending: Vec<(u32, u64)>,
    parts: Parts,
    spare: Spare,
    pending: Vec<Ready>,
    pending_bytes: usize,
    /// When what is pending is tried again, CLOCK_MONOTONIC ns.
    again_ns: u64,
    ledger: Ledger,
    found: Vec<Found>,
    stopped: bool,
    paused: bool,
}

impl OffCpu {
    /// Opens what is needed before any thread is known.
    ///
    /// # Errors
    /// Why it cannot be done here.
    pub fn new(wanted: &settings::OffCpu, settings: &Settings) -> Result<OffCpu, String> {
        let points = Points::find(wanted)?;
        let sources = open::sources(wanted).map_err(|e| refused(&e))?;
        Ok(OffCpu {
            settings: wanted.clone(),
            depth: settings.depth as usize,
            threads: settings.threads.clone(),
            follow: settings.follow,
            joins: false,
            points,
            sources,
            pass: None,
            intervals: Intervals::default(),
            tasks: Tasks::default(),
            ending: Vec::new(),
            parts: Parts::default(),
            spare: Spare::default(),
            pending: Vec::new(),
            pending_bytes: 0,
            again_ns: 0,
            ledger: Ledger::default(),
            found: Vec::new(),
            stopped: false,
            paused: false,
        })
    }

    /// Records the process that the calling thread starts next, from its exec on.
    pub fn expect_child(&mut self, joins: bool) -> Result<(), String> {
        self.joins = joins;
        let pass = open::known_and_later([]).map_err(|e| refused(&e))?;
        open::switches(&mut self.sources, 0, self.follow, true).map_err(|e| refused(&e))?;
        self.trace(pass)
    }

    /// It was started.
    pub fn started(&mut self, pid: u32) {
        let process = self.tasks.process(pid);
        process.recorded = true;
        process.since_ns = u64::MAX;
        self.tasks.seen(pid, pid, None);
    }

    /// Records a running process.
    pub fn attach(&mut self, pid: u32, images: &mut Images) -> Result<(), String> {
        // Later ones pass by their numbers.
        let last = filter::last_number().ok_or("/proc/loadavg cannot be read")?;
        let process = self.tasks.process(pid);
        process.recorded = true;
        process.mapped = true;
        process.stacks.read_maps(pid, images);
        // Threads that start while we look are inherited from those whose events are open already, or seen next time.
        let mut known = HashSet::new();
        for _ in 0..MAX_LISTS {
            let new: Vec<u32> = threads_of(pid).into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match open::switches(&mut self.sources, tid, self.follow, false) {
                    Ok(()) => self.tasks.seen(pid, tid, None),
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(e) => return Err(refused(&e)),
                }
            }
        }
        let known: Vec<u32> = self.tasks.recorded_threads().collect();
        self.trace(Pass::Threads(filter::Threads::new(known, last)))
    }

    /// Records all processes.
    pub fn all(&mut self) -> Result<(), String> {
        self.trace(Pass::All)
    }

    fn trace(&mut self, pass: Pass) -> Result<(), String> {
        open::trace(&mut self.sources, &self.points, &pass, self.settings.stack_bytes)
            .map_err(|e| refused(&e))?;
        self.pass = Some(pass);
        Ok(())
    }

    /// For waiting: readable when a ring fills up.
    pub fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|s| s.ring.event())
    }

    /// Recorded processes that run.
    pub fn running(&self) -> usize {
        match self.pass {
            Some(Pass::All) => 1,
            _ => self.tasks.running(),
        }
    }

    /// Intervals that wait for names.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// The images that stacks may name.
    pub fn images(&mut self) -> Vec<ImageId> {
        self.tasks.all().flat_map(|(_, p)| p.stacks.modules.images().collect::<Vec<_>>()).collect()
    }

    /// Whether output `index` has intervals, or may have.
    pub fn uses(&mut self, index: usize) -> bool {
        self.tasks.all().any(|(_, process)| process.output == Some(index))
    }

    /// Tells output `index` what it lacks.
    pub fn tell(&mut self, index: usize, recording: &mut Recording, now_ns: u64) {
        self.ledger.tell(index, recording, now_ns);
    }

    /// Intervals written; intervals and records lost.
    pub fn total(&self) -> (u64, u64) {
        self.ledger.total()
    }

    /// Forgets an output that is let go.
    pub fn forget_output(&mut self, index: usize) {
        self.ledger.forget(index);
        self.tasks.forget_output(index);
    }

    /// Switches recording off for a while, or on again.
    fn pause(&mut self, drain: &mut Drain, paused: bool, now_ns: u64) {
        if paused == self.paused || self.stopped {
            return;
        }
        self.paused = paused;
        if !paused {
            return open::resume(&mut self.sources);
        }
        open::stop(&mut self.sources);
        self.read(drain, u64::MAX);
        for (interval, _) in self.intervals.take_open(now_ns) {
            self.lose(drain, interval.out.pid, Cause::Paused, interval.took_ns());
        }
    }

    /// Takes in what the rings hold. Returns how full the fullest was, in 1/256.
    pub fn round(&mut self, drain: &mut Drain, now_ns: u64) -> u32 {
        self.pause(drain, drain.paused(), now_ns);
        let fill = self.read(drain, now_ns.saturating_sub(SETTLE_NS));
        let tasks = &mut self.tasks;
        self.ending.retain(|(tid, at)| {
            let over = now_ns.saturating_sub(*at) >= ENDING_NS;
            if over {
                tasks.ended(*tid);
            }
            !over
        });
        self.read_names(drain, now_ns);
        fill
    }

    fn read(&mut self, drain: &mut Drain, until_ns: u64) -> u32 {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut fill = 0;
        for (number, source) in self.sources.iter().enumerate() {
            let (head, size) = (source.ring.head(), source.ring.size() as u64);
            let mut at = source.ring.tail();
            fill = fill.max((head.saturating_sub(at).saturating_mul(256) / size.max(1)).min(256) as u32);
            let mut last_ns = 0;
            while let Some((len, time_ns)) = source.ring.look(at, head, record::numbered_time_at) {
                last_ns = time_ns.max(last_ns);
                if last_ns > until_ns {
                    break;
                }
                found.push(Found { time_ns: last_ns, source: number, at, len });
                at += len as u64;
            }
        }
        found.sort_unstable();
        let mut sources = std::mem::take(&mut self.sources);
        for one in &found {
            if let Some(source) = sources.get_mut(one.source) {
                self.take(drain, source, *one);
                source.ring.release(one.at + one.len as u64);
            }
        }
        self.sources = sources;
        self.found = found;
        fill
    }

    fn take(&mut self, drain: &mut Drain, source: &mut Source, one: Found) {
        let bytes = source.ring.record(one.at, one.len);
        let Some(number) = record::number(bytes) else {
            if let Some(other) = record::parse(bytes, Telling::SAMPLE_TYPE) {
                self.note(drain, other, one.time_ns);
            }
            return;
        };
        let Some(kind) = source.kind(number) else { return };
        let bytes = source.ring.record(one.at, one.len);
        let Some(head) = record::traced(bytes) else { return };
        match kind {
            Kind::Out => self.goes(drain, &head, bytes),
            Kind::Waking => self.woken(&head, bytes),
        }
    }

    /// A thread that may be recorded is switched out.
    fn goes(&mut self, drain: &mut Drain, sample: &Traced<'_>, bytes: &[u8]) {
        let Some(switch) = self.points.switch.read(sample.raw) else { return };
        let states = &self.points.switch.states;
        let tasks = &mut self.tasks;
        let (tid, time_ns) = (switch.prev, sample.time_ns);
        if states.over(switch.state) {
            self.intervals.ended(tid);
            self.ending.retain(|(other, _)| *other != tid);
            tasks.ended(tid);
            return;
        }
        // One that is about to end is nobody in the sample's own words.
        let told = (sample.tid == tid).then_some(sample.pid);
        let Some(pid) = told.or_else(|| tasks.pid_of(tid)) else { return };
        if self.settings.all && !tasks.recorded(pid) {
            tasks.process(pid).recorded = pid != std::process::id();
        }
        if !tasks.records(pid, time_ns) {
            return;
        }
        tasks.seen(pid, tid, Some(switch.prev_comm));
        if self.threads.as_ref().is_some_and(|t| !t.holds(tid, &String::from_utf8_lossy(switch.prev_comm))) {
            return;
        }
        let (state, runnable) = (switch.state, states.runnable(switch.state));
        let stack = self.keep(bytes);
        let out = Out { pid, since_ns: time_ns, state, runnable, stack, wake: None };
        if let Some(before) = self.intervals.switched_out(tid, out) {
            self.lose(drain, before.pid, Cause::Unseen, time_ns.saturating_sub(before.since_ns));
        }
    }

    /// Such a thread is woken.
    fn woken(&mut self, sample: &Traced<'_>, bytes: &[u8]) {
        let Some(waking) = self.points.waking.as_ref().and_then(|w| w.read(sample.raw)) else { return };
        if !self.intervals.wants(waking.tid, self.tasks.pid_of(waking.tid).is_some()) {
            return;
        }
        if sample.pid != 0 && sample.pid != u32::MAX {
            self.tasks.seen(sample.pid, sample.tid, None);
        }
        let wake = Wake {
            time_ns: sample.time_ns,
            waker: (sample.pid, sample.tid),
            interrupt: waking.interrupt,
            stack: self.keep(bytes),
        };
        self.intervals.waking(waking.tid, wake);
    }

    fn keep(&mut self, bytes: &[u8]) -> Raw {
        match self.intervals.len() < MANY_OUT {
            true => self.spare.copy(bytes),
            false => Raw::default(),
        }
    }

    /// Whatever else there is to know.
    fn note(&mut self, drain: &mut Drain, record: Record<'_>, time_ns: u64) {
        let tasks = &mut self.tasks;
        match record {
            Record::Switched { tid, out: None, .. } => {
                if let Some((interval, doubtful)) = self.intervals.switched_in(tid, time_ns) {
                    self.ended(drain, interval, doubtful);
                }
            }
            Record::Mapped(mapped) => {
                let known = tasks.known(mapped.pid).filter(|process| process.mapped);
                if let Some(process) = known {
                    process.stacks.mapped(&mapped, drain.images());
                }
            }
            Record::Begun { pid, parent, tid, .. } if pid != parent => {
                if tasks.recorded(parent) && self.follow {
                    tasks.forked(parent, pid, time_ns);
                    tasks.seen(pid, tid, None);
                }
            }
            Record::Begun { pid, tid, .. } => {
                if tasks.recorded(pid) {
                    tasks.seen(pid, tid, None);
                }
            }
            Record::Ended { tid, .. } => {
                if tasks.pid_of(tid).is_some() {
                    self.ending.push((tid, time_ns));
                }
            }
            Record::Name { pid, tid, name, exec } => {
                if exec && tasks.known(pid).is_some() {
                    tasks.executed(pid, time_ns);
                    let process = tasks.process(pid);
                    process.mapped = true;
                    process.stacks.read_maps(pid, drain.images());
                }
                if tasks.pid_of(tid).is_some() {
                    tasks.seen(pid, tid, Some(name));
                }
            }
            Record::Lost(count) => {
                self.ledger.no_room(count);
                self.intervals.missing(time_ns);
                // Mappings may have been among them.
                tasks.all().for_each(|(_, process)| process.mapped = false);
            }
            _ => {}
        }
    }

    /// Stops sampling.
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            open::stop(&mut self.sources);
        }
    }
}

/// Why the kernel refuses, and what to do.
fn refused(error: &io::Error) -> String {
    let said = crate::error::plain(error);
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "{said}: scheduler events of a whole machine need root or CAP_PERFMON (setcap cap_perfmon+ep), in a container \
             perf_event_open allowed (seccomp)"
        ),
        Some(libc::EMFILE | libc::ENFILE) => format!("{said}: raise the limit of open files (ulimit -n)"),
        _ => said,
    }
}
