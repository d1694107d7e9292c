//! Start and stop of sampling in this process.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Release};

use flightline_in_signal::layout::{proc_state, unrecorded};
use flightline_in_signal::{clock, state, sys, vdso};

use crate::session::{self, Modules, Refused};
use crate::{engines, exec, fork, masks, modules, signals, threads};

/// When recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While the loader starts the program: one thread, and no loaded module is ever unloaded.
    ProgramStart,
    /// In a running program, possibly with many threads.
    Later,
}

/// Joins the session in `dir` and samples every thread of this process. Not async-signal-safe; not to be called by
/// two threads at once.
///
/// # Errors
/// Why the session could not be joined. The program runs on as before.
pub fn start(dir: &CStr, moment: Moment) -> Result<(), Refused> {
    if session::current().is_some() {
        return Err(Refused::NotWanted);
    }
    // SAFETY: no pointers.
    let (page, image) = unsafe { (libc::getauxval(libc::AT_PAGESZ), libc::getauxval(libc::AT_SYSINFO_EHDR)) };
    sys::set_page_bytes(if page == 0 { 4096 } else { page as usize });
    // SAFETY: the auxiliary vector gives the vDSO's header, or 0.
    let vdso_clock = unsafe { vdso::clock_gettime(image as *const u8) };
    // SAFETY: found in the vDSO, which stays mapped.
    unsafe { clock::set_vdso_clock(vdso_clock) };
    find_loader();
    threads::create_key();
    let attached = session::attach(dir, &Modules::Loader(moment == Moment::ProgramStart))?;
    if modules::is_go_program() {
        // Its runtime replaces every handler by raw system calls and does not know our thread-local words.
        engines::choose_none(attached);
        exec::notice(attached, attached.string(attached.header().exe), unrecorded::GO);
        return Ok(());
    }
    let engine = engines::choose(attached);
    signals::install(engines::signals(engine));
    masks::adopt_inherited();
    fork::watch();
    threads::register_caller(attached);
    if moment == Moment::Later {
        threads::register_others();
    }
    Ok(())
}

/// Finds glibc's `_dl_find_object` (2.35 and newer). A failing `dlsym` allocates its message, so other C libraries are
/// not asked.
fn find_loader() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the name is NUL-terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: that function's address or null.
        unsafe { flightline_in_signal::loader::set_find_object(address as usize) };
    }
}

/// Stops sampling in all threads. The memory stays mapped, as a handler may be under way in another thread. The
/// program gets its signal dispositions back if it has one thread; with more, our handler stays and only passes
/// signals on, because a trap raised before the stop may still be on its way to a thread inside a system call, and
/// would kill the process by the default action.
pub fn stop() {
    let Some(attached) = session::current() else { return };
    threads::disarm_all(attached);
    attached.header().exit_mono_ns.store(clock::monotonic_ns(), Release);
    attached.header().state.store(proc_state::EXITED, Release);
    state::uninstall();
    session::forget();
    if threads::count() == 1 {
        signals::swallow_pending();
        signals::uninstall();
    }
}

/// `true` while this process is recorded by this copy of the code.
pub fn is_active() -> bool {
    session::current().is_some_and(|attached| attached.session().stop.load(Acquire) == 0)
}
