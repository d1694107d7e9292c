//! Lets a profiling service record this program on request. An agent next to the program connects to the
//! service, and the program waits for commands like any program that waits to be recorded.

use core::ffi::{CStr, c_char};

use flightline_capture::os::{self, Text};
use flightline_in_signal::os::sys;

use super::{Ready, START_MS, detach, find, publish, read_session};
use crate::machine::{Config, Program};

/// Address of the service. The agent reads it, and its other settings, from the environment itself.
const SERVICE: &CStr = c"FLIGHTLINE_JOIN";
/// The process for which an agent was started, so that programs that it executes or starts do not get a
/// second one.
const JOINED: &CStr = c"FLIGHTLINE_JOINED";

/// An option of `flightline agent`, with its name in the machine's settings.
const OPTIONS: [(&CStr, &[u8]); 5] = [
    (c"--join", b"join"),
    (c"--token-file", b"join-token-file"),
    (c"--ca-file", b"join-ca-file"),
    (c"--rate", b"join-rate"),
    (c"--label", b"labels"),
];

/// The settings of an agent. It reads the missing ones from the environment.
#[derive(Default)]
pub struct Service<'a> {
    /// Options of `flightline agent`, in this order: service, token, authority, rate of the continuous
    /// recording, labels.
    pub options: [Option<&'a CStr>; OPTIONS.len()],
    /// Path of the `flightline` program.
    pub program: Option<&'a CStr>,
    /// The program's stderr is not used.
    pub silent: bool,
}

/// Joins the service if the environment names one: the program waits for commands, and an agent is started if
/// there is none yet. Returns true if a service is named.
pub fn join_service() -> bool {
    if os::env(SERVICE).is_none_or(|url| url.is_empty()) {
        return false;
    }
    let program = Program::own();
    if program.as_ref().is_some_and(Program::is_recorder) {
        return true;
    }
    let list = os::env(c"FLIGHTLINE_ALLOW").filter(|list| !list.is_empty());
    let listed = list.map(|list| program.is_some_and(|program| program.listed(list.to_bytes()).is_some()));
    if listed == Some(false) {
        return true;
    }
    // A program that a joined program starts belongs to it, unless it is selected by name.
    let part = if listed.is_none() { os::env(JOINED).is_some() } else { has_joined() };
    flightline_capture::wait_for_commands();
    if !part {
        let service = Service { program: os::env(c"FLIGHTLINE_BIN"), ..Service::default() };
        if let Err(errno) = service.start_agent() {
            print_join_error(errno);
        }
    }
    true
}

/// Joins the service if the machine's settings, which allow this program, name one. Returns true if they do.
pub fn join_by_machine(config: &Config) -> bool {
    let mut service = Service { program: config.value(b"program"), silent: true, ..Service::default() };
    for (to, (_, name)) in service.options.iter_mut().zip(OPTIONS) {
        *to = config.value(name);
    }
    if service.options.first().is_none_or(Option::is_none) {
        return false;
    }
    flightline_capture::wait_for_commands();
    if !has_joined()
        && let Err(errno) = service.start_agent()
        && os::env(c"FLIGHTLINE_DEBUG").is_some()
    {
        print_join_error(errno);
    }
    true
}

/// Returns true if this process has an agent, possibly started before it executed the present program.
pub fn has_joined() -> bool {
    os::env(JOINED).is_some_and(|of| of.to_bytes() == own_pid().bytes())
}

fn own_pid() -> Text<24> {
    let mut pid = Text::new();
    pid.number(sys::getpid().into());
    pid
}

fn print_join_error(errno: i32) {
    let mut number = Text::<24>::new();
    number.number(errno.unsigned_abs().into());
    os::say(&[
        b"cannot join the profiling service: the agent process did not start (errno ",
        number.bytes(),
        b"); set FLIGHTLINE_BIN to the flightline program",
    ]);
}

impl Service<'_> {
    /// Starts an agent for this process.
    ///
    /// # Errors
    /// An errno: `ENOENT` without a `flightline` program, `ENOEXEC` if it cannot be run.
    pub fn start_agent(&self) -> Result<(), i32> {
        let program = find(self.program).ok_or(libc::ENOENT)?;
        let program = program.cstr()?;
        let pid = own_pid();
        publish(JOINED.to_bytes(), pid.bytes());
        let given = OPTIONS.iter().zip(&self.options);
        let given = given.flat_map(|((option, _), value)| [value.map(|_| *option), *value]);
        let words = [program, c"agent"].map(Some).into_iter().chain(given);
        let words = words.chain([c"--pid", pid.cstr()?].map(Some)).flatten();
        let mut argv = [core::ptr::null::<c_char>(); 5 + 2 * OPTIONS.len()];
        // One entry stays null, to end the array.
        for (to, word) in argv.iter_mut().zip(words) {
            *to = word.as_ptr();
        }
        let reader = detach(program, &argv, Ready::Begun, self.silent)?;
        match read_session(&reader, START_MS) {
            // The agent has started, or is about to. Neither this process nor the agent waits.
            Ok(_) | Err(libc::EPROTO | libc::ETIMEDOUT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
