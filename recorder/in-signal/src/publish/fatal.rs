//! The last sample of a thread: its location when a signal came that ends the process, or could have.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{SampleRecord, event_kind};
use crate::os::{clock, sys};
use crate::publish::{self, Event};
use crate::state::{ProcState, slots};
use crate::unwind::interrupted::{Regs, SignalFrame, arch};

/// Records `index` (one of [`crate::payload::fatal`]) with `words` and the stack of the interrupted code.
/// `fault` is the address of a failed access, 0 if the signal had another cause.
///
/// The stack may be corrupt, so all of it is read by system calls that check the address. Returns false if
/// the ring has no room; the loss is counted.
#[inline(never)]
pub fn record(
    state: &'static ProcState,
    index: u16,
    words: &[u64],
    fault: u64,
    frame: SignalFrame<'_>,
) -> bool {
    let slot = slots::current();
    let plain = SampleRecord {
        time_ns: clock::monotonic_ns(),
        tid: slot.map_or_else(sys::gettid, |slot| slot.tid.load(Relaxed)),
        slot: slot.map_or(u32::MAX, |slot| slots::index(state, slot)),
        ..SampleRecord::default()
    };
    let event = Event { kind: event_kind::SIGNAL, index, value: 1, extra: words };
    let regs = frame.registers();
    let Some(mut lease) = state.private.scratch.take_for(plain.slot) else {
        publish::lose(state, &event);
        return false;
    };
    // The program called an address without code: the stack continues at the return address of that call.
    let jumped = if fault == regs.pc { called_from(&regs) } else { None };
    let mut fixed = plain;
    let taken = publish::walk(state, (0, 0), jumped.as_ref().unwrap_or(&regs), &mut fixed, lease.scratch());
    let nowhere = [regs.pc];
    if jumped.is_some() {
        fixed.exact_frames &= !1;
        publish::event(state, &fixed, &event, &nowhere, &taken).is_ok()
    } else {
        publish::event(state, &fixed, &event, &[], &taken).is_ok()
    }
}

/// Returns the caller's registers right after its call.
fn called_from(regs: &Regs) -> Option<Regs> {
    let mut caller = *regs;
    if arch::RA == 16 {
        let sp = regs.sp();
        let mut word = [0u8; 8];
        // SAFETY: the target has 8 bytes.
        if unsafe { sys::read_process(sys::getpid(), sp, word.as_mut_ptr(), 8) } != 8 {
            return None;
        }
        caller.pc = u64::from_le_bytes(word);
        caller.set(arch::RA, caller.pc);
        caller.set(arch::SP, sp.wrapping_add(8));
    } else {
        caller.pc = regs.get(arch::RA)?;
    }
    (caller.pc != 0).then_some(caller)
}

/// Counts last samples that were requested but never came.
pub fn lose(state: &ProcState, count: u64) {
    if let Some(lost) = state.header.counters.event_lost.get(usize::from(event_kind::SIGNAL)) {
        lost.fetch_add(count, Relaxed);
    }
}

/// Counts a signal that is not recorded, because too many came before it.
pub fn pass(state: &ProcState) {
    if let Some(passed) = state.header.counters.event_short.get(usize::from(event_kind::SIGNAL)) {
        passed.fetch_add(1, Relaxed);
    }
}
