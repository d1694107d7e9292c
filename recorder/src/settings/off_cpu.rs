//! Options of off-CPU recording and of the other tracepoints.

use std::time::Duration;

use crate::error::Error;

/// Smallest and largest ring of a processor, bytes.
const RING_BYTES: [u64; 2] = [64 << 10, 256 << 20];
/// Limit of a program's stack that is copied at each switch, bytes: a record must fit into 64 KiB.
const STACK_BYTES: u32 = 32 << 10;

/// Options of recording with tracepoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpuSettings {
    /// Off-CPU time of threads.
    pub switches: bool,
    /// System calls that read, write, connect or accept and take at least this long.
    pub calls: Option<Duration>,
    /// Requests to block devices that take at least this long.
    pub block: Option<Duration>,
    /// Growth of programs' address space.
    pub growth: bool,
    /// Shortest interval that is recorded.
    pub min: Duration,
    /// Wakers, and how long threads then wait in the run queue.
    pub wakeups: bool,
    /// Record all processes of the machine.
    pub all: bool,
    /// Bytes of each processor's ring, a power of two.
    pub ring_bytes: u64,
    /// Bytes of a program's stack that are copied with each record, a multiple of 8.
    pub stack_bytes: u32,
    /// Limit of switches, wake-ups, calls and requests read per second; 0: unlimited.
    pub rate: u32,
}

impl Default for OffCpuSettings {
    fn default() -> OffCpuSettings {
        OffCpuSettings {
            switches: true,
            calls: None,
            block: None,
            growth: false,
            min: Duration::ZERO,
            wakeups: false,
            all: false,
            ring_bytes: 8 << 20,
            stack_bytes: 8 << 10,
            rate: 100_000,
        }
    }
}

impl OffCpuSettings {
    /// Returns the shortest recorded interval, ns.
    pub fn min_ns(&self) -> u64 {
        nanos(self.min)
    }

    /// Returns the shortest recorded system call, ns.
    pub fn call_ns(&self) -> u64 {
        self.calls.map_or(u64::MAX, nanos)
    }

    /// Returns the shortest recorded request, ns.
    pub fn block_ns(&self) -> u64 {
        self.block.map_or(u64::MAX, nanos)
    }

    /// Returns true if anything other than switches is recorded.
    pub fn io(&self) -> bool {
        self.calls.is_some() || self.block.is_some() || self.growth
    }

    /// Returns the option that requested it, the first of several.
    pub fn option(&self) -> &'static str {
        match (self.switches, self.calls, self.block) {
            (true, ..) => "off-cpu",
            (_, Some(_), _) => "syscall-io",
            (.., Some(_)) => "block-io",
            _ => "growth",
        }
    }

    /// Returns an error for values out of range.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::Setting { name: self.option(), problem });
        let [least, most] = RING_BYTES;
        if !self.ring_bytes.is_power_of_two() || !(least..=most).contains(&self.ring_bytes) {
            let bytes = self.ring_bytes;
            return wrong(format!(
                "a ring of {bytes} bytes is not a power of two between {least} and {most}"
            ));
        }
        if self.stack_bytes > STACK_BYTES || !self.stack_bytes.is_multiple_of(8) {
            let bytes = self.stack_bytes;
            return wrong(format!("{bytes} bytes of stack are not a multiple of 8 up to {STACK_BYTES}"));
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
