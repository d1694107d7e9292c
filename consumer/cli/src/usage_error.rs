//! Errors of usage: a wrong option, argument, or combination of them. The command ends with status 2.

use std::fmt;

use anyhow::Error;

/// Status of a command that was called wrongly, as for errors of the parser of the command line.
pub const STATUS: u8 = 2;

/// A wrong option, argument, or combination of them.
#[derive(Debug)]
pub struct UsageError(String);

impl UsageError {
    /// Returns an error with a message that names the option and the remedy.
    pub fn new(message: impl Into<String>) -> UsageError {
        UsageError(message.into())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns from the function with a [`UsageError`].
macro_rules! bail_usage {
    ($($message:tt)*) => {
        return Err($crate::usage_error::UsageError::new(format!($($message)*)).into())
    };
}
pub(crate) use bail_usage;

/// Returns the exit status for an error.
pub fn status(error: &Error) -> u8 {
    let of_recorder = error.downcast_ref::<flightline_recorder::Error>();
    match error.downcast_ref::<UsageError>().is_some() || of_recorder.is_some_and(|error| error.is_usage()) {
        true => STATUS,
        false => 1,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, Result, anyhow};

    use super::*;

    #[test]
    fn usage_errors_have_status_2_also_within_contexts() {
        let refused = || -> Result<()> { bail_usage!("--from must be before --to: {}", 1) };
        assert_eq!(status(&refused().unwrap_err()), 2);
        assert_eq!(status(&refused().context("run.jfr").unwrap_err()), 2);
        assert_eq!(refused().unwrap_err().to_string(), "--from must be before --to: 1");
        assert_eq!(status(&anyhow!("run.jfr is empty")), 1);
        let setting = flightline_recorder::Error::Setting { name: "rate", problem: "0".into() };
        assert_eq!(status(&setting.into()), 2);
        let missing = flightline_recorder::Error::Unavailable { name: "pid", problem: "none".into() };
        assert_eq!(status(&missing.into()), 1);
    }
}
