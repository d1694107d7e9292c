//! Accounting of a thread's wall-clock time.

use jfr_format::schema::thread_state;

use super::off_cpu_slices::OffCpuSlices;
use super::thread_timeline::Carry;

/// The wall-clock accounting of a thread.
#[derive(Clone, Debug, Default)]
pub struct Share {
    running: Carry,
    queued: Carry,
    idle: Carry,
    /// Time in the run queue that is not attributed to a sample yet, ns.
    pub queued_ns: u64,
    started: bool,
    /// The rest of its time, up to its end, is in the recording.
    pub done: bool,
    /// Its own readings at the start and end of spans, if it makes any.
    pub slices: Option<Box<OffCpuSlices>>,
}

impl Share {
    /// Returns the numbers of samples for `ns` of CPU time: running, and waiting for a processor before.
    pub fn running(&mut self, seed: u64, ns: u64, period_ns: u64) -> (u32, u32) {
        self.begin(seed, period_ns);
        let queued_ns = std::mem::take(&mut self.queued_ns);
        (self.running.samples(ns, period_ns), self.queued.samples(queued_ns, period_ns))
    }

    /// Adds time in the run queue, which the next sample carries, ns.
    pub fn add_queued(&mut self, ns: u64) {
        self.queued_ns = self.queued_ns.saturating_add(ns);
    }

    /// Removes and returns the time in the run queue that no sample carries yet, ns.
    pub fn take_queued(&mut self) -> u64 {
        std::mem::take(&mut self.queued_ns)
    }

    /// Returns the number of samples for `ns` off CPU.
    pub fn without(&mut self, state: u64, seed: u64, ns: u64, period_ns: u64) -> u32 {
        self.begin(seed, period_ns);
        match state {
            thread_state::WAITING_FOR_CPU => self.queued.samples(ns, period_ns),
            _ => self.idle.samples(ns, period_ns),
        }
    }

    fn begin(&mut self, seed: u64, period_ns: u64) {
        if !std::mem::replace(&mut self.started, true) {
            self.running = Carry::random(seed, period_ns);
            self.queued = Carry::random(seed ^ 0x5555, period_ns);
            self.idle = Carry::random(seed ^ 0xaaaa, period_ns);
        }
    }
}
