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

use crate::args::{help, sampling::SamplingArgs};

/// Options for recording by tracepoints.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("traced").multiple(true))]
pub struct OffCpuArgs {
    /// Record where and how long threads wait; MIN omits shorter waits, such as --off-cpu=1ms
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns")]
    #[arg(group = "traced", display_order = 7)]
    off_cpu: Option<Duration>,
    /// With --off-cpu: record which thread wakes the waiting thread, the waker's stack, and how long the woken
    /// thread waits for a CPU
    #[arg(long, requires = "off_cpu", help_heading = help::EVENTS)]
    wakeups: bool,
    /// Record system calls that read, write, sync, connect or accept: duration, size, and file or peer; with
    /// MIN only calls of at least that duration, such as --syscall-io=10ms. Works for any process by
    /// tracepoints; `-e io` does the same for programs that flightline starts, without privileges
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns")]
    #[arg(group = "traced", help_heading = help::EVENTS)]
    syscall_io: Option<Duration>,
    /// Record requests to block devices, from the time when a thread of the program queued them to their
    /// completion; with MIN only requests of at least that duration
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns")]
    #[arg(group = "traced", help_heading = help::EVENTS)]
    block_io: Option<Duration>,
    /// Record where the program obtains address space with brk, mmap and mremap; `-e page-faults` records
    /// where it is first used
    #[arg(long, group = "traced", help_heading = help::EVENTS)]
    growth: bool,
    /// With --off-cpu, --syscall-io, --block-io or --growth: record all processes of the machine, until
    /// --duration has passed or a signal arrives
    #[arg(short = 'a', long, requires = "traced", conflicts_with = "pid", help_heading = help::TARGETS)]
    all_processes: bool,
}

/// Limits of recording by tracepoints.
#[derive(Debug, Args)]
pub struct OffCpuLimits {
    /// Tracepoints (--off-cpu, --syscall-io, --block-io, --growth): memory for records per CPU, a power of
    /// two [default: 8M]
    #[arg(long, value_name = "BYTES", requires = "traced", value_parser = bytes, help_heading = help::ADVANCED)]
    off_cpu_ring: Option<u64>,
    /// Tracepoints: bytes of a program's stack to copy with each record and unwind with its unwind
    /// information. With 0 the kernel follows frame pointers, which costs least but misses callers of
    /// functions without them [default: 8k]
    #[arg(long, value_name = "BYTES", requires = "traced", value_parser = bytes, help_heading = help::ADVANCED)]
    off_cpu_stack: Option<u64>,
    /// Tracepoints: limit the records read per second. Excess records are counted as lost; waits that span a
    /// throttled period are still recorded. 0 means unlimited
    #[arg(long, value_name = "N", requires = "traced", default_value_t = 100_000, help_heading = help::ADVANCED)]
    off_cpu_rate: u32,
}

impl OffCpuArgs {
    /// Returns true if all processes are recorded.
    pub fn all(&self) -> bool {
        self.all_processes
    }

    /// Returns the settings with these options added.
    pub fn add_to(
        &self,
        settings: Settings,
        sampling: &SamplingArgs,
        limits: &OffCpuLimits,
    ) -> Result<Settings, Error> {
        if self.off_cpu.is_none() && self.syscall_io.is_none() && self.block_io.is_none() && !self.growth {
            return Ok(settings);
        }
        let new = OffCpuSettings::default();
        let wrong = |problem: &str| Error::Setting { name: "off-cpu", problem: problem.to_owned() };
        if self.all_processes && sampling.names_events() {
            return Err(wrong(
                "-a records only tracepoint events: omit -e, --all-events and --trace, or select processes with -p",
            ));
        }
        if self.syscall_io.is_some() && settings.calls.io.is_some() {
            return Err(Error::Setting {
                name: "syscall-io",
                problem: "`-e io` records the same calls; omit one of the two options".into(),
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
            ring_bytes: limits.off_cpu_ring.unwrap_or(new.ring_bytes),
            stack_bytes: match limits.off_cpu_stack {
                Some(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
                None => new.stack_bytes,
            },
            rate: limits.off_cpu_rate,
        };
        off_cpu.check()?;
        let mut settings = settings;
        settings.cpu.enabled &= !self.all_processes;
        // A thread may have waited, read or written in spans without samples.
        let spans = sampling.spans.unwrap_or(Spans::All);
        Ok(Settings { off_cpu: Some(off_cpu), spans, ..settings })
    }
}
