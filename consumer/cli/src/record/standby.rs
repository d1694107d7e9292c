//! Starts a program in standby: it loads the recorder and waits for a command.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flightline_recorder::{Error, program};

/// Replaces this process with the program in standby.
pub fn run(preload: &Path, command: &[OsString]) -> Result<Infallible, Error> {
    let mut command = self::command(preload, command)?;
    let path = PathBuf::from(command.get_program());
    Err(Error::io("run", &path, command.exec()))
}

/// Returns the command that starts the program in standby.
pub fn command(preload: &Path, command: &[OsString]) -> Result<Command, Error> {
    let (program, arguments) = command
        .split_first()
        .ok_or(Error::Setting { name: "command", problem: "no program given".into() })?;
    let path = program::find(program).map_err(Error::Program)?;
    program::check(&path).map_err(Error::Program)?;
    let mut list = preload.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        list.push(":");
        list.push(others);
    }
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments).env("LD_PRELOAD", list).env("FLIGHTLINE", "dormant");
    Ok(command)
}
