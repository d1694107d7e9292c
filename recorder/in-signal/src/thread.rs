//! Thread slots: claim and release. Lock-free; all of it may run in a handler.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{ThreadSlot, slot_state, stage};
use crate::os::{clock, sys, tls};
use crate::state::{self, ProcState, slots};
use crate::{context, engine};

/// The caller's information on a thread that it registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadInfo {
    /// Kernel thread id; 0 = the calling thread.
    pub tid: u32,
    /// Known stack, lowest readable (above the guard) and one past the highest address; (0, 0) = unknown.
    pub stack: (u64, u64),
    /// Name (`comm`), NUL padded.
    pub name: [u8; 16],
}

/// Claims a slot for a thread and fills it. The calling thread's own slot is also stored in its thread-local
/// word. Returns `None` (counted in the header's `no_slot`) if all slots are in use or no state is installed.
/// A thread that has a slot gets the same one again.
pub fn register(info: &ThreadInfo) -> Option<&'static ThreadSlot> {
    let state = state::get()?;
    let own = sys::gettid();
    let tid = if info.tid == 0 { own } else { info.tid };
    let slot = match slots::by_tid(state, tid) {
        Some(slot) => slot,
        None => claim(state, tid, info)?,
    };
    if tid == own {
        let pointer = context::thread_pointer();
        slot.memory.thread_pointer.store(pointer as u64, Relaxed);
        tls::know(pointer);
        tls::set(core::ptr::from_ref(slot) as usize);
    }
    Some(slot)
}

fn claim(state: &'static ProcState, tid: u32, info: &ThreadInfo) -> Option<&'static ThreadSlot> {
    for slot in state.slots {
        let old = slot.state.load(Relaxed);
        if old & slot_state::MASK != slot_state::FREE {
            continue;
        }
        let generation = old.wrapping_add(slot_state::MASK + 1) & !slot_state::MASK;
        if slot.state.compare_exchange(old, generation | slot_state::INIT, Acquire, Relaxed).is_err() {
            continue;
        }
        fill(slot, tid, info);
        slot.state.store(generation | slot_state::LIVE, Release);
        return Some(slot);
    }
    state.header.counters.no_slot.fetch_add(1, Relaxed);
    None
}

fn fill(slot: &ThreadSlot, tid: u32, info: &ThreadInfo) {
    slot.tid.store(tid, Relaxed);
    slot.ledger.start_mono_ns.store(clock::monotonic_ns(), Relaxed);
    let cleared = [
        &slot.ledger.end_mono_ns,
        &slot.ledger.armed_cpu_ns,
        &slot.ledger.last_cpu_ns,
        &slot.ledger.last_mono_ns,
        &slot.ledger.end_cpu_ns,
        &slot.ledger.first_ns,
        &slot.ledger.samples,
        &slot.ledger.sampled_ns,
        &slot.ledger.handler_cycles,
        &slot.engine.rest_until_ns,
        &slot.engine.handle,
        &slot.engine.handle2,
        &slot.engine.waits,
        &slot.engine.looked_cpu_ns,
        &slot.memory.thread_pointer,
    ];
    for word in cleared {
        word.store(0, Relaxed);
    }
    for word in slot
        .ledger
        .lost_ns
        .iter()
        .chain(&slot.events.handles)
        .chain(&slot.memory.context_pages)
        .chain([&slot.spans.off_ns, &slot.spans.first_off_ns])
    {
        word.store(0, Relaxed);
    }
    for word in &slot.ledger.lost {
        word.store(0, Relaxed);
    }
    slot.engine.stage.store(stage::IDLE, Relaxed);
    slot.engine.blocked_seen.store(0, Relaxed);
    set_stack(slot, info.stack);
    set_name(slot, &info.name);
}

/// Records the bounds of the thread's stack.
pub fn set_stack(slot: &ThreadSlot, stack: (u64, u64)) {
    let known = stack.0 < stack.1;
    slot.memory.stack_lo.store(if known { stack.0 } else { 0 }, Relaxed);
    slot.memory.stack_hi.store(if known { stack.1 & !7 } else { 0 }, Relaxed);
}

/// Records the thread's name.
pub fn set_name(slot: &ThreadSlot, name: &[u8; 16]) {
    let all = u128::from_le_bytes(*name);
    let [low, high] = &slot.name;
    low.store(all as u64, Relaxed);
    high.store((all >> 64) as u64, Relaxed);
}

/// Ends the calling thread's ledger: disarms it, stores its last clock readings, and hands the slot to the
/// drain.
pub fn end() {
    if let Some(slot) = slots::current() {
        tls::set(0);
        tls::forget(context::thread_pointer());
        end_slot(slot);
    }
}

/// Ends the ledger of a slot whose thread is the caller or has ended.
pub fn end_slot(slot: &ThreadSlot) {
    engine::disarm(slot);
    let old = slot.state.load(Relaxed);
    if old & slot_state::MASK != slot_state::LIVE {
        return;
    }
    slot.ledger.end_cpu_ns.store(clock::cpu_ns_by_tid(slot.tid.load(Relaxed)), Relaxed);
    slot.ledger.end_mono_ns.store(clock::monotonic_ns(), Relaxed);
    let ended = (old & !slot_state::MASK) | slot_state::ENDED;
    let _ = slot.state.compare_exchange(old, ended, AcqRel, Relaxed);
}

/// Clears the calling thread's word without touching the slot: for the child of a fork, whose word still
/// points to the parent's slot.
pub fn forget() {
    tls::set(0);
}
