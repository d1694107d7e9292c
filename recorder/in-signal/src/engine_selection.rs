//! Which engine suits a thread that often waits.
//!
//! A perf event is put on the processor and taken off together with its thread: the kernel starts and stops a timer of high resolution
//! at each switch. In a virtual machine that is 2.3 µs, as much as the switch itself. A CPU timer costs nothing there, the
//! scheduler's tick looks at it. So where the program did not ask for an engine, and the tick is fine enough for the period,
//! a thread that waits often is sampled by a timer. Weights are read from its CPU clock with both, so shares and sums stay
//! right; what its samples lack is the kernel's part of the stack.

use core::sync::atomic::Ordering::Relaxed;

use crate::engine;
use crate::layout::{ThreadSlot, engines, stage};
use crate::state::ProcState;
use crate::sys;

/// A thread that waits more often than once in so much of its CPU time is better off with a timer, ns: there an event takes
/// a quarter of a percent.
const OFTEN_NS: u64 = 1_000_000;
/// Fewer waits than that may be chance.
const EVIDENCE: u64 = 8;
/// CPU time for which a thread must wait [`RARELY`] times less often to get its event back, ns.
const BACK_NS: u64 = 500_000_000;
/// See [`BACK_NS`].
const RARELY: u64 = 8;

/// After a sample of a perf event: whether the thread goes on with a timer.
#[inline]
pub(crate) fn goes_to_timer(state: &ProcState, slot: &ThreadSlot) -> bool {
    if !may_choose(state) {
        return false;
    }
    let (waits, cpu_ns) = since_last_look(slot);
    waits >= EVIDENCE && waits > cpu_ns / OFTEN_NS && engine::to_timer(state, slot)
}

/// After a sample of a timer: gives the thread its event back if it does not wait often any more.
#[inline]
pub(crate) fn look_again(state: &ProcState, slot: &ThreadSlot) {
    let looked = slot.looked_cpu_ns.load(Relaxed);
    // Without an earlier look the timer was not chosen here.
    if looked == 0 || slot.stage.load(Relaxed) != stage::TIMER {
        return;
    }
    if !may_choose(state) {
        return engine::to_perf(state, slot);
    }
    if slot.last_cpu_ns.load(Relaxed).saturating_sub(looked) < BACK_NS {
        return;
    }
    let (waits, cpu_ns) = since_last_look(slot);
    if waits < cpu_ns / (OFTEN_NS * RARELY) {
        engine::to_perf(state, slot);
    }
}

/// Whether a timer keeps up with the period, and nothing else that is recorded needs the event.
#[inline]
fn may_choose(state: &ProcState) -> bool {
    const NEED_EVENTS: u32 = engines::WALL | engines::EVENTS | engines::TRACE;
    let from_ns = state.private.timer_from_ns.load(Relaxed);
    from_ns != 0
        && state.session.period_ns.load(Relaxed) >= from_ns
        && state.session.engines.load(Relaxed) & NEED_EVENTS == 0
}

/// How often the calling thread waited, and its CPU time, since the last look or its start.
#[inline]
fn since_last_look(slot: &ThreadSlot) -> (u64, u64) {
    let cpu_ns = slot.last_cpu_ns.load(Relaxed).max(1);
    let waits = sys::voluntary_switches();
    let before = (slot.waits.swap(waits, Relaxed), slot.looked_cpu_ns.swap(cpu_ns, Relaxed));
    (waits.saturating_sub(before.0), cpu_ns.saturating_sub(before.1))
}
