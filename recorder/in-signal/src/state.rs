//! What a handler needs to know of this process, published once by the capture side through [`install`].
//!
//! Order of use: map the files → fill a [`ProcState`] in memory that is never unmapped → [`install`] →
//! [`crate::engine::probe`] → per thread [`crate::thread::register`] and [`crate::engine::arm`].
//! In a forked child: [`crate::thread::forget`], a new `ProcState`, [`install`] again.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::layout::{ModuleTable, ProcHeader, SessionPage, ThreadSlot};
use crate::open_calls::Traces;
use crate::ring::Ring;
use crate::rule_cache::RuleCache;
use crate::scratch::Pool;

/// The one timer of the engine `itimer` (`process_timer`), in the memory private to the process, all zero at the start.
pub struct ProcessTimer {
    /// 0, `process_timer::ARMING`, or the timer's id + 1.
    pub(crate) handle: AtomicU64,
    /// The process's CPU clock at the last sample or loss, 0 before the first arming.
    pub(crate) last_ns: AtomicU64,
    /// Reasons why it may not run now.
    pub(crate) bars: AtomicU32,
}

/// Memory private to the process, all zero at the start: rule cache and scratch buffers.
#[repr(C, align(4096))]
pub struct Private {
    /// Rules of program counters seen before.
    pub rule_cache: RuleCache,
    /// Work memory of handlers.
    pub scratch: Pool,
    /// Period that the threads are armed with, 0 before the first.
    pub armed_period_ns: AtomicU64,
    /// Functions whose slow calls are recorded.
    pub traces: Traces,
    /// The one timer of the engine `itimer`.
    pub process_timer: ProcessTimer,
    /// Shortest period that a thread's timer keeps up with, where threads that often wait shall be sampled by one; 0: by
    /// events as all others.
    pub timer_from_ns: AtomicU64,
    /// Part of the rule cache's key: incremented whenever code went away or appeared, see [`forget_rules`].
    pub epoch: AtomicU32,
}

/// Bytes of the zeroed anonymous mapping that becomes a [`Private`].
pub const PRIVATE_BYTES: usize = size_of::<Private>();

/// Everything a handler reaches. Lives in memory that is never unmapped.
pub struct ProcState {
    /// The session's page.
    pub session: &'static SessionPage,
    /// This process's header.
    pub header: &'static ProcHeader,
    /// Thread slots.
    pub slots: &'static [ThreadSlot],
    /// First of [`crate::layout::MODULE_TABLES`] module tables (written by the drain too, hence no reference).
    pub tables: *const ModuleTable,
    /// Sample ring.
    pub ring: Ring<'static>,
    /// Rows arena as words (read only, written by the drain).
    pub rows: &'static [AtomicU64],
    /// Memory private to this process.
    pub private: &'static Private,
    /// Added to the generations in cookies: a signal still on its way from an earlier recording of this process names
    /// nobody in this one.
    pub salt: u8,
}

// SAFETY: the only raw pointer leads to shared memory read by volatile loads.
unsafe impl Sync for ProcState {}
// SAFETY: as above.
unsafe impl Send for ProcState {}

static STATE: AtomicPtr<ProcState> = AtomicPtr::new(core::ptr::null_mut());

/// Publishes `state` to handlers. `tables` must point at [`crate::layout::MODULE_TABLES`] tables.
///
/// # Safety
/// Everything `state` points to stays mapped until the process ends (or until [`uninstall`] and the end of every
/// handler that may run).
pub unsafe fn install(state: &'static ProcState) {
    STATE.store(core::ptr::from_ref(state).cast_mut(), Ordering::Release);
}

/// Makes handlers ignore our signals from now on (they then report them as not handled).
pub fn uninstall() {
    STATE.store(core::ptr::null_mut(), Ordering::Release);
}

/// The state in force.
#[inline]
pub fn get() -> Option<&'static ProcState> {
    let state = STATE.load(Ordering::Acquire);
    // SAFETY: set only by `install`, whose contract keeps it alive.
    unsafe { state.as_ref() }
}

/// Drops every remembered rule; call after `dlopen` and around `dlclose`. Async-signal-safe.
pub fn forget_rules() {
    if let Some(state) = get() {
        state.private.epoch.fetch_add(1, Ordering::Release);
    }
}
