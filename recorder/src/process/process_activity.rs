//! Detects whether threads of a process ran, from the CPU clock of the process.

use nix::time::ClockId;

use crate::os::clock::process_cpu_ns;

/// The result of reading the clock.
pub(super) enum Reading {
    /// The clock cannot be read: the process is gone.
    Unknown,
    /// No thread ran since the last reading.
    Still,
    /// CPU time since the last reading, ns. It is 0 at the first reading.
    Ran(u64),
}

/// The CPU clock of a process, and when it last changed.
pub(super) struct ProcessActivity {
    pid: u32,
    /// A `timer_t`, as a number so that the struct is `Send`.
    timer: Option<usize>,
    /// The clock at the last reading, ns.
    clock_ns: u64,
    /// When the clock was last found changed, ns.
    moved_ns: u64,
    /// Until when it is known to be unchanged since, ns.
    still_ns: u64,
    /// The previous values of both: a thread examined after the first time has waited until the second.
    still_before: (u64, u64),
    /// The clock has not been read since the start.
    first: bool,
}

impl ProcessActivity {
    /// Returns the state for process `pid`.
    pub fn new(pid: u32) -> ProcessActivity {
        ProcessActivity {
            pid,
            timer: None,
            clock_ns: 0,
            moved_ns: 0,
            still_ns: 0,
            still_before: (0, 0),
            first: true,
        }
    }

    /// Restarts: the next reading counts as activity.
    pub fn restart(&mut self) {
        self.first = true;
    }

    /// Returns true if the clock has not been read since the start.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Reads the clock.
    pub fn read(&mut self, now_ns: u64) -> Reading {
        let Some(clock_ns) = process_cpu_ns(self.pid) else { return Reading::Unknown };
        let ran_ns = clock_ns.saturating_sub(self.clock_ns);
        if ran_ns == 0 && !self.first {
            self.still_ns = now_ns;
            return Reading::Still;
        }
        self.clock_ns = clock_ns;
        self.still_before = (self.moved_ns, self.still_ns);
        self.moved_ns = now_ns;
        let first = std::mem::take(&mut self.first);
        Reading::Ran(if first { 0 } else { ran_ns })
    }

    /// Returns true if a thread that was examined at `checked_ns` may have run since.
    pub fn moved_since(&self, checked_ns: u64) -> bool {
        checked_ns < self.moved_ns
    }

    /// Returns until when a thread that was examined at `checked_ns` has certainly not run, if that is known.
    pub fn still_until(&self, checked_ns: u64) -> Option<u64> {
        let (since_ns, still_ns) = self.still_before;
        (checked_ns >= since_ns && still_ns > checked_ns).then_some(still_ns)
    }

    /// Makes the clock cheap to read. The kernel adds up a process's CPU time thread by thread at every
    /// reading, unless a timer on that clock makes it maintain the sum. This creates a timer that never
    /// expires.
    pub fn make_clock_cheap(&mut self) {
        if self.timer.is_some() {
            return;
        }
        let clock = ClockId::from_raw((!(self.pid as i32) << 3) | 2);
        // SAFETY: all zero is a valid structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGURG;
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: valid pointers to locals.
        if unsafe { libc::timer_create(clock.as_raw(), &raw mut event, &raw mut timer) } != 0 {
            return;
        }
        self.timer = Some(timer as usize);
        let never = libc::timespec { tv_sec: 1 << 32, tv_nsec: 0 };
        let spec =
            libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        // SAFETY: our own timer and a valid structure. If it fails, reading the clock is only slower.
        unsafe { libc::timer_settime(timer, 0, &raw const spec, std::ptr::null_mut()) };
    }
}

impl Drop for ProcessActivity {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // SAFETY: our own timer, deleted once.
            unsafe { libc::timer_delete(timer as libc::timer_t) };
        }
    }
}
