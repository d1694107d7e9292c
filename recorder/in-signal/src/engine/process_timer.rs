//! `itimer`: one timer on the CPU clock of the whole process, whose signal goes to a running thread.
//!
//! A sample represents the CPU time of the *process* since the previous sample. So the weights of all threads
//! add up to the process's clock, but the weights of one thread do not add up to that thread's clock. The
//! engine needs one timer for any number of threads.
//!
//! The signal is sent to the process, so any thread that does not block it may receive it. So the timer is
//! barred while a thread really blocks the signal (it might read it, or be woken by it) or has given up
//! system calls. Kernels before 6.4 prefer the main thread to the running one and would interrupt its waits:
//! there the engine is not used, see the capture crate.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::timer;
use crate::layout::{ThreadSlot, engine as kind, engines, loss, slot_state};
use crate::os::{clock, sys};
use crate::state::cookie::{Cookie, FROM_PROCESS};
use crate::state::{ProcState, slots};

/// A thread is about to arm the timer.
const ARMING: u64 = u64::MAX;

/// Returns true if this process samples CPU time with this timer.
#[inline]
pub fn is_used(state: &ProcState) -> bool {
    state.header.engine.kind.load(Relaxed) == kind::ITIMER
}

/// Arms the timer unless it runs. CPU time since it last ran is counted as lost by `cause`, in the ledger of
/// `slot`.
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
    let period = state.session.live.period_ns.load(Relaxed).max(1);
    let first = slots::random_first(state, slot.tid.load(Relaxed), period);
    let cookie =
        Cookie { source: FROM_PROCESS, generation: state.salt, slot: slots::index(state, slot) }.pack();
    let opened = timer::open(None, first, period, cookie);
    let handle = *opened.as_ref().unwrap_or(&0);
    // Another thread disarmed or barred the timer in the meantime.
    let unwanted = timer.handle.compare_exchange(ARMING, handle, SeqCst, Relaxed).is_err();
    if handle != 0 && unwanted {
        timer::delete(handle.wrapping_sub(1) as i32);
    } else if timer.bars.load(SeqCst) != 0 {
        disarm(state);
    }
    opened.map(drop)
}

/// Stops the timer. CPU time from here to the next [`arm`] is counted there.
pub fn disarm(state: &ProcState) {
    let handle = state.private.process_timer.handle.swap(0, SeqCst);
    if handle != 0 && handle != ARMING {
        timer::delete(handle.wrapping_sub(1) as i32);
    }
}

/// Returns true if the timer runs.
pub fn is_armed(state: &ProcState) -> bool {
    state.private.process_timer.handle.load(Relaxed) != 0
}

/// Stops the timer until the matching [`unbar`].
pub fn bar(state: &ProcState) {
    state.private.process_timer.bars.fetch_add(1, SeqCst);
    disarm(state);
}

/// Undoes one [`bar`]. CPU time while the timer was barred is counted as lost by `cause`.
pub fn unbar(state: &ProcState, slot: &ThreadSlot, cause: usize) {
    let bars = &state.private.process_timer.bars;
    // The parent's bars do not exist in a forked child.
    let before = bars.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
    let wanted =
        state.session.live.engines.load(Relaxed) & engines::CPU != 0 && state.session.stop.load(Relaxed) == 0;
    // Bars are counted under every engine. Arming is only safe under this one: its signal would kill a
    // program in which the recorder has no handler for it.
    if before == Ok(1) && wanted && is_used(state) {
        let _ = arm(state, slot, cause);
    }
}

/// Handles a signal of the timer. Returns the slot of the interrupted thread if a sample must be taken there.
pub(crate) fn interrupted(state: &'static ProcState, armed_by: &ThreadSlot) -> Option<&'static ThreadSlot> {
    let session = state.session;
    if session.stop.load(Relaxed) != 0 || session.live.engines.load(Relaxed) & engines::CPU == 0 {
        disarm(state);
        core::sync::atomic::fence(SeqCst);
        // Recording was resumed in the meantime, and the thread that resumed it saw the timer as still armed.
        if session.stop.load(Relaxed) == 0 && session.live.engines.load(Relaxed) & engines::CPU != 0 {
            let _ = arm(state, armed_by, loss::STOPPED);
        }
        return None;
    }
    let tid = sys::gettid();
    // A thread made without the C library may share the thread-local memory of its creator.
    let slot =
        slots::current().filter(|slot| slot.tid.load(Relaxed) == tid).or_else(|| slots::by_tid(state, tid));
    let live = slot.filter(|slot| slot.state.load(Relaxed) & slot_state::MASK == slot_state::LIVE);
    if live.is_none() {
        // The thread is not registered (yet, or any more).
        slots::count_loss(armed_by, loss::UNARMED, since_last(state));
    }
    live
}

/// CPU time of the process since the previous sample. If two threads call this at the same time, each gets
/// its part.
pub(crate) fn since_last(state: &ProcState) -> u64 {
    let now = clock::process_cpu_ns();
    now.saturating_sub(state.private.process_timer.last_ns.fetch_max(now, Relaxed))
}

/// Tests if the kernel can create such a timer.
pub(crate) fn works() -> Result<(), i32> {
    timer::open(None, 1 << 40, 0, 0).map(|handle| timer::delete(handle.wrapping_sub(1) as i32))
}
