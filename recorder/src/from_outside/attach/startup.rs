//! Samples a program from its exec until it samples itself: the time of the kernel and the dynamic loader
//! before any preloaded code runs. Uses perf events that the exec enables; they are read here and closed at
//! the hand-over.

use std::{io, os::fd::AsFd};

use super::watched::split;
use crate::perf_events::{
    attr::{self, Sampling},
    machine::online,
    record::{self, Record},
    ring::Ring,
};
use crate::process::pre_registration_samples::Early;

/// Limits of the sampling interval. A start is short, and samples carry correct weights at any interval.
const PERIOD_NS: [u64; 2] = [500_000, 1_000_000];
/// Bytes of stack copied. The loader's stack is small.
const STACK_BYTES: u32 = 16 << 10;
/// Ring size per processor, bytes: the amount that an ordinary user may map.
const RING_BYTES: usize = 512 << 10;
/// Limit of copied stacks, bytes.
const KEPT_BYTES: usize = 16 << 20;

struct Source {
    ring: Ring,
    /// Count of its event at the last sample, ns.
    counted_ns: u64,
    missing: u64,
}

/// The events of the program that the calling thread starts next.
pub struct Startup {
    sampling: Sampling,
    sources: Vec<Source>,
    samples: Vec<Early>,
    bytes: usize,
    /// The PID of the program, once it is started.
    pub pid: u32,
}

impl Startup {
    /// Opens the events, disabled until the exec. Returns `None` if the kernel does not permit them; the
    /// startup time is then lost and reported as such.
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
                    // An offline processor would matter only if the program started there.
                    Err(_) => return None,
                }
            };
            let ring = Ring::map(event, RING_BYTES).ok()?;
            sources.push(Source { ring, counted_ns: 0, missing: 0 });
        }
        Some(Startup { sampling, sources, samples: Vec::new(), bytes: 0, pid: 0 })
    }

    /// Reads the rings.
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
                        // Weight that belongs to lost samples remains lost.
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

    /// Disables the events and takes the samples before `until_ns`, in order of time.
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

/// Requests fewer features after a refusal. Returns false if there is nothing left to drop.
fn less(sampling: &mut Sampling, refusal: &io::Error) -> bool {
    match refusal.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if sampling.kernel => sampling.kernel = false,
        Some(libc::EINVAL) if sampling.counts => sampling.counts = false,
        _ => return false,
    }
    true
}
