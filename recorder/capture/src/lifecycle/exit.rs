//! Handles the end of a process that leaves through `exit`.

use core::sync::atomic::Ordering::{Relaxed, Release};

use flightline_in_signal::layout::proc_state;
use flightline_in_signal::os::clock;

use crate::{modules, session, threads};

/// Logs modules loaded since the start, so that their addresses can be symbolized. Sampling continues,
/// because other destructors may still use CPU time, and the kernel stops the engines together with the
/// process.
pub fn at_exit() {
    if let Some(attached) = session::current() {
        modules::append_new(attached);
        // After the exit no process can read the clocks of threads that end together with this one.
        for slot in threads::live(attached) {
            slot.ledger.end_cpu_ns.store(clock::cpu_ns_by_tid(slot.tid.load(Relaxed)), Relaxed);
        }
        attached.header().exit_mono_ns.store(clock::monotonic_ns(), Release);
        attached.header().state.store(proc_state::EXITED, Release);
    }
}
