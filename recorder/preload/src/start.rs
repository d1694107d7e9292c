//! Before `main` and after `exit`.

use flightline_capture::{Moment, exit, os};
use flightline_in_signal::layout::SESSION_ENV;

use crate::real::KeepErrno;
use crate::{helper, real};

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = after_exit;

/// Joins the session named in the environment, or starts one if an output is named there.
extern "C" fn before_main() {
    let _errno = KeepErrno::new();
    real::publish();
    let mut name = os::Text::<64>::new();
    name.put(SESSION_ENV.as_bytes());
    let session = name.cstr().ok().and_then(os::env).filter(|dir| !dir.is_empty());
    if let Some(dir) = session {
        let moment = if preloaded() { Moment::ProgramStart } else { Moment::Later };
        if let Err(refused) = flightline_capture::start(dir, moment) {
            explain(refused);
        }
    } else if let Some(output) = os::env(c"FLIGHTLINE_OUTPUT").filter(|output| !output.is_empty()) {
        helper::start_from_environment(output);
    }
}

/// `true` if the loader mapped us together with the program, not a later `dlopen`.
fn preloaded() -> bool {
    os::env(c"LD_PRELOAD").is_some_and(|list| list.to_bytes().windows(10).any(|part| part == b"flightline"))
}

/// In the program we keep quiet: the drain tells what it did not get. `FLIGHTLINE_DEBUG` makes us speak.
fn explain(refused: flightline_capture::session::Refused) {
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
