//! Errors about arguments that clap cannot detect.

use clap::error::ErrorKind;
use clap::{Args, Command};

/// Ends this process with an error and the usage of `command`, whose arguments are `A`.
pub fn usage<A: Args>(command: &'static str, kind: ErrorKind, message: &str) -> ! {
    let named = Command::new(command).bin_name(format!("flightline {command}"));
    A::augment_args(named).error(kind, message).exit()
}
