//! Every option of a recording with its default and limits, in one place.

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

/// Which way samples are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The best one the kernel allows, chosen in the program and told at the end.
    #[default]
    Auto,
    /// `perf_event_open` with `sigtrap`, including time in the kernel.
    Perf,
    /// The same without time in the kernel, which a timer beside it covers at the kernel's tick.
    PerfUser,
    /// One CPU-time timer per thread.
    Timer,
    /// One CPU-time timer for the whole process.
    ProcessTimer,
}

/// What of spans is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spans {
    /// Nothing, and samples do not know theirs.
    Off,
    /// Those that a sample fell into.
    #[default]
    Sampled,
    /// All.
    All,
}

impl Spans {
    /// `off`, `sampled` or `all`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Spans, String> {
        match text {
            "off" => Ok(Spans::Off),
            "sampled" => Ok(Spans::Sampled),
            "all" => Ok(Spans::All),
            _ => Err(format!("{text:?} is none of sampled, all, off")),
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

    /// As on the command line.
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
/// Default sampling rate: off the beat of work done a hundred times a second.
pub const DEFAULT_RATE: f64 = 99.0;
/// Longest interval that a budget leads to.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Smallest and largest budget, as a share.
const BUDGETS: [f64; 2] = [0.0001, 0.5];
/// Default depth of a stack, in frames.
pub const DEFAULT_DEPTH: u32 = 1024;
/// Threads that can be recorded at the same time in one process.
pub const THREAD_SLOTS: u32 = 4096;
/// Smallest and largest ring of a process, in bytes.
pub const RING_BYTES: [u64; 2] = [64 << 10, 256 << 20];
/// Memory that the recorder takes in a program with default settings, at most: all but two pages a thread and event.
pub const PROGRAM_BYTES: u64 = 16 << 20;
/// Least memory for the unwind rows of all modules, where rings are large.
const MIN_ROWS_BYTES: u64 = 4 << 20;
/// Bytes of remembered stacks per recording before the dictionary is thrown away at a chunk boundary.
pub const DICTIONARY_BYTES: usize = 32 << 20;
/// Bytes of remembered raw stacks of all processes together.
pub const STACKS_BYTES: usize = 64 << 20;
/// Least and most of them for one process before they are forgotten.
pub const STACK_BYTES: [usize; 2] = [512 << 10, 16 << 20];
/// Samples per process that may wait for the symbols of a module being read.
pub const PENDING_SAMPLES: usize = 200_000;

/// A perf event to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// As the user named it: `page-faults`, `sched:sched_switch`, `uprobe:libc.so.6:malloc`, `r1a8`.
    pub name: String,
    /// Events from one sample to the next; a default by kind if not given.
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
    /// Whether CPU time is sampled.
    pub cpu: bool,
    /// How CPU time is sampled.
    pub engine: Engine,
    /// Most that recording may cost, as a share of the programs' CPU time, or of one processor where they use less: intervals
    /// get longer while it costs more.
    pub budget: Option<f64>,
    /// Equal samples of CPU time are added up for so long and written as one.
    pub aggregate: Option<Duration>,
    /// With [`Settings::aggregate`]: stacks that differ by lines or inlined functions alone are not the same.
    pub aggregate_lines: bool,
    /// Frames have the addresses of their code instead of source lines and inlined functions.
    pub addresses: bool,
    /// Where metrics about the recorder itself are told.
    pub exposition: Places,
    /// Wall-clock time of all threads, looked at this often.
    pub wall: Option<Duration>,
    /// Allocations, one sample in so many bytes on average.
    pub alloc: Option<u64>,
    /// Frees of sampled allocations too: what is never freed is told at the end.
    pub live: bool,
    /// With [`Settings::live`]: how often it is told meanwhile what is alive, by stack.
    pub live_interval: Duration,
    /// Waits for locks at least this long.
    pub lock: Option<Duration>,
    /// Reads and writes at least this long.
    pub io: Option<Duration>,
    /// Times that threads are without a processor, from outside.
    pub off_cpu: Option<OffCpu>,
    /// Exceptions and panics.
    pub throw: bool,
    /// Calls of functions by name that take at least this long.
    pub trace: Vec<Trace>,
    /// The program to be recorded, where it is known: functions to trace are looked for in it.
    pub program: Option<std::path::PathBuf>,
    /// Perf events by name.
    pub events: Vec<PerfEvent>,
    /// Metrics of process and machine, this often.
    pub metrics: Option<Duration>,
    /// Frames kept per stack, at most [`MAX_DEPTH`].
    pub depth: u32,
    /// Time between two flushes: how old a sample can be before a reader sees it.
    pub flush: Duration,
    /// How streams are written, if the output is one.
    pub stream: crate::output::sink::stream::Options,
    /// Whether each flush goes on to the disk at once (`fdatasync`), by a thread that nobody waits for.
    pub sync: bool,
    /// Overwrite an output file that exists. Otherwise it is renamed to `NAME.old` before the recording begins.
    pub overwrite: bool,
    /// Bytes of each process's ring, a power of two; chosen from rate and CPUs if not given.
    pub ring_bytes: Option<u64>,
    /// Record children (fork, exec) too.
    pub follow: bool,
    /// Only these threads.
    pub threads: Option<ThreadSelection>,
    /// A running process that waits to be recorded is recorded from outside all the same.
    pub outside: bool,
    /// An engine that cannot record a program is left out with a message. Otherwise it ends the recording with an error.
    pub best_effort: bool,
    /// Leave the arguments of the recorded programs out of the recording.
    pub redact_args: bool,
    /// Last samples of all threads when a signal ends a program; if not given, in a repository.
    pub fatal_signals: Option<bool>,
    /// What of spans is recorded.
    pub spans: Spans,
    /// Labels of each process, in addition to those that the recorder finds; see [`crate::settings::labels`].
    pub labels: Vec<crate::settings::labels::Label>,
    /// When sampling begins and ends.
    pub schedule: Schedule,
    /// When it is copied without being asked.
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

/// An error about the setting `name` unless `holds`.
fn hold(holds: bool, name: &'static str, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Setting { name, problem: problem() }) }
}

fn between(value: Duration, range: &RangeInclusive<Duration>) -> String {
    format!("{value:?} is not between {:?} and {:?}", range.start(), range.end())
}

impl Settings {
    /// Signals that mean something by the schedule or ask for a dump.
    pub(crate) fn trigger_signals(&self) -> Vec<nix::sys::signal::Signal> {
        let mut signals = self.schedule.signals();
        signals.extend(self.dumps.as_ref().and_then(|policy| policy.signal));
        signals
    }

    /// The period of `rate` samples per second of CPU time.
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

    /// Checks that what is selected can be recorded from outside. `others`: some of the processes are recorded from inside. `say` gets a
    /// message about the engines that are left out.
    ///
    /// # Errors
    /// An engine cannot record any of the processes, unless [`Settings::best_effort`]; or nothing is left.
    pub fn check_outside(&self, others: bool, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let wrong = |problem| Err(Error::Setting { name: "event", problem });
        let nothing = !self.recordable_from_outside() && self.off_cpu.is_none();
        match self.unseen_from_outside() {
            Some(problem) if !others && (nothing || !self.best_effort) => wrong(problem),
            None if nothing && !others => wrong("nothing to record is selected".into()),
            unseen => {
                unseen.iter().for_each(|notice| say(notice));
                Ok(())
            }
        }
    }

    /// Returns a message with the selected engines that cannot record a process from outside, and what to use instead. `None` if all of
    /// them can.
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

    /// Whether programs sample their CPU time: for itself, or as the running part of wall-clock time.
    pub fn samples_cpu_time(&self) -> bool {
        self.cpu || self.wall.is_some()
    }

    /// Interval of the wall clock in ns, if it is recorded.
    pub fn wall_ns(&self) -> Option<u64> {
        self.wall.map(|wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Whether frames tell lines, addresses within functions, and inlined functions.
    pub fn records_lines(&self) -> bool {
        self.aggregate.is_none() || self.aggregate_lines
    }

    /// Time for which equal samples are added up in ns, if they are.
    pub fn aggregate_ns(&self) -> Option<u64> {
        self.aggregate.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Samples per second of CPU time.
    pub fn rate(&self) -> f64 {
        1e9 / self.period_ns() as f64
    }

    /// Sampling period of CPU time in ns, never 0: [`Settings::period`], or the interval of the wall clock if that is all
    /// CPU time is sampled for.
    pub fn period_ns(&self) -> u64 {
        let period = self.wall.filter(|_| !self.cpu).unwrap_or(self.period);
        u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// The same with intervals of sampling that are longer by a factor: CPU time, allocations; and thresholds of waits.
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

    /// What is recorded, as bits of [`engines`].
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

    /// Refuses values out of range.
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
                "itimer does not tell how long each thread ran, which wall needs: record cpu or ctimer with wall".into()
            })?;
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        hold(range.contains(&self.flush), "flush", || between(self.flush, &range))?;
        hold(self.live_interval >= second, "live-interval", || {
            format!("{:?} is less than a second, which is as often as it can be told", self.live_interval)
        })?;
        hold(!self.addresses || self.records_lines(), "addresses", || {
            "with --aggregate, addresses need --aggregate-lines".into()
        })?;
        let Some(time) = self.aggregate else { return Ok(()) };
        hold(self.wall.is_none(), "aggregate", || {
            "does not go with wall, whose events look the same".into()
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

    /// Bytes of each process's ring: about half a second of samples of 60 frames on every CPU, 128 KiB to 16 MiB. Each
    /// process makes its ring present when it starts, which costs about 3 µs of CPU time per 4 KiB.
    pub fn ring_size(&self) -> u64 {
        self.ring_with(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    fn ring_with(&self, cpus: usize) -> u64 {
        self.ring_bytes.unwrap_or_else(|| {
            let bytes = self.rate() * cpus as f64 * 540.0 * 0.5;
            // Allocations come in bursts, between two looks of a drain that was idle.
            let least = if self.alloc.is_some() { 1 << 20 } else { 128 << 10 };
            let most = if self.rate() < DEFAULT_RATE * 1.01 { 4 << 20 } else { 16 << 20 };
            (bytes as u64).next_power_of_two().clamp(least, most)
        })
    }

    /// Bytes for the unwind rows of all modules: what the rest leaves of [`PROGRAM_BYTES`]. Only what is used takes memory.
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
        // Timers of programs and kernels go by whole milliseconds: each sample falls elsewhere between two of their beats.
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
