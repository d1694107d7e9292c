//! The perf events of threads that are recorded from outside, and the ring buffers of these events.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use flightline_in_signal::layout::{EventSpec, event_flags, event_kind};

use super::watched::PerProcessor;
use crate::{
    error::Error,
    loss::LARGEST_COPY,
    perf_events::{
        attr::{self, Sampling},
        machine::online,
        ring::Ring,
        uprobe_definition::UprobeDefinition,
    },
    recording::events::Engines,
    settings::Settings,
};

/// Bytes of a stack that are copied: the minimum, the usual size, the maximum.
const STACK_BYTES: [u32; 3] = [8 << 10, 32 << 10, LARGEST_COPY];
/// Smallest and largest ring of a processor, bytes.
const RING_BYTES: [usize; 2] = [64 << 10, 16 << 20];
/// Limit of all rings together, bytes.
const ALL_RINGS_BYTES: usize = 512 << 20;
/// Ring memory per processor that an ordinary user may lock in addition to the memory-lock limit
/// (`kernel.perf_event_mlock_kb` minus the first page).
const USER_RING_BYTES: usize = 512 << 10;

/// A ring, and the number of records lost since the last sample that reported losses.
pub(super) struct Source {
    pub(super) ring: Ring,
    /// The thread of its event (0: this process). Once the thread has ended, the event no longer wakes the
    /// drain.
    owner: u32,
    /// Its event no longer wakes the drain.
    deaf: bool,
    cpu: u32,
    pub(super) missing: u64,
}

/// A perf event that is recorded in addition to CPU time.
pub struct NamedEvent {
    /// Its index in the session.
    pub index: u16,
    /// Its name in `-e`.
    pub name: String,
    /// The event's attributes for the kernel.
    pub spec: EventSpec,
    /// The kernel dropped samples because they came too fast.
    pub(super) throttled: bool,
    /// The user was informed of that.
    reported: bool,
    /// Number of events that samples represent, whether the samples were written or not. `None` if a sample
    /// belonged to a process that is no longer recorded from outside.
    pub(super) represented: Option<u64>,
    /// The definition of a uprobe. It must exist as long as its events.
    _uprobe: Option<UprobeDefinition>,
}

impl NamedEvent {
    /// Returns the event `spec`. Defines a uprobe in the kernel, so that child threads inherit it.
    ///
    /// # Errors
    /// The kernel does not accept the definition.
    pub fn new(index: u16, name: String, spec: EventSpec) -> Result<NamedEvent, Error> {
        let (uprobe, spec) = if spec.flags & event_flags::PATH == 0 {
            (None, spec)
        } else {
            let defined = UprobeDefinition::new(&spec);
            let wrong = |problem| Error::Setting { name: "event", problem: format!("{name}: {problem}") };
            let (uprobe, spec) = defined.map_err(wrong)?;
            (Some(uprobe), spec)
        };
        Ok(NamedEvent {
            index,
            name,
            spec,
            throttled: false,
            reported: false,
            represented: Some(0),
            _uprobe: uprobe,
        })
    }
}

/// An event that writes to the ring of another event.
struct Opened {
    event: OwnedFd,
    /// The index of its perf event; `None` if it samples CPU time.
    named: Option<usize>,
}

/// All events that are open.
pub(super) struct EventSet {
    pub(super) sampling: Sampling,
    ring_bytes: usize,
    cpus: Vec<u32>,
    pub(super) sources: Vec<Source>,
    /// The events without a ring of their own. They exist as long as their descriptors.
    opened: Vec<Opened>,
    /// Perf events in addition to CPU time. They are dropped after their descriptors, because a uprobe in use
    /// cannot be removed.
    pub(super) named: Vec<NamedEvent>,
    /// Indices in `named` by the numbers in the events' records.
    pub(super) numbers: HashMap<u64, usize>,
}

/// Numbers of open events at a point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    opened: usize,
    sources: usize,
}

impl EventSet {
    /// Returns an empty set. `named`: the perf events that are recorded in addition to CPU time.
    pub(super) fn new(settings: &Settings, named: Vec<NamedEvent>) -> EventSet {
        let period_ns = settings.period_ns();
        let privileged = nix::unistd::geteuid().is_root();
        let most = if privileged { RING_BYTES[1] } else { USER_RING_BYTES };
        let cpus = online();
        let most = most.min(ALL_RINGS_BYTES / cpus.len().next_power_of_two()).max(RING_BYTES[0]);
        // Room for half a second of the largest records.
        let wished = (settings.rate() * f64::from(STACK_BYTES[2]) / 2.0) as usize;
        let ring_bytes = wished.next_power_of_two().clamp(RING_BYTES[0], most);
        EventSet {
            sampling: Sampling {
                clock: settings.samples_cpu_time(),
                numbered: !named.is_empty(),
                period_ns,
                kernel: true,
                counts: true,
                children: settings.processes.follow,
                from_exec: false,
                stack_bytes: stack_bytes(ring_bytes, settings.rate()),
                wake_bytes: (ring_bytes / 4) as u32,
            },
            ring_bytes,
            cpus,
            sources: Vec::new(),
            opened: Vec::new(),
            named,
            numbers: HashMap::new(),
        }
    }

    /// Returns a mark of the events that are open now.
    pub(super) fn mark(&self) -> Mark {
        Mark { opened: self.opened.len(), sources: self.sources.len() }
    }

    /// Closes all events opened since `mark`.
    pub(super) fn truncate(&mut self, mark: Mark) {
        self.opened.truncate(mark.opened);
        self.sources.truncate(mark.sources);
    }

    /// Opens the events of a thread, with fewer features if the kernel does not permit all.
    pub(super) fn open(&mut self, tid: u32, from_exec: bool) -> io::Result<()> {
        for (cpu, event) in self.open_clock(tid, from_exec)? {
            self.add_event(tid, cpu, event, None)?;
            for index in 0..self.named.len() {
                self.open_named(index, tid, cpu, from_exec)?;
            }
        }
        Ok(())
    }

    /// Opens perf event `index` of a thread on a processor.
    fn open_named(&mut self, index: usize, tid: u32, cpu: u32, from_exec: bool) -> io::Result<()> {
        let Some(named) = self.named.get(index) else { return Ok(()) };
        let sampling = Sampling { from_exec, ..self.sampling };
        let event = sampling.open_event(&named.spec, tid, cpu).map_err(|error| {
            // The thread has ended, or the limit of descriptors is reached: handled as for CPU time.
            let common = [libc::ESRCH, libc::EMFILE, libc::ENFILE];
            match error.raw_os_error().filter(|errno| !common.contains(errno)) {
                Some(_) => io::Error::new(
                    error.kind(),
                    format!("the kernel refused {}: {}", named.name, crate::error::plain(&error)),
                ),
                None => error,
            }
        })?;
        self.numbers.insert(attr::number(event.as_fd())?, index);
        self.add_event(tid, cpu, event, Some(index))
    }

    /// Opens the CPU time events of a thread, one per processor.
    fn open_clock(&mut self, tid: u32, from_exec: bool) -> io::Result<Vec<(u32, OwnedFd)>> {
        let mut opened = Vec::with_capacity(self.cpus.len());
        let mut i = 0;
        while let Some(&cpu) = self.cpus.get(i) {
            match (Sampling { from_exec, ..self.sampling }).open(tid, cpu) {
                Ok(event) => opened.push((cpu, event)),
                // The processor went offline.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                // The sampling mode can only change before the first ring is open.
                Err(e) if self.sources.is_empty() && opened.is_empty() && self.make_do(&e) => continue,
                Err(e) => return Err(e),
            }
            i += 1;
        }
        Ok(opened)
    }

    /// Requests fewer features after a refusal. Returns false if there is nothing left to drop.
    fn make_do(&mut self, refusal: &io::Error) -> bool {
        match refusal.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) if self.sampling.kernel => self.sampling.kernel = false,
            Some(libc::EINVAL) if self.sampling.counts => self.sampling.counts = false,
            _ => return false,
        }
        true
    }

    fn add_event(&mut self, owner: u32, cpu: u32, event: OwnedFd, named: Option<usize>) -> io::Result<()> {
        if let Some(source) = self.sources.iter().find(|s| s.cpu == cpu) {
            attr::share_ring(event.as_fd(), source.ring.event())?;
            self.opened.push(Opened { event, named });
            return Ok(());
        }
        let mut event = event;
        loop {
            match Ring::map(event, self.ring_bytes) {
                Ok(ring) => {
                    self.sources.push(Source { ring, owner, deaf: false, cpu, missing: 0 });
                    return Ok(());
                }
                // The limit of locked memory.
                Err((back, e))
                    if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
                        && self.ring_bytes > RING_BYTES[0] =>
                {
                    event = back;
                    self.ring_bytes /= 2;
                }
                Err((_, e)) => return Err(e),
            }
        }
    }

    /// Enables all events opened since `mark`.
    pub(super) fn enable(&self, mark: Mark) -> io::Result<()> {
        for opened in self.opened.get(mark.opened..).unwrap_or(&[]) {
            attr::enable(opened.event.as_fd())?;
        }
        for source in self.sources.get(mark.sources..).unwrap_or(&[]) {
            attr::enable(source.ring.event())?;
        }
        Ok(())
    }

    /// Returns the descriptors that are readable when a ring fills up.
    pub(super) fn wake(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().filter(|s| !s.deaf).map(|s| s.ring.event())
    }

    /// Returns the descriptors of all open events.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let others = self.opened.iter().map(|opened| opened.event.as_fd());
        others.chain(self.sources.iter().map(|source| source.ring.event()))
    }

    /// Enables or disables all events.
    pub(super) fn count(&self, enabled: bool) {
        for event in self.descriptors() {
            let _ = if enabled { attr::enable(event) } else { attr::disable(event) };
        }
    }

    pub(super) fn per_processor(&self) -> PerProcessor {
        PerProcessor { period_ns: self.sampling.period_ns, processors: self.sources.len() }
    }

    /// Notes that a thread ended, so that its events no longer wake the drain.
    pub(super) fn thread_ended(&mut self, tid: u32) {
        self.sources.iter_mut().filter(|source| source.owner == tid).for_each(|source| source.deaf = true);
    }

    /// Finds threads whose end was not recorded.
    pub(super) fn find_ended_threads(&mut self) {
        for source in self.sources.iter_mut().filter(|s| s.owner != 0 && !s.deaf) {
            // The record of its end may be among the lost ones.
            source.deaf = !Path::new(&format!("/proc/{}", source.owner)).exists();
        }
    }

    /// Returns messages for the user about events that the kernel dropped.
    pub(super) fn notices(&mut self) -> Vec<String> {
        let throttled = self.named.iter_mut().filter(|event| event.throttled && !event.reported);
        throttled
            .map(|event| {
                event.reported = true;
                let name = &event.name;
                format!(
                    "{name}: the kernel drops events above kernel.perf_event_max_sample_rate; give a \
                     longer interval, such as {name}@1000"
                )
            })
            .collect()
    }

    /// Returns the perf events that no sample represents, as lost. For each thread, these are the events
    /// after the last record that its ring had room for. If only one of several events is sampled, the rest
    /// of its period is not a loss.
    pub(super) fn lost_rest(&self) -> Engines {
        let mut engines = Engines::default();
        for (at, event) in self.named.iter().enumerate().filter(|(_, event)| event.spec.period == 1) {
            let Some(represented) = event.represented else { continue };
            let opened = self.opened.iter().filter(|opened| opened.named == Some(at));
            // The count includes all threads that inherited the event, even if they have ended.
            let counts: Option<Vec<u64>> = opened.map(|o| attr::read_count(o.event.as_fd()).ok()).collect();
            let counted = counts.iter().flatten().fold(0u64, |sum, count| sum.saturating_add(*count));
            let rest = counted.saturating_sub(represented);
            engines.lose_many(event_kind::PERF, rest, rest);
        }
        engines
    }

    /// Closes all events.
    pub(super) fn close(&mut self) {
        self.sources.clear();
        self.opened.clear();
        self.named.clear();
    }
}

/// Returns how much of a stack to copy: the ring should hold half a second of such samples, or a quarter of a
/// second at the usual stack size, and never fewer than thirty samples.
fn stack_bytes(ring_bytes: usize, rate: f64) -> u32 {
    let [least, enough, most] = STACK_BYTES;
    let room = |part: f64| (ring_bytes as f64 / (rate / part).max(32.0)) as u32;
    room(2.0).max(room(4.0).min(enough)).clamp(least, most) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_copies_fit_their_ring() {
        for bytes in [64 << 10, 512 << 10, 16 << 20] {
            for rate in [1.0, 99.0, 10_000.0] {
                let stack = stack_bytes(bytes, rate);
                assert!(stack >= STACK_BYTES[0]);
                assert!(stack.is_multiple_of(8) && stack as usize * 8 <= bytes && stack <= 62 << 10);
            }
        }
    }
}
