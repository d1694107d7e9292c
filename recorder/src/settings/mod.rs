//! All options of a recording, with their defaults and limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use flightline_in_signal::layout::{MAX_EVENTS, ProcLayout, SESSION_BYTES, engines, spans};
use flightline_in_signal::state::PRIVATE_BYTES;

pub use crate::output::exposition::ExpositionSettings;
use crate::{error::Error, settings::schedule::Schedule};

mod alloc;
mod calls;
mod cost;
mod cpu;
pub mod labels;
mod metrics;
mod off_cpu;
mod output;
mod processes;
pub mod schedule;
mod selection;
mod spec;
mod stacks;
pub mod units;

pub use alloc::AllocSettings;
pub use calls::{CallSettings, Trace};
pub use cost::{CostSettings, RING_BYTES};
pub use cpu::{CpuSettings, DEFAULT_RATE, Engine, MAX_RATE, MIN_RATE};
pub use metrics::MetricsSettings;
pub use off_cpu::OffCpuSettings;
pub use output::OutputSettings;
pub use processes::ProcessSettings;
pub use selection::ThreadSelection;
pub use spec::{ENGINES, EngineHelp};
pub use stacks::{DEFAULT_DEPTH, StackSettings};

/// The spans to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spans {
    /// None, and samples have no span.
    Off,
    /// Spans that contain a sample.
    #[default]
    Sampled,
    /// All spans.
    All,
}

impl Spans {
    /// Parses `off`, `sampled` or `all`.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn parse(text: &str) -> Result<Spans, String> {
        match text {
            "off" => Ok(Spans::Off),
            "sampled" => Ok(Spans::Sampled),
            "all" => Ok(Spans::All),
            _ => Err(format!("{text:?} is not sampled, all or off")),
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Spans::Off => spans::OFF,
            Spans::Sampled => spans::SAMPLED,
            Spans::All => spans::ALL,
        }
    }
}

/// Longest interval caused by a budget.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of threads of one process that are recorded at the same time.
pub const THREAD_SLOTS: u32 = 4096;
/// Limit of the recorder's memory in a program with default settings, except for two pages per thread and
/// event.
pub const PROGRAM_BYTES: u64 = 16 << 20;
/// Minimum memory for unwind tables of all modules, if rings are large.
const MIN_ROWS_BYTES: u64 = 4 << 20;
/// Bytes of cached stacks per recording above which the dictionary is cleared at a chunk boundary.
pub const DICTIONARY_BYTES: usize = 32 << 20;
/// Limit of cached raw stacks of all processes together, bytes.
pub const STACKS_BYTES: usize = 64 << 20;
/// Smallest and largest share of this for one process, above which its stacks are dropped.
pub const STACK_BYTES: [usize; 2] = [512 << 10, 16 << 20];
/// Limit of samples per process that wait for the symbols of a module.
pub const PENDING_SAMPLES: usize = 200_000;

/// A perf event to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// The user's name for it: `page-faults`, `sched:sched_switch`, `uprobe:libc.so.6:malloc`, `r1a8`.
    pub name: String,
    /// Number of events per sample; the default depends on the kind.
    pub period: Option<u64>,
}

/// Options of a recording, by subject.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// CPU time.
    pub cpu: CpuSettings,
    /// Wall-clock time of all threads, sampled at this interval.
    pub wall: Option<Duration>,
    /// Allocations.
    pub alloc: AllocSettings,
    /// Waits, input and output, exceptions and traced functions.
    pub calls: CallSettings,
    /// Off-CPU time, recorded from outside.
    pub off_cpu: Option<OffCpuSettings>,
    /// Perf events by name.
    pub events: Vec<PerfEvent>,
    /// Metrics of processes, the machine and the recorder.
    pub metrics: MetricsSettings,
    /// The stacks of samples.
    pub stacks: StackSettings,
    /// The spans to record.
    pub spans: Spans,
    /// The processes and threads to record.
    pub processes: ProcessSettings,
    /// How the recording is written.
    pub output: OutputSettings,
    /// The limits of CPU time and memory for recording.
    pub cost: CostSettings,
    /// When sampling starts and ends.
    pub schedule: Schedule,
    /// An engine that cannot record a program is left out with a message. Otherwise it ends the recording with an error.
    pub best_effort: bool,
}

/// Returns an error about the setting `name` unless `holds`.
fn hold(holds: bool, name: &'static str, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Setting { name, problem: problem() }) }
}

fn between(value: Duration, range: &RangeInclusive<Duration>) -> String {
    format!("{value:?} is not between {:?} and {:?}", range.start(), range.end())
}

impl Settings {
    /// Returns the signals of the schedule and of dumps.
    pub(crate) fn trigger_signals(&self) -> Vec<nix::sys::signal::Signal> {
        let mut signals = self.schedule.signals();
        signals.extend(self.output.dumps.as_ref().and_then(|policy| policy.signal));
        signals
    }

    /// Returns the period for `rate` samples per second of CPU time.
    pub fn period_for_rate(rate: f64) -> Result<Duration, Error> {
        if !(MIN_RATE..=MAX_RATE).contains(&rate) {
            return Err(Error::Setting {
                name: "rate",
                problem: format!("{rate} is not between {MIN_RATE} and {MAX_RATE} samples per second"),
            });
        }
        Ok(Duration::from_nanos((1e9 / rate) as u64))
    }

    /// Returns true if CPU time, wall-clock time or a perf event is selected that can be recorded from outside.
    pub fn recordable_from_outside(&self) -> bool {
        self.samples_cpu_time() || !self.events.is_empty()
    }

    /// Checks that the selection can be recorded from outside. `others`: some of the processes are recorded
    /// from inside. `say` receives a message about the engines that are left out.
    ///
    /// # Errors
    /// An engine cannot record any of the processes, unless [`Settings::best_effort`]; or nothing is left.
    pub fn check_outside(&self, others: bool, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let wrong = |problem| Err(Error::Setting { name: "event", problem });
        let nothing = !self.recordable_from_outside() && self.off_cpu.is_none();
        match self.unseen_from_outside() {
            Some(problem) if !others && (nothing || !self.best_effort) => wrong(problem),
            None if nothing && !others => wrong("no events selected".into()),
            unseen => {
                unseen.iter().for_each(|notice| say(notice));
                Ok(())
            }
        }
    }

    /// Returns a message with the selected engines that cannot record a process from outside, and the
    /// alternatives. `None` if all of them can.
    pub fn unseen_from_outside(&self) -> Option<String> {
        const OFF_CPU: &str = "--off-cpu records where threads wait";
        const NOTHING: &str = "";
        let engines = [
            ("-e alloc", self.alloc.interval_bytes.is_some(), "--growth records where memory is mapped"),
            ("-e lock", self.calls.lock.is_some(), OFF_CPU),
            ("-e io", self.calls.io.is_some(), "--syscall-io records reads and writes"),
            ("-e throw", self.calls.throw, NOTHING),
            ("--trace", !self.calls.trace.is_empty(), "-e uprobe:FILE:FUNCTION records calls"),
        ];
        let unseen: Vec<_> = engines.into_iter().filter(|(_, selected, _)| *selected).collect();
        let names: Vec<&str> = unseen.iter().map(|(name, ..)| *name).collect();
        let mut instead: Vec<&str> = unseen.iter().map(|(.., instead)| *instead).collect();
        instead.retain(|text| !text.is_empty());
        instead.dedup();
        let instead = instead.iter().map(|text| format!("; {text}")).collect::<String>();
        (!names.is_empty()).then(|| {
            format!(
                "from outside, {} cannot be recorded: the program must be started by `flightline record -- PROGRAM` and be able to \
                 load a library{instead}",
                names.join(", ")
            )
        })
    }

    /// Returns true if programs sample their CPU time: as events, or as the running part of wall-clock time.
    pub fn samples_cpu_time(&self) -> bool {
        self.cpu.enabled || self.wall.is_some()
    }

    /// Returns the interval of the wall clock in ns, if it is recorded.
    pub fn wall_ns(&self) -> Option<u64> {
        self.wall.map(|wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Returns the samples per second of CPU time.
    pub fn rate(&self) -> f64 {
        1e9 / self.period_ns() as f64
    }

    /// Returns the sampling period of CPU time in ns, never 0: [`CpuSettings::period`], or the interval of the
    /// wall clock if CPU time is sampled only for it.
    pub fn period_ns(&self) -> u64 {
        let period = self.wall.filter(|_| !self.cpu.enabled).unwrap_or(self.cpu.period);
        u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the settings with sampling intervals (CPU time, allocations) and thresholds of waits stretched
    /// by a factor.
    pub fn stretched(&self, by: f64) -> Settings {
        let longer = |time: Duration| time.mul_f64(by).min(LONGEST_INTERVAL.max(time));
        let mut stretched = self.clone();
        stretched.cpu.period = longer(self.cpu.period);
        stretched.alloc.interval_bytes = self.alloc.interval_bytes.map(|bytes| (bytes as f64 * by) as u64);
        stretched.calls.lock = self.calls.lock.map(longer);
        stretched.calls.io = self.calls.io.map(longer);
        stretched
    }

    /// Returns the enabled engines as bits of [`engines`].
    pub fn engine_bits(&self) -> u32 {
        let bits = [
            (self.samples_cpu_time(), engines::CPU),
            (self.wall.is_some(), engines::WALL),
            (self.alloc.interval_bytes.is_some(), engines::ALLOC),
            (self.alloc.live, engines::LIVE),
            (self.calls.lock.is_some(), engines::LOCK),
            (self.calls.io.is_some(), engines::IO),
            (self.calls.throw, engines::THROW),
            (!self.calls.trace.is_empty(), engines::TRACE),
            (!self.events.is_empty(), engines::EVENTS),
        ];
        bits.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit)
    }

    /// Returns an error for values out of range, or that cannot be combined.
    pub fn check(&self) -> Result<(), Error> {
        self.cpu.check()?;
        self.check_wall()?;
        self.alloc.check()?;
        self.calls.check()?;
        self.off_cpu.as_ref().map_or(Ok(()), OffCpuSettings::check)?;
        let events = self.events.len();
        hold(events <= MAX_EVENTS, "event", || {
            format!("{events} perf events; at most {MAX_EVENTS} can be recorded at once")
        })?;
        self.stacks.check()?;
        hold(!self.stacks.addresses || self.cpu.records_lines(), "addresses", || {
            "with --aggregate, addresses need --aggregate-lines".into()
        })?;
        self.processes.check()?;
        self.output.check()?;
        self.cost.check()?;
        let something = self.engine_bits() != 0 || self.metrics.interval.is_some();
        hold(something, "event", || "nothing is to be recorded".into())
    }

    fn check_wall(&self) -> Result<(), Error> {
        let Some(wall) = self.wall else { return Ok(()) };
        let range = Duration::from_millis(1)..=Duration::from_secs(1);
        hold(range.contains(&wall), "event", || format!("wall@{}", between(wall, &range)))?;
        hold(self.cpu.engine != Engine::ProcessTimer, "event", || {
            "itimer does not measure the CPU time of threads, which wall needs; record cpu or ctimer with wall"
                .into()
        })?;
        hold(self.cpu.aggregate.is_none(), "aggregate", || {
            "cannot be combined with wall, because both write the same event type".into()
        })
    }

    /// Returns the bytes of each process's ring: about half a second of samples of 60 frames on every CPU,
    /// 128 KiB to 16 MiB. Each process allocates the pages of its ring when it starts, which costs about 3 µs
    /// of CPU time per 4 KiB.
    pub fn ring_size(&self) -> u64 {
        self.ring_with(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    fn ring_with(&self, cpus: usize) -> u64 {
        self.cost.ring_bytes.unwrap_or_else(|| {
            let bytes = self.rate() * cpus as f64 * 540.0 * 0.5;
            // Allocations come in bursts, while an idle drain pauses.
            let least = if self.alloc.interval_bytes.is_some() { 1 << 20 } else { 128 << 10 };
            let most = if self.rate() < DEFAULT_RATE * 1.01 { 4 << 20 } else { 16 << 20 };
            (bytes as u64).next_power_of_two().clamp(least, most)
        })
    }

    /// Returns the bytes for the unwind tables of all modules: the remainder of [`PROGRAM_BYTES`]. Only used
    /// pages take memory.
    pub fn rows_size(&self) -> u64 {
        Settings::rows_for_ring(self.ring_size())
    }

    fn rows_for_ring(ring: u64) -> u64 {
        let rest = ProcLayout::new(THREAD_SLOTS, ring).end + PRIVATE_BYTES as u64 + SESSION_BYTES as u64;
        (PROGRAM_BYTES.saturating_sub(rest) & !4095).max(MIN_ROWS_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_rate_is_not_aligned_with_timers() {
        let CpuSettings { period, .. } = CpuSettings::default();
        assert_eq!(period.as_nanos(), 10_101_010);
        // Timers of programs and kernels use whole milliseconds, so each sample falls at another point
        // between two ticks.
        assert!((1..=100).all(|beats| period.as_nanos() * beats % 1_000_000 != 0));
    }

    #[test]
    fn settings_outside_limits_are_rejected() {
        assert!(Settings::period_for_rate(0.5).is_err());
        assert!(Settings::period_for_rate(10_001.0).is_err());
        assert!(Settings::period_for_rate(f64::NAN).is_err());
        assert_eq!(Settings::period_for_rate(10_000.0).unwrap(), Duration::from_micros(100));
        assert!(Settings::default().check().is_ok());
        let changed = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().map_err(|error| match error {
                Error::Setting { name, .. } => name,
                other => panic!("{other}"),
            })
        };
        assert_eq!(changed(|s| s.cost.budget = Some(0.003)), Ok(()));
        assert_eq!(changed(|s| s.cost.budget = Some(0.6)), Err("budget"));
        assert_eq!(changed(|s| s.cost.ring_bytes = Some(100_000)), Err("ring-size"));
        assert_eq!(changed(|s| s.stacks.depth = 0), Err("depth"));
        assert_eq!(changed(|s| s.stacks.depth = 2049), Err("depth"));
        assert_eq!(changed(|s| s.cpu.period = Duration::from_micros(99)), Err("interval"));
        assert_eq!(changed(|s| s.cpu.aggregate = Some(Duration::from_millis(1))), Err("aggregate"));
        assert_eq!(changed(|s| s.alloc.live_interval = Duration::ZERO), Err("live-interval"));
        assert_eq!(changed(|s| s.output.flush = Duration::ZERO), Err("flush"));
        assert_eq!(changed(|s| s.output.stream.queue_bytes = 1), Err("queue-size"));
        assert_eq!(changed(|s| s.output.stream.pipe_bytes = Some(1)), Err("pipe-size"));
        assert_eq!(changed(|s| s.processes.labels = vec![("a b".into(), String::new())]), Err("label"));
    }

    #[test]
    fn settings_that_cannot_be_combined_are_rejected() {
        let second = Some(Duration::from_secs(1));
        let mut wall = Settings { wall: second, ..Settings::default() };
        assert!(wall.check().is_ok());
        wall.cpu.aggregate = second;
        assert!(wall.check().is_err());
        wall.cpu.aggregate = None;
        wall.cpu.engine = Engine::ProcessTimer;
        assert!(wall.check().is_err());
        let mut addresses = Settings::default();
        addresses.stacks.addresses = true;
        assert!(addresses.check().is_ok());
        addresses.cpu.aggregate = second;
        assert!(addresses.check().is_err());
        addresses.cpu.aggregate_lines = true;
        assert!(addresses.check().is_ok());
        let mut empty = Settings::default().without_engines();
        assert!(empty.check().is_ok());
        empty.metrics.interval = None;
        assert!(empty.check().is_err());
    }

    #[test]
    fn program_memory_is_bounded() {
        let settings = Settings::default();
        let rest = ProcLayout::new(THREAD_SLOTS, 0).end + PRIVATE_BYTES as u64 + SESSION_BYTES as u64;
        assert!(rest <= 13 << 19, "{rest} bytes without ring and rows");
        for cpus in [1, 2, 4, 64, 128, 1024] {
            let ring = settings.ring_with(cpus);
            let rows = Settings::rows_for_ring(ring);
            assert!(
                rows >= 11 << 19 && rest + ring + rows <= PROGRAM_BYTES,
                "{cpus} CPUs: {rest} + {ring} + {rows}"
            );
        }
        let mut fast = settings;
        fast.cost.ring_bytes = Some(64 << 20);
        assert_eq!(fast.rows_size(), MIN_ROWS_BYTES);
    }

    #[test]
    fn ring_grows_with_the_rate() {
        let slow = Settings::default().ring_size();
        let mut fast = Settings::default();
        fast.cpu.period = Duration::from_micros(100);
        let fast = fast.ring_size();
        assert_eq!(slow, 128 << 10);
        assert!(fast > slow && fast <= 16 << 20 && fast.is_power_of_two());
    }
}
