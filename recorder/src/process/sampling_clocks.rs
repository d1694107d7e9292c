//! The sampling clocks of a process, and the time that a sample represents.

/// The sampling clocks of a process.
pub(super) struct SamplingClocks {
    /// CPU time that an event represents, ns.
    pub period_ns: u64,
    /// CPU time samples are written as events.
    pub cpu_samples: bool,
    /// Interval of the wall clock, if it is recorded.
    pub wall_ns: Option<u64>,
    /// When recording of the wall clock started, CLOCK_MONOTONIC ns; 0: at the start of the program.
    pub wall_since_ns: u64,
    /// Number of threads that this machine can run at a time.
    pub threads_at_once: u64,
}

impl SamplingClocks {
    /// Returns clocks for CPU time only, with an event for each `period_ns`.
    pub fn new(period_ns: u64) -> SamplingClocks {
        SamplingClocks {
            period_ns,
            cpu_samples: true,
            wall_ns: None,
            wall_since_ns: 0,
            threads_at_once: crate::os::system::processors_online(),
        }
    }

    /// Starts to record wall-clock time. `cpu_too`: CPU time samples are still written as events.
    pub fn start_wall(&mut self, interval_ns: u64, cpu_too: bool) {
        self.wall_ns = Some(interval_ns);
        self.cpu_samples = cpu_too;
    }

    /// Stops recording wall-clock time.
    pub fn stop_wall(&mut self) {
        self.wall_ns = None;
        self.cpu_samples = true;
    }
}
