//! Programs for tests and scripts, in one executable, so that the libraries are linked once.
//!
//! The program is selected by the executable's name (`flightline_tests::victim::program` makes a hard link of
//! that name), or else by the first argument: `flightline-test-programs dump FILE`.

mod context_victim;
mod dump;
mod handler_cost;
mod malformed;
mod own_samples;
mod print_agrees;
mod scopes_victim;
mod spans_victim;
mod trace_recording;
mod whole;

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, Termination};

/// A program: its name and its entry.
type Program = (&'static str, fn() -> ExitCode);

const PROGRAMS: [Program; 10] = [
    ("context_victim", || succeed(context_victim::main)),
    ("dump", || dump::main().report()),
    ("handler_cost", || succeed(handler_cost::main)),
    ("malformed", || malformed::main().report()),
    ("own_samples", || own_samples::main().report()),
    ("print_agrees", || succeed(print_agrees::main)),
    ("scopes_victim", || succeed(scopes_victim::main)),
    ("spans_victim", || succeed(spans_victim::main)),
    ("trace_recording", || trace_recording::main().report()),
    ("whole", || whole::main().report()),
];

fn succeed(program: fn()) -> ExitCode {
    program();
    ExitCode::SUCCESS
}

fn named(name: &str) -> Option<Program> {
    PROGRAMS.into_iter().find(|(program, _)| *program == name)
}

/// The name this executable was started with.
fn started_as() -> Option<Program> {
    let first = std::env::args_os().next()?;
    named(Path::new(&first).file_name()?.to_str()?)
}

/// The arguments of the chosen program; the first one is the program's name, as in [`std::env::args_os`].
fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(usize::from(started_as().is_none()))
}

/// The same as text.
///
/// # Panics
/// If an argument is not UTF-8.
fn arguments_text() -> impl Iterator<Item = String> {
    arguments().map(|argument| argument.into_string().expect("arguments are UTF-8"))
}

fn main() -> ExitCode {
    let by_argument = || named(std::env::args().nth(1)?.as_str());
    match started_as().or_else(by_argument) {
        Some((_, program)) => program(),
        None => {
            let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
            eprintln!(
                "usage: flightline-test-programs PROGRAM [ARGUMENT…]; the programs are: {}",
                names.join(", ")
            );
            ExitCode::from(2)
        }
    }
}
