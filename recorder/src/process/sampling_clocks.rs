//! The clocks that a process is sampled with, and the time that a sample represents.

/// The sampling clocks of a process.
pub(super) struct SamplingClocks {
    /// CPU time that an event represents, ns.
    pub period_ns: u64,
    /// Samples of CPU time are events of their own.
    pub cpu_samples: bool,
    /// Interval of the wall clock, if it is recorded.
    pub wall_ns: Option<u64>,
    /// When recording the wall clock began, CLOCK_MONOTONIC ns; 0: when the program began.
    pub wall_since_ns: u64,
    /// Threads that this machine can run at a time.
    pub threads_at_once: u64,
}

impl SamplingClocks {
    /// CPU time only, an event for each `period_ns`.
    pub fn new(period_ns: u64) -> SamplingClocks {
        SamplingClocks {
            period_ns,
            cpu_samples: true,
            wall_ns: None,
            wall_since_ns: 0,
            threads_at_once: crate::os::system::processors_online(),
        }
    }

    /// Records wall-clock time too; `cpu_too`: samples of CPU time stay events of their own.
    pub fn start_wall(&mut self, interval_ns: u64, cpu_too: bool) {
        self.wall_ns = Some(interval_ns);
        self.cpu_samples = cpu_too;
    }

    /// Records CPU time only.
    pub fn stop_wall(&mut self) {
        self.wall_ns = None;
        self.cpu_samples = true;
    }
}
