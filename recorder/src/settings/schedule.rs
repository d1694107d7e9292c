//! When sampling starts and ends, if not with the program.

use std::{
    fmt,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

/// A trigger that starts or stops sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// This signal is sent to the process that writes the recording.
    Signal(Signal),
    /// This file appears.
    File(PathBuf),
}

/// The start and end of sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Delay of the start.
    pub delay: Option<Duration>,
    /// Time from the start to the end of the recording.
    pub duration: Option<Duration>,
    /// The trigger that starts it, in addition to `delay`.
    pub start_on: Option<Trigger>,
    /// The trigger that ends the recording; a signal only pauses it if another signal starts it.
    pub stop_on: Option<Trigger>,
}

impl Schedule {
    /// Returns true if sampling does not start immediately.
    pub fn waits(&self) -> bool {
        self.delay.is_some() || self.start_on.is_some()
    }

    /// Returns the signals that are triggers.
    pub(crate) fn signals(&self) -> Vec<Signal> {
        let triggers = [&self.start_on, &self.stop_on].into_iter().flatten();
        let signals = triggers.filter_map(|t| match t {
            Trigger::Signal(signal) => Some(*signal),
            Trigger::File(_) => None,
        });
        signals.collect()
    }
}

impl FromStr for Trigger {
    type Err = String;

    /// Parses `USR1` or `SIGUSR1`; any text with a slash is a file.
    fn from_str(text: &str) -> Result<Trigger, String> {
        if text.contains('/') {
            return Ok(Trigger::File(PathBuf::from(text)));
        }
        let upper = text.to_ascii_uppercase();
        let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
        let unknown = || format!("{text:?} is neither a signal such as USR1 nor a path with a slash");
        let signal = Signal::from_str(&name).map_err(|_| unknown())?;
        match signal {
            Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGHUP | Signal::SIGCONT | Signal::SIGURG => {
                Ok(Trigger::Signal(signal))
            }
            _ => Err(format!("{name} has another meaning; use USR1 or USR2")),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Signal(signal) => f.write_str(signal.as_str()),
            Trigger::File(path) => path.display().fmt(f),
        }
    }
}

/// An action that is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Start sampling.
    Start,
    /// Pause sampling until the next start.
    Pause,
    /// End the recording.
    Stop,
}

/// A running schedule.
#[derive(Debug)]
pub(crate) struct Clockwork {
    schedule: Schedule,
    created: Instant,
    started: Option<Instant>,
    checked: Option<Instant>,
}

/// Time between two checks for a file.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Clockwork {
    pub(crate) fn new(schedule: Schedule) -> Clockwork {
        let now = Instant::now();
        let started = (!schedule.waits()).then_some(now);
        Clockwork { schedule, created: now, started, checked: None }
    }

    /// Returns the time until the next action or the next check for a file.
    pub(crate) fn next(&self) -> Option<Duration> {
        let left = |from: Instant, time: Duration| time.saturating_sub(from.elapsed());
        let file = |t: &Option<Trigger>| matches!(t, Some(Trigger::File(_))).then_some(LOOK_EVERY);
        let times = match self.started {
            None => [self.schedule.delay.map(|t| left(self.created, t)), file(&self.schedule.start_on)],
            Some(started) => [self.schedule.duration.map(|t| left(started, t)), file(&self.schedule.stop_on)],
        };
        times.into_iter().flatten().min()
    }

    /// Returns the action that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        let look = self.checked.is_none_or(|last| now.duration_since(last) >= LOOK_EVERY);
        let appeared = |t: &Option<Trigger>| match t {
            Some(Trigger::File(path)) => look && path.exists(),
            _ => false,
        };
        let (start, stop) = (appeared(&self.schedule.start_on), appeared(&self.schedule.stop_on));
        if look {
            self.checked = Some(now);
        }
        match self.started {
            None => {
                let late = self.schedule.delay.is_some_and(|t| now.duration_since(self.created) >= t);
                (late || start).then(|| self.start(now))
            }
            Some(started) => {
                let over = self.schedule.duration.is_some_and(|t| now.duration_since(started) >= t);
                (over || stop).then_some(Due::Stop)
            }
        }
    }

    /// Returns the action for a signal; `None` if it is not a trigger.
    pub(crate) fn signal(&mut self, signal: i32, now: Instant) -> Option<Due> {
        let is = |t: &Option<Trigger>| matches!(t, Some(Trigger::Signal(s)) if *s as i32 == signal);
        let (start, stop) = (is(&self.schedule.start_on), is(&self.schedule.stop_on));
        match self.started {
            None if start => Some(self.start(now)),
            // The same signal starts and stops, so it toggles sampling.
            Some(_) if stop && matches!(self.schedule.start_on, Some(Trigger::Signal(_))) => {
                self.started = None;
                self.schedule.delay = None;
                Some(Due::Pause)
            }
            Some(_) if stop => Some(Due::Stop),
            _ => None,
        }
    }

    /// Notes a start by other means.
    pub(crate) fn start(&mut self, now: Instant) -> Due {
        self.started = Some(now);
        Due::Start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn triggers_are_parsed() {
        assert_eq!("usr1".parse(), Ok(Trigger::Signal(Signal::SIGUSR1)));
        assert_eq!("SIGUSR2".parse(), Ok(Trigger::Signal(Signal::SIGUSR2)));
        assert_eq!("./go".parse(), Ok(Trigger::File("./go".into())));
        for bad in ["", "go", "KILL", "TERM", "SIGSEGV", "SIGPROF"] {
            assert!(bad.parse::<Trigger>().is_err(), "{bad}");
        }
    }

    #[test]
    fn recording_starts_after_delay_and_stops_after_duration() {
        let schedule = Schedule { delay: Some(2 * S), duration: Some(3 * S), ..Schedule::default() };
        let mut work = Clockwork::new(schedule);
        let t = work.created;
        assert_eq!(work.due(t + S), None);
        assert_eq!(work.due(t + 2 * S), Some(Due::Start));
        assert_eq!(work.due(t + 4 * S), None);
        assert_eq!(work.due(t + 5 * S), Some(Due::Stop));
    }

    #[test]
    fn signals_open_and_close_windows() {
        let on = |s| Some(Trigger::Signal(s));
        let schedule =
            Schedule { start_on: on(Signal::SIGUSR1), stop_on: on(Signal::SIGUSR2), ..Schedule::default() };
        let mut work = Clockwork::new(schedule);
        let (t, one, two) = (work.created, Signal::SIGUSR1 as i32, Signal::SIGUSR2 as i32);
        assert_eq!(work.signal(two, t), None);
        assert_eq!(work.signal(one, t), Some(Due::Start));
        assert_eq!(work.signal(one, t), None);
        assert_eq!(work.signal(two, t), Some(Due::Pause));
        assert_eq!(work.due(t + 100 * S), None);
        assert_eq!(work.signal(one, t), Some(Due::Start));
        let mut work = Clockwork::new(Schedule { stop_on: on(Signal::SIGUSR2), ..Schedule::default() });
        assert_eq!(work.signal(two, t), Some(Due::Stop), "without a way to start again it is the end");
    }

    #[test]
    fn appearing_files_start_and_stop_recording() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("go");
        let mut work = Clockwork::new(Schedule {
            start_on: Some(Trigger::File(file.clone())),
            stop_on: Some(Trigger::File(dir.path().join("stop"))),
            ..Schedule::default()
        });
        let t = work.created;
        assert_eq!(work.due(t), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(work.due(t), None, "not looked at again at once");
        assert_eq!(work.due(t + S), Some(Due::Start));
        std::fs::write(dir.path().join("stop"), "").unwrap();
        assert_eq!(work.due(t + 2 * S), Some(Due::Stop));
    }
}
