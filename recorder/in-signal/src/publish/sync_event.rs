//! Records an event of the calling thread, outside handlers: a lock wait, an allocation, an exception.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::context;
use crate::layout::{SampleRecord, event_kind, loss};
use crate::os::{clock, sys};
use crate::publish::{self, CapturedStack, Event};
use crate::state::{self, cost, slots};
use crate::unwind::interrupted::{Regs, arch};

/// Code whose frames are omitted at the leaf: [from, to).
static OWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Sets the range of the recorder's own code, so that stacks begin in the program.
pub fn set_own_code(from: u64, to: u64) {
    for (word, value) in OWN.iter().zip([from, to]) {
        word.store(value, Ordering::Relaxed);
    }
}

/// An error of [`record`]: the event happened within an interposed function that records it itself. It is not counted as lost.
pub const NESTED: usize = usize::MAX;

/// Records `event` of the calling thread, with its stack if `with_stack`. Never allocates, preserves `errno`.
/// All signals are blocked in the meantime, because a handler that jumps away would leave a half-written
/// record.
///
/// # Errors
/// [`loss`] cause; the event is then counted as lost. Or [`NESTED`].
#[inline(never)]
pub fn record(event: &Event<'_>, with_stack: bool) -> Result<(), usize> {
    let Some(state) = state::get() else { return Err(loss::STOPPED) };
    let regs = registers();
    let old = sys::block_signals();
    let work = || with_blocked(state, &regs, event, with_stack);
    let result = cost::measure(state, usize::from(event.kind), work);
    sys::restore_signals(old);
    result
}

/// Records the new name of the thread with this thread pointer, or of the calling thread if `None`. The name of another thread that has no
/// slot is not recorded.
pub fn renamed(thread_pointer: Option<usize>, name: &[u8; 16]) {
    let Some(state) = state::get() else { return };
    let old = sys::block_signals();
    let calling = thread_pointer.is_none_or(|pointer| pointer == context::thread_pointer());
    let slot = if calling { slots::current() } else { slots::by_pointer(state, thread_pointer.unwrap_or(0)) };
    if calling || slot.is_some() {
        let tid = slot.map_or_else(sys::gettid, |slot| slot.tid.load(Relaxed));
        let index = slot.map_or(u32::MAX, |slot| slots::index(state, slot));
        publish::name(state, clock::monotonic_ns(), (tid, index), name);
    }
    sys::restore_signals(old);
}

fn with_blocked(
    state: &'static state::ProcState,
    regs: &Regs,
    event: &Event<'_>,
    with_stack: bool,
) -> Result<(), usize> {
    let slot = slots::current();
    let mut fixed = SampleRecord {
        time_ns: clock::monotonic_ns(),
        tid: slot.map_or_else(sys::gettid, |slot| slot.tid.load(Relaxed)),
        slot: slot.map_or(u32::MAX, |slot| slots::index(state, slot)),
        ..SampleRecord::default()
    };
    if !with_stack {
        return publish::event(state, &fixed, event, &[], &CapturedStack::default());
    }
    let Some(mut lease) = state.private.scratch.take_for(fixed.slot) else {
        publish::lose(state, event);
        return Err(loss::CONTENDED);
    };
    let stack = slot.map_or((0, 0), publish::bounds);
    let taken = publish::walk(state, stack, regs, &mut fixed, lease.scratch());
    let own = OWN[0].load(Relaxed)..OWN[1].load(Relaxed);
    let skip = taken.frames.iter().take_while(|pc| own.contains(*pc)).count();
    let frames = taken.frames.get(skip..).unwrap_or_default();
    // An allocator function that calls another one is recorded twice here; only the outer call is the
    // program's.
    if event.kind == event_kind::ALLOC && frames.iter().any(|pc| own.contains(pc)) {
        return Err(NESTED);
    }
    fixed.depth = frames.len() as u16;
    fixed.exact_frames = fixed.exact_frames.checked_shr(skip as u32).unwrap_or(0);
    publish::event(state, &fixed, event, &[], &CapturedStack { frames, ..taken })
}

/// Returns the caller's registers: those that a function must preserve, stack pointer and program counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registers() -> Regs {
    let mut raw = [0u64; 8];
    // SAFETY: reads registers into a local array.
    unsafe {
        core::arch::asm!(
            "mov [{p}], rbx", "mov [{p} + 8], rbp", "mov [{p} + 16], rsp", "mov [{p} + 24], r12",
            "mov [{p} + 32], r13", "mov [{p} + 40], r14", "mov [{p} + 48], r15",
            "lea {t}, [rip]", "mov [{p} + 56], {t}",
            p = in(reg) raw.as_mut_ptr(), t = out(reg) _, options(nostack, preserves_flags));
    }
    let mut regs = Regs::unknown();
    let [rbx, rbp, rsp, r12, r13, r14, r15, pc] = raw;
    for (number, value) in
        [(3, rbx), (arch::FP, rbp), (arch::SP, rsp), (12, r12), (13, r13), (14, r14), (15, r15)]
    {
        regs.set(number, value);
    }
    regs.pc = pc;
    regs
}

/// Returns the caller's registers: those that a function must preserve, stack pointer and program counter.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn registers() -> Regs {
    let mut raw = [0u64; 14];
    // SAFETY: reads registers into a local array.
    unsafe {
        core::arch::asm!(
            "stp x19, x20, [{p}]", "stp x21, x22, [{p}, #16]", "stp x23, x24, [{p}, #32]",
            "stp x25, x26, [{p}, #48]", "stp x27, x28, [{p}, #64]", "stp x29, x30, [{p}, #80]",
            "mov {t}, sp", "str {t}, [{p}, #96]", "adr {t}, .", "str {t}, [{p}, #104]",
            p = in(reg) raw.as_mut_ptr(), t = out(reg) _, options(nostack, preserves_flags));
    }
    let mut regs = Regs::unknown();
    for (number, value) in (19..).zip(raw.iter().take(12)) {
        regs.set(number, *value);
    }
    regs.set(arch::SP, raw[12]);
    regs.pc = raw[13];
    regs
}
