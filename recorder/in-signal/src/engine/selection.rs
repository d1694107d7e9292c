//! Selects the engine for a thread that waits often.
//!
//! The kernel schedules a perf event in and out together with its thread: it starts and stops a
//! high-resolution timer at each switch. In a virtual machine that takes 2.3 µs, as much as the switch
//! itself. A CPU timer costs nothing at a switch, because the scheduler's tick checks it. So a timer samples
//! a thread that waits often, if no engine was selected by an option and the tick is short enough for the
//! period. Both engines read the weight from the thread's CPU clock, so shares and sums stay right. The
//! timer's samples lack the kernel's part of the stack.

use core::sync::atomic::Ordering::Relaxed;

use crate::engine;
use crate::layout::{ThreadSlot, engines, stage};
use crate::os::sys;
use crate::state::ProcState;

/// A thread that waits more often than once per this much CPU time is better sampled by a timer, ns. At this
/// rate an event costs a quarter of a percent.
const OFTEN_NS: u64 = 1_000_000;
/// Minimum number of waits: fewer may be chance.
const EVIDENCE: u64 = 8;
/// Measured CPU time, ns, after which a thread that waits at least [`RARELY`] times less often gets its event
/// back.
const BACK_NS: u64 = 500_000_000;
/// See [`BACK_NS`].
const RARELY: u64 = 8;

/// Called after a sample of a perf event. Returns true if the thread was switched to a timer.
#[inline]
pub(crate) fn goes_to_timer(state: &ProcState, slot: &ThreadSlot) -> bool {
    if !may_choose(state) {
        return false;
    }
    let (waits, cpu_ns) = since_last_look(slot);
    waits >= EVIDENCE && waits > cpu_ns / OFTEN_NS && engine::to_timer(state, slot)
}

/// Called after a sample of a timer. Switches the thread back to its event if it no longer waits often.
#[inline]
pub(crate) fn look_again(state: &ProcState, slot: &ThreadSlot) {
    let looked = slot.engine.looked_cpu_ns.load(Relaxed);
    // Without an earlier look, the timer was not selected by this module.
    if looked == 0 || slot.engine.stage.load(Relaxed) != stage::TIMER {
        return;
    }
    if !may_choose(state) {
        return engine::to_perf(state, slot);
    }
    if slot.ledger.last_cpu_ns.load(Relaxed).saturating_sub(looked) < BACK_NS {
        return;
    }
    let (waits, cpu_ns) = since_last_look(slot);
    if waits < cpu_ns / (OFTEN_NS * RARELY) {
        engine::to_perf(state, slot);
    }
}

/// Returns true if a timer can keep the period, and no other selected engine needs the event.
#[inline]
fn may_choose(state: &ProcState) -> bool {
    const NEED_EVENTS: u32 = engines::WALL | engines::EVENTS | engines::TRACE;
    let from_ns = state.private.timer_from_ns.load(Relaxed);
    from_ns != 0
        && state.session.live.period_ns.load(Relaxed) >= from_ns
        && state.session.live.engines.load(Relaxed) & NEED_EVENTS == 0
}

/// Number of waits and CPU time of the calling thread since the last look or its start.
#[inline]
fn since_last_look(slot: &ThreadSlot) -> (u64, u64) {
    let cpu_ns = slot.ledger.last_cpu_ns.load(Relaxed).max(1);
    let waits = sys::voluntary_switches();
    let before = (slot.engine.waits.swap(waits, Relaxed), slot.engine.looked_cpu_ns.swap(cpu_ns, Relaxed));
    (waits.saturating_sub(before.0), cpu_ns.saturating_sub(before.1))
}
