//! The signal handler: identify the signal → read clocks → walk the stack → write to the ring.
//!
//! It runs with every signal blocked (the capture crate installs it with this mask), calls nothing outside
//! this crate, and never touches `errno`.

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::cookie::{
    Cookie, FROM_EVENTS, FROM_PERF, FROM_PROCESS, FROM_TIMER, FROM_TIMER_BESIDE, FROM_TRACES, SIGPROF,
    SIGTRAP, generation,
};
use crate::cost;
use crate::engine;
use crate::engine_selection;
use crate::events;
use crate::interrupted::Regs;
use crate::layout::{
    SampleRecord, ThreadSlot, engines, event_kind, loss, sample_flags, session_flags, slot_state, stage,
};
use crate::pace;
use crate::perf_ring::{self, Reader, runs};
use crate::process_timer;
use crate::publish::{self, CapturedStack};
use crate::scratch::Scratch;
use crate::slots;
use crate::state::{self, ProcState};
use crate::trace;
use crate::weight;

/// Takes one sample if the recorder sent the signal. Returns false if it did not; the caller then passes the
/// signal to the previous handler.
///
/// Async-signal-safe, needs under 2 KiB of stack.
///
/// # Safety
/// Called with the arguments of a handler installed with `SA_SIGINFO`, every signal blocked.
#[inline(never)]
pub unsafe extern "C" fn on_signal(signal: i32, info: *const c_void, context: *const c_void) -> bool {
    // SAFETY: the caller guarantees that `info` is the kernel's siginfo_t.
    let Some(cookie) = (unsafe { read_cookie(signal, info) }) else { return false };
    let Some(state) = state::get() else { return true };
    let Some(slot) = state.slots.get(cookie.slot as usize) else { return true };
    if cookie.source == FROM_PROCESS {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        unsafe { on_process_timer(state, slot, cookie, context) };
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
    // SAFETY: the caller guarantees that `info` is the kernel's siginfo_t.
    let late = signal == SIGTRAP && unsafe { was_blocked(info) };
    // SAFETY: the caller guarantees that `context` is the kernel's.
    unsafe { dispatch(state, slot, cookie, late, context) };
    if signal == SIGTRAP && state.session.live.engines.load(Relaxed) & SEVERAL != 0 {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        unsafe { others(state, slot, cookie, late, context) };
    }
    true
}

/// Handles a recorder's signal in a thread without thread-local memory of the C library ([`crate::tls::is_here`]). Takes no sample.
/// The next sample of a registered thread includes this CPU time. With the process's timer it is counted as lost.
///
/// # Safety
/// `info` is the kernel's siginfo_t.
#[cold]
pub unsafe fn on_foreign_thread(signal: i32, info: *const c_void) {
    // SAFETY: the caller guarantees that `info` is the kernel's siginfo_t.
    let Some(cookie) = (unsafe { read_cookie(signal, info) }) else { return };
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
///
/// # Safety
/// `context` is the kernel's, as in [`on_signal`].
#[cold]
unsafe fn on_process_timer(
    state: &'static ProcState,
    armed_by: &ThreadSlot,
    cookie: Cookie,
    context: *const c_void,
) {
    if cookie.generation != state.salt {
        return;
    }
    if let Some(slot) = process_timer::interrupted(state, armed_by) {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        let regs = unsafe { Regs::interrupted(context) };
        let cookie = Cookie { slot: slots::index(state, slot), ..cookie };
        cost::measure(state, OF_CPU, || on_cpu(state, slot, cookie, false, &regs));
    }
}

/// Engines whose traps may coincide with other traps.
const SEVERAL: u32 = engines::EVENTS | engines::TRACE;

/// Index of the costs of CPU-time samples.
const OF_CPU: usize = 0;

/// Handles the signal of `cookie`.
///
/// # Safety
/// `context` is the kernel's, as in [`on_signal`].
#[inline]
unsafe fn dispatch(
    state: &'static ProcState,
    slot: &ThreadSlot,
    cookie: Cookie,
    late: bool,
    context: *const c_void,
) {
    if let Some(register) = cookie.source.checked_sub(FROM_TRACES) {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        let work = || unsafe { trace::on_breakpoint(state, slot, cookie.slot, register, late, context) };
        cost::measure(state, event_kind::TRACE as usize, work);
    } else if let Some(index) = cookie.source.checked_sub(FROM_EVENTS) {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        let work = || unsafe { events::on_event(state, slot, cookie.slot, index, context) };
        cost::measure(state, event_kind::PERF as usize, work);
    } else {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        let regs = unsafe { Regs::interrupted(context) };
        cost::measure(state, OF_CPU, || on_cpu(state, slot, cookie, late, &regs));
    }
}

/// Handles the other traps of this moment. The kernel queues one trap per thread, so if several events
/// overflow together, only the first sends its signal. The others are found by their rings, and breakpoints
/// by the program counter.
///
/// # Safety
/// `context` is the kernel's, as in [`on_signal`].
#[cold]
unsafe fn others(
    state: &'static ProcState,
    slot: &ThreadSlot,
    cookie: Cookie,
    late: bool,
    context: *const c_void,
) {
    let mut source = FROM_EVENTS;
    for handle in &slot.events.handles {
        if source != cookie.source && perf_ring::is_waiting(handle) {
            // SAFETY: the caller guarantees that `context` is the kernel's.
            unsafe { dispatch(state, slot, Cookie { source, ..cookie }, late, context) };
        }
        source = source.wrapping_add(1);
    }
    let source = FROM_PERF;
    if source != cookie.source && perf_ring::is_waiting(&slot.engine.handle) {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        unsafe { dispatch(state, slot, Cookie { source, ..cookie }, late, context) };
    }
    if cookie.source < FROM_TRACES && !late {
        // SAFETY: the caller guarantees that `context` is the kernel's.
        unsafe { trace::on_other_trap(state, slot, cookie.slot, context) };
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
            if cookie.source == FROM_PERF && engine_selection::goes_to_timer(state, slot) => {}
        stage::PERF_FIRST if !beside => engine::make_regular(state, slot),
        stage::TIMER if cookie.source == FROM_TIMER => engine_selection::look_again(state, slot),
        _ => {}
    }
    state.header.counters.taken.fetch_add(1, Relaxed);
    if begun != 0 {
        slot.ledger.handler_cycles.fetch_add(clock::cycles().wrapping_sub(begun), Relaxed);
    }
}

/// Returns the cookie that the recorder's event or timer sent with its signal.
///
/// # Safety
/// `info` is null or a `siginfo_t`.
#[inline]
unsafe fn read_cookie(signal: i32, info: *const c_void) -> Option<Cookie> {
    const TRAP_PERF: i32 = 6;
    const SI_TIMER: i32 = -2;
    if info.is_null() {
        return None;
    }
    // SAFETY: si_code is the third int of siginfo_t.
    let code = unsafe { info.cast::<i32>().add(2).read() };
    if (signal, code) != (SIGTRAP, TRAP_PERF) && (signal, code) != (SIGPROF, SI_TIMER) {
        return None;
    }
    // SAFETY: si_perf_data and a timer's si_value are the eight bytes at offset 24.
    Cookie::unpack(unsafe { info.cast::<u64>().add(3).read() })
}

/// Returns true if a trap's signal was blocked when its event fired.
///
/// # Safety
/// `info` is the `siginfo_t` of a trap by a perf event.
#[inline]
unsafe fn was_blocked(info: *const c_void) -> bool {
    const TRAP_PERF_FLAG_ASYNC: u32 = 1;
    // SAFETY: si_perf_flags are the four bytes at offset 36, after si_perf_data and si_perf_type.
    let flags = unsafe { info.cast::<u32>().add(9).read() };
    flags & TRAP_PERF_FLAG_ASYNC != 0
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
