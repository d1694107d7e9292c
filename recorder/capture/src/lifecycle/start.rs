//! Starts and stops sampling in this process.

use core::ffi::CStr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_in_signal::layout::{SessionPage, proc_state, unrecorded};
use flightline_in_signal::os::{clock, sys, vdso};
use flightline_in_signal::state::cookie::{SIGPROF, SIGTRAP};

use crate::engines::{self, traced_functions};
use crate::lifecycle::join::{self, Modules, Refused};
use crate::lifecycle::{control, exec, fork};
use crate::os;
use crate::os::fork_token;
use crate::session::{self, Attached};
use crate::signals::{self, command, masks};
use crate::{alloc, context, modules, shadow, threads};

/// When recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While the loader starts the program: the modules that it has loaded at this time are never unloaded.
    ProgramStart,
    /// In a running program, possibly with many threads.
    Later,
}

/// The program was started to be recorded, now or later: the recorder's signal handlers stay installed.
static STARTED_WITH: AtomicBool = AtomicBool::new(false);

/// Joins the session in `dir` and samples every thread of this process. Not async-signal-safe; not to be called by
/// two threads at once.
///
/// # Errors
/// The reason why the session could not be joined. The program continues as before.
pub fn start(dir: &CStr, moment: Moment) -> Result<(), Refused> {
    if session::current().is_some() {
        return Err(Refused::NotWanted);
    }
    prepare();
    let attached = command::alone(|| join::attach(dir, &Modules::Loader(moment == Moment::ProgramStart)))
        .unwrap_or(Err(Refused::NotWanted))?;
    if modules::is_go_program() {
        // The Go runtime replaces every handler by raw system calls, and its threads do not have the
        // recorder's thread-local words.
        engines::choose_none(attached);
        exec::notice(attached, attached.string(attached.header().identity.load().exe), unrecorded::GO);
        return Ok(());
    }
    engines::choose(attached);
    engines::refuse_events(attached);
    signals::install(engines::signals(attached));
    signals::fatal::apply(attached);
    context::apply(attached);
    masks::adopt_inherited();
    traced_functions::find(attached);
    fork::watch();
    STARTED_WITH.fetch_or(moment == Moment::ProgramStart, Relaxed);
    control::listen();
    command::say_listens(attached);
    // Threads are armed last, so that the recorder's own start is not sampled.
    alloc::start(attached);
    threads::register_caller(attached);
    // Other threads may exist at the program's start too: constructors of its libraries run before the
    // recorder's and may have started some.
    threads::register_others();
    Ok(())
}

/// Waits, without a thread and without a descriptor, for a command to join a session. Called at the program's
/// start.
pub fn wait_for_commands() {
    prepare();
    if modules::is_go_program() {
        return;
    }
    // Install the signals of both engines now, so that the wrappers see threads that block them later.
    signals::install(shadow::bit(SIGTRAP) | shadow::bit(SIGPROF));
    masks::adopt_inherited();
    fork::watch();
    STARTED_WITH.store(true, Relaxed);
    control::listen();
}

/// Prepares the state that does not depend on a session.
fn prepare() {
    let (page, image) = (os::auxval(libc::AT_PAGESZ), os::auxval(libc::AT_SYSINFO_EHDR));
    sys::set_page_bytes(if page == 0 { 4096 } else { page as usize });
    // SAFETY: the auxiliary vector gives the vDSO's header, or 0.
    let vdso_clock = unsafe { vdso::clock_gettime(image as *const u8) };
    // SAFETY: found in the vDSO, which stays mapped.
    unsafe { clock::set_vdso_clock(vdso_clock) };
    #[cfg(target_arch = "x86_64")]
    {
        const READS_FS: u64 = 2;
        flightline_in_signal::os::tls::set_reads_fs(os::auxval(libc::AT_HWCAP2) & READS_FS != 0);
    }
    // The first call maps a page; later calls may be in a handler or in a sandboxed thread.
    fork_token::claim();
    find_loader();
    context::offer();
    context::look();
    threads::create_key();
}

/// Finds glibc's `_dl_find_object` (2.35 and newer). Skipped with other C libraries, because a failing
/// `dlsym` allocates its message.
pub fn find_loader() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the name is NUL-terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: that function's address or null.
        unsafe { flightline_in_signal::unwind::loader::set_find_object(address as usize) };
    }
}

/// Stops sampling in all threads. Addresses stay mapped, because a handler may be running in another thread;
/// the memory itself is released when the result is dropped. The program gets its signal dispositions back if
/// it has one thread and was not started to be recorded. Otherwise the recorder's handler stays installed and
/// only forwards signals: a trap raised before the stop may still be pending for a thread inside a system
/// call, and would kill the process by the default action.
pub fn stop() -> Option<Stopped> {
    let attached = session::current()?;
    signals::fatal::uninstall();
    alloc::off();
    context::off();
    threads::disarm_all(attached);
    attached.header().exit_mono_ns.store(clock::monotonic_ns(), Release);
    attached.header().state.store(proc_state::EXITED, Release);
    session::forget();
    if threads::count() == 1 && !STARTED_WITH.load(Relaxed) {
        command::stop_listening();
        signals::swallow_pending();
        signals::uninstall();
    }
    Some(Stopped(attached))
}

/// A recording that was stopped. Releases its memory on drop.
pub struct Stopped(&'static Attached);

impl Stopped {
    /// The session's page.
    pub fn session(&self) -> &SessionPage {
        self.0.session()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Returns true while this copy of the code records this process.
pub fn is_active() -> bool {
    session::current().is_some_and(|attached| attached.session().stop.load(Acquire) == 0)
}
