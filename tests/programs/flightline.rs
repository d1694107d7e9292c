//! The `flightline` command, for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    flightline_cli::main()
}
