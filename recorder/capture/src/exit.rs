//! The end of a process that leaves through `exit`.

use core::sync::atomic::Ordering::{Relaxed, Release};

use flightline_in_signal::clock;
use flightline_in_signal::layout::proc_state;

use crate::{modules, session, threads};

/// Modules loaded since the start are logged, so that their addresses have names. Samples go on: other destructors
/// may still burn CPU, and the kernel stops the engines together with the process.
pub fn at_exit() {
    if let Some(attached) = session::current() {
        modules::append_new(attached);
        // Nobody can ask for the clocks of threads that end together with the process.
        for slot in threads::live(attached) {
            slot.end_cpu_ns.store(clock::cpu_ns_by_tid(slot.tid.load(Relaxed)), Relaxed);
        }
        attached.header().exit_mono_ns.store(clock::monotonic_ns(), Release);
        attached.header().state.store(proc_state::EXITED, Release);
    }
}
