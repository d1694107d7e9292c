//! The end of a process that leaves through `exit`.

use core::sync::atomic::Ordering::Release;

use flightline_in_signal::clock;
use flightline_in_signal::layout::proc_state;

use crate::{modules, session};

/// Modules loaded since the start are logged, so that their addresses have names. Samples go on: other destructors
/// may still burn CPU, and the kernel stops the engines together with the process.
pub fn at_exit() {
    if let Some(attached) = session::current() {
        modules::append_new(attached);
        attached.header().exit_mono_ns.store(clock::monotonic_ns(), Release);
        attached.header().state.store(proc_state::EXITED, Release);
    }
}
