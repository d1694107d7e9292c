//! The signal handler's whole work: whose signal → clocks → walk → ring.
//!
//! It runs with every signal blocked (the capture side installs it so), calls nothing outside this crate, and never
//! touches `errno`.

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::engine::{self, Cookie};
use crate::interrupted::Regs;
use crate::layout::{SampleRecord, ThreadSlot, loss, record, sample_flags, session_flags, slot_state};
use crate::memo::Tag;
use crate::modules::Modules;
use crate::ring::Refused;
use crate::scratch::Scratch;
use crate::stack::Local;
use crate::state::{self, ProcState};
use crate::walk::{self, Lookup, Walked};

/// Takes one sample if the signal is ours. `false`: it is not, the caller passes it on to whoever had it before.
///
/// Async-signal-safe, needs under 2 KiB of stack.
///
/// # Safety
/// Called with the arguments of a handler installed with `SA_SIGINFO`, every signal blocked.
#[inline(never)]
pub unsafe extern "C" fn on_signal(signal: i32, info: *const c_void, context: *const c_void) -> bool {
    // SAFETY: by the caller's promise `info` is the kernel's siginfo_t.
    let Some(cookie) = (unsafe { cookie_of(signal, info) }) else { return false };
    let Some(state) = state::get() else { return true };
    let Some(slot) = state.slots.get(cookie.slot as usize) else { return true };
    let word = slot.state.load(Relaxed);
    let generation = word / (slot_state::MASK + 1);
    if word & slot_state::MASK != slot_state::LIVE || generation as u8 != cookie.generation {
        return true;
    }
    if state.session.stop.load(Relaxed) != 0 {
        engine::disarm(slot);
        return true;
    }
    let begun = if state.session.flags & session_flags::MEASURE != 0 { clock::cycles() } else { 0 };
    let cpu = clock::thread_cpu_ns();
    let weight = cpu.saturating_sub(slot.last_cpu_ns.load(Relaxed));
    let beside = cookie.source == engine::FROM_TIMER_BESIDE;
    // Beside a perf event the timer only speaks for time that the event did not see.
    if beside && weight < state.session.period_ns.saturating_add(state.session.period_ns / 2) {
        return true;
    }
    if slot.stage.load(Relaxed) == engine::stage::PERF_FIRST && !beside {
        engine::make_regular(state, slot);
    }
    // SAFETY: by the caller's promise `context` is the kernel's ucontext_t.
    let regs = unsafe { Regs::interrupted(context) };
    slot.last_cpu_ns.store(cpu, Relaxed);
    let source = if cookie.source == engine::FROM_PERF { 0 } else { sample_flags::TIMER };
    let fixed = SampleRecord {
        time_ns: clock::monotonic_ns(),
        tid: slot.tid.load(Relaxed),
        slot: cookie.slot,
        weight_ns: weight,
        flags: source,
        ..SampleRecord::default()
    };
    // A trap that waited behind a blocked signal interrupts whatever unblocked it: the time went by elsewhere. Our own
    // handler blocks it too, for a shorter time than that.
    const OWN_NS: u64 = 500_000;
    let period = state.session.period_ns;
    // SAFETY: by the caller's promise `info` is the kernel's siginfo_t.
    let waited = cookie.source == engine::FROM_PERF && unsafe { was_blocked(info) };
    let taken = if waited && weight > period.saturating_add(OWN_NS.max(period / 2)) {
        Err(loss::BLOCKED)
    } else {
        sample(state, slot, &regs, fixed)
    };
    match taken {
        Ok(()) => {
            slot.samples.fetch_add(1, Relaxed);
            slot.sampled_ns.fetch_add(weight, Relaxed);
        }
        Err(cause) => engine::count_loss(slot, cause, weight),
    }
    state.header.taken.fetch_add(1, Relaxed);
    if begun != 0 {
        slot.handler_cycles.fetch_add(clock::cycles().wrapping_sub(begun), Relaxed);
    }
    true
}

/// The cookie that our event or timer sent with its signal.
///
/// # Safety
/// `info` is null or a `siginfo_t`.
#[inline]
unsafe fn cookie_of(signal: i32, info: *const c_void) -> Option<Cookie> {
    const TRAP_PERF: i32 = 6;
    const SI_TIMER: i32 = -2;
    if info.is_null() {
        return None;
    }
    // SAFETY: si_code is the third int of siginfo_t.
    let code = unsafe { info.cast::<i32>().add(2).read() };
    if (signal, code) != (engine::SIGTRAP, TRAP_PERF) && (signal, code) != (engine::SIGPROF, SI_TIMER) {
        return None;
    }
    // SAFETY: both si_perf_data and a timer's si_value are the eight bytes at offset 24.
    Cookie::unpack(unsafe { info.cast::<u64>().add(3).read() })
}

/// Whether a trap's signal was blocked when its event fired.
///
/// # Safety
/// `info` is the `siginfo_t` of a trap by a perf event.
#[inline]
unsafe fn was_blocked(info: *const c_void) -> bool {
    const TRAP_PERF_FLAG_ASYNC: u32 = 1;
    // SAFETY: si_perf_flags are the four bytes at offset 36, behind si_perf_data and si_perf_type.
    let flags = unsafe { info.cast::<u32>().add(9).read() };
    flags & TRAP_PERF_FLAG_ASYNC != 0
}

/// Walks and publishes; `Err` is the cause of a loss.
#[inline]
fn sample(state: &ProcState, slot: &ThreadSlot, regs: &Regs, mut fixed: SampleRecord) -> Result<(), usize> {
    let mut lease = state.private.scratch.take().ok_or(loss::CONTENDED)?;
    let scratch = lease.scratch();
    // SAFETY: `tables` points at MODULE_TABLES tables by the contract of `install`.
    let modules = unsafe { Modules::now(state.tables, &state.header.modules_gen) };
    let walked = walk_here(state, slot, regs, modules, scratch);
    fixed.depth = walked.depth as u16;
    fixed.flags |= walked.flags;
    if slot.samples.load(Relaxed) == 0 {
        fixed.flags |= sample_flags::FIRST;
    }
    fixed.modules_gen = modules.generation();
    fixed.exact_frames = walked.exact_frames;
    if walked.unknown_pcs != 0 {
        state.header.unknown_pcs.fetch_add(u64::from(walked.unknown_pcs), Relaxed);
    }
    let frames = scratch.frames.get(..walked.depth).unwrap_or_default();
    publish(state, &fixed, frames)
}

#[inline]
fn walk_here(
    state: &ProcState,
    slot: &ThreadSlot,
    regs: &Regs,
    modules: Modules<'_>,
    scratch: &mut Scratch,
) -> Walked {
    let epoch = state.private.epoch.load(Relaxed);
    let tag = Tag(modules.generation().wrapping_add(epoch) as u16);
    let lookup = Lookup { modules, rows: state.rows, memo: &state.private.memo, tag };
    let stack = (slot.stack_lo.load(Relaxed), slot.stack_hi.load(Relaxed));
    // SAFETY: the interrupted stack pointer of this thread, and its stack as it was registered.
    let mut memory = unsafe { Local::new(state.header.pid, stack, regs.sp(), &mut scratch.windows) };
    let limit = (state.session.max_depth as usize).min(scratch.frames.len());
    let frames = scratch.frames.get_mut(..limit).unwrap_or_default();
    walk::walk(&lookup, regs, &mut memory, &mut scratch.machine, frames)
}

/// Copies a sample into the ring.
#[inline]
fn publish(state: &ProcState, fixed: &SampleRecord, frames: &[u64]) -> Result<(), usize> {
    const FIXED: usize = size_of::<SampleRecord>() / 8;
    let claim =
        state.ring.claim(record::SAMPLE, frames.len().wrapping_add(FIXED)).map_err(
            |refused| match refused {
                Refused::Full => loss::RING_FULL,
                Refused::Contended => loss::CONTENDED,
            },
        )?;
    let head = [
        fixed.time_ns,
        u64::from(fixed.tid) | u64::from(fixed.slot) << 32,
        fixed.weight_ns,
        u64::from(fixed.depth) | u64::from(fixed.flags) << 16 | u64::from(fixed.modules_gen) << 32,
        fixed.exact_frames,
    ];
    for (word, value) in claim.words.iter().zip(head.iter().chain(frames)) {
        word.store(*value, Relaxed);
    }
    claim.publish();
    Ok(())
}
