//! All options of a recording, with their defaults and limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use flightline_in_signal::layout::{
    MAX_DEPTH, MAX_EVENTS, MAX_TRACES, ProcLayout, SESSION_BYTES, engine, engines, spans,
};
use flightline_in_signal::state::PRIVATE_BYTES;

use crate::{error::Error, output::dump::Policy, output::exposition::Places, settings::schedule::Schedule};

pub mod labels;
mod off_cpu;
pub mod schedule;
mod selection;
mod spec;
pub mod units;

pub use off_cpu::OffCpu;
pub use selection::ThreadSelection;
pub use spec::{ENGINES, EngineHelp};

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

/// Lowest sampling rate, per second of CPU time.
pub const MIN_RATE: f64 = 1.0;
/// Highest sampling rate, per second of CPU time.
pub const MAX_RATE: f64 = 10_000.0;
/// Default sampling rate, which avoids lockstep with work done a hundred times per second.
pub const DEFAULT_RATE: f64 = 99.0;
/// Longest interval caused by a budget.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Smallest and largest budget, as a share.
const BUDGETS: [f64; 2] = [0.0001, 0.5];
/// Default depth of a stack, in frames.
pub const DEFAULT_DEPTH: u32 = 1024;
/// Limit of threads of one process that are recorded at the same time.
pub const THREAD_SLOTS: u32 = 4096;
/// Smallest and largest ring of a process, in bytes.
pub const RING_BYTES: [u64; 2] = [64 << 10, 256 << 20];
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

/// A function whose slow calls are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `function` or `library:function`.
    pub function: String,
    /// Shortest call that is recorded.
    pub threshold: Duration,
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sampling period: CPU time of a thread between two of its samples.
    pub period: Duration,
    /// CPU time is sampled.
    pub cpu: bool,
    /// How CPU time is sampled.
    pub engine: Engine,
    /// Limit of the cost of recording, as a share of the programs' CPU time, or of one processor if they use
    /// less. Intervals are stretched while the cost is higher.
    pub budget: Option<f64>,
    /// Equal CPU time samples are merged over this time and written as one.
    pub aggregate: Option<Duration>,
    /// With [`Settings::aggregate`]: stacks that differ only in lines or inlined functions are distinct.
    pub aggregate_lines: bool,
    /// Frames contain code addresses instead of source lines and inlined functions.
    pub addresses: bool,
    /// The destinations of the recorder's own metrics.
    pub exposition: Places,
    /// Wall-clock time of all threads, sampled at this interval.
    pub wall: Option<Duration>,
    /// Allocations: one sample per this number of bytes on average.
    pub alloc: Option<u64>,
    /// Frees of sampled allocations too. Allocations that are never freed are recorded at the end.
    pub live: bool,
    /// With [`Settings::live`]: interval between summaries of live memory by stack.
    pub live_interval: Duration,
    /// Waits for locks at least this long.
    pub lock: Option<Duration>,
    /// Reads and writes at least this long.
    pub io: Option<Duration>,
    /// Off-CPU time, recorded from outside.
    pub off_cpu: Option<OffCpu>,
    /// Exceptions and panics.
    pub throw: bool,
    /// Calls of functions by name that take at least this long.
    pub trace: Vec<Trace>,
    /// The program to record, if known: functions to trace are looked up in it.
    pub program: Option<std::path::PathBuf>,
    /// Perf events by name.
    pub events: Vec<PerfEvent>,
    /// Interval of process and machine metrics.
    pub metrics: Option<Duration>,
    /// Limit of frames per stack, at most [`MAX_DEPTH`].
    pub depth: u32,
    /// Time between two flushes: the age of the oldest sample that a reader has not got yet.
    pub flush: Duration,
    /// Options of streams, if the output is one.
    pub stream: crate::output::sink::stream::Options,
    /// Each flush is synchronized with the disk (`fdatasync`), in a thread of its own.
    pub sync: bool,
    /// Overwrite an output file that exists. Otherwise it is renamed to `NAME.old` before the recording
    /// begins.
    pub overwrite: bool,
    /// Bytes of each process's ring, a power of two; `None` derives it from rate and processors.
    pub ring_bytes: Option<u64>,
    /// Record children (fork, exec) too.
    pub follow: bool,
    /// Only these threads are recorded.
    pub threads: Option<ThreadSelection>,
    /// Processes that wait for the recorder are recorded from outside as well.
    pub outside: bool,
    /// An engine that cannot record a program is left out with a message. Otherwise it ends the recording with an error.
    pub best_effort: bool,
    /// Leave the arguments of the recorded programs out of the recording.
    pub redact_args: bool,
    /// Record the last samples of all threads when a signal ends a program. By default, only in a repository.
    pub fatal_signals: Option<bool>,
    /// The spans to record.
    pub spans: Spans,
    /// Labels of each process, in addition to those that the recorder detects; see
    /// [`crate::settings::labels`].
    pub labels: Vec<crate::settings::labels::Label>,
    /// When sampling starts and ends.
    pub schedule: Schedule,
    /// When the recorder copies the recording on its own.
    pub dumps: Option<Policy>,
    /// Count the cost of the signal handler (for measurements of Flightline itself).
    pub measure: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Duration::from_nanos((1e9 / DEFAULT_RATE) as u64),
            cpu: true,
            engine: Engine::Auto,
            budget: None,
            aggregate: None,
            aggregate_lines: false,
            addresses: false,
            exposition: Places::default(),
            wall: None,
            alloc: None,
            live: false,
            live_interval: Duration::from_secs(60),
            lock: None,
            io: None,
            off_cpu: None,
            throw: false,
            trace: Vec::new(),
            program: None,
            events: Vec::new(),
            metrics: Some(Duration::from_secs(1)),
            depth: DEFAULT_DEPTH,
            flush: Duration::from_secs(1),
            stream: crate::output::sink::stream::Options::default(),
            sync: false,
            overwrite: false,
            ring_bytes: None,
            follow: true,
            threads: None,
            outside: false,
            best_effort: false,
            redact_args: false,
            fatal_signals: None,
            spans: Spans::default(),
            labels: Vec::new(),
            schedule: Schedule::default(),
            dumps: None,
            measure: false,
        }
    }
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
        signals.extend(self.dumps.as_ref().and_then(|policy| policy.signal));
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
            ("-e alloc", self.alloc.is_some(), "--growth records where memory is mapped"),
            ("-e lock", self.lock.is_some(), OFF_CPU),
            ("-e io", self.io.is_some(), "--syscall-io records reads and writes"),
            ("-e throw", self.throw, NOTHING),
            ("--trace", !self.trace.is_empty(), "-e uprobe:FILE:FUNCTION records calls"),
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
        self.cpu || self.wall.is_some()
    }

    /// Returns the interval of the wall clock in ns, if it is recorded.
    pub fn wall_ns(&self) -> Option<u64> {
        self.wall.map(|wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Returns true if frames contain lines, addresses within functions, and inlined functions.
    pub fn records_lines(&self) -> bool {
        self.aggregate.is_none() || self.aggregate_lines
    }

    /// Returns the time over which equal samples are merged in ns, if they are.
    pub fn aggregate_ns(&self) -> Option<u64> {
        self.aggregate.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Returns the samples per second of CPU time.
    pub fn rate(&self) -> f64 {
        1e9 / self.period_ns() as f64
    }

    /// Returns the sampling period of CPU time in ns, never 0: [`Settings::period`], or the interval of the
    /// wall clock if CPU time is sampled only for it.
    pub fn period_ns(&self) -> u64 {
        let period = self.wall.filter(|_| !self.cpu).unwrap_or(self.period);
        u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the settings with sampling intervals (CPU time, allocations) and thresholds of waits stretched
    /// by a factor.
    pub fn stretched(&self, by: f64) -> Settings {
        let longer = |time: Duration| time.mul_f64(by).min(LONGEST_INTERVAL.max(time));
        Settings {
            period: longer(self.period),
            alloc: self.alloc.map(|bytes| (bytes as f64 * by) as u64),
            lock: self.lock.map(longer),
            io: self.io.map(longer),
            ..self.clone()
        }
    }

    /// Returns the enabled engines as bits of [`engines`].
    pub fn engine_bits(&self) -> u32 {
        let bits = [
            (self.samples_cpu_time(), engines::CPU),
            (self.wall.is_some(), engines::WALL),
            (self.alloc.is_some(), engines::ALLOC),
            (self.live, engines::LIVE),
            (self.lock.is_some(), engines::LOCK),
            (self.io.is_some(), engines::IO),
            (self.throw, engines::THROW),
            (!self.trace.is_empty(), engines::TRACE),
            (!self.events.is_empty(), engines::EVENTS),
        ];
        bits.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit)
    }

    /// Returns an error for values out of range.
    pub fn check(&self) -> Result<(), Error> {
        self.check_times()?;
        self.check_limits()?;
        if let Some(off_cpu) = &self.off_cpu {
            off_cpu.check()?;
        }
        self.dumps.as_ref().map_or(Ok(()), Policy::check)?;
        let something = self.engine_bits() != 0 || self.metrics.is_some();
        hold(something, "event", || "nothing is to be recorded".into())
    }

    fn check_times(&self) -> Result<(), Error> {
        let second = Duration::from_secs(1);
        let range = Duration::from_secs_f64(1.0 / MAX_RATE)..=Duration::from_secs_f64(1.0 / MIN_RATE);
        hold(range.contains(&self.period), "interval", || between(self.period, &range))?;
        if let Some(wall) = self.wall {
            let range = Duration::from_millis(1)..=second;
            hold(range.contains(&wall), "event", || format!("wall@{}", between(wall, &range)))?;
            hold(self.engine != Engine::ProcessTimer, "event", || {
                "itimer does not measure the CPU time of threads, which wall needs; record cpu or ctimer with wall".into()
            })?;
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        hold(range.contains(&self.flush), "flush", || between(self.flush, &range))?;
        hold(self.live_interval >= second, "live-interval", || {
            format!("{:?} is too short; give at least 1s", self.live_interval)
        })?;
        hold(!self.addresses || self.records_lines(), "addresses", || {
            "with --aggregate, addresses need --aggregate-lines".into()
        })?;
        let Some(time) = self.aggregate else { return Ok(()) };
        hold(self.wall.is_none(), "aggregate", || {
            "cannot be combined with wall, because both write the same event type".into()
        })?;
        let range = second..=Duration::from_secs(3600);
        hold(range.contains(&time), "aggregate", || between(time, &range))
    }

    fn check_limits(&self) -> Result<(), Error> {
        let depth = self.depth;
        hold((1..=MAX_DEPTH).contains(&(depth as usize)), "depth", || {
            format!("{depth} is not between 1 and {MAX_DEPTH} frames")
        })?;
        let traces = self.trace.len();
        hold(traces <= MAX_TRACES, "trace", || {
            format!("{traces} functions; at most {MAX_TRACES} can be traced at once")
        })?;
        let events = self.events.len();
        hold(events <= MAX_EVENTS, "event", || {
            format!("{events} perf events; at most {MAX_EVENTS} can be recorded at once")
        })?;
        if let Some(share) = self.budget {
            let range = BUDGETS[0]..=BUDGETS[1];
            hold(range.contains(&share), "budget", || {
                format!("{} % is not between 0.01 % and 50 %", share * 100.0)
            })?;
        }
        if let Some(bytes) = self.ring_bytes {
            let [least, most] = RING_BYTES;
            hold(bytes.is_power_of_two() && (least..=most).contains(&bytes), "ring-size", || {
                format!("{bytes} is not a power of two between {least} and {most} bytes")
            })?;
        }
        Ok(())
    }

    /// Returns the bytes of each process's ring: about half a second of samples of 60 frames on every CPU,
    /// 128 KiB to 16 MiB. Each process allocates the pages of its ring when it starts, which costs about 3 µs
    /// of CPU time per 4 KiB.
    pub fn ring_size(&self) -> u64 {
        self.ring_with(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    fn ring_with(&self, cpus: usize) -> u64 {
        self.ring_bytes.unwrap_or_else(|| {
            let bytes = self.rate() * cpus as f64 * 540.0 * 0.5;
            // Allocations come in bursts, while an idle drain pauses.
            let least = if self.alloc.is_some() { 1 << 20 } else { 128 << 10 };
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
    fn the_usual_rate_keeps_step_with_no_timer() {
        let Settings { period, .. } = Settings::default();
        assert_eq!(period.as_nanos(), 10_101_010);
        // Timers of programs and kernels use whole milliseconds, so each sample falls at another point
        // between two ticks.
        assert!((1..=100).all(|beats| period.as_nanos() * beats % 1_000_000 != 0));
    }

    #[test]
    fn limits() {
        assert!(Settings::period_for_rate(0.5).is_err());
        assert!(Settings::period_for_rate(10_001.0).is_err());
        assert!(Settings::period_for_rate(f64::NAN).is_err());
        assert_eq!(Settings::period_for_rate(10_000.0).unwrap(), Duration::from_micros(100));
        assert!(Settings::default().check().is_ok());
        assert!(Settings { budget: Some(0.6), ..Settings::default() }.check().is_err());
        assert!(Settings { budget: Some(0.003), ..Settings::default() }.check().is_ok());
        assert!(Settings { depth: 0, ..Settings::default() }.check().is_err());
        assert!(Settings { depth: 2049, ..Settings::default() }.check().is_err());
        assert!(Settings { ring_bytes: Some(100_000), ..Settings::default() }.check().is_err());
        assert!(Settings { period: Duration::from_micros(99), ..Settings::default() }.check().is_err());
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
        let fast = Settings { ring_bytes: Some(64 << 20), ..settings };
        assert_eq!(fast.rows_size(), MIN_ROWS_BYTES);
    }

    #[test]
    fn ring_grows_with_the_rate() {
        let slow = Settings::default().ring_size();
        let fast = Settings { period: Duration::from_micros(100), ..Settings::default() }.ring_size();
        assert_eq!(slow, 128 << 10);
        assert!(fast > slow && fast <= 16 << 20 && fast.is_power_of_two());
    }
}
