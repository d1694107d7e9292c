//! The engines interrupt a thread by a signal, which the handler receives. This module arms and disarms CPU
//! sampling of one thread; all of it may run in a handler. [`events`] and [`trace`] do so for other engines.
//!
//! **perf without a descriptor.** The event is opened on the thread, its first pages are mapped, the descriptor is
//! closed at once: the mapping keeps the event alive, `munmap` destroys it. So the program holds no descriptor that
//! it could close or reuse.
//!
//! **Random phase.** The kernel starts every event with a full period. The first event therefore has a random
//! period in (0, P] and fires once; the handler of its signal opens the regular one and unmaps the first. So
//! a thread that lives shorter than a period is sampled with the right probability. The first event does not
//! repeat: with a random period of a few µs the thread would never leave its handler.

pub mod events;
pub mod process_timer;
pub(crate) mod selection;
pub(crate) mod timer;
pub mod trace;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

use crate::layout::{ThreadSlot, engine as kind, engines, loss, stage};
use crate::os::{clock, sys};
use crate::perf::perf_event::{self, Event, Firing, Recorded};
use crate::perf::perf_ring;
use crate::state::cookie::{Cookie, FROM_PERF, FROM_TIMER, FROM_TIMER_BESIDE};
use crate::state::{self, ProcState, slots};

/// Opens the CPU clock's event on `tid`. If kernel time is allowed, its records contain the kernel's part of
/// the stack.
fn open_cpu(
    tid: u32,
    period_ns: u64,
    firing: Firing,
    user_only: bool,
    several: bool,
    sig_data: u64,
) -> Result<u64, i32> {
    const CPU_CLOCK: u64 = 0;
    let event =
        Event { kind: perf_event::SOFTWARE, config: CPU_CLOCK, period: period_ns, ..Event::default() };
    // With several events the ring also reveals an overflow whose signal was lost.
    let ring = if user_only && !several { Recorded::Nothing } else { Recorded::KernelStack };
    perf_event::open(&Event { user_only, ..event }, tid, firing, ring, sig_data)
}

/// Returns true if engines other than CPU time send traps.
fn has_several(state: &ProcState) -> bool {
    state.session.live.engines.load(Relaxed) & (engines::EVENTS | engines::TRACE) != 0
}

/// Tries which engine this kernel allows for the calling thread. Returns the engine to use and the errno of
/// the first refusal (0 if none). `wished` is one of [`kind`]. AUTO selects perf with kernel time; else the
/// timer if it can sample at `period_ns`; else perf for user time, complemented by a timer.
pub fn probe(wished: u32, period_ns: u64, tick_hz: u32) -> (u32, i32) {
    let try_perf = |user_only| {
        let handle = open_cpu(0, 1_000_000_000_000, Firing::Once, user_only, false, 0)?;
        // SAFETY: mapped above, and not shared with anything.
        unsafe { perf_ring::unmap(handle) };
        Ok::<(), i32>(())
    };
    let try_timer = || {
        timer::open(Some(sys::gettid()), 1 << 40, 0, 0).map(|id| timer::delete((id.wrapping_sub(1)) as i32))
    };
    let or_none = |result: Result<(), i32>, engine| match result {
        Ok(()) => (engine, 0),
        Err(errno) => (kind::NONE, errno),
    };
    match wished {
        kind::PERF => or_none(try_perf(false), kind::PERF),
        kind::PERF_USER => or_none(try_perf(true), kind::PERF_USER),
        kind::TIMER => or_none(try_timer(), kind::TIMER),
        kind::ITIMER => or_none(process_timer::works(), kind::ITIMER),
        kind::NONE => (kind::NONE, 0),
        _ => {
            let Err(refused) = try_perf(false) else { return (kind::PERF, 0) };
            if period_ns >= timer_from_ns(tick_hz) && try_timer().is_ok() {
                (kind::TIMER, refused)
            } else if try_perf(true).is_ok() {
                (kind::PERF_USER, refused)
            } else {
                (or_none(try_timer(), kind::TIMER).0, refused)
            }
        }
    }
}

/// Returns the shortest period that a CPU timer can keep: the kernel checks timers once per tick.
pub fn timer_from_ns(tick_hz: u32) -> u64 {
    2_000_000_000 / u64::from(tick_hz.max(1))
}

/// Minimum useful interval of a CPU timer: timers expire at scheduler ticks.
const BESIDE_MIN_NS: u64 = 4_000_000;

/// Starts sampling a registered thread with the engine of the process header. A thread that perf refuses
/// (limit of locked memory) gets a timer instead. `Err` carries the errno of the last refusal. CPU time since
/// an earlier disarm is counted as lost by [`loss::STOPPED`].
pub fn arm(slot: &ThreadSlot) -> Result<(), i32> {
    let Some(state) = state::get() else { return Err(0) };
    if state.session.stop.load(Relaxed) != 0 {
        return Ok(());
    }
    let enabled = state.session.live.engines.load(Relaxed);
    if enabled & engines::EVENTS != 0 {
        events::arm(state, slot);
    }
    if enabled & engines::TRACE != 0 {
        trace::arm(state, slot);
    }
    if enabled & engines::CPU == 0 {
        if state.session.live.paused.load(Relaxed) != 0 && slot.ledger.armed_cpu_ns.load(Relaxed) == 0 {
            // CPU time from here on counts as stopped, not as missed.
            start_ledger(state, slot, slot.tid.load(Relaxed), 0);
        }
        return Ok(());
    }
    if slot.engine.stage.compare_exchange(stage::IDLE, stage::ARMING, SeqCst, Relaxed).is_err() {
        return Ok(());
    }
    let tid = slot.tid.load(Relaxed);
    let engine = state.header.engine.kind.load(Relaxed);
    let period = state.session.live.period_ns.load(Relaxed).max(1);
    let first = slots::random_first(state, tid, period);
    let _ = state.private.armed_period_ns.compare_exchange(0, period, Relaxed, Relaxed);
    start_ledger(state, slot, tid, first);
    if engine == kind::ITIMER {
        slot.engine.stage.store(stage::TIMER, Relaxed);
        return process_timer::arm(state, slot, loss::STOPPED);
    }
    let mut result = Err(0);
    if engine == kind::PERF || engine == kind::PERF_USER {
        let user_only = engine == kind::PERF_USER;
        slot.engine.stage.store(stage::PERF_FIRST, Relaxed);
        let cookie = Cookie::new(state, slot, FROM_PERF).pack();
        result = open_cpu(tid, first, Firing::Once, user_only, has_several(state), cookie)
            .map(|handle| keep_first(slot, handle));
        if result.is_ok() && user_only {
            let cookie = Cookie::new(state, slot, FROM_TIMER_BESIDE).pack();
            let every = period.max(BESIDE_MIN_NS);
            if let Ok(id) = timer::open(Some(tid), every, every, cookie) {
                slot.engine.handle2.store(id, Relaxed);
            }
        }
    }
    if result.is_err() && engine != kind::NONE {
        slot.engine.stage.store(stage::TIMER, Relaxed);
        let cookie = Cookie::new(state, slot, FROM_TIMER).pack();
        result =
            timer::open(Some(tid), first, period, cookie).map(|id| slot.engine.handle2.store(id, Relaxed));
    }
    if result.is_err() {
        slot.engine.stage.store(stage::IDLE, Relaxed);
    }
    result
}

fn start_ledger(state: &ProcState, slot: &ThreadSlot, tid: u32, first: u64) {
    let cpu = clock::cpu_ns_by_tid(tid);
    slot.ledger.first_ns.store(first, Relaxed);
    if slot.ledger.armed_cpu_ns.load(Relaxed) == 0 {
        slot.ledger.armed_cpu_ns.store(cpu.max(1), Relaxed);
    } else if !process_timer::is_used(state) {
        let gap = cpu.saturating_sub(slot.ledger.last_cpu_ns.load(Relaxed));
        slots::count_loss(slot, loss::STOPPED, gap);
    }
    slot.ledger.last_cpu_ns.store(cpu.max(1), Relaxed);
    slot.ledger.last_mono_ns.store(0, Relaxed);
}

/// Stores the handle of the first event, unless its signal came before this and the regular event is already
/// in place.
fn keep_first(slot: &ThreadSlot, handle: u64) {
    let late = slot.engine.stage.load(Relaxed) != stage::PERF_FIRST
        || slot.engine.handle.compare_exchange(0, handle, Relaxed, Relaxed).is_err();
    if late {
        // SAFETY: mapped by the caller, and not stored in the slot, so no other code has it.
        unsafe { perf_ring::unmap(handle) };
    }
}

/// Called in the handler of the first signal. Replaces the event of random period by the regular one, or by a
/// timer if the kernel refuses (descriptors or locked memory used up).
pub(crate) fn make_regular(state: &ProcState, slot: &ThreadSlot) {
    let old = slot.engine.handle.load(Relaxed);
    let user_only = state.header.engine.kind.load(Relaxed) == kind::PERF_USER;
    let cookie = Cookie::new(state, slot, FROM_PERF).pack();
    let period = state.session.live.period_ns.load(Relaxed).max(1);
    // Another thread may have disarmed this one and set IDLE. Overwriting that would prevent it from being armed again.
    let step = |from, to| slot.engine.stage.compare_exchange(from, to, SeqCst, Relaxed).is_ok();
    if !step(stage::PERF_FIRST, stage::PERF) {
        return;
    }
    let new =
        open_cpu(0, period, Firing::Repeatedly, user_only, has_several(state), cookie).unwrap_or_else(|_| {
            step(stage::PERF, stage::TIMER);
            0
        });
    let handle = &slot.engine.handle;
    let unused = match handle.compare_exchange(old, new, Relaxed, Relaxed) {
        Ok(_) => old,
        // The thread that armed this one stored the first event just now.
        Err(first) if old == 0 && handle.compare_exchange(first, new, Relaxed, Relaxed).is_ok() => first,
        // Another thread disarmed this one in the meantime: close the new event.
        Err(_) => new,
    };
    let won = unused != new || new == 0;
    if unused != 0 {
        // SAFETY: pages that this module mapped; the exchange decided that no other code owns them.
        unsafe { perf_ring::unmap(unused) };
    }
    if won && new == 0 && slot.engine.stage.load(Relaxed) == stage::TIMER {
        let cookie = Cookie::new(state, slot, FROM_TIMER).pack();
        let tid = slot.tid.load(Relaxed);
        if let Ok(id) = timer::open(Some(tid), period, period, cookie)
            && slot.engine.handle2.compare_exchange(0, id, Relaxed, Relaxed).is_err()
        {
            timer::delete(id.wrapping_sub(1) as i32);
        }
    }
}

/// Called in the handler of a thread with a perf event: switches to a timer. Returns false if none can be
/// created.
pub(crate) fn to_timer(state: &ProcState, slot: &ThreadSlot) -> bool {
    let period = state.session.live.period_ns.load(Relaxed).max(1);
    let cookie = Cookie::new(state, slot, FROM_TIMER).pack();
    let Ok(id) = timer::open(Some(slot.tid.load(Relaxed)), period, period, cookie) else {
        // The kernel would refuse it to other threads too.
        state.private.timer_from_ns.store(0, Relaxed);
        return false;
    };
    let before = slot.engine.stage.load(Relaxed);
    let sampled = matches!(before, stage::PERF | stage::PERF_FIRST);
    if !sampled || slot.engine.stage.compare_exchange(before, stage::TIMER, SeqCst, Relaxed).is_err() {
        timer::delete(id.wrapping_sub(1) as i32);
        return true;
    }
    if slot.engine.handle2.compare_exchange(0, id, SeqCst, Relaxed).is_err() {
        timer::delete(id.wrapping_sub(1) as i32);
    }
    perf_ring::close(&slot.engine.handle);
    fence(SeqCst);
    if slot.engine.stage.load(Relaxed) != stage::TIMER {
        // Another thread disarmed this one, and may have looked for a timer before there was one.
        close_timer(slot);
    }
    true
}

/// Called in the handler of a thread that [`to_timer`] gave a timer: switches back to a perf event, if the
/// kernel has one.
pub(crate) fn to_perf(state: &ProcState, slot: &ThreadSlot) {
    let period = state.session.live.period_ns.load(Relaxed).max(1);
    let cookie = Cookie::new(state, slot, FROM_PERF).pack();
    let Ok(new) = open_cpu(0, period, Firing::Repeatedly, false, has_several(state), cookie) else { return };
    let unused = slot.engine.stage.compare_exchange(stage::TIMER, stage::PERF, SeqCst, Relaxed).is_err()
        || slot.engine.handle.compare_exchange(0, new, SeqCst, Relaxed).is_err();
    if unused {
        // SAFETY: mapped above and not shared with any other code.
        unsafe { perf_ring::unmap(new) };
        return;
    }
    close_timer(slot);
    fence(SeqCst);
    if slot.engine.stage.load(Relaxed) != stage::PERF {
        // The same race as in `to_timer`, for the event.
        perf_ring::close(&slot.engine.handle);
    }
}

fn close_timer(slot: &ThreadSlot) {
    let timer = slot.engine.handle2.swap(0, SeqCst);
    if timer != 0 {
        timer::delete(timer.wrapping_sub(1) as i32);
    }
}

/// Called in the handler of a thread that is sampled although recording is paused: stops sampling. Arms it
/// again if recording was resumed in the meantime, because the thread that armed the others may have seen
/// this one as still armed.
#[cold]
pub(crate) fn pause(state: &ProcState, slot: &ThreadSlot) {
    disarm(slot);
    fence(SeqCst);
    if state.session.live.engines.load(Relaxed) != 0 {
        let _ = arm(slot);
    }
}

/// Returns true if a timer sends signals to this thread, or may do so.
pub fn uses_timer(slot: &ThreadSlot) -> bool {
    slot.engine.handle2.load(Relaxed) != 0
        || state::get().is_some_and(|s| process_timer::is_used(s) && process_timer::is_armed(s))
}

/// Stops sampling a thread. From here to the thread's end or to the next [`arm`], its CPU time is counted by
/// them.
pub fn disarm(slot: &ThreadSlot) {
    slot.engine.stage.store(stage::IDLE, Relaxed);
    // The thread's own handler may be changing its engine at the same time. Either it sees IDLE, or this call
    // sees the handle that it stored.
    fence(SeqCst);
    perf_ring::close(&slot.engine.handle);
    close_timer(slot);
    for handle in &slot.events.handles {
        perf_ring::close(handle);
    }
    trace::disarm(slot);
}
