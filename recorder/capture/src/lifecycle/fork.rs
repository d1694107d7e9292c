//! Gives the child of a fork its own process file, so that it does not touch its parent's.
//!
//! perf events and timers are not inherited, the signal handlers are. So the child records nothing until it
//! has joined itself. A `vfork` child, and one made without the C library's handlers, shares or copies the
//! parent's state but not its pid: every entry point compares the two and does nothing in such a child.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use flightline_in_signal::layout::session_flags;
use flightline_in_signal::state::slots;
use flightline_in_signal::thread;

use crate::engines::{self, traced_functions};
use crate::lifecycle::join::{self, Modules};
use crate::modules::dlclose;
use crate::os::{self, fork_token};
use crate::signals::{self, command};
use crate::{alloc, context, sandbox, session, threads};

static WATCHING: AtomicBool = AtomicBool::new(false);

/// Registers [`in_child`] with the C library, once.
pub fn watch() {
    if WATCHING.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the function lives as long as this object, which is never unloaded.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    fork_token::claim();
    command::in_child();
    let Some(parent) = session::inherited() else {
        // The child waits for commands as its parent did.
        threads::reset_pool();
        signals::forget_cut_changes();
        return;
    };
    let stack = slots::current()
        .map_or((0, 0), |slot| (slot.memory.stack_lo.load(Relaxed), slot.memory.stack_hi.load(Relaxed)));
    thread::forget();
    session::forget();
    context::off();
    alloc::in_child();
    threads::reset_pool();
    dlclose::reset();
    signals::forget_cut_changes();
    if sandbox::applies() {
        return;
    }
    let session = parent.session();
    let follow = parent.state.fixed.flags & session_flags::FOLLOW != 0;
    let wanted = follow && session.stop.load(Acquire) == 0;
    let joined = parent
        .dir
        .cstr()
        .ok()
        .filter(|_| wanted)
        .and_then(|dir| join::attach(dir, &Modules::Copy(parent)).ok());
    if let Some(child) = joined {
        engines::inherit(child, parent);
        alloc::apply(child);
        context::apply(child);
        traced_functions::find(child);
        command::say_listens(child);
        threads::register_self(stack);
    } else if os::env(c"FLIGHTLINE_DEBUG").is_some() && wanted {
        os::say(&[b"a forked child could not join the recording"]);
    }
    // SAFETY: this thread is the only one, nothing is armed with the parent's state, and no code holds a
    // reference to it.
    unsafe { parent.unmap() };
}
