//! Automatic copies of a recording.

use std::{path::PathBuf, time::Duration};

use flightline_recorder::dump::{Condition, Policy};

use crate::{Error, output::absolute};

/// When the recorder copies what it recorded, and where to. The recording goes on.
///
/// ```
/// use flightline::{DumpCondition, Dumps};
/// use std::time::Duration;
/// let dumps = Dumps::new("/var/lib/fl-dumps")
///     .on(DumpCondition::Rss(1 << 30))
///     .on(DumpCondition::Stuck(Duration::from_secs(30)))
///     .last(Duration::from_secs(600));
/// # let _ = flightline::Builder::new().dumps(dumps);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dumps {
    folder: PathBuf,
    conditions: Vec<DumpCondition>,
    last: Option<Duration>,
    every: Option<Duration>,
    keep: Option<usize>,
}

/// The condition for a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DumpCondition {
    /// A process uses more CPU time than this share of one processor (0.8 is 80 %), on average over a time of at least 1 s.
    Cpu(f64, Duration),
    /// A process has more than this many bytes of resident memory.
    Rss(u64),
    /// A thread runs with the same callers, or waits for the same lock, for this time: at least 2 s.
    Stuck(Duration),
    /// The program ends with this exit status.
    ExitStatus(u8),
    /// The program ends with another exit status than 0.
    Failure,
    /// A signal ends the program, or a signal such as SIGSEGV ends a recorded child.
    Signal,
}

impl Dumps {
    /// Sets the folder for copies: ten at most, ten minutes apart. Without a condition, there are no copies.
    pub fn new(folder: impl Into<PathBuf>) -> Dumps {
        Dumps { folder: folder.into(), conditions: Vec::new(), last: None, every: None, keep: None }
    }

    /// Adds a condition for copies.
    pub fn on(mut self, condition: DumpCondition) -> Dumps {
        self.conditions.push(condition);
        self
    }

    /// Copies only the chunks of the last minutes; default: the whole recording.
    pub fn last(mut self, time: Duration) -> Dumps {
        self.last = Some(time);
        self
    }

    /// Sets the shortest time between two copies of a process for one condition; default ten minutes.
    pub fn every(mut self, time: Duration) -> Dumps {
        self.every = Some(time);
        self
    }

    /// Sets how many copies are retained, at least 1; default 10. The oldest are removed.
    pub fn keep(mut self, copies: usize) -> Dumps {
        self.keep = Some(copies);
        self
    }

    pub(crate) fn to_policy(&self) -> Result<Policy, Error> {
        let default = Policy::new(absolute(&self.folder)?);
        let on = self.conditions.iter().map(|condition| condition.to_recorder()).collect::<Result<_, _>>()?;
        Ok(Policy {
            on,
            last: self.last,
            every: self.every.unwrap_or(default.every),
            keep: self.keep.unwrap_or(default.keep),
            ..default
        })
    }
}

impl DumpCondition {
    fn to_recorder(self) -> Result<Condition, Error> {
        let at_least = |time: Duration, least: u64| match time < Duration::from_secs(least) {
            true => {
                Err(Error::Setting { name: "dump-on", problem: format!("{time:?}: give at least {least}s") })
            }
            false => Ok(time),
        };
        Ok(match self {
            DumpCondition::Cpu(share, over) if share.is_finite() && share > 0.0 => {
                Condition::Cpu(share * 100.0, at_least(over, 1)?)
            }
            DumpCondition::Cpu(share, _) => {
                let problem = format!("{share} is not a share of a processor such as 0.8");
                return Err(Error::Setting { name: "dump-on", problem });
            }
            DumpCondition::Rss(bytes) => Condition::Rss(bytes),
            DumpCondition::Stuck(time) => Condition::Stuck(at_least(time, 2)?),
            DumpCondition::ExitStatus(code) => Condition::Exit { code: i32::from(code), equal: true },
            DumpCondition::Failure => Condition::Exit { code: 0, equal: false },
            DumpCondition::Signal => Condition::Signal,
        })
    }
}
