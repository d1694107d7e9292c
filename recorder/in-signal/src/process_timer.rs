//! `itimer`: one timer on the CPU clock of the whole process, whose signal goes to whichever of its threads runs.
//!
//! A sample stands for the CPU time of the *process* since the sample before, so the weights of all threads add up to the
//! process's clock, and no thread's weights to its own. It costs one timer however many threads there are.
//!
//! The signal is the process's: any thread may get it that does not block it. So the timer is barred while a thread
//! really blocks the signal (it might read it, or be woken by it) or has given up system calls. Kernels before 6.4 prefer
//! the main thread to the one that runs and would end its waits: there it is not used, see the capture side.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::cookie::{Cookie, FROM_PROCESS};
use crate::layout::{ThreadSlot, engine as kind, engines, loss, slot_state};
use crate::state::ProcState;
use crate::{clock, slots, sys, timer};

/// Somebody is about to arm it.
const ARMING: u64 = u64::MAX;

/// Whether CPU time is sampled this way here.
#[inline]
pub fn is_used(state: &ProcState) -> bool {
    state.header.engine.load(Relaxed) == kind::ITIMER
}

/// Arms the timer unless it runs; CPU time since it last did is lost by `cause`, in the account of `slot`.
pub(crate) fn arm(state: &ProcState, slot: &ThreadSlot, cause: usize) -> Result<(), i32> {
    let timer = &state.private.process_timer;
    if timer.bars.load(SeqCst) != 0 || timer.handle.compare_exchange(0, ARMING, SeqCst, Relaxed).is_err() {
        return Ok(());
    }
    let now = clock::process_cpu_ns().max(1);
    let last = timer.last_ns.swap(now, Relaxed);
    if last != 0 && now > last {
        slots::count_loss(slot, cause, now - last);
    }
    let period = state.session.period_ns.load(Relaxed).max(1);
    let first = slots::random_first(state, slot.tid.load(Relaxed), period);
    let cookie =
        Cookie { source: FROM_PROCESS, generation: state.salt, slot: slots::index(state, slot) }.pack();
    let opened = timer::open(None, first, period, cookie);
    let handle = *opened.as_ref().unwrap_or(&0);
    // Somebody disarmed it, or barred it, meanwhile.
    let unwanted = timer.handle.compare_exchange(ARMING, handle, SeqCst, Relaxed).is_err();
    if handle != 0 && unwanted {
        timer::delete(handle.wrapping_sub(1) as i32);
    } else if timer.bars.load(SeqCst) != 0 {
        disarm(state);
    }
    opened.map(drop)
}

/// Stops it. CPU time from here to the next [`arm`] is counted there.
pub fn disarm(state: &ProcState) {
    let handle = state.private.process_timer.handle.swap(0, SeqCst);
    if handle != 0 && handle != ARMING {
        timer::delete(handle.wrapping_sub(1) as i32);
    }
}

/// Whether it runs.
pub fn is_armed(state: &ProcState) -> bool {
    state.private.process_timer.handle.load(Relaxed) != 0
}

/// It may not run until [`unbar`].
pub fn bar(state: &ProcState) {
    state.private.process_timer.bars.fetch_add(1, SeqCst);
    disarm(state);
}

/// Takes one [`bar`] back. The time it was barred is lost by `cause`.
pub fn unbar(state: &ProcState, slot: &ThreadSlot, cause: usize) {
    let bars = &state.private.process_timer.bars;
    // In the child of a fork the parent's bars do not exist.
    let before = bars.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
    let wanted =
        state.session.engines.load(Relaxed) & engines::CPU != 0 && state.session.stop.load(Relaxed) == 0;
    // Bars are counted under every engine; a signal of this one would kill a program that has no handler of ours for it.
    if before == Ok(1) && wanted && is_used(state) {
        let _ = arm(state, slot, cause);
    }
}

/// A signal of it came: the slot of the interrupted thread, if a sample is to be taken there.
pub(crate) fn interrupted(state: &'static ProcState, armed_by: &ThreadSlot) -> Option<&'static ThreadSlot> {
    let session = state.session;
    if session.stop.load(Relaxed) != 0 || session.engines.load(Relaxed) & engines::CPU == 0 {
        disarm(state);
        core::sync::atomic::fence(SeqCst);
        // Recording went on meanwhile, and whoever armed it found it armed still.
        if session.stop.load(Relaxed) == 0 && session.engines.load(Relaxed) & engines::CPU != 0 {
            let _ = arm(state, armed_by, loss::STOPPED);
        }
        return None;
    }
    let tid = sys::gettid();
    // A thread made without the C library may have its maker's thread-local memory.
    let slot =
        slots::current().filter(|slot| slot.tid.load(Relaxed) == tid).or_else(|| slots::by_tid(state, tid));
    let live = slot.filter(|slot| slot.state.load(Relaxed) & slot_state::MASK == slot_state::LIVE);
    if live.is_none() {
        // It is not registered (yet, or any more).
        slots::count_loss(armed_by, loss::UNARMED, since_last(state));
    }
    live
}

/// CPU time of the process since the sample before. Two threads may ask at the same time: each gets its part.
pub(crate) fn since_last(state: &ProcState) -> u64 {
    let now = clock::process_cpu_ns();
    now.saturating_sub(state.private.process_timer.last_ns.fetch_max(now, Relaxed))
}

/// Whether the kernel can make such a timer.
pub(crate) fn works() -> Result<(), i32> {
    timer::open(None, 1 << 40, 0, 0).map(|handle| timer::delete(handle.wrapping_sub(1) as i32))
}
