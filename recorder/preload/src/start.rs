//! The code before `main` and after `exit`.

use flightline_capture::lifecycle::exit;
use flightline_capture::{Moment, os};
use flightline_in_signal::layout::SESSION_ENV;
use flightline_in_signal::publish::sync_event;

use crate::real::KeepErrno;
use crate::{helper, machine, real};

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = after_exit;

/// Joins the session named in the environment, or starts one if the environment names an output or the
/// machine's settings select the program, or waits for a command.
extern "C" fn before_main() {
    let _errno = KeepErrno::new();
    real::publish();
    let (from, to) = own_code();
    sync_event::set_own_code(from, to);
    flightline_capture::context::offer();
    // The caller of a program with raised privileges controls its environment, which must not be trusted.
    if machine::secure() || os::env(c"FLIGHTLINE").is_some_and(|word| word == c"off") {
        return;
    }
    let mut name = os::Text::<64>::new();
    name.put(SESSION_ENV.as_bytes());
    let session = name.cstr().ok().and_then(os::env).filter(|dir| !dir.is_empty());
    let preloaded = preloaded();
    if preloaded || machine::wide() {
        flightline_capture::threads::names::interposed();
    }
    if let Some(dir) = session {
        let moment = if preloaded || machine::wide() { Moment::ProgramStart } else { Moment::Later };
        match flightline_capture::start(dir, moment) {
            Ok(()) => {
                if preloaded {
                    flightline_capture::lifecycle::exec::joined_by_environment();
                }
                return;
            }
            Err(refused) => explain(refused),
        }
    }
    if helper::start_from_environment() {
        return;
    }
    if preloaded {
        if !helper::join_service() {
            wait_if_dormant();
        }
    } else if machine::wide() {
        helper::start_by_machine();
    }
}

/// `FLIGHTLINE=dormant`: the program waits for a command to be recorded.
fn wait_if_dormant() {
    if os::env(c"FLIGHTLINE").is_some_and(|word| word == c"dormant") {
        flightline_capture::wait_for_commands();
    }
}

/// Returns the address range of this object in memory, from symbols of the linker.
fn own_code() -> (u64, u64) {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start as u64, &raw const _end as u64)
}

/// Returns true if the loader mapped this object together with the program, not by a later `dlopen`.
fn preloaded() -> bool {
    os::env(c"LD_PRELOAD").is_some_and(|list| list.to_bytes().windows(10).any(|part| part == b"flightline"))
}

/// Prints the reason of a failed join only with `FLIGHTLINE_DEBUG`. Otherwise the program's output is not
/// changed: the drain reports processes that it did not get.
fn explain(refused: flightline_capture::lifecycle::join::Refused) {
    if os::env(c"FLIGHTLINE_DEBUG").is_none() {
        return;
    }
    let (what, errno) = refused.text();
    let mut number = os::Text::<24>::new();
    number.number(errno.unsigned_abs().into());
    os::say(&[b"not recording: ", what.as_bytes(), b", error ", number.bytes()]);
}

extern "C" fn after_exit() {
    let _errno = KeepErrno::new();
    exit::at_exit();
}
