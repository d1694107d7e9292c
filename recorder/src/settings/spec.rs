//! `-e NAME[@INTERVAL]`: the engines to record, in the syntax of the command line, the environment and the C
//! API.

use std::time::Duration;

use super::{AllocSettings, CallSettings, CpuSettings, Engine, PerfEvent, Settings, Trace};
use crate::{error::Error, settings::units};

/// The description of an engine for users.
#[derive(Clone, Copy, Debug)]
pub struct EngineHelp {
    /// Name in `-e`.
    pub name: &'static str,
    /// The meaning of its interval, with the default.
    pub interval: &'static str,
    /// A description.
    pub about: &'static str,
}

/// The engines with their own names; every other name is a perf event.
pub const ENGINES: &[EngineHelp] = &[
    EngineHelp {
        name: "cpu",
        interval: "CPU time between samples, such as 10ms; or a rate, such as 99hz",
        about: "CPU time of every thread, by the best engine that works on this machine",
    },
    EngineHelp { name: "ctimer", interval: "as cpu", about: "CPU time by a timer per thread" },
    EngineHelp {
        name: "itimer",
        interval: "like cpu, for all threads together",
        about: "CPU time by one timer per process, sampled in the running thread",
    },
    EngineHelp {
        name: "wall",
        interval: "time between samples, such as 50ms",
        about: "all threads, running or not, with their state",
    },
    EngineHelp {
        name: "alloc",
        interval: "mean bytes between samples, such as 512k",
        about: "malloc and similar functions, mmap, mremap and sbrk, sampled by bytes",
    },
    EngineHelp { name: "live", interval: "as alloc", about: "allocations that are never freed" },
    EngineHelp {
        name: "lock",
        interval: "minimum wait, such as 1ms",
        about: "waiting for mutexes, rwlocks, condition variables, futexes",
    },
    EngineHelp {
        name: "io",
        interval: "minimum duration of a call, such as 10ms",
        about: "slow reads and writes of files and sockets",
    },
    EngineHelp { name: "throw", interval: "none", about: "C++ exceptions and Rust panics" },
    EngineHelp {
        name: "metrics",
        interval: "time between readings, such as 1s",
        about: "load, memory, context switches, containers, network",
    },
];

const WALL: Duration = Duration::from_millis(50);
const ALLOC: u64 = 512 << 10;
const LOCK: Duration = Duration::from_millis(1);
const IO: Duration = Duration::from_millis(10);
const METRICS: Duration = Duration::from_secs(1);

impl Settings {
    /// Returns settings with all engines that can be combined.
    pub fn all() -> Settings {
        Settings {
            wall: Some(WALL),
            alloc: AllocSettings { interval_bytes: Some(ALLOC), live: true, ..AllocSettings::default() },
            calls: CallSettings { lock: Some(LOCK), io: Some(IO), throw: true, trace: Vec::new() },
            ..Settings::default()
        }
    }

    /// Disables every engine, so that only those added later by [`Settings::add`] are recorded.
    pub fn without_engines(self) -> Settings {
        Settings {
            cpu: CpuSettings { enabled: false, ..self.cpu },
            wall: None,
            alloc: AllocSettings { interval_bytes: None, live: false, ..self.alloc },
            calls: CallSettings::default(),
            events: Vec::new(),
            ..self
        }
    }

    /// Adds the engines in a list of `NAME[@INTERVAL]`, separated by commas.
    ///
    /// # Errors
    /// The invalid name or interval.
    pub fn add(&mut self, list: &str) -> Result<(), Error> {
        for one in split(list) {
            self.add_one(one)?;
        }
        Ok(())
    }

    fn add_one(&mut self, one: &str) -> Result<(), Error> {
        let wrong =
            |problem: String| Error::Setting { name: "event", problem: format!("{one:?}: {problem}") };
        let (name, interval) = match one.rsplit_once('@') {
            Some((name, interval)) => (name, Some(interval)),
            None => (one, None),
        };
        let time = |default: Duration| interval.map_or(Ok(default), units::duration).map_err(wrong);
        let size = || interval.map_or(Ok(ALLOC), units::bytes).map_err(wrong).map(|bytes| bytes.max(1));
        match name {
            "" => {
                return Err(wrong(
                    "the name is missing; `flightline list` shows the engines and events".into(),
                ));
            }
            "cpu" | "ctimer" | "itimer" => {
                self.cpu.enabled = true;
                match name {
                    "ctimer" => self.cpu.engine = Engine::Timer,
                    "itimer" => self.cpu.engine = Engine::ProcessTimer,
                    _ => {}
                }
                if let Some(interval) = interval {
                    self.cpu.period = cpu_period(interval).map_err(wrong)?;
                }
            }
            "wall" => self.wall = Some(time(WALL)?),
            "alloc" => self.alloc.interval_bytes = Some(size()?),
            "live" => {
                self.alloc.live = true;
                if interval.is_some() || self.alloc.interval_bytes.is_none() {
                    self.alloc.interval_bytes = Some(size()?);
                }
            }
            "lock" => self.calls.lock = Some(time(LOCK)?),
            "io" => self.calls.io = Some(time(IO)?),
            "metrics" => self.metrics.interval = Some(time(METRICS)?),
            "throw" if interval.is_none() => self.calls.throw = true,
            "throw" => return Err(wrong("takes no interval".into())),
            _ => {
                let period = match interval {
                    Some(text) => Some(
                        count(text).ok_or_else(|| wrong(format!("{text:?} is not a count such as 1000")))?,
                    ),
                    None => None,
                };
                self.events.push(PerfEvent { name: name.to_owned(), period });
            }
        }
        Ok(())
    }

    /// Adds a function to trace: `FUNCTION:THRESHOLD`, or `LIBRARY:FUNCTION:THRESHOLD`.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn add_trace(&mut self, text: &str) -> Result<(), Error> {
        let wrong =
            |problem: String| Error::Setting { name: "trace", problem: format!("{text:?}: {problem}") };
        let Some((function, threshold)) = text.rsplit_once(':') else {
            return Err(wrong("give FUNCTION:TIME, such as parse_query:10ms".into()));
        };
        let threshold = units::duration(threshold).map_err(wrong)?;
        self.calls.trace.push(Trace { function: function.to_owned(), threshold });
        Ok(())
    }

    /// Returns the list with which [`Settings::add`] selects these engines.
    pub fn spec(&self) -> String {
        let mut list = Vec::new();
        if self.cpu.enabled {
            list.push(format!("cpu@{}", rate_or_time(self.cpu.period)));
        }
        let times = [
            ("wall", self.wall),
            ("lock", self.calls.lock),
            ("io", self.calls.io),
            ("metrics", self.metrics.interval),
        ];
        list.extend(
            times
                .iter()
                .filter_map(|(name, time)| Some(format!("{name}@{}", units::format_duration((*time)?)))),
        );
        if let Some(bytes) = self.alloc.interval_bytes {
            list.push(format!("alloc@{bytes}"));
        }
        list.extend(self.alloc.live.then(|| "live".to_owned()));
        list.extend(self.calls.throw.then(|| "throw".to_owned()));
        list.extend(self.events.iter().map(|event| match event.period {
            Some(period) => format!("{}@{period}", event.name),
            None => event.name.clone(),
        }));
        list.join(",")
    }
}

/// Splits a list at commas; `pmu/a=1,b=2/` is one part.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            '/' if !list[start..at].starts_with("uprobe:") && !list[start..at].starts_with("uretprobe:") => {
                inside = !inside
            }
            ',' if !inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// Parses a time, or a rate such as `99hz`.
fn cpu_period(text: &str) -> Result<Duration, String> {
    let lower = text.to_ascii_lowercase();
    let Some(rate) = lower.strip_suffix("hz") else { return units::duration(text) };
    let rate: f64 = rate.parse().map_err(|_| format!("{text:?} is not a rate such as 99hz"))?;
    Settings::period_for_rate(rate).map_err(|e| e.to_string())
}

/// Returns the shortest text that [`cpu_period`] parses to exactly this period: `99hz`, `1ms`.
fn rate_or_time(period: Duration) -> String {
    let time = units::format_duration(period);
    let rate = (1e9 / period.as_nanos() as f64).round();
    match Settings::period_for_rate(rate) {
        Ok(same) if same == period && time.ends_with("ns") => format!("{rate}hz"),
        _ => time,
    }
}

/// Parses `1000`, `1k`, `2m`; decimal, unlike sizes.
fn count(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, scale) = match lower.chars().last()? {
        'k' => (&lower[..lower.len() - 1], 1_000),
        'm' => (&lower[..lower.len() - 1], 1_000_000),
        'g' => (&lower[..lower.len() - 1], 1_000_000_000),
        _ => (lower.as_str(), 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(scale).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(list: &str) -> Result<Settings, String> {
        let mut settings = Settings::default().without_engines();
        settings.add(list).map_err(|e| e.to_string())?;
        Ok(settings)
    }

    #[test]
    fn engine_lists_are_parsed() {
        let s = added("cpu@5ms,wall,alloc@1m,live,lock@10us,io@1s,throw,metrics@2s").unwrap();
        assert!(s.cpu.enabled && s.alloc.live && s.calls.throw);
        assert_eq!(s.cpu.period, Duration::from_millis(5));
        assert_eq!((s.wall, s.alloc.interval_bytes), (Some(WALL), Some(1 << 20)));
        assert_eq!(
            (s.calls.lock, s.calls.io),
            (Some(Duration::from_micros(10)), Some(Duration::from_secs(1)))
        );
        assert_eq!(added("cpu@1000hz").unwrap().cpu.period, Duration::from_millis(1));
        let s =
            added("page-faults@1k,sched:sched_switch,pmu/a=1,b=2/@7,uprobe:/lib/x.so:malloc,cpu").unwrap();
        let names: Vec<_> = s.events.iter().map(|e| (e.name.as_str(), e.period)).collect();
        let expected = [
            ("page-faults", Some(1000)),
            ("sched:sched_switch", None),
            ("pmu/a=1,b=2/", Some(7)),
            ("uprobe:/lib/x.so:malloc", None),
        ];
        assert_eq!(names, expected);
        assert!(s.cpu.enabled);
    }

    #[test]
    fn spec_round_trips_settings() {
        let list = "cpu@5ms,wall@7ms,alloc@1m,live,lock@10us,io@1s,throw,metrics@2s,page-faults@9,faults";
        let first = added(list).unwrap();
        let second = added(&first.spec()).unwrap();
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        for list in ["cpu@99hz", "cpu@1ms,lock@1ms", "cpu@10101011ns,wall@50ms", "cpu@997hz,io@1.5s"] {
            assert_eq!(added(list).unwrap().spec(), format!("{list},metrics@1s"));
        }
    }

    #[test]
    fn invalid_specs_are_rejected() {
        for bad in ["", "cpu,", "wall@7", "alloc@x", "throw@1ms", "faults@0", "faults@-1", "cpu@0hz"] {
            assert!(added(bad).is_err(), "{bad}");
        }
        let mut s = Settings::default();
        assert!(s.add_trace("parse").is_err() && s.add_trace("parse:x").is_err());
        s.add_trace("lib.so:parse:10ms").unwrap();
        assert_eq!(
            s.calls.trace,
            [Trace { function: "lib.so:parse".into(), threshold: Duration::from_millis(10) }]
        );
    }
}
