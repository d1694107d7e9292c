//! The data of this process that a handler needs, published once by the capture crate through [`install`].
//!
//! Order of use: map the files → fill a [`ProcState`] in memory that is never unmapped → [`install`] →
//! [`crate::engine::probe`] → per thread [`crate::thread::register`] and [`crate::engine::arm`].
//! In a forked child: [`crate::thread::forget`], a new `ProcState`, [`install`] again.
//!
//! [`slots`] finds a thread's entry, [`cookie`] is the word by which a handler recognizes its signal, [`scratch`]
//! is the handler's work memory.

pub mod cookie;
pub mod cost;
pub(crate) mod open_calls;
pub mod scratch;
pub mod slots;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::layout::{FixedSettings, MODULE_TABLES, ModuleTable, ProcHeader, SessionPage, ThreadSlot};
use crate::ring::Ring;
use crate::state::open_calls::Traces;
use crate::state::scratch::Pool;
use crate::unwind::rule_cache::RuleCache;

/// The single timer of the engine `itimer` (`process_timer`), in memory private to the process, all zero at
/// the start.
pub struct ProcessTimer {
    /// 0, `process_timer::ARMING`, or the timer's id + 1.
    pub(crate) handle: AtomicU64,
    /// The process's CPU clock at the last sample or loss, 0 before the first arming.
    pub(crate) last_ns: AtomicU64,
    /// Number of reasons why it may not run now.
    pub(crate) bars: AtomicU32,
}

/// Memory private to the process, all zero at the start: rule cache and scratch buffers.
#[repr(C, align(4096))]
pub struct Private {
    /// Rules of program counters.
    pub rule_cache: RuleCache,
    /// Work memory of handlers.
    pub scratch: Pool,
    /// Period that the threads are armed with, 0 before the first.
    pub armed_period_ns: AtomicU64,
    /// Functions whose slow calls are recorded.
    pub traces: Traces,
    /// The single timer of the engine `itimer`.
    pub process_timer: ProcessTimer,
    /// Shortest period that a thread's timer can keep, if threads that wait often should be sampled by a
    /// timer; 0: by events, like all others.
    pub timer_from_ns: AtomicU64,
    /// Part of the rule cache's key: incremented whenever code was mapped or unmapped, see [`forget_rules`].
    pub epoch: AtomicU32,
}

/// Bytes of the zeroed anonymous mapping that becomes a [`Private`].
pub const PRIVATE_BYTES: usize = size_of::<Private>();

/// Everything that a handler accesses. Lives in memory that is never unmapped.
pub struct ProcState {
    /// The session's page.
    pub session: &'static SessionPage,
    /// The session's fixed settings, as this process read them when it joined.
    pub fixed: FixedSettings,
    /// The PID of the process that joined.
    pub pid: u32,
    /// This process's header.
    pub header: &'static ProcHeader,
    /// Thread slots.
    pub slots: &'static [ThreadSlot],
    /// Module tables.
    pub tables: &'static [ModuleTable; MODULE_TABLES],
    /// Sample ring.
    pub ring: Ring<'static>,
    /// Rows arena as words (read only, written by the drain).
    pub rows: &'static [AtomicU64],
    /// Memory private to this process.
    pub private: &'static Private,
    /// Added to the generations in cookies. A signal that is still pending from an earlier recording of this
    /// process then matches no slot of this one.
    pub salt: u8,
}

static STATE: AtomicPtr<ProcState> = AtomicPtr::new(core::ptr::null_mut());

/// Publishes `state` to handlers.
///
/// # Safety
/// Everything `state` points to stays mapped until the process ends (or until [`uninstall`] and the end of every
/// handler that may run).
pub unsafe fn install(state: &'static ProcState) {
    STATE.store(core::ptr::from_ref(state).cast_mut(), Ordering::Release);
}

/// Makes handlers ignore the recorder's signals from now on (they then report them as not handled).
pub fn uninstall() {
    STATE.store(core::ptr::null_mut(), Ordering::Release);
}

/// The installed state.
#[inline]
pub fn get() -> Option<&'static ProcState> {
    let state = STATE.load(Ordering::Acquire);
    // SAFETY: set only by `install`, whose contract keeps it alive.
    unsafe { state.as_ref() }
}

/// Drops every cached rule; call after `dlopen` and around `dlclose`. Async-signal-safe.
pub fn forget_rules() {
    if let Some(state) = get() {
        state.private.epoch.fetch_add(1, Ordering::Release);
    }
}
