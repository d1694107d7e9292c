//! Looks up thread slots, and counts their lost time. Lock-free; all of it may run in a handler.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{ThreadSlot, slot_state};
use crate::os::{clock, sys, tls};
use crate::state::{self, ProcState};

/// Returns the calling thread's slot, if the thread is registered.
#[inline]
pub fn current() -> Option<&'static ThreadSlot> {
    let state = state::get()?;
    from_word(state, tls::get())
}

/// Returns the calling thread's slot, if another thread registered it, as in a program that records itself.
/// This takes a system call and a search through the slots in use. Returns `None` at once if slots have run
/// out, because a thread without a slot would search all of them.
#[cold]
pub fn registered_by_another() -> Option<&'static ThreadSlot> {
    let state = state::get()?;
    if state.header.counters.no_slot.load(Relaxed) != 0 {
        return None;
    }
    by_tid(state, sys::gettid())
}

/// Checks that a word is the address of a slot of `state`.
#[inline]
fn from_word(state: &'static ProcState, word: usize) -> Option<&'static ThreadSlot> {
    let offset = word.checked_sub(state.slots.as_ptr() as usize)?;
    if !offset.is_multiple_of(size_of::<ThreadSlot>()) {
        return None;
    }
    state.slots.get(offset / size_of::<ThreadSlot>())
}

/// Returns the live slot of a thread id. Slots are used in ascending order, so the search ends at the first
/// one that was never used, and does not touch the pages after it.
pub fn by_tid(state: &'static ProcState, tid: u32) -> Option<&'static ThreadSlot> {
    state.slots.iter().take_while(|slot| slot.state.load(Relaxed) != 0).find(|slot| {
        slot.tid.load(Relaxed) == tid && slot.state.load(Acquire) & slot_state::MASK == slot_state::LIVE
    })
}

/// Returns the live slot of the thread with this thread pointer.
pub fn by_pointer(state: &'static ProcState, pointer: usize) -> Option<&'static ThreadSlot> {
    state.slots.iter().take_while(|slot| slot.state.load(Relaxed) != 0).find(|slot| {
        slot.memory.thread_pointer.load(Relaxed) == pointer as u64
            && slot.state.load(Acquire) & slot_state::MASK == slot_state::LIVE
    })
}

/// Index of a slot.
#[inline]
pub fn index(state: &ProcState, slot: &ThreadSlot) -> u32 {
    let offset = (core::ptr::from_ref(slot) as usize).wrapping_sub(state.slots.as_ptr() as usize);
    (offset / size_of::<ThreadSlot>()) as u32
}

/// Adds to a slot's loss counters. The caller updates `last_cpu_ns`.
#[inline]
pub fn count_loss(slot: &ThreadSlot, cause: usize, ns: u64) {
    if let (Some(sum), Some(count)) = (slot.ledger.lost_ns.get(cause), slot.ledger.lost.get(cause)) {
        sum.fetch_add(ns, Relaxed);
        count.fetch_add(1, Relaxed);
    }
}

/// A number in (0, period], different for every thread and time.
pub(crate) fn random_first(state: &ProcState, tid: u32, period: u64) -> u64 {
    let mut x = state.fixed.seed ^ u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= clock::monotonic_ns().rotate_left(32) ^ clock::cycles();
    // splitmix64's finaliser.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    ((u128::from(x) * u128::from(period)) >> 64) as u64 + 1
}
