//! The events of all processors, and the kernel filter of threads.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use super::{
    filter::{Last, Threads},
    io::{self as kernel_io, BlockPoints, CallPoints},
    tracepoints::{SwitchPoint, WakingPoint},
};
use crate::{
    perf_events::{
        attr::{self, Telling, Tracing, sample},
        machine::online,
        ring::Ring,
    },
    settings,
};

/// Fields of samples without a stack.
pub const PLAIN: u64 = Telling::SAMPLE_TYPE | sample::RAW;
/// Fields of samples with a stack.
pub const WITH_STACK: u64 = PLAIN | sample::CALLCHAIN | sample::REGS_USER | sample::STACK_USER;
/// Smallest ring of a processor, bytes.
const LEAST_RING: usize = 64 << 10;
/// Largest ring of a processor for an ordinary user, who may need the rest of the locked-memory limit for
/// other programs.
const USER_RING: usize = 256 << 10;
/// Limit of all rings together, bytes.
const ALL_RINGS: usize = 512 << 20;

/// The meaning of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread that may be recorded is switched out. The sample is of this thread.
    Out,
    /// A thread that may be recorded is switched in.
    In,
    /// A thread that may be recorded is woken. The sample is of the waker.
    Waking,
    /// It enters a system call.
    Enter,
    /// It leaves a system call.
    Exit,
    /// It queues a request to a block device.
    Queued,
    /// A block device has completed a request.
    Completed,
}

impl Kind {
    /// Returns true if its samples have stacks.
    pub fn has_stack(self) -> bool {
        !matches!(self, Kind::In | Kind::Enter | Kind::Completed)
    }
}

/// The ring of a processor, with the event that reports threads and mappings.
pub struct Source {
    /// The ring buffer.
    pub ring: Ring,
    cpu: u32,
    /// Tracepoints: event number, meaning, descriptor.
    events: Vec<(u64, Kind, OwnedFd)>,
    /// The replaced ones, whose records may still be in the ring.
    old: Vec<(u64, Kind)>,
    /// Events that report the switches of each thread. The tracepoint reports a thread that is switched in,
    /// in the context of the thread that is switched out, and on some virtual machines idle processors report
    /// nothing. These events report it in the thread's own context, until the middle of its exit.
    switches: Vec<OwnedFd>,
    /// Events that report mappings and names, thread by thread.
    tasks: Vec<OwnedFd>,
    /// Counters of the switches and calls that are skipped while the events are disabled.
    counters: Vec<OwnedFd>,
}

impl Source {
    fn new(ring: Ring, cpu: u32) -> Source {
        let (events, old, switches, tasks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Source { ring, cpu, events, old, switches, tasks, counters: Vec::new() }
    }

    /// Returns the meaning of a sample with this event number.
    pub fn kind(&self, number: u64) -> Option<Kind> {
        let events = self.events.iter().map(|(number, kind, _)| (*number, *kind));
        events.chain(self.old.iter().copied()).find(|(found, _)| *found == number).map(|(_, kind)| kind)
    }
}

/// The threads that pass the kernel filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// All.
    All,
    /// Some.
    Threads(Threads),
}

/// The tracepoints.
pub struct Points {
    /// Switches.
    pub switch: SwitchPoint,
    /// Wake-ups, if they are recorded.
    pub waking: Option<WakingPoint>,
    /// System calls, if any are recorded.
    pub calls: Option<CallPoints>,
    /// Block I/O requests, if they are recorded.
    pub blocks: Option<BlockPoints>,
}

impl Points {
    /// Finds the tracepoints that the settings require.
    pub fn find(settings: &settings::OffCpuSettings) -> Result<Points, String> {
        // Tracepoint records contain TIDs of the machine, not of a container.
        if !machines_numbers() {
            return Err("flightline runs in a container with its own PID namespace; run flightline on the \
                host, or start the container with --pid=host"
                .into());
        }
        let waking = if settings.wakeups { Some(WakingPoint::find()?) } else { None };
        let calls = if kernel_io::call_filter(settings).is_some() { Some(CallPoints::find()?) } else { None };
        let blocks = if settings.block.is_some() { Some(BlockPoints::find()?) } else { None };
        Ok(Points { switch: SwitchPoint::find()?, waking, calls, blocks })
    }
}

/// Returns true if PIDs here are those of the machine.
fn machines_numbers() -> bool {
    // PROC_PID_INIT_INO of linux/proc_ns.h.
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|meta| meta.ino() == 0xEFFF_FFFC)
}

/// Returns the size of each processor's ring, bytes.
pub fn ring_bytes(settings: &settings::OffCpuSettings, cpus: usize) -> usize {
    let most = (ALL_RINGS / cpus.max(1).next_power_of_two()).max(LEAST_RING);
    usize::try_from(settings.ring_bytes).unwrap_or(most).clamp(LEAST_RING, most)
}

/// Opens the rings and the events of threads and mappings; for a whole machine, also those of all switches.
pub fn sources(settings: &settings::OffCpuSettings) -> io::Result<Vec<Source>> {
    let cpus = online();
    let bytes = ring_bytes(settings, cpus.len());
    let mut sources = Vec::with_capacity(cpus.len());
    for cpu in cpus {
        let event = match telling(true, bytes).open(cpu) {
            Ok(event) => event,
            // The processor went offline.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(e) => return Err(e),
        };
        let ring = Ring::map(event, bytes).map_err(|(_, error)| error)?;
        attr::enable(ring.event())?;
        let mut source = Source::new(ring, cpu);
        if settings.all && settings.switches {
            let event = telling(false, bytes).open(cpu)?;
            attr::share_ring(event.as_fd(), source.ring.event())?;
            attr::enable(event.as_fd())?;
            source.switches.push(event);
        }
        sources.push(source);
    }
    Ok(sources)
}

/// Returns the attributes of an event that reports either tasks or switches.
fn telling(tasks: bool, ring: usize) -> Telling {
    Telling { tasks, switches: !tasks, wake_bytes: wake_bytes(ring) }
}

/// Checks whether the tracepoints may be opened at all.
pub fn try_out(points: &Points) -> io::Result<()> {
    let cpu = online().first().copied().unwrap_or(0);
    Tracing { id: points.switch.id, sample_type: WITH_STACK, kernel: true, stack_bytes: 0, wake_bytes: 1 }
        .open(cpu)
        .map(drop)
}

/// Opens the switch events of a thread and its children. With `from_exec` and TID 0: of the program that the
/// caller starts next.
pub fn switches(sources: &mut [Source], tid: u32, children: bool, from_exec: bool) -> io::Result<()> {
    for source in sources {
        let event =
            telling(false, source.ring.size()).open_for_thread(tid, source.cpu, children, from_exec)?;
        source.switches.push(begin(event, &source.ring, from_exec)?);
    }
    Ok(())
}

/// The same, with its mappings and names, for users who may not open events on whole processors. The first
/// event of a processor owns the ring.
pub fn switches_alone(
    sources: &mut Vec<Source>,
    tid: u32,
    children: bool,
    from_exec: bool,
) -> io::Result<()> {
    for cpu in online() {
        let event = match telling(true, USER_RING).open_for_thread(tid, cpu, children, from_exec) {
            Ok(event) => event,
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(e) => return Err(e),
        };
        match sources.iter_mut().find(|s| s.cpu == cpu) {
            Some(source) => source.tasks.push(begin(event, &source.ring, from_exec)?),
            None => {
                let ring = map_own(event)?;
                if !from_exec {
                    attr::enable(ring.event())?;
                }
                sources.push(Source::new(ring, cpu));
            }
        }
    }
    switches(sources, tid, children, from_exec)
}

fn begin(event: OwnedFd, ring: &Ring, from_exec: bool) -> io::Result<OwnedFd> {
    attr::share_ring(event.as_fd(), ring.event())?;
    if !from_exec {
        attr::enable(event.as_fd())?;
    }
    Ok(event)
}

/// Maps a ring as large as the limit of locked memory permits.
fn map_own(event: OwnedFd) -> io::Result<Ring> {
    let (mut event, mut bytes) = (event, USER_RING);
    loop {
        match Ring::map(event, bytes) {
            Ok(ring) => return Ok(ring),
            Err((back, e)) => {
                let limit = matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOMEM));
                if !limit || bytes <= LEAST_RING / 4 {
                    return Err(e);
                }
                event = back;
                bytes /= 2;
            }
        }
    }
}

fn wake_bytes(ring: usize) -> u32 {
    (ring / 4) as u32
}

/// Opens the tracepoints of all processors with a filter of threads, then closes the previous ones. In
/// between, both report the same events.
pub fn trace(
    sources: &mut [Source],
    points: &Points,
    pass: &Pass,
    settings: &settings::OffCpuSettings,
) -> io::Result<()> {
    for source in sources {
        let tracing = |id, kind: Kind| {
            let (wake_bytes, stack_bytes) = (wake_bytes(source.ring.size()), settings.stack_bytes);
            let sample_type = if kind.has_stack() { WITH_STACK } else { PLAIN };
            // The kernel stack at the end of a call is always that of the tracepoint.
            Tracing { id, sample_type, kernel: kind != Kind::Exit, stack_bytes, wake_bytes }
        };
        let mut events = Vec::new();
        let mut counters = Vec::new();
        let mut add = |kind, id, filter: Option<CString>| -> io::Result<()> {
            let event = tracing(id, kind).open(source.cpu)?;
            if matches!(kind, Kind::Out | Kind::Exit) {
                counters.push(tracing(id, kind).count(source.cpu)?);
            }
            if let Some(filter) = filter {
                attr::set_filter(event.as_fd(), &filter)?;
                let counter = counters.last().filter(|_| matches!(kind, Kind::Out | Kind::Exit));
                counter.map_or(Ok(()), |counter| attr::set_filter(counter.as_fd(), &filter))?;
            }
            attr::share_ring(event.as_fd(), source.ring.event())?;
            events.push((attr::number(event.as_fd())?, kind, event));
            Ok(())
        };
        let of_threads = |field: &str| match pass {
            Pass::All => None,
            Pass::Threads(threads) => Some(threads.text(field)),
        };
        if settings.switches {
            // An idle processor has nothing to record.
            let out = of_threads("prev_pid").or_else(|| Some(c"prev_pid!=0".into()));
            add(Kind::Out, points.switch.id, out)?;
            // On a whole machine, the other events report every thread that is switched in.
            if let Some(come) = of_threads("next_pid") {
                add(Kind::In, points.switch.id, Some(come))?;
            }
            if let Some(waking) = &points.waking {
                add(Kind::Waking, waking.id, of_threads("pid"))?;
            }
        }
        if let (Some(calls), Some(calls_filter)) = (&points.calls, kernel_io::call_filter(settings)) {
            let filter = |ends| both(&calls_filter.filter(ends), of_threads("common_pid"));
            add(Kind::Enter, calls.enter, Some(filter(false)))?;
            add(Kind::Exit, calls.exit, Some(filter(true)))?;
        }
        if let Some(blocks) = &points.blocks {
            add(Kind::Queued, blocks.start, of_threads("common_pid"))?;
            // The interrupt that completes a request may hit any thread.
            add(Kind::Completed, blocks.done, None)?;
        }
        for (.., event) in &events {
            attr::enable(event.as_fd())?;
        }
        source.counters = counters;
        let before = std::mem::replace(&mut source.events, events);
        source.old = before.iter().map(|(number, kind, _)| (*number, *kind)).collect();
    }
    Ok(())
}

/// Combines two conditions.
fn both(first: &str, second: Option<CString>) -> CString {
    let text = match second.as_deref().map(CStr::to_string_lossy) {
        Some(second) => format!("({first})&&({second})"),
        None => first.to_owned(),
    };
    CString::new(text).unwrap_or_default()
}

/// Disables the events that report switches and wake-ups.
pub fn stop(sources: &[Source]) {
    sources.iter().for_each(|source| each(source, attr::disable));
}

/// Enables them again.
pub fn resume(sources: &[Source]) {
    sources.iter().for_each(|source| each(source, attr::enable));
}

fn each(source: &Source, act: impl Fn(BorrowedFd<'_>) -> io::Result<()>) {
    let events = source.events.iter().map(|(.., event)| event).chain(&source.switches);
    for event in events {
        let _ = act(event.as_fd());
    }
}

/// Disables the events, and counts from now on the switches and calls that are skipped. The counters start
/// first, so none is missed; one processor is done at a time, because events in between are both recorded and
/// counted.
pub fn stop_and_count(sources: &[Source]) {
    for source in sources {
        for counter in &source.counters {
            let _ = attr::reset(counter.as_fd()).and_then(|()| attr::enable(counter.as_fd()));
        }
        each(source, attr::disable);
    }
}

/// Enables the events again. Returns how many were skipped since [`stop_and_count`]; `None` if they cannot be
/// counted.
pub fn resume_and_counted(sources: &[Source]) -> Option<u64> {
    let mut counts: Vec<u64> = Vec::new();
    for source in sources {
        each(source, attr::enable);
        for counter in &source.counters {
            let _ = attr::disable(counter.as_fd());
            counts.extend(attr::read_count(counter.as_fd()));
        }
    }
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// Returns a filter of the known threads `tids` and all threads that start from now on.
pub fn known_and_later(tids: impl IntoIterator<Item = u32>) -> io::Result<Pass> {
    let last = Last::now().ok_or_else(|| io::Error::other("/proc/loadavg cannot be read"))?;
    Ok(Pass::Threads(Threads::new(tids, last)))
}
