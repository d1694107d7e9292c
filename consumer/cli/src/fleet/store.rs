//! `flightline sql`, `flightline store` and `flightline flame --store` start a separate program,
//! `flightline-sql`, which contains the SQL engine. `flightline` thus builds without the engine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::{diagnostics, output};

/// Name of the program.
const PROGRAM: &str = "flightline-sql";
/// Environment variable with its path, which overrides the search.
const PLACE: &str = "FLIGHTLINE_SQL";

/// Summary of `flightline sql`.
pub const SQL: &str = "Query a profile store in SQL";
/// Summary of `flightline store`.
pub const STORE: &str = "Add to, query, compare and maintain a profile store: `flightline store --help`";

pub const EXAMPLES: &str = "\
Examples:
  flightline sql 'SELECT service, count(*) FROM samples GROUP BY service' --store DIR
  flightline sql --help
  flightline store --help
  flightline flame --store DIR --where \"service = 'api'\" -o flame.html";

/// Arguments that are passed on unchanged.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PassedOn {
    /// Arguments of flightline-sql
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs the engine with `command`, or with the command in the arguments.
pub fn run(command: Option<&str>, passed_on: &PassedOn) -> ExitCode {
    if let (true, Err(lacks)) = (asks_for_help(&passed_on.arguments), engine()) {
        return help(command.unwrap_or("store"), &lacks);
    }
    // The program name in the engine's help.
    let called = if command.is_some() { "flightline" } else { "flightline store" };
    let command = command.map(OsString::from);
    become_engine(called, command.into_iter().chain(passed_on.arguments.iter().cloned()))
}

fn asks_for_help(arguments: &[OsString]) -> bool {
    let asks = |argument: &OsString| argument == "--help" || argument == "-h";
    arguments.first().is_some_and(|first| first == "help")
        || arguments.iter().take_while(|&argument| argument != "--").any(asks)
}

/// Prints a summary of `command` if the engine, which has its options, is missing.
fn help(command: &str, lacks: &anyhow::Error) -> ExitCode {
    let about = if command == "sql" { SQL } else { STORE };
    let text = format!(
        "{}\n\n{}\n\nCommands: sql, flame --store, store add, store maintain, store info, store top, store share, store diff\n\n{EXAMPLES}\n\n\
         `--help` lists the options when the query engine is installed: {lacks}.\n",
        about,
        "A store contains the samples of many recordings as Parquet files, in a directory or a bucket. It is queried in SQL."
    );
    match output::text(Path::new("-"), |out| out.write_all(text.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the engine if the arguments of `flame` select a store, since its options differ from those for
/// recordings.
pub fn store_flame() -> Option<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    is_store_flame(&arguments).then(|| become_engine("flightline", arguments.into_iter()))
}

fn is_store_flame(arguments: &[OsString]) -> bool {
    let [command, rest @ ..] = arguments else { return false };
    let names_store =
        |argument: &OsString| argument == "--store" || argument.as_encoded_bytes().starts_with(b"--store=");
    command == "flame" && rest.iter().take_while(|&argument| argument != "--").any(names_store)
}

fn become_engine(called: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let error = match engine() {
        Ok(engine) => {
            let error = Command::new(&engine).arg0(called).args(arguments).exec();
            anyhow!(error).context(format!("cannot start {}", engine.display()))
        }
        Err(error) => error,
    };
    diagnostics::error(&error);
    ExitCode::FAILURE
}

/// Returns the path of the engine.
///
/// # Errors
/// Returns an error if it cannot be found.
pub fn engine() -> Result<PathBuf> {
    let places = match env::var_os(PLACE) {
        Some(place) => vec![place.into()],
        None => places(env::current_exe().ok().as_deref(), env::var_os("PATH").as_deref()),
    };
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!(
            "the program {PROGRAM}, which queries stores, was not found next to flightline, in \
             libexec/flightline or on PATH; install the package flightline-store, build it with `cargo \
             build --release --manifest-path consumer/store/Cargo.toml --target-dir target`, or set \
             {PLACE} to its path"
        )
    })
}

/// Returns the candidate paths: next to this program, in libexec, and on PATH.
fn places(program: Option<&Path>, path: Option<&OsStr>) -> Vec<PathBuf> {
    let beside = program.and_then(Path::parent);
    let libexec = beside.and_then(Path::parent).map(|root| root.join("libexec/flightline"));
    let folders = beside.map(Path::to_owned).into_iter().chain(libexec);
    let on_path = path.map(|path| env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    // Skip relative parts of PATH, such as the empty one, which depend on the working directory.
    let on_path = on_path.into_iter().filter(|folder| folder.is_absolute());
    folders.chain(on_path).map(|folder| folder.join(PROGRAM)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flame_with_store_option_is_forwarded_to_engine() {
        let is = |text: &str| {
            let arguments: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            is_store_flame(&arguments)
        };
        assert!(is("flame --store x -o y.html") && is("flame -o y --store=x"));
        assert!(!is("flame run.jfr") && !is("record -- flame --store x") && !is("flame -- --store"));
        assert!(!is("flame --stored x") && !is("fold --store x"));
    }

    #[test]
    fn sql_engine_next_to_executable_precedes_path() {
        let places = places(Some(Path::new("/opt/f/bin/flightline")), Some(OsStr::new("/a::rel:/b")));
        let want = [
            "/opt/f/bin/flightline-sql",
            "/opt/f/libexec/flightline/flightline-sql",
            "/a/flightline-sql",
            "/b/flightline-sql",
        ];
        assert_eq!(places, want.map(PathBuf::from));
    }
}
