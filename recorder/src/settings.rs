//! Every option of a recording with its default and limits, in one place.

use std::time::Duration;

use flightline_in_signal::layout::{MAX_DEPTH, engine};

use crate::error::Error;

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
}

impl Engine {
    pub(crate) fn code(self) -> u32 {
        match self {
            Engine::Auto => engine::AUTO,
            Engine::Perf => engine::PERF,
            Engine::PerfUser => engine::PERF_USER,
            Engine::Timer => engine::TIMER,
        }
    }
}

/// Lowest sampling rate, per second of CPU time.
pub const MIN_RATE: f64 = 1.0;
/// Highest sampling rate, per second of CPU time.
pub const MAX_RATE: f64 = 10_000.0;
/// Default sampling rate: off the beat of work done a hundred times a second.
pub const DEFAULT_RATE: f64 = 99.0;
/// Default depth of a stack, in frames.
pub const DEFAULT_DEPTH: u32 = 1024;
/// Threads that can be recorded at the same time in one process.
pub const THREAD_SLOTS: u32 = 4096;
/// Smallest and largest ring of a process, in bytes.
pub const RING_BYTES: [u64; 2] = [64 << 10, 256 << 20];
/// Address space of the unwind rows of all modules, in bytes; only what is used takes memory.
pub const ROWS_BYTES: u64 = 64 << 20;
/// Bytes that may wait for a reader of a pipe before samples are dropped.
pub const QUEUE_BYTES: usize = 8 << 20;
/// Bytes of remembered stacks per recording before the dictionary is thrown away at a chunk boundary.
pub const DICTIONARY_BYTES: usize = 48 << 20;
/// A chunk in a file is closed at this size: readers load whole chunks into memory.
pub const CHUNK_BYTES: u64 = 256 << 20;
/// Samples per process that may wait for the symbols of a module being read.
pub const PENDING_SAMPLES: usize = 200_000;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sampling period: CPU time of a thread between two of its samples.
    pub period: Duration,
    /// Wished engine.
    pub engine: Engine,
    /// Frames kept per stack, at most [`MAX_DEPTH`].
    pub depth: u32,
    /// Time between two flushes: how old a sample can be before a reader sees it.
    pub flush: Duration,
    /// Bytes of each process's ring, a power of two; chosen from rate and CPUs if not given.
    pub ring_bytes: Option<u64>,
    /// Record children (fork, exec) too.
    pub follow: bool,
    /// Leave the arguments of the recorded programs out of the recording.
    pub redact_args: bool,
    /// Count the cost of the signal handler (for measurements of Flightline itself).
    pub measure: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Duration::from_nanos((1e9 / DEFAULT_RATE) as u64),
            engine: Engine::Auto,
            depth: DEFAULT_DEPTH,
            flush: Duration::from_secs(1),
            ring_bytes: None,
            follow: true,
            redact_args: false,
            measure: false,
        }
    }
}

impl Settings {
    /// The period of `rate` samples per second of CPU time.
    pub fn period_of_rate(rate: f64) -> Result<Duration, Error> {
        if !(MIN_RATE..=MAX_RATE).contains(&rate) {
            return Err(Error::Setting {
                name: "rate",
                problem: format!("{rate} is not between {MIN_RATE} and {MAX_RATE} samples per second"),
            });
        }
        Ok(Duration::from_nanos((1e9 / rate) as u64))
    }

    /// Samples per second of CPU time.
    pub fn rate(&self) -> f64 {
        1e9 / self.period_ns() as f64
    }

    /// [`Settings::period`] in ns, never 0.
    pub fn period_ns(&self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Refuses values out of range.
    pub fn check(&self) -> Result<(), Error> {
        let range = Duration::from_secs_f64(1.0 / MAX_RATE)..=Duration::from_secs_f64(1.0 / MIN_RATE);
        if !range.contains(&self.period) {
            return Err(Error::Setting {
                name: "interval",
                problem: format!(
                    "{:?} is not between {:?} and {:?}",
                    self.period,
                    range.start(),
                    range.end()
                ),
            });
        }
        if self.depth < 1 || self.depth as usize > MAX_DEPTH {
            return Err(Error::Setting {
                name: "depth",
                problem: format!("{} is not between 1 and {MAX_DEPTH} frames", self.depth),
            });
        }
        if !(Duration::from_millis(20)..=Duration::from_secs(600)).contains(&self.flush) {
            return Err(Error::Setting {
                name: "flush",
                problem: format!("{:?} is not between 20ms and 600s", self.flush),
            });
        }
        if let Some(bytes) = self.ring_bytes
            && (!bytes.is_power_of_two() || bytes < RING_BYTES[0] || bytes > RING_BYTES[1])
        {
            return Err(Error::Setting {
                name: "ring-size",
                problem: format!(
                    "{bytes} is not a power of two between {} and {} bytes",
                    RING_BYTES[0], RING_BYTES[1]
                ),
            });
        }
        Ok(())
    }

    /// Bytes of each process's ring: about half a second of samples of 60 frames on every CPU, 256 KiB to 16 MiB. Each
    /// process makes its ring present when it starts, which costs about 3 µs of CPU time per 4 KiB.
    pub fn ring_size(&self) -> u64 {
        self.ring_bytes.unwrap_or_else(|| {
            let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
            let bytes = self.rate() * cpus * 540.0 * 0.5;
            (bytes as u64).next_power_of_two().clamp(256 << 10, 16 << 20)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert!(Settings::period_of_rate(0.5).is_err());
        assert!(Settings::period_of_rate(10_001.0).is_err());
        assert!(Settings::period_of_rate(f64::NAN).is_err());
        assert_eq!(Settings::period_of_rate(10_000.0).unwrap(), Duration::from_micros(100));
        assert!(Settings::default().check().is_ok());
        assert!(Settings { depth: 0, ..Settings::default() }.check().is_err());
        assert!(Settings { depth: 2049, ..Settings::default() }.check().is_err());
        assert!(Settings { ring_bytes: Some(100_000), ..Settings::default() }.check().is_err());
        assert!(Settings { period: Duration::from_micros(99), ..Settings::default() }.check().is_err());
    }

    #[test]
    fn ring_grows_with_the_rate() {
        let slow = Settings::default().ring_size();
        let fast = Settings { period: Duration::from_micros(100), ..Settings::default() }.ring_size();
        assert_eq!(slow, 256 << 10);
        assert!(fast > slow && fast <= 16 << 20 && fast.is_power_of_two());
    }
}
