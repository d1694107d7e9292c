//! Has a profiling service record this program when it is asked to: an agent beside us comes to the service, we wait for its
//! commands like any program that waits to be recorded.

use core::ffi::c_char;

use flightline_capture::os::{self, Text};
use flightline_in_signal::sys;

use super::{Ready, detach, find, publish, read_session};
use crate::machine::Program;

/// Address of the service. The agent reads it, and what else is meant for it, in the environment itself.
const SERVICE: &core::ffi::CStr = c"FLIGHTLINE_JOIN";
/// The process that an agent was started for, so that what it executes and starts gets no second one.
const JOINED: &core::ffi::CStr = c"FLIGHTLINE_JOINED";

/// `true` if the environment names a service; then this program waits for commands. An agent is started if there is none yet.
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
    flightline_capture::wait_for_commands();
    let mut pid = Text::<24>::new();
    pid.number(sys::getpid().into());
    let joined = os::env(JOINED);
    // What a program that has joined starts is part of it, unless it is asked for by name.
    let part = joined.is_some_and(|of| of.to_bytes() == pid.bytes() || listed.is_none());
    if !part && let Err(errno) = start_agent(&pid) {
        let mut number = Text::<24>::new();
        number.number(errno.unsigned_abs().into());
        os::say(&[
            b"cannot join the profiling service: no agent process (error ",
            number.bytes(),
            b"); set FLIGHTLINE_BIN to the flightline program",
        ]);
    }
    true
}

fn start_agent(pid: &Text<24>) -> Result<(), i32> {
    let program = find(os::env(c"FLIGHTLINE_BIN")).ok_or(libc::ENOENT)?;
    let program = program.cstr()?;
    publish(JOINED.to_bytes(), pid.bytes());
    let words = [program, c"agent", c"--pid", pid.cstr()?];
    let mut argv = [core::ptr::null::<c_char>(); 5];
    for (to, word) in argv.iter_mut().zip(words) {
        *to = word.as_ptr();
    }
    let reader = detach(program, &argv, Ready::Begun, false)?;
    match read_session(&reader) {
        // The agent has begun, or is about to: nobody waits for it, nor it for the service.
        Ok(_) | Err(libc::EPROTO | libc::ETIMEDOUT) => Ok(()),
        Err(errno) => Err(errno),
    }
}
