//! `flightline record --off-cpu`: times that threads are without a processor.

use std::time::Duration;

use clap::Args;
use flightline_recorder::{
    Error, Settings,
    settings::{
        OffCpu, Spans,
        text::{bytes, duration},
    },
};

use crate::record::SamplingArgs;

/// What of off-CPU time is recorded.
#[derive(Debug, Args)]
pub struct OffCpuArgs {
    /// Record each time that a thread is without a processor: where it waits, in which state, for how long; with MIN only from that
    /// time on, as --off-cpu=1ms. By the scheduler's tracepoints, as root or with CAP_PERFMON
    #[arg(long, value_name = "MIN", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "0ns")]
    off_cpu: Option<Duration>,
    /// With --off-cpu: record who wakes the thread, where, and how long it then waits for a processor
    #[arg(long, requires = "off_cpu")]
    wakeups: bool,
    /// With --off-cpu: of all processes of the machine, until --duration is over or a signal comes
    #[arg(short = 'a', long, requires = "off_cpu", conflicts_with = "pid")]
    all_processes: bool,
    /// With --off-cpu: memory for switches per processor, a power of two [default: 8M]
    #[arg(long, value_name = "BYTES", requires = "off_cpu", value_parser = bytes)]
    off_cpu_ring: Option<u64>,
    /// With --off-cpu: bytes of a program's stack that are copied at each switch and walked by its unwind information; 0: the
    /// kernel follows frame pointers, which costs least and misses callers of functions without [default: 8k]
    #[arg(long, value_name = "BYTES", requires = "off_cpu", value_parser = bytes)]
    off_cpu_stack: Option<u64>,
    /// With --off-cpu: look at this many switches and wake-ups a second at most; what is beyond is counted, and what sleeps through is
    /// recorded all the same; 0: any number
    #[arg(long, value_name = "N", requires = "off_cpu", default_value_t = 100_000)]
    off_cpu_rate: u32,
}

impl OffCpuArgs {
    /// Of all processes.
    pub fn all(&self) -> bool {
        self.all_processes
    }

    /// Settings with what is asked for beside them.
    pub fn add_to(&self, settings: Settings, sampling: &SamplingArgs) -> Result<Settings, Error> {
        let Some(min) = self.off_cpu else { return Ok(settings) };
        let new = OffCpu::default();
        let wrong = |problem: &str| Error::Setting { name: "off-cpu", problem: problem.to_owned() };
        if self.all_processes && sampling.names_events() {
            return Err(wrong(
                "of all processes only off-CPU time is recorded: leave -e away, or name processes by -p",
            ));
        }
        let off_cpu = OffCpu {
            min,
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
        let cpu = settings.cpu && !self.all_processes;
        // A thread may have waited in spans in which no sample was taken.
        let spans = sampling.spans.unwrap_or(Spans::All);
        Ok(Settings { off_cpu: Some(off_cpu), cpu, spans, ..settings })
    }
}
