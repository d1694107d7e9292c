//! Opens the events: of a running process's threads, of the program that is started next.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd, OwnedFd},
};

use flightline_in_signal::layout::loss;

use super::{
    NamedEvent, Opened, Source, Watch, refused,
    target::{Kinds, Target},
};
use crate::from_outside::outputs::Outputs;
use crate::os::process_info::{ProcessInfo, cpu_ns, thread_name};
use crate::perf_events::{
    attr::{self, Sampling},
    machine::{list_threads, online},
    ring::Ring,
};
use crate::{error::Error, loss::LARGEST_COPY, os::clock::monotonic_ns, settings::Settings};

/// Bytes of a stack that are copied: at least, for most stacks, at most.
const STACK_BYTES: [u32; 3] = [8 << 10, 32 << 10, LARGEST_COPY];
/// Smallest and largest ring of a processor, bytes.
const RING_BYTES: [usize; 2] = [64 << 10, 16 << 20];
/// All rings together, bytes.
const ALL_RINGS_BYTES: usize = 512 << 20;
/// What an ordinary user may have mapped per processor beside what the memory-lock limit allows
/// (`kernel.perf_event_mlock_kb` less the first page).
const USER_RING_BYTES: usize = 512 << 10;
/// Lists of a process's threads read at most until no new one shows up.
const MAX_LISTS: usize = 50;

impl Watch {
    /// Nothing watched yet. `named`: the perf events that are recorded in addition to CPU time.
    pub fn new(settings: &Settings, named: Vec<NamedEvent>) -> Watch {
        let period_ns = settings.period_ns();
        let privileged = nix::unistd::geteuid().is_root();
        let most = if privileged { RING_BYTES[1] } else { USER_RING_BYTES };
        let cpus = online();
        let most = most.min(ALL_RINGS_BYTES / cpus.len().next_power_of_two()).max(RING_BYTES[0]);
        // Half a second of full records.
        let wished = (settings.rate() * f64::from(STACK_BYTES[2]) / 2.0) as usize;
        let ring_bytes = wished.next_power_of_two().clamp(RING_BYTES[0], most);
        Watch {
            kinds: Kinds { cpu: settings.cpu, wall_ns: settings.wall_ns() },
            sampling: Sampling {
                clock: settings.samples_cpu_time(),
                numbered: !named.is_empty(),
                period_ns,
                kernel: true,
                counts: true,
                children: settings.follow,
                from_exec: false,
                stack_bytes: stack_bytes(ring_bytes, settings.rate()),
                wake_bytes: (ring_bytes / 4) as u32,
            },
            named,
            numbers: HashMap::new(),
            ring_bytes,
            cpus,
            sources: Vec::new(),
            events: Vec::new(),
            targets: Vec::new(),
            rest_in: None,
            themselves: HashMap::new(),
            found: Vec::new(),
            told_libraries: HashSet::new(),
            depth: settings.depth as usize,
            threads: settings.threads.clone(),
            stopped: false,
            paused: false,
            overflowed: false,
        }
    }

    /// Opens the events of a thread, with less where the kernel does not allow all.
    fn open(&mut self, tid: u32, from_exec: bool) -> io::Result<()> {
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
            // The thread has ended, or the limit of descriptors is reached: as with CPU time.
            let common = [libc::ESRCH, libc::EMFILE, libc::ENFILE];
            match error.raw_os_error().filter(|errno| !common.contains(errno)) {
                Some(_) => io::Error::new(
                    error.kind(),
                    format!("the kernel refuses {}: {}", named.name, crate::error::plain(&error)),
                ),
                None => error,
            }
        })?;
        self.numbers.insert(attr::number(event.as_fd())?, index);
        self.add_event(tid, cpu, event, Some(index))
    }

    /// Opens the events of a thread's CPU time on each processor.
    fn open_clock(&mut self, tid: u32, from_exec: bool) -> io::Result<Vec<(u32, OwnedFd)>> {
        let mut opened = Vec::with_capacity(self.cpus.len());
        let mut i = 0;
        while let Some(&cpu) = self.cpus.get(i) {
            match (Sampling { from_exec, ..self.sampling }).open(tid, cpu) {
                Ok(event) => opened.push((cpu, event)),
                // A processor that went off line.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                // How to sample is only open to choice before the first ring.
                Err(e) if self.sources.is_empty() && opened.is_empty() && self.make_do(&e) => continue,
                Err(e) => return Err(e),
            }
            i += 1;
        }
        Ok(opened)
    }

    /// Asks for less after a refusal; `false` if there is nothing less.
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
            self.events.push(Opened { event, named });
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

    /// Lets all events opened since `first` count.
    fn enable(&self, first: usize, first_source: usize) -> io::Result<()> {
        for opened in self.events.get(first..).unwrap_or(&[]) {
            attr::enable(opened.event.as_fd())?;
        }
        for source in self.sources.get(first_source..).unwrap_or(&[]) {
            attr::enable(source.ring.event())?;
        }
        Ok(())
    }

    /// Begins to record a running process. CPU time it used before is of no interest, or, if it is `ours` from the
    /// beginning, lost.
    pub fn attach(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        ours: bool,
        now_ns: u64,
    ) -> Result<(), Error> {
        let about = ProcessInfo::read(pid, now_ns).ok_or_else(|| refused::gone(pid))?;
        let (first, first_source) = (self.events.len(), self.sources.len());
        let (id, recording) = outputs.recording_for(pid)?;
        let mut target = Target::new(about, self.kinds, id, recording);
        let mut known = HashSet::new();
        let period_ns = self.sampling.period_ns;
        // Threads that start while we look are inherited from those whose events are open already, or seen next time.
        for _ in 0..MAX_LISTS {
            let new: Vec<u32> = list_threads(pid).into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.open(tid, false) {
                    Ok(()) => {}
                    // It ended meanwhile.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(e) => {
                        self.events.truncate(first);
                        self.sources.truncate(first_source);
                        return Err(refused::explain(pid, &e));
                    }
                }
                let name = thread_name(pid, tid).unwrap_or_default();
                let base_ns = cpu_ns(pid, tid).unwrap_or(0);
                target.begin(tid, name, if ours { 0 } else { base_ns }, now_ns, period_ns);
                if ours {
                    target.thread(tid, now_ns, period_ns).thread.ledger.lose(loss::UNARMED, 0, base_ns);
                }
            }
        }
        // All ended meanwhile, or the process is one already that only waits to be collected.
        if target.threads.is_empty() {
            return Err(refused::gone(pid));
        }
        // The kernel may have taken earlier events away in exec; what those told last (exec, the end) is still in the rings.
        target.since_ns = monotonic_ns();
        self.enable(first, first_source).map_err(|e| refused::explain(pid, &e))?;
        target.read_maps(outputs.images());
        self.themselves.remove(&pid);
        self.add(outputs, target, now_ns);
        Ok(())
    }

    /// Records the program that the calling thread starts next, from its first instruction on. Our own events stay
    /// switched off: we do not execute anything.
    pub fn attach_child(&mut self) -> Result<(), Error> {
        self.open(0, true).map_err(|e| refused::explain(std::process::id(), &e))
    }
}

/// As much of a stack as lets a ring hold the samples of half a second, or, of what most stacks need, those of a quarter; thirty
/// at least.
fn stack_bytes(ring_bytes: usize, rate: f64) -> u32 {
    let [least, enough, most] = STACK_BYTES;
    let room = |part: f64| (ring_bytes as f64 / (rate / part).max(32.0)) as u32;
    room(2.0).max(room(4.0).min(enough)).clamp(least, most) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_fit_their_ring() {
        for bytes in [64 << 10, 512 << 10, 16 << 20] {
            for rate in [1.0, 99.0, 10_000.0] {
                let stack = stack_bytes(bytes, rate);
                assert!(stack >= STACK_BYTES[0]);
                assert!(stack.is_multiple_of(8) && stack as usize * 8 <= bytes && stack <= 62 << 10);
            }
        }
    }
}
