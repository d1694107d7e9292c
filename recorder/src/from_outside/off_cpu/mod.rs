//! Records when, where and why threads are off CPU, with the scheduler's tracepoints; and slow system calls,
//! block I/O requests and memory growth, with the tracepoints of system calls and block devices.
//!
//! ```text
//! tracepoints.rs          the tracepoints' records
//! kernel_events.rs        the open kernel events; open.rs: events on every processor; filter.rs: the kernel's filter of threads
//! merge.rs                records in order of time; intervals.rs: switches and wake-ups → off-CPU intervals
//! thread_polls.rs         polls sleeping threads if the tracepoints are not permitted; earlier_waits.rs: waits from before the recording
//! tasks.rs                the processes and threads of the records
//! guard.rs                limits the number of records
//! pending_stacks.rs       stacks of threads that are off CPU; kernel_part.rs: irrelevant kernel frames
//! completed_intervals.rs  intervals that wait for symbols; write.rs: their events
//! io/                     system calls, requests to disks, memory growth
//! ```
//! At a switch, the sample is of the thread that is switched out, so its stack shows where the thread waits.
//! The TID comes from the tracepoint's record, because the sample of a thread that is ending has no TID. A
//! wake-up is sampled in the context of the waker. Records of all processors are processed in order of time.
//!
//! The end of an off-CPU interval is reported by the tracepoint or by the thread's own switch record,
//! whichever comes first: on some virtual machines idle processors report no tracepoints, and the kernel
//! stops the switch records of a thread while it ends.

use std::{collections::HashSet, io::Error as IoError, os::fd::BorrowedFd, time::Duration};

use crate::{
    from_outside::outputs::Outputs,
    names::images::{ImageId, Images},
    os::clock::monotonic_ns,
    perf_events::machine::list_threads,
    recording::{Recording, RecordingId},
    settings::{self, Settings, ThreadSelection},
};

mod completed_intervals;
mod earlier_waits;
mod filter;
mod guard;
mod intervals;
mod io;
mod kernel_events;
mod kernel_part;
mod ledger;
mod merge;
mod open;
mod pending_stacks;
mod tasks;
mod thread_polls;
mod tracepoints;
mod write;

use completed_intervals::PendingIntervals;
use earlier_waits::Before;
use guard::Guard;
use intervals::Intervals;
use io::Io;
use kernel_events::KernelEvents;
use ledger::{Cause, Ledger};
use open::{Pass, Points};
use pending_stacks::{SampledStack, StackCaches};
use tasks::Tasks;

/// A record may appear in its ring up to this long after its timestamp, ns.
const SETTLE_NS: u64 = 2_000_000;
/// Longest pause between two rounds while the guard holds recording back.
const HOLD_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause while system calls are recorded, because descriptors must be looked up while they are open.
const CALLS_PAUSE: Duration = Duration::from_millis(5);
/// Samples per second of threads that are not recorded, above which the kernel filters are updated.
const MANY_STRANGERS: u64 = 500;
/// How often to list a process's threads until no new one appears.
const MAX_LISTS: usize = 50;
/// A thread that ended is forgotten after this time at the latest, ns. Until its last switch it may be
/// switched out and in.
const ENDING_NS: u64 = 1_000_000_000;

/// Numbers of events written and lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// Off-CPU intervals: written, lost.
    pub off_cpu: Option<(u64, u64)>,
    /// Calls, requests and growth: written, lost; losses counted in `off_cpu` are not included.
    pub io: Option<(u64, u64)>,
}

/// The settings.
struct Options {
    selected: settings::OffCpuSettings,
    /// Limit of frames per stack.
    depth: usize,
    threads: Option<ThreadSelection>,
    follow: bool,
    /// The program is started by us and joins the recording by itself.
    joins: bool,
}

/// The engine that records off-CPU time.
pub struct OffCpu {
    options: Options,
    kernel: KernelEvents,
    intervals: Intervals<SampledStack>,
    io: Io,
    tasks: Tasks,
    /// Threads that are ending, and since when.
    ending: Vec<(u32, u64)>,
    /// Threads that may have been waiting at the attach.
    before: Vec<Before>,
    stack_caches: StackCaches,
    pending: PendingIntervals,
    /// The time of the last reading, CLOCK_MONOTONIC ns.
    now_ns: u64,
    ledger: Ledger,
    guard: Guard,
    stopped: bool,
    paused: bool,
}

impl OffCpu {
    /// Opens what is needed before any thread is known.
    ///
    /// # Errors
    /// The reason why the selection cannot be recorded here.
    pub fn new(selected: &settings::OffCpuSettings, settings: &Settings) -> Result<OffCpu, String> {
        let kernel = KernelEvents::open(selected)?;
        Ok(OffCpu {
            options: Options {
                selected: selected.clone(),
                depth: settings.stacks.depth as usize,
                threads: settings.processes.threads.clone(),
                follow: settings.processes.follow,
                joins: false,
            },
            kernel,
            intervals: Intervals::default(),
            io: Io::default(),
            tasks: Tasks::default(),
            ending: Vec::new(),
            before: Vec::new(),
            stack_caches: StackCaches::default(),
            pending: PendingIntervals::default(),
            now_ns: 0,
            ledger: Ledger::new(selected.switches),
            guard: Guard::new(selected.rate),
            stopped: false,
            paused: false,
        })
    }

    /// Returns a message about what the kernel does not permit, if any.
    pub fn lacks(&self) -> Option<&str> {
        self.kernel.lacks.as_deref()
    }

    /// Records the process that the calling thread starts next, from its exec on.
    pub fn expect_child(&mut self, joins: bool) -> Result<(), String> {
        self.options.joins = joins;
        let pass = open::known_and_later([]).map_err(|e| refused(&e))?;
        self.kernel.watch(&self.options, 0, true).map_err(|e| refused(&e))?;
        self.kernel.trace(&self.options.selected, pass)
    }

    /// Notes the PID of the program that was started.
    pub fn started(&mut self, pid: u32) {
        let process = self.tasks.process(pid);
        process.recorded = true;
        process.since_ns = u64::MAX;
        self.tasks.seen(pid, pid, None);
    }

    /// Records a running process.
    pub fn attach(&mut self, pid: u32, images: &mut Images) -> Result<(), String> {
        // Later threads pass the filter by their TIDs.
        let last = filter::Last::now().ok_or("/proc/loadavg cannot be read")?;
        let process = self.tasks.process(pid);
        process.recorded = true;
        process.mapped = true;
        process.stacks.read_maps(pid, images);
        self.io.attach(pid);
        // Threads that start during this loop inherit the events of their parent, or appear in the next list.
        let mut known = HashSet::new();
        for _ in 0..MAX_LISTS {
            let new: Vec<u32> = list_threads(pid).into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.kernel.watch(&self.options, tid, false) {
                    Ok(()) => drop(self.tasks.seen(pid, tid, None)),
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(e) => return Err(refused(&e)),
                }
            }
        }
        let known: Vec<u32> = self.tasks.recorded_threads().collect();
        let threads = filter::Threads::new(known.iter().copied(), last);
        self.kernel.trace(&self.options.selected, Pass::Threads(threads))?;
        if self.options.selected.switches {
            let own = known.into_iter().filter(|&tid| self.tasks.process_id(tid) == Some(pid));
            self.before.extend(own.filter_map(|tid| Before::observe(pid, tid)));
        }
        Ok(())
    }

    /// Records all processes.
    pub fn all(&mut self) -> Result<(), String> {
        self.kernel.trace(&self.options.selected, Pass::All)
    }

    /// Returns the descriptors that are readable when a ring fills up.
    pub fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.kernel.wake()
    }

    /// Returns true if the process is recorded.
    pub fn records(&self, pid: u32) -> bool {
        self.tasks.recorded(pid)
    }

    /// Returns the number of recorded processes that run.
    pub fn running(&self) -> usize {
        match self.kernel.pass {
            Some(Pass::All) => 1,
            _ => self.tasks.running(),
        }
    }

    /// Returns the number of intervals that wait for symbols.
    pub fn waiting(&self) -> usize {
        self.pending.len() + self.io.waiting()
    }

    /// Returns the images that stacks may reference.
    pub fn images(&mut self) -> Vec<ImageId> {
        self.tasks.all().flat_map(|(_, p)| p.stacks.modules.images().collect::<Vec<_>>()).collect()
    }

    /// Returns true if a recording has intervals, or may have.
    pub fn uses(&mut self, id: RecordingId) -> bool {
        self.tasks.all().any(|(_, process)| process.output == Some(id))
    }

    /// Writes the losses to a recording.
    pub fn write_losses(&mut self, id: RecordingId, recording: &mut Recording, now_ns: u64) {
        self.ledger.write_losses(id, recording, now_ns);
    }

    /// Returns the numbers of written and lost intervals, calls and requests, if they are recorded.
    pub fn total(&self) -> Total {
        let (intervals, calls) = self.ledger.total_lost();
        Total {
            off_cpu: self.options.selected.switches.then_some((self.ledger.written, intervals)),
            io: self.options.selected.io().then_some((self.ledger.written_io, calls)),
        }
    }

    /// Forgets a recording that is retired.
    pub fn forget_output(&mut self, id: RecordingId) {
        self.ledger.forget(id);
        self.tasks.forget_output(id);
    }

    /// Pauses or resumes recording.
    fn pause(&mut self, outputs: &mut dyn Outputs, paused: bool, now_ns: u64) {
        if paused == self.paused || self.stopped {
            return;
        }
        self.paused = paused;
        if !paused {
            return open::resume(&self.kernel.sources);
        }
        self.release(outputs, now_ns);
        let blind_ns = monotonic_ns();
        open::stop(&self.kernel.sources);
        self.read(outputs, u64::MAX);
        self.io_blind(outputs, Cause::CallPaused, blind_ns);
        for (interval, _) in self.intervals.take_open(now_ns) {
            self.lose(outputs, interval.out.pid, Cause::Paused, interval.took_ns());
        }
    }

    /// Reads the rings. Returns how full the fullest was, in 1/256.
    pub fn round(&mut self, outputs: &mut dyn Outputs, now_ns: u64) -> u32 {
        let paused = outputs.is_paused();
        self.pause(outputs, paused, now_ns);
        let fill = self.read(outputs, now_ns.saturating_sub(SETTLE_NS));
        let over = |at: u64| now_ns.saturating_sub(at) >= ENDING_NS;
        for (tid, at) in self.ending.extract_if(.., |(_, at)| over(*at)).collect::<Vec<_>>() {
            self.tasks.ended(tid);
            self.intervals.ended(tid);
            self.io_ended(outputs, tid, at);
        }
        self.read_names(outputs, now_ns);
        self.guard(outputs, now_ns);
        if !self.before.is_empty() && !self.paused && !self.guard.holds() {
            self.find_earlier_waits(outputs, now_ns);
        }
        if self.kernel.points.is_none() && !self.paused && !self.guard.holds() {
            self.look(outputs, now_ns);
        }
        fill
    }

    /// Updates the kernel filters once a second if many samples belong to other threads, because new threads
    /// have started since, and before and after TIDs wrap.
    pub fn look_at_filters(&mut self) {
        let strangers = std::mem::take(&mut self.kernel.strangers);
        let Some(Pass::Threads(threads)) = &self.kernel.pass else { return };
        let Some(last) = filter::Last::now().filter(|_| !self.stopped && !self.paused && !self.guard.holds())
        else {
            return;
        };
        if strangers >= MANY_STRANGERS || threads.is_old(last) {
            let known: Vec<u32> = self.tasks.recorded_threads().collect();
            // If that fails, the old filters remain.
            let _ =
                self.kernel.trace(&self.options.selected, Pass::Threads(filter::Threads::new(known, last)));
        }
    }

    /// Returns the longest pause between two rounds.
    pub fn longest_pause(&self) -> Option<Duration> {
        let holds = self.guard.holds().then_some(HOLD_PAUSE);
        let soon = self.options.selected.calls.is_some().then_some(CALLS_PAUSE);
        self.kernel.points.is_none().then_some(thread_polls::PAUSE).or(holds).or(soon)
    }

    /// Stops sampling.
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            open::stop(&self.kernel.sources);
        }
    }
}

/// Opens the events that `selected` needs, and closes them. Returns a message about what is missing: without
/// tracepoints, off-CPU time can be recorded in part.
///
/// # Errors
/// The reason why it cannot be recorded at all.
pub fn try_out(selected: &settings::OffCpuSettings) -> Result<Option<String>, String> {
    let points = Points::find(selected).and_then(|points| open::try_out(&points).map_err(|e| refused(&e)));
    match points {
        Ok(()) => Ok(None),
        Err(problem) if selected.io() || selected.wakeups => Err(problem),
        Err(problem) => {
            let thread = nix::unistd::gettid().as_raw() as u32;
            open::switches_alone(&mut Vec::new(), thread, false, false).map_err(|_| problem.clone())?;
            Ok(Some(thread_polls::notice(&problem, selected)))
        }
    }
}

/// Explains why the kernel refused, and the remedy.
fn refused(error: &IoError) -> String {
    let said = crate::error::plain(error);
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "{said}: scheduler events of the whole machine need root or CAP_PERFMON (setcap \
             cap_perfmon+ep); in a container, also allow perf_event_open (seccomp)"
        ),
        Some(libc::EMFILE | libc::ENFILE) => format!("{said}: raise the limit of open files (ulimit -n)"),
        _ => said,
    }
}
