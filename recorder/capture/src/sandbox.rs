//! Threads that give up system calls (seccomp): a handler's next one could kill the program. Such a thread is disarmed
//! before, and from then on nothing here makes a call on its behalf. Its CPU time shows as not seen.

use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release};

use flightline_in_signal::layout::loss;
use flightline_in_signal::{engine, process_timer, thread};

use crate::{command, masks, os, session, signals, threads};

/// A filter for all threads was installed by one of them.
static EVERYWHERE: AtomicBool = AtomicBool::new(false);

/// `true` if the calling thread may not make calls of ours.
pub fn applies() -> bool {
    EVERYWHERE.load(Relaxed) || masks::shadow() & masks::SANDBOXED != 0
}

/// `true` if this process runs under a filter already (set up by whoever started it).
pub fn filtered() -> bool {
    const FILTER: usize = 2;
    // SAFETY: no pointers.
    let mode = unsafe { os::syscall(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) };
    mode == Ok(FILTER)
}

/// The calling thread is about to be restricted, with `all` every thread of the process. Dropped when it was refused.
pub struct Entering {
    all: bool,
    active: bool,
}

/// Disarms whom it concerns.
pub fn enter(all: bool) -> Entering {
    let attached = session::current();
    if command::listens() {
        command::be_deaf();
    }
    // Even dying takes a call of ours.
    signals::fatal::uninstall();
    if let Some(attached) = attached {
        if all {
            EVERYWHERE.store(true, Release);
            threads::disarm_all(attached);
        } else if let Some(slot) = thread::current() {
            engine::disarm(slot);
        }
        // The process's signal could come to this thread.
        process_timer::bar(&attached.state);
        masks::set_shadow(masks::shadow() | masks::SANDBOXED);
        signals::swallow_pending();
    }
    Entering { all, active: attached.is_some() }
}

impl Entering {
    /// The kernel answered `result`: on a refusal everything is as before.
    pub fn done(self, result: c_int) {
        if result >= 0 || !self.active {
            return;
        }
        masks::set_shadow(masks::shadow() & !masks::SANDBOXED);
        if self.all {
            EVERYWHERE.store(false, Release);
        }
        if let (Some(attached), Some(slot)) = (session::current(), thread::current()) {
            process_timer::unbar(&attached.state, slot, loss::STOPPED);
        }
        if let Some(attached) = session::current() {
            signals::fatal::apply(attached);
        }
        match session::current() {
            Some(attached) if self.all => threads::arm_all(attached),
            Some(_) => {
                if let Some(slot) = thread::current() {
                    let _ = engine::arm(slot);
                }
            }
            None => {}
        }
    }
}
