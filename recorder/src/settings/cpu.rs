//! Settings of CPU time samples.

use std::{ops::RangeInclusive, time::Duration};

use flightline_in_signal::layout::engine;

use super::{between, hold};
use crate::error::Error;

/// Lowest sampling rate, per second of CPU time.
pub const MIN_RATE: f64 = 1.0;
/// Highest sampling rate, per second of CPU time.
pub const MAX_RATE: f64 = 10_000.0;
/// Default sampling rate, which avoids lockstep with work done a hundred times per second.
pub const DEFAULT_RATE: f64 = 99.0;
/// Shortest and longest time over which samples are merged.
const AGGREGATE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// The sampling method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The best one that the kernel permits, chosen in the program and reported at the end.
    #[default]
    Auto,
    /// `perf_event_open` with `sigtrap`, including time in the kernel.
    Perf,
    /// Like `Perf`, without time in the kernel, which an additional timer samples at the kernel's tick.
    PerfUser,
    /// One CPU-time timer per thread.
    Timer,
    /// One CPU-time timer for the whole process.
    ProcessTimer,
}

impl Engine {
    pub(crate) fn code(self) -> u32 {
        match self {
            Engine::Auto => engine::AUTO,
            Engine::Perf => engine::PERF,
            Engine::PerfUser => engine::PERF_USER,
            Engine::Timer => engine::TIMER,
            Engine::ProcessTimer => engine::ITIMER,
        }
    }

    /// Returns the name, as used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Perf => "perf",
            Engine::PerfUser => "perf-user",
            Engine::Timer => "timer",
            Engine::ProcessTimer => "itimer",
        }
    }
}

/// How CPU time is sampled.
#[derive(Clone, Debug)]
pub struct CpuSettings {
    /// CPU time is sampled.
    pub enabled: bool,
    /// Sampling period: CPU time of a thread between two of its samples.
    pub period: Duration,
    /// The sampling method.
    pub engine: Engine,
    /// Equal samples are merged over this time and written as one.
    pub aggregate: Option<Duration>,
    /// With [`CpuSettings::aggregate`]: stacks that differ only in lines or inlined functions are distinct.
    pub aggregate_lines: bool,
}

impl Default for CpuSettings {
    fn default() -> CpuSettings {
        CpuSettings {
            enabled: true,
            period: Duration::from_nanos((1e9 / DEFAULT_RATE) as u64),
            engine: Engine::Auto,
            aggregate: None,
            aggregate_lines: false,
        }
    }
}

impl CpuSettings {
    /// Returns true if frames contain lines, addresses within functions, and inlined functions.
    pub fn records_lines(&self) -> bool {
        self.aggregate.is_none() || self.aggregate_lines
    }

    /// Returns the time over which equal samples are merged in ns, if they are.
    pub fn aggregate_ns(&self) -> Option<u64> {
        self.aggregate.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Returns an error for values out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        let range = Duration::from_secs_f64(1.0 / MAX_RATE)..=Duration::from_secs_f64(1.0 / MIN_RATE);
        hold(range.contains(&self.period), "interval", || between(self.period, &range))?;
        let Some(time) = self.aggregate else { return Ok(()) };
        hold(AGGREGATE.contains(&time), "aggregate", || between(time, &AGGREGATE))
    }
}
