//! A thread's account of wall-clock time.

use jfr_format::schema::thread_state;

use super::off_cpu_slices::OffCpuSlices;
use super::thread_timeline::Carry;

/// The state of such an account.
#[derive(Clone, Debug, Default)]
pub struct Share {
    running: Carry,
    queued: Carry,
    idle: Carry,
    /// Time without a processor that no sample carries yet, ns.
    pub queued_ns: u64,
    begun: bool,
    /// Its end is in the recording.
    pub done: bool,
    /// Its own readings at the beginnings and ends of spans, if it makes any.
    pub slices: Option<Box<OffCpuSlices>>,
}

impl Share {
    /// Samples of a running thread for `ns` of CPU time, and of waiting for a processor before.
    pub fn running(&mut self, seed: u64, ns: u64, period_ns: u64) -> (u32, u32) {
        self.begin(seed, period_ns);
        let queued_ns = std::mem::take(&mut self.queued_ns);
        (self.running.samples(ns, period_ns), self.queued.samples(queued_ns, period_ns))
    }

    /// Adds time without a processor that the next sample carries, ns.
    pub fn add_queued(&mut self, ns: u64) {
        self.queued_ns = self.queued_ns.saturating_add(ns);
    }

    /// Takes the time without a processor that no sample carries yet, ns.
    pub fn take_queued(&mut self) -> u64 {
        std::mem::take(&mut self.queued_ns)
    }

    /// Samples of a thread that was without a processor for `ns`.
    pub fn without(&mut self, state: u64, seed: u64, ns: u64, period_ns: u64) -> u32 {
        self.begin(seed, period_ns);
        match state {
            thread_state::WAITING_FOR_CPU => self.queued.samples(ns, period_ns),
            _ => self.idle.samples(ns, period_ns),
        }
    }

    fn begin(&mut self, seed: u64, period_ns: u64) {
        if !std::mem::replace(&mut self.begun, true) {
            self.running = Carry::random(seed, period_ns);
            self.queued = Carry::random(seed ^ 0x5555, period_ns);
            self.idle = Carry::random(seed ^ 0xaaaa, period_ns);
        }
    }
}
