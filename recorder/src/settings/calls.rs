//! Settings of the calls that the recorder intercepts in a program.

use std::time::Duration;

use flightline_in_signal::layout::MAX_TRACES;

use super::hold;
use crate::error::Error;

/// A function whose slow calls are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `function` or `library:function`.
    pub function: String,
    /// Shortest call that is recorded.
    pub threshold: Duration,
}

/// The intercepted calls to record.
#[derive(Clone, Debug, Default)]
pub struct CallSettings {
    /// Waits for locks at least this long.
    pub lock: Option<Duration>,
    /// Reads and writes at least this long.
    pub io: Option<Duration>,
    /// Exceptions and panics.
    pub throw: bool,
    /// Calls of functions by name that take at least their threshold.
    pub trace: Vec<Trace>,
}

impl CallSettings {
    /// Returns an error if more functions are traced than possible.
    pub(super) fn check(&self) -> Result<(), Error> {
        let traces = self.trace.len();
        hold(traces <= MAX_TRACES, "trace", || {
            format!("{traces} functions; at most {MAX_TRACES} can be traced at once")
        })
    }
}
