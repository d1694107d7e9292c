//! Latency of named functions, by hardware breakpoints: the program's code is not changed.
//!
//! A breakpoint on the function's first instruction stores stack pointer and time, and sets another
//! breakpoint on the return address of this call. A return is recognised by its stack pointer. So every way
//! to leave the frame (return, tail call, exception, longjmp) either ends the call or makes its entry stale:
//! frames below the present stack pointer no longer exist.
//!
//! A processor has four such registers. A breakpoint on a return address stays until its register is needed
//! for another call site.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{SampleRecord, ThreadSlot, event_kind};
use crate::os::clock;
use crate::perf::perf_event::{self, Firing, Recorded};
use crate::perf::perf_ring;
use crate::publish::{self, Event};
use crate::state::cookie::{Cookie, FROM_TRACES};
use crate::state::open_calls::{Call, Calls, DEEPEST, Thread};
use crate::state::{self, ProcState};
use crate::unwind::interrupted::{Regs, SignalFrame, arch};
use crate::unwind::stack::{Local, Memory};

fn breakpoint(address: u64) -> perf_event::Event {
    const EXECUTE: u32 = 4;
    const LENGTH: u64 = 8;
    perf_event::Event {
        kind: perf_event::BREAKPOINT,
        config1: address,
        config2: LENGTH,
        bp_type: EXECUTE,
        period: 1,
        user_only: true,
        ..perf_event::Event::default()
    }
}

/// Tests if the kernel allows breakpoints for the calling thread.
///
/// # Errors
/// The errno of the refusal.
pub fn probe() -> Result<(), i32> {
    // An address at which no code is executed.
    const NOWHERE: u64 = 0x1000;
    let handle = perf_event::open(&breakpoint(NOWHERE), 0, Firing::Repeatedly, Recorded::Nothing, 0)?;
    // SAFETY: mapped above, and not shared with any other code.
    unsafe { perf_ring::unmap(handle) };
    Ok(())
}

fn thread<'a>(state: &'a ProcState, slot: &ThreadSlot) -> Option<&'a Thread> {
    state.private.traces.threads.get(crate::state::slots::index(state, slot) as usize)
}

fn open(state: &ProcState, slot: &ThreadSlot, tid: u32, register: usize, address: u64) -> Result<u64, i32> {
    let cookie = Cookie::new(state, slot, FROM_TRACES.wrapping_add(register as u8)).pack();
    perf_event::open(&breakpoint(address), tid, Firing::Repeatedly, Recorded::Nothing, cookie)
}

/// Sets the breakpoints on functions for a thread.
pub fn arm(state: &ProcState, slot: &ThreadSlot) {
    const EAGAIN: i32 = 11;
    let Some(own) = thread(state, slot) else {
        return state.header.engine.trace_errno.iter().for_each(|errno| errno.store(EAGAIN, Relaxed));
    };
    let each = own.handles.iter().zip(&state.private.traces.entry).zip(&state.header.engine.trace_errno);
    for (register, ((handle, entry), errno)) in each.enumerate() {
        let address = entry.load(Relaxed);
        if address == 0 || handle.load(Relaxed) != 0 {
            continue;
        }
        if register == 0 {
            // SAFETY: the thread has no armed breakpoint, so no handler of it accesses its calls.
            unsafe { (*own.calls.get()).depth = 0 };
        }
        match open(state, slot, slot.tid.load(Relaxed), register, address) {
            Ok(new) if handle.compare_exchange(0, new, Relaxed, Relaxed).is_err() => {
                // SAFETY: mapped above, and not shared with any other code.
                unsafe { perf_ring::unmap(new) };
            }
            Ok(_) => {}
            Err(refused) => errno.store(refused, Relaxed),
        }
    }
}

/// Removes all breakpoints of a thread.
pub fn disarm(slot: &ThreadSlot) {
    let Some(state) = state::get() else { return };
    // Do not touch the page of a thread in a process that traces no function.
    if state.private.traces.entry.iter().all(|entry| entry.load(Relaxed) == 0) {
        return;
    }
    let Some(own) = thread(state, slot) else { return };
    for handle in &own.handles {
        perf_ring::close(handle);
    }
}

/// Handles a breakpoint of the recorder that was reached. `late`: the signal was blocked when the breakpoint was
/// reached, so it belongs to an earlier instruction.
///
/// # Safety
/// Called in a handler of the slot's own thread, with every signal blocked.
pub unsafe fn on_breakpoint(
    state: &'static ProcState,
    slot: &ThreadSlot,
    slot_index: u32,
    register: u8,
    late: bool,
    frame: SignalFrame<'_>,
) {
    let now = clock::monotonic_ns();
    if late {
        return lose(state);
    }
    let Some(own) = thread(state, slot) else { return };
    let regs = frame.registers();
    // SAFETY: the caller guarantees that this is the thread's handler, with every signal blocked.
    let calls = unsafe { &mut *own.calls.get() };
    let entry = state.private.traces.entry.get(usize::from(register)).map_or(0, |e| e.load(Relaxed));
    let at = |address: u64| address != 0 && regs.pc == address;
    if at(entry) {
        enter(state, slot, own, calls, &regs, u32::from(register));
    } else if own.addresses.get(usize::from(register)).is_some_and(|a| at(a.load(Relaxed))) {
        leave(state, slot, slot_index, calls, &regs, now);
    }
}

/// Handles another trap of the recorder at the address of a breakpoint, whose own signal may have been lost
/// because of it.
///
/// # Safety
/// As [`on_breakpoint`].
pub unsafe fn on_other_trap(
    state: &'static ProcState,
    slot: &ThreadSlot,
    slot_index: u32,
    frame: SignalFrame<'_>,
) {
    let entries = &state.private.traces.entry;
    if entries.iter().all(|entry| entry.load(Relaxed) == 0) {
        return;
    }
    let Some(own) = thread(state, slot) else { return };
    let pc = frame.registers().pc;
    let at = |register: usize, address: &AtomicU64| {
        let function = entries.get(register).map_or(0, |entry| entry.load(Relaxed));
        pc == function || (function == 0 && pc == address.load(Relaxed))
    };
    let found = own.addresses.iter().enumerate().position(|(register, address)| at(register, address));
    if let Some(register) = found {
        // If the breakpoint's signal comes after all, the second call changes nothing. SAFETY: the same
        // contract.
        unsafe { on_breakpoint(state, slot, slot_index, register as u8, false, frame) };
    }
}

fn lose(state: &ProcState) {
    publish::lose(state, &Event { kind: event_kind::TRACE, index: 0, value: 0, extra: &[] });
}

/// Frames below the stack pointer no longer exist, however they were left.
fn forget_stale(calls: &mut Calls, sp: u64) {
    while let Some(top) = calls.depth.checked_sub(1)
        && calls.list.get(top).is_none_or(|call| call.sp <= sp)
    {
        calls.depth = top;
    }
}

fn enter(state: &ProcState, slot: &ThreadSlot, own: &Thread, calls: &mut Calls, regs: &Regs, function: u32) {
    let Some((to, sp)) = caller(state, slot, regs) else { return lose(state) };
    forget_stale(calls, sp);
    // The current call has this very frame: it was left without a return, or ends by a jump to another traced
    // function.
    if calls.depth >= DEEPEST || !watch(state, slot, own, calls, to) {
        return lose(state);
    }
    if let Some(place) = calls.list.get_mut(calls.depth) {
        *place = Call { sp, since_ns: clock::monotonic_ns(), to, function };
        calls.depth = calls.depth.wrapping_add(1);
    }
}

/// Returns the return address of the function that has just been entered, and the stack pointer after its
/// return.
#[inline]
fn caller(state: &ProcState, slot: &ThreadSlot, regs: &Regs) -> Option<(u64, u64)> {
    if cfg!(target_arch = "aarch64") {
        return Some((crate::unwind::interrupted::strip(regs.get(arch::RA)?), regs.sp()));
    }
    let mut lease = state.private.scratch.take()?;
    let windows = &mut lease.scratch().windows;
    // SAFETY: the interrupted stack pointer of this thread, and the stack that it was registered with.
    let mut memory = unsafe { Local::new(state.pid, publish::bounds(slot), regs.sp(), windows) };
    Some((memory.word(regs.sp())?, regs.sp().wrapping_add(8)))
}

/// Ensures that a breakpoint is set on a return address. Returns false if all registers are used for other
/// open calls.
fn watch(state: &ProcState, slot: &ThreadSlot, own: &Thread, calls: &Calls, to: u64) -> bool {
    let registers = || own.handles.iter().zip(&own.addresses).enumerate();
    let open_calls = calls.list.get(..calls.depth).unwrap_or_default();
    let needed = |address: u64| open_calls.iter().any(|call| call.to == address);
    let mut chosen = None;
    for (register, (handle, address)) in registers() {
        let functions = state.private.traces.entry.get(register).is_some_and(|e| e.load(Relaxed) != 0);
        if functions {
            continue;
        }
        let (taken, there) = (handle.load(Relaxed) != 0, address.load(Relaxed));
        if taken && there == to {
            return true;
        }
        if !taken || (chosen.is_none() && !needed(there)) {
            chosen = Some((register, handle, address));
        }
    }
    let Some((register, handle, address)) = chosen else { return false };
    perf_ring::close(handle);
    address.store(to, Relaxed);
    match open(state, slot, 0, register, to) {
        Ok(new) => {
            handle.store(new, Relaxed);
            true
        }
        Err(_) => false,
    }
}

/// Returns true if the interrupted instruction was reached by a return. An exception handler also continues
/// after the call, but other functions were called in the meantime: their return address has replaced this
/// one's on the stack.
#[inline]
fn returned(state: &ProcState, slot: &ThreadSlot, regs: &Regs) -> bool {
    if cfg!(target_arch = "aarch64") {
        return regs.get(arch::RA).map(crate::unwind::interrupted::strip) == Some(regs.pc);
    }
    let Some(mut lease) = state.private.scratch.take() else { return false };
    let below = regs.sp().wrapping_sub(8);
    let windows = &mut lease.scratch().windows;
    // SAFETY: the word below the interrupted stack pointer, which the red zone protects from signal frames;
    // the stack is the one that the thread was registered with.
    let mut memory = unsafe { Local::new(state.pid, publish::bounds(slot), below, windows) };
    memory.word(below) == Some(regs.pc)
}

fn leave(state: &ProcState, slot: &ThreadSlot, slot_index: u32, calls: &mut Calls, regs: &Regs, now: u64) {
    let open_calls = calls.list.get(..calls.depth).unwrap_or_default();
    let found = open_calls.iter().rposition(|call| call.sp == regs.sp() && call.to == regs.pc);
    let Some(found) = found else { return };
    let Some(call) = open_calls.get(found).copied() else { return };
    calls.depth = found;
    if !returned(state, slot, regs) {
        return;
    }
    let took = now.saturating_sub(call.since_ns);
    let Some(spec) = state.fixed.traces.get(call.function as usize) else { return };
    if took < spec.threshold_ns {
        return;
    }
    let entry = state.private.traces.entry.get(call.function as usize).map_or(0, |e| e.load(Relaxed));
    let event =
        Event { kind: event_kind::TRACE, index: call.function as u16, value: took, extra: &[call.since_ns] };
    let Some(mut lease) = state.private.scratch.take() else { return publish::lose(state, &event) };
    let mut fixed = SampleRecord {
        time_ns: now,
        tid: slot.tid.load(Relaxed),
        slot: slot_index,
        ..SampleRecord::default()
    };
    let taken = publish::walk(state, publish::bounds(slot), regs, &mut fixed, lease.scratch());
    // The leaf of the stack is the function; its return to its caller is exact.
    let _ = publish::event(state, &fixed, &event, &[entry], &taken);
}
