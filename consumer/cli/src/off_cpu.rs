//! `flightline record --off-cpu`, `--syscall-io`, `--block-io`, `--growth`: recording by tracepoints.

use std::time::Duration;

use clap::{ArgGroup, Args};
use flightline_recorder::{
    Error, Settings,
    settings::{
        OffCpuSettings, Spans,
        units::{bytes, duration},
    },
};

use crate::record::SamplingArgs;

/// Options for recording by tracepoints.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("traced").multiple(true))]
pub struct OffCpuArgs {
    /// Record each time that a thread is off the CPU: where it waits, in which state and how long; with MIN
    /// only waits of at least that duration, such as --off-cpu=1ms. Uses the scheduler's tracepoints, as root
    /// or with CAP_PERFMON
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns", group = "traced")]
    off_cpu: Option<Duration>,
    /// With --off-cpu: record which thread wakes the waiting one, where, and how long the latter then waits
    /// for a CPU
    #[arg(long, requires = "off_cpu")]
    wakeups: bool,
    /// Record system calls that read, write, sync, connect or accept: duration, size, and file or peer; with
    /// MIN only calls of at least that duration, such as --syscall-io=10ms. Works for any process, by
    /// tracepoints; `-e io` does the same for preloaded programs without privileges
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns", group = "traced")]
    syscall_io: Option<Duration>,
    /// Record requests to block devices, from the time when a thread of the program queued them to their
    /// completion; with MIN only requests of at least that duration
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns", group = "traced")]
    block_io: Option<Duration>,
    /// Record where the program obtains address space, by brk, mmap and mremap; `-e page-faults` records
    /// where it is first used
    #[arg(long, group = "traced")]
    growth: bool,
    /// With --off-cpu, --syscall-io, --block-io or --growth: record all processes of the machine, until
    /// --duration has passed or a signal arrives
    #[arg(short = 'a', long, requires = "traced", conflicts_with = "pid")]
    all_processes: bool,
    /// With these options: memory for their records per CPU, a power of two [default: 8M]
    #[arg(long, value_name = "BYTES", requires = "traced", value_parser = bytes)]
    off_cpu_ring: Option<u64>,
    /// With these options: bytes of a program's stack to copy with each record and unwind with its unwind
    /// information; 0: let the kernel follow frame pointers, which costs least but misses callers of
    /// functions without [default: 8k]
    #[arg(long, value_name = "BYTES", requires = "traced", value_parser = bytes)]
    off_cpu_stack: Option<u64>,
    /// With these options: limit the tracepoint records read per second. Excess records are counted as lost;
    /// waits that span a throttled period are still recorded. 0 means unlimited
    #[arg(long, value_name = "N", requires = "traced", default_value_t = 100_000)]
    off_cpu_rate: u32,
}

impl OffCpuArgs {
    /// Returns true if all processes are recorded.
    pub fn all(&self) -> bool {
        self.all_processes
    }

    /// Returns the settings with these options added.
    pub fn add_to(&self, settings: Settings, sampling: &SamplingArgs) -> Result<Settings, Error> {
        if self.off_cpu.is_none() && self.syscall_io.is_none() && self.block_io.is_none() && !self.growth {
            return Ok(settings);
        }
        let new = OffCpuSettings::default();
        let wrong = |problem: &str| Error::Setting { name: "off-cpu", problem: problem.to_owned() };
        if self.all_processes && sampling.names_events() {
            return Err(wrong(
                "of all processes only what tracepoints tell is recorded: leave -e away, or name processes by -p",
            ));
        }
        if self.syscall_io.is_some() && settings.calls.io.is_some() {
            return Err(Error::Setting {
                name: "syscall-io",
                problem: "-e io records the same calls: leave one of them away".into(),
            });
        }
        let off_cpu = OffCpuSettings {
            switches: self.off_cpu.is_some(),
            calls: self.syscall_io,
            block: self.block_io,
            growth: self.growth,
            min: self.off_cpu.unwrap_or_default(),
            wakeups: self.wakeups,
            all: self.all_processes,
            ring_bytes: self.off_cpu_ring.unwrap_or(new.ring_bytes),
            stack_bytes: match self.off_cpu_stack {
                Some(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
                None => new.stack_bytes,
            },
            rate: self.off_cpu_rate,
        };
        off_cpu.check()?;
        let mut settings = settings;
        settings.cpu.enabled &= !self.all_processes;
        // A thread may have waited, read or written in spans without samples.
        let spans = sampling.spans.unwrap_or(Spans::All);
        Ok(Settings { off_cpu: Some(off_cpu), spans, ..settings })
    }
}
