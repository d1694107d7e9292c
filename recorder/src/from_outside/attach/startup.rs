//! A program's CPU time from its exec to the moment when it begins to sample itself: what the kernel and the dynamic
//! loader do before any preloaded code runs. Perf events that the exec switches on, read here, and closed at the hand-over.

use std::{io, os::fd::AsFd};

use super::watched::split;
use crate::perf_events::{
    attr::{self, Sampling},
    machine::online,
    record::{self, Record},
    ring::Ring,
};
use crate::process::pre_registration_samples::Early;

/// Shortest and longest CPU time from sample to sample: a start is short, and weights are true at any period.
const PERIOD_NS: [u64; 2] = [500_000, 1_000_000];
/// Bytes of stack copied: the loader's stack is small.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of a processor's ring: what an ordinary user may map.
const RING_BYTES: usize = 512 << 10;
/// Bytes of copied stacks that are kept.
const KEPT_BYTES: usize = 16 << 20;

struct Source {
    ring: Ring,
    /// What its event had counted at the last sample, ns.
    counted_ns: u64,
    missing: u64,
}

/// The events of the program that the calling thread starts next.
pub struct Startup {
    sampling: Sampling,
    sources: Vec<Source>,
    samples: Vec<Early>,
    bytes: usize,
    /// The program, once it is started.
    pub pid: u32,
}

impl Startup {
    /// Opens the events, disabled until the exec. `None` if the kernel does not allow them: the time is lost then and told
    /// so, as without all this.
    pub fn open(period_ns: u64) -> Option<Startup> {
        let mut sampling = Sampling {
            clock: true,
            numbered: false,
            period_ns: period_ns.clamp(PERIOD_NS[0], PERIOD_NS[1]),
            kernel: true,
            counts: true,
            children: true,
            from_exec: true,
            stack_bytes: STACK_BYTES,
            wake_bytes: (RING_BYTES / 2) as u32,
        };
        let mut sources = Vec::new();
        for cpu in online() {
            let event = loop {
                match sampling.open(0, cpu) {
                    Ok(event) => break event,
                    Err(refusal) if sources.is_empty() && less(&mut sampling, &refusal) => {}
                    // A processor that went off line would be missing only if the program started there.
                    Err(_) => return None,
                }
            };
            let ring = Ring::map(event, RING_BYTES).ok()?;
            sources.push(Source { ring, counted_ns: 0, missing: 0 });
        }
        Some(Startup { sampling, sources, samples: Vec::new(), bytes: 0, pid: 0 })
    }

    /// Takes in what the rings hold.
    pub fn read(&mut self) {
        let Startup { sampling, sources, samples, bytes, pid } = self;
        for Source { ring, counted_ns, missing } in sources {
            let head = ring.head();
            let mut at = ring.tail();
            while let Some((len, _)) = ring.look(at, head, record::time_at) {
                match record::parse(ring.record(at, len), sampling.sample_type()) {
                    Some(Record::Sample(sample)) if sample.tid == *pid => {
                        let counted = sample.count.map(|count| count.saturating_sub(*counted_ns));
                        *counted_ns = sample.count.unwrap_or(0);
                        let period_ns = sampling.period_ns;
                        // What belongs to other samples than this one stays lost.
                        let split =
                            split(counted.unwrap_or(period_ns), period_ns, *missing, !sampling.kernel);
                        *missing -= split.lost.0;
                        if *bytes < KEPT_BYTES {
                            *bytes += sample.stack.len();
                            samples.push(Early::new(sample, split.own_ns));
                        }
                    }
                    Some(Record::Lost(count)) => *missing += count,
                    _ => {}
                }
                at += len as u64;
            }
            ring.release(at);
        }
    }

    /// Switches the events off and takes the samples from before `until_ns`, in order of time.
    pub fn end(mut self, until_ns: u64) -> Vec<Early> {
        for source in &self.sources {
            let _ = attr::disable(source.ring.event().as_fd());
        }
        self.read();
        self.samples.retain(|early| early.time_ns < until_ns);
        self.samples.sort_by_key(|early| early.time_ns);
        self.samples
    }
}

/// Asks for less after a refusal; `false` if there is nothing less.
fn less(sampling: &mut Sampling, refusal: &io::Error) -> bool {
    match refusal.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if sampling.kernel => sampling.kernel = false,
        Some(libc::EINVAL) if sampling.counts => sampling.counts = false,
        _ => return false,
    }
    true
}
