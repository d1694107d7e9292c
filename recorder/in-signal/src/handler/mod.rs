//! The signal handler: identify the signal → read clocks → walk the stack → write to the ring. `weight` computes
//! the CPU time that a sample represents, `pace` limits the time that samples take.
//!
//! It runs with every signal blocked (the capture crate installs it with this mask), calls nothing outside
//! this crate, and never touches `errno`.

mod pace;
mod weight;

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

use crate::engine::{self, events, process_timer, selection, trace};
use crate::layout::{
    SampleRecord, ThreadSlot, engines, event_kind, loss, sample_flags, session_flags, slot_state, stage,
};
use crate::os::clock;
use crate::perf::perf_ring::{self, Reader, runs};
use crate::publish::{self, CapturedStack};
use crate::state::cookie::{
    Cookie, FROM_EVENTS, FROM_PERF, FROM_PROCESS, FROM_TIMER, FROM_TIMER_BESIDE, FROM_TRACES, SIGPROF,
    SIGTRAP, generation,
};
use crate::state::scratch::Scratch;
use crate::state::{self, ProcState, cost, slots};
use crate::unwind::interrupted::{Regs, SignalFrame};

/// Takes one sample if the recorder sent the signal. Returns false if it did not; the caller then passes the
/// signal to the previous handler.
///
/// Async-signal-safe, needs under 2 KiB of stack.
///
/// # Safety
/// Called with the arguments of a handler installed with `SA_SIGINFO`, every signal blocked.
#[inline(never)]
pub unsafe extern "C" fn on_signal(signal: i32, info: *const c_void, context: *const c_void) -> bool {
    // SAFETY: the caller guarantees that these are the arguments of a handler.
    let frame = unsafe { SignalFrame::new(signal, info.cast_mut(), context.cast_mut()) };
    let Some(frame) = frame else { return false };
    let Some(cookie) = read_cookie(frame) else { return false };
    let Some(state) = state::get() else { return true };
    let Some(slot) = state.slots.get(cookie.slot as usize) else { return true };
    if cookie.source == FROM_PROCESS {
        on_process_timer(state, slot, cookie, frame);
        return true;
    }
    let word = slot.state.load(Relaxed);
    if word & slot_state::MASK != slot_state::LIVE || generation(state, word) != cookie.generation {
        return true;
    }
    if state.session.stop.load(Relaxed) != 0 {
        engine::disarm(slot);
        return true;
    }
    if state.session.live.engines.load(Relaxed) == 0 {
        engine::pause(state, slot);
        return true;
    }
    let late = signal == SIGTRAP && was_blocked(frame);
    dispatch(state, slot, cookie, late, frame);
    if signal == SIGTRAP && state.session.live.engines.load(Relaxed) & SEVERAL != 0 {
        others(state, slot, cookie, late, frame);
    }
    true
}

/// Handles a recorder's signal in a thread without thread-local memory of the C library ([`crate::os::tls::is_here`]). Takes no sample.
/// The next sample of a registered thread includes this CPU time. With the process's timer it is counted as lost.
#[cold]
pub fn on_foreign_thread(frame: SignalFrame<'_>) {
    let Some(cookie) = read_cookie(frame) else { return };
    let Some(state) = state::get() else { return };
    if let Some(slot) = state.slots.get(cookie.slot as usize)
        && cookie.source == FROM_PROCESS
        && cookie.generation == state.salt
    {
        slots::count_loss(slot, loss::UNARMED, process_timer::since_last(state));
    }
}

/// Handles the signal of the process timer, which came to the calling thread; the thread of `armed_by` armed
/// the timer.
#[cold]
fn on_process_timer(
    state: &'static ProcState,
    armed_by: &ThreadSlot,
    cookie: Cookie,
    frame: SignalFrame<'_>,
) {
    if cookie.generation != state.salt {
        return;
    }
    if let Some(slot) = process_timer::interrupted(state, armed_by) {
        let regs = frame.registers();
        let cookie = Cookie { slot: slots::index(state, slot), ..cookie };
        cost::measure(state, OF_CPU, || on_cpu(state, slot, cookie, false, &regs));
    }
}

/// Engines whose traps may coincide with other traps.
const SEVERAL: u32 = engines::EVENTS | engines::TRACE;

/// Index of the costs of CPU-time samples.
const OF_CPU: usize = 0;

/// Handles the signal of `cookie`, which an event of the calling thread sent.
#[inline]
fn dispatch(
    state: &'static ProcState,
    slot: &ThreadSlot,
    cookie: Cookie,
    late: bool,
    frame: SignalFrame<'_>,
) {
    if let Some(register) = cookie.source.checked_sub(FROM_TRACES) {
        // SAFETY: the thread's own breakpoint sent the signal, and the handler runs with every signal blocked.
        let work = || unsafe { trace::on_breakpoint(state, slot, cookie.slot, register, late, frame) };
        cost::measure(state, event_kind::TRACE as usize, work);
    } else if let Some(index) = cookie.source.checked_sub(FROM_EVENTS) {
        let work = || events::on_event(state, slot, cookie.slot, index, frame);
        cost::measure(state, event_kind::PERF as usize, work);
    } else {
        let regs = frame.registers();
        cost::measure(state, OF_CPU, || on_cpu(state, slot, cookie, late, &regs));
    }
}

/// Handles the other traps of this moment. The kernel queues one trap per thread, so if several events
/// overflow together, only the first sends its signal. The others are found by their rings, and breakpoints
/// by the program counter.
#[cold]
fn others(state: &'static ProcState, slot: &ThreadSlot, cookie: Cookie, late: bool, frame: SignalFrame<'_>) {
    let mut source = FROM_EVENTS;
    for handle in &slot.events.handles {
        if source != cookie.source && perf_ring::is_waiting(handle) {
            dispatch(state, slot, Cookie { source, ..cookie }, late, frame);
        }
        source = source.wrapping_add(1);
    }
    let source = FROM_PERF;
    if source != cookie.source && perf_ring::is_waiting(&slot.engine.handle) {
        dispatch(state, slot, Cookie { source, ..cookie }, late, frame);
    }
    if cookie.source < FROM_TRACES && !late {
        // SAFETY: the thread's own event sent the signal, and the handler runs with every signal blocked.
        unsafe { trace::on_other_trap(state, slot, cookie.slot, frame) };
    }
}

/// Takes a sample of CPU time.
#[inline]
fn on_cpu(state: &ProcState, slot: &ThreadSlot, cookie: Cookie, late: bool, regs: &Regs) {
    let begun = if state.fixed.flags & session_flags::MEASURE != 0 { clock::cycles() } else { 0 };
    state.ring.prefetch();
    let period = state.session.live.period_ns.load(Relaxed);
    let beside = cookie.source == FROM_TIMER_BESIDE;
    // A timer that complements a perf event only samples time that the event did not see.
    if beside && weight::unseen(slot) < period.saturating_add(period / 2) {
        return;
    }
    let now = clock::monotonic_ns();
    let regular = cookie.source == FROM_PERF && slot.engine.stage.load(Relaxed) == stage::PERF;
    let is_paced = regular || cookie.source == FROM_TIMER;
    let measured = if is_paced { pace::begin(slot, now) } else { None };
    if is_paced && measured.is_none() {
        // The kernel's part of this stack does not belong to the next sample.
        drop(Reader::take(&slot.engine.handle, false));
        return;
    }
    let rested = pace::rested(slot);
    let weight = match cookie.source {
        FROM_PROCESS => weight::process_cpu_ns(state, slot),
        _ => weight::since_last(slot, now, if regular { period } else { 0 }),
    };
    let weight = if regular && !late { weight::until_due(slot, weight, period) } else { weight };
    let source = if cookie.source == FROM_PERF { 0 } else { sample_flags::TIMER };
    let fixed = SampleRecord {
        time_ns: now,
        tid: slot.tid.load(Relaxed),
        slot: cookie.slot,
        weight_ns: weight,
        flags: source,
        ..SampleRecord::default()
    };
    // A trap that was pending because its signal was blocked interrupts the code that unblocked it, but the
    // time went by elsewhere. The recorder's own handler blocks the signal too, for a shorter time than this.
    const OWN_NS: u64 = 500_000;
    let waited = cookie.source == FROM_PERF && late;
    let overflows = if cookie.source == FROM_PERF { Reader::take(&slot.engine.handle, false) } else { None };
    if waited && weight > period.saturating_add(rested).saturating_add(OWN_NS.max(period / 2)) {
        slots::count_loss(slot, loss::BLOCKED, weight);
        drop(overflows);
    } else {
        sample(state, slot, regs, fixed, overflows);
        if let Some(measured) = measured {
            pace::end(slot, measured, period);
        }
    }
    match slot.engine.stage.load(Relaxed) {
        stage::PERF_FIRST | stage::PERF
            if cookie.source == FROM_PERF && selection::goes_to_timer(state, slot) => {}
        stage::PERF_FIRST if !beside => engine::make_regular(state, slot),
        stage::TIMER if cookie.source == FROM_TIMER => selection::look_again(state, slot),
        _ => {}
    }
    state.header.counters.taken.fetch_add(1, Relaxed);
    if begun != 0 {
        slot.ledger.handler_cycles.fetch_add(clock::cycles().wrapping_sub(begun), Relaxed);
    }
}

/// Returns the cookie that the recorder's event or timer sent with its signal.
#[inline]
fn read_cookie(frame: SignalFrame<'_>) -> Option<Cookie> {
    const TRAP_PERF: i32 = 6;
    const SI_TIMER: i32 = -2;
    match (frame.signal(), frame.code()) {
        (SIGTRAP, TRAP_PERF) | (SIGPROF, SI_TIMER) => Cookie::unpack(frame.value()),
        _ => None,
    }
}

/// Returns true if the signal of a trap by a perf event was blocked when its event fired.
#[inline]
fn was_blocked(frame: SignalFrame<'_>) -> bool {
    const TRAP_PERF_FLAG_ASYNC: u32 = 1;
    frame.perf_flags() & TRAP_PERF_FLAG_ASYNC != 0
}

/// Walks the stack and publishes it: one sample, or one per kernel stack if several overflows happened inside
/// one system call. These samples share the weight.
#[inline]
fn sample(
    state: &ProcState,
    slot: &ThreadSlot,
    regs: &Regs,
    mut fixed: SampleRecord,
    overflows: Option<Reader<'_>>,
) {
    let Some(mut lease) = state.private.scratch.take_for(fixed.slot) else {
        return slots::count_loss(slot, loss::CONTENDED, fixed.weight_ns);
    };
    if slot.ledger.samples.load(Relaxed) == 0 {
        fixed.flags |= sample_flags::FIRST;
    }
    let scratch = lease.scratch();
    publish::walk(state, publish::bounds(slot), regs, &mut fixed, scratch);
    let Scratch { frames, kernel, context, context_words, .. } = scratch;
    let taken = CapturedStack::new(frames, fixed.depth, context, *context_words);
    let (all, weight) = (overflows.as_ref().map_or(1, Reader::waiting).max(1), fixed.weight_ns);
    let mut given = 0u64;
    let mut one = |time_ns: u64, count: Option<u64>, kernel: &[u64]| {
        let share = match count {
            Some(count) => (weight as f64 * (count as f64 / all as f64)) as u64,
            // The last one gets the rest, including the shares of samples that did not fit into the ring.
            None => weight.saturating_sub(given),
        };
        given = given.saturating_add(share);
        let fixed = SampleRecord { time_ns: time_ns.min(fixed.time_ns), weight_ns: share, ..fixed };
        match publish::sample(state, &fixed, kernel, &taken) {
            Ok(()) => {
                // Only this thread's handler writes them, and it does not nest.
                slot.ledger.samples.store(slot.ledger.samples.load(Relaxed).wrapping_add(1), Relaxed);
                slot.ledger
                    .sampled_ns
                    .store(slot.ledger.sampled_ns.load(Relaxed).wrapping_add(share), Relaxed);
            }
            Err(cause) => slots::count_loss(slot, cause, share),
        }
    };
    match overflows {
        Some(reader) => runs(reader, kernel, |run, last, kernel| {
            one(run.time_ns, (!last).then_some(run.count), kernel);
        }),
        None => one(fixed.time_ns, None, &[]),
    }
}
