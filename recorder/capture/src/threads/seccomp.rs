//! Threads that give up system calls (seccomp). A system call in a handler could end the program. Such a thread is disarmed before it
//! installs its filter, and makes no call for the recorder afterwards. Its CPU time is counted as not seen.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Release;

use flightline_in_signal::engine::{self, process_timer};
use flightline_in_signal::layout::loss;
use flightline_in_signal::state::slots;

use crate::sandbox::EVERYWHERE;
use crate::shadow::{SANDBOXED, set_shadow, shadow};
use crate::signals::{self, command};
use crate::{session, threads};

/// The calling thread is about to be restricted, with `all` every thread of the process. Dropped if that was
/// refused.
pub struct Entering {
    all: bool,
    active: bool,
}

/// Disarms the calling thread, or all threads of the process.
pub fn enter(all: bool) -> Entering {
    let attached = session::current();
    if command::listens() {
        command::be_deaf();
    }
    // The handlers of fatal signals also make system calls.
    signals::fatal::uninstall();
    if let Some(attached) = attached {
        if all {
            EVERYWHERE.store(true, Release);
            threads::disarm_all(attached);
        } else if let Some(slot) = slots::current() {
            engine::disarm(slot);
        }
        // The kernel could deliver the process's signal to this thread.
        process_timer::bar(&attached.state);
        set_shadow(shadow() | SANDBOXED);
        signals::swallow_pending();
    }
    Entering { all, active: attached.is_some() }
}

impl Entering {
    /// Takes the kernel's result: after a refusal, sampling continues as before.
    pub fn done(self, result: c_int) {
        if result >= 0 || !self.active {
            return;
        }
        set_shadow(shadow() & !SANDBOXED);
        if self.all {
            EVERYWHERE.store(false, Release);
        }
        if let (Some(attached), Some(slot)) = (session::current(), slots::current()) {
            process_timer::unbar(&attached.state, slot, loss::STOPPED);
        }
        if let Some(attached) = session::current() {
            signals::fatal::apply(attached);
        }
        match session::current() {
            Some(attached) if self.all => threads::arm_all(attached),
            Some(_) => {
                if let Some(slot) = slots::current() {
                    let _ = engine::arm(slot);
                }
            }
            None => {}
        }
    }
}
