//! Options that start and stop a recording.

use std::time::Duration;

use clap::Args;
use flightline_recorder::settings::schedule::{Schedule, Trigger};
use flightline_recorder::settings::units::duration;

use crate::args::help;

/// `--delay`, `--duration`, `--start-on`, `--stop-on`.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// Stop recording after this time, such as 30s; the program continues
    #[arg(long, value_name = "TIME", value_parser = duration, display_order = 4)]
    duration: Option<Duration>,
    /// Start recording after this time
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = help::SCHEDULE)]
    delay: Option<Duration>,
    /// Start recording when flightline receives this signal (USR1), or when this file (with a slash) appears
    #[arg(long, value_name = "SIGNAL|FILE", help_heading = help::SCHEDULE)]
    start_on: Option<Trigger>,
    /// Stop recording at this signal or file; a signal only pauses if --start-on is a signal, too
    #[arg(long, value_name = "SIGNAL|FILE", help_heading = help::SCHEDULE)]
    stop_on: Option<Trigger>,
}

impl ScheduleArgs {
    /// Returns the recorder's setting.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            delay: self.delay,
            duration: self.duration,
            start_on: self.start_on.clone(),
            stop_on: self.stop_on.clone(),
        }
    }
}
