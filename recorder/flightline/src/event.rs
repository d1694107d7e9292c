//! The events of a recording.

use std::{env, path::PathBuf, time::Duration};

use flightline_recorder::settings::{PerfEvent, Settings, Trace};

use crate::Error;

/// An event to record, and how often. The constants have the default intervals.
///
/// ```
/// use flightline::Event;
/// use std::time::Duration;
/// let events = [Event::Cpu(Duration::from_millis(1)), Event::WALL, Event::perf("page-faults").with_period(1000)];
/// # let _ = flightline::Builder::new().events(events);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// CPU time. The duration is the CPU time of a thread between two of its samples, 100 µs to 1 s.
    /// [`Builder::rate`](crate::Builder::rate) sets the same as a rate.
    Cpu(Duration),
    /// Wall-clock time. The duration is the time between two samples of every thread, running or not, with
    /// the thread's state; 1 ms to 1 s.
    Wall(Duration),
    /// Load, memory, context switches, containers and network. The duration is the time between two readings.
    /// They are always recorded, every second by default.
    Metrics(Duration),
    /// A perf event of the kernel or the processor. See [`Event::perf`].
    #[non_exhaustive]
    Perf {
        /// Its name in `perf` and `flightline list`: `page-faults`, `sched:sched_switch`,
        /// `uprobe:libc.so.6:malloc`, `r1a8`.
        name: String,
        /// Number of events per sample; `None`: the default for the kind of event.
        period: Option<u64>,
    },
    /// The calls of a function that take at least this long, recorded with breakpoints. See
    /// [`Event::function`].
    #[non_exhaustive]
    Function {
        /// Its name in the symbol table.
        name: String,
        /// The library that contains it, such as `libc.so.6` or a path; `None`: this program.
        library: Option<PathBuf>,
        /// Shortest call that is recorded.
        threshold: Duration,
    },
}

impl Event {
    /// CPU time with 99 samples per second.
    pub const CPU: Event = Event::Cpu(Duration::from_nanos(10_101_010));
    /// Wall-clock time every 50 ms.
    pub const WALL: Event = Event::Wall(Duration::from_millis(50));
    /// Metrics every second.
    pub const METRICS: Event = Event::Metrics(Duration::from_secs(1));

    /// Returns a perf event by its name, with the default period; at most eight in a recording.
    pub fn perf(name: impl Into<String>) -> Event {
        Event::Perf { name: name.into(), period: None }
    }

    /// Sets the number of events per sample, at least 1. Has no effect on events other than those of
    /// [`Event::perf`].
    pub fn with_period(self, events: u64) -> Event {
        match self {
            Event::Perf { name, .. } => Event::Perf { name, period: Some(events) },
            other => other,
        }
    }

    /// Returns the event for calls of a function of this program that take at least `threshold`.
    pub fn function(name: impl Into<String>, threshold: Duration) -> Event {
        Event::Function { name: name.into(), library: None, threshold }
    }

    /// Returns the event for calls of a function of a library, such as `libc.so.6` or a path, that take at
    /// least `threshold`.
    pub fn library_function(
        library: impl Into<PathBuf>,
        name: impl Into<String>,
        threshold: Duration,
    ) -> Event {
        Event::Function { name: name.into(), library: Some(library.into()), threshold }
    }

    /// Selects the event in the settings of the recorder.
    pub(crate) fn select(self, settings: &mut Settings) -> Result<(), Error> {
        match self {
            Event::Cpu(interval) => {
                settings.cpu.enabled = true;
                settings.cpu.period = interval;
            }
            Event::Wall(interval) => settings.wall = Some(interval),
            Event::Metrics(interval) => settings.metrics.interval = Some(interval),
            Event::Perf { name, period } => settings.events.push(PerfEvent { name, period }),
            Event::Function { name, library, threshold } => {
                let path = library.map_or_else(env::current_exe, Ok);
                let path =
                    path.map_err(|source| Error::Io { operation: "find this program".into(), source })?;
                settings
                    .calls
                    .trace
                    .push(Trace { function: format!("{}:{name}", path.display()), threshold });
            }
        }
        Ok(())
    }
}
