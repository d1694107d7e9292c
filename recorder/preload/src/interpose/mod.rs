//! The interposed functions, by what they are about. Each is as thread- and async-signal-safe as the C library's own.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

mod alloc;
mod condition;
mod exec;
mod futex;
mod io;
mod lock;
mod map;
mod older;
mod sandbox;
mod signal;
mod stdio;
mod thread;
mod throw;

/// Looks up what may be needed where the loader must not be entered. Once: `sigaction` asks for it at every call.
pub fn publish() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return;
    }
    flightline_capture::find_loader();
    sandbox::publish();
    alloc::look_up();
    map::publish();
    io::publish();
    lock::learn();
    condition::publish();
    exec::publish();
}
