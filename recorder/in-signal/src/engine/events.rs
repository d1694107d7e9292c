//! The handler's part in engines other than CPU time: perf events by name, and requests of the wall clock.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{
    EventSpec, EventState, MAX_EVENTS, SampleRecord, SharedCell, ThreadSlot, engines, event_flags, event_kind,
};
use crate::os::clock;
use crate::perf::perf_event::{self, Firing, Recorded};
use crate::perf::perf_ring::{self, Reader, runs};
use crate::publish::{self, CapturedStack, Event};
use crate::state::cookie::{Cookie, FROM_EVENTS};
use crate::state::scratch::Scratch;
use crate::state::{ProcState, slots};
use crate::unwind::interrupted::{Regs, SignalFrame};

/// Records an event with the stack of the interrupted thread.
pub fn record(state: &ProcState, slot: &ThreadSlot, slot_index: u32, regs: &Regs, event: &Event<'_>) {
    let Some(mut lease) = state.private.scratch.take_for(slot_index) else {
        publish::lose(state, event);
        return;
    };
    let mut fixed = SampleRecord {
        time_ns: clock::monotonic_ns(),
        tid: slot.tid.load(Relaxed),
        slot: slot_index,
        ..SampleRecord::default()
    };
    let taken = publish::walk(state, publish::bounds(slot), regs, &mut fixed, lease.scratch());
    let _ = publish::event(state, &fixed, event, &[], &taken);
}

/// Opens those of the session's perf events on a thread that the kernel allows.
pub fn arm(state: &ProcState, slot: &ThreadSlot) {
    let count = (state.session.live.event_count.load(Acquire) as usize).min(MAX_EVENTS);
    let mask = state.session.live.event_mask.load(Relaxed);
    let each = slot.events.handles.iter().zip(&slot.events.states).zip(&state.header.engine.event_errno);
    for (index, ((handle, own), errno)) in each.enumerate().take(count) {
        if mask >> index & 1 == 0 || handle.load(Relaxed) != 0 || is_final(errno.load(Relaxed)) {
            continue;
        }
        let Some(spec) = state.session.events.get(index) else { break };
        let period = period(spec);
        own.shift.store(0, Relaxed);
        own.in_window.store(0, Relaxed);
        own.first.store(u32::from(period > 1), Relaxed);
        forget_counter(own);
        let tid = slot.tid.load(Relaxed);
        // As with CPU time, the first sample comes after a random part of the period.
        let (first, firing) = match period {
            1 => (1, Firing::Repeatedly),
            _ => (slots::random_first(state, tid, period), Firing::Once),
        };
        match open(state, slot, tid, index, first, firing) {
            Ok(new) => {
                // The first signal may have come before this, and its handler has then opened the regular
                // event.
                if handle.compare_exchange(0, new, Relaxed, Relaxed).is_err() {
                    // SAFETY: mapped above, and not shared with any other code.
                    unsafe { perf_ring::unmap(new) };
                }
            }
            Err(refused) => errno.store(refused, Relaxed),
        }
    }
}

/// Closes the perf events of a thread that are no longer recorded.
pub fn disarm_others(state: &ProcState, slot: &ThreadSlot) {
    let enabled = state.session.live.engines.load(Relaxed);
    let mask = if enabled & engines::EVENTS != 0 { state.session.live.event_mask.load(Relaxed) } else { 0 };
    for (index, handle) in slot.events.handles.iter().enumerate() {
        if mask >> index & 1 == 0 {
            perf_ring::close(handle);
        }
    }
}

/// Returns true if the kernel will return this errno for every thread.
fn is_final(errno: i32) -> bool {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENODEV: i32 = 19;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    matches!(errno, EPERM | ENOENT | EACCES | ENODEV | EINVAL | ENOSYS | EOPNOTSUPP)
}

fn forget_counter(own: &EventState) {
    for word in &own.counter {
        word.store(0, Relaxed);
    }
}

fn open(
    state: &ProcState,
    slot: &ThreadSlot,
    tid: u32,
    index: usize,
    period: u64,
    firing: Firing,
) -> Result<u64, i32> {
    let Some(spec) = state.session.events.get(index) else { return Err(0) };
    let cookie = Cookie::new(state, slot, FROM_EVENTS.wrapping_add(index as u8)).pack();
    perf_event::open(&to_perf_event(spec, period), tid, firing, Recorded::Counter, cookie)
}

/// Tests if the kernel lets the calling thread count `spec`. The test event is closed again.
///
/// # Errors
/// The errno of the refusal.
pub fn probe(spec: &EventSpec) -> Result<(), i32> {
    const NEVER: u64 = 1 << 60;
    let spec = SharedCell::new(*spec);
    let handle = perf_event::open(&to_perf_event(&spec, NEVER), 0, Firing::Once, Recorded::Nothing, 0)?;
    // SAFETY: mapped above, and not shared with any other code.
    unsafe { perf_ring::unmap(handle) };
    Ok(())
}

/// Returns the number of events from one sample to the next, never 0.
fn period(spec: &SharedCell<EventSpec>) -> u64 {
    spec.word::<{ offset_of!(EventSpec, period) }>().load(Relaxed).max(1)
}

/// Returns the event in the terms of the kernel, which reads the path of `spec` when it opens the event. Reads word by
/// word: a copy of the path would need too much of the handler's stack.
fn to_perf_event(spec: &SharedCell<EventSpec>, period: u64) -> perf_event::Event {
    const { assert!(offset_of!(EventSpec, kind) == 0 && offset_of!(EventSpec, flags) == 4) };
    let kind_and_flags = spec.word::<0>().load(Relaxed);
    let (kind, flags) = (kind_and_flags as u32, (kind_and_flags >> 32) as u32);
    let path = spec.word::<{ offset_of!(EventSpec, path) }>().as_ptr() as u64;
    let config1 = spec.word::<{ offset_of!(EventSpec, config1) }>().load(Relaxed);
    perf_event::Event {
        kind,
        config: spec.word::<{ offset_of!(EventSpec, config) }>().load(Relaxed),
        config1: if flags & event_flags::PATH != 0 { path } else { config1 },
        config2: spec.word::<{ offset_of!(EventSpec, config2) }>().load(Relaxed),
        bp_type: 0,
        period,
        user_only: flags & event_flags::USER_ONLY != 0,
    }
}

/// Maximum number of signals of one event in one thread within [`WINDOW_NS`]. More signals would leave the
/// program no time, and an event that the handler itself causes would never end.
const WINDOW_SIGNALS: u32 = 500;
/// See [`WINDOW_SIGNALS`].
const WINDOW_NS: u64 = 50_000_000;
/// Power of two by which a rate that is too high is divided.
const SLOW_DOWN: u32 = 3;

/// Handles an overflow of one of the session's perf events in this thread. The weight of the sample is the
/// increase of the counter, which is exact for any number of overflows and any period.
pub fn on_event(state: &ProcState, slot: &ThreadSlot, slot_index: u32, index: u8, frame: SignalFrame<'_>) {
    let at = usize::from(index);
    let (Some(spec), Some(handle), Some(own)) =
        (state.session.events.get(at), slot.events.handles.get(at), slot.events.states.get(at))
    else {
        return;
    };
    let regs = frame.registers();
    let reader = Reader::take(handle, true);
    let first = own.first.load(Relaxed) != 0;
    let period = period(spec) << own.shift.load(Relaxed).min(MAX_SHIFT);
    let event = Event { kind: event_kind::PERF, index: u16::from(index), value: period, extra: &[] };
    let now = clock::monotonic_ns();
    match state.private.scratch.take_for(slot_index) {
        None => publish::lose(state, &event),
        Some(mut lease) => {
            let tid = slot.tid.load(Relaxed);
            let mut fixed = SampleRecord { time_ns: now, tid, slot: slot_index, ..SampleRecord::default() };
            let scratch = lease.scratch();
            publish::walk(state, publish::bounds(slot), &regs, &mut fixed, scratch);
            let Scratch { frames, kernel, context, context_words, .. } = scratch;
            let taken = CapturedStack::new(frames, fixed.depth, context, *context_words);
            let one = |time_ns: u64, value: u64, kernel: &[u64]| {
                if value > 0 {
                    let fixed = SampleRecord { time_ns: time_ns.min(now), ..fixed };
                    let _ = publish::event(state, &fixed, &Event { value, ..event }, kernel, &taken);
                }
            };
            match reader {
                // The handler of another trap has read it already.
                Some(reader) if reader.waiting() == 0 => return,
                // The first sample has the weight of a whole period, because it came after a random part of
                // one.
                Some(reader) if first => runs(reader, kernel, |run, last, kernel| {
                    one(run.time_ns, if last { period } else { 0 }, kernel);
                }),
                Some(reader) => runs(reader, kernel, |run, _, kernel| {
                    let value = if run.count > 0 { counted(own, &run.counter) } else { 0 };
                    one(run.time_ns, value, kernel);
                }),
                None => {
                    own.counter.first().map(|count| count.fetch_add(if first { 0 } else { period }, Relaxed));
                    one(now, period, &[]);
                }
            }
        }
    }
    if first {
        replace(state, slot, at, own, handle);
    } else {
        limit_rate(state, slot, at, own, handle, now);
    }
}

const MAX_SHIFT: u32 = 40;

/// Returns the increase of the counter since the last call, scaled to what it would be if the counter had run
/// all the time.
fn counted(own: &EventState, now: &[u64; 3]) -> u64 {
    let mut gone = [0u64; 3];
    for ((gone, word), now) in gone.iter_mut().zip(&own.counter).zip(now) {
        *gone = now.saturating_sub(word.swap(*now, Relaxed));
    }
    let [events, enabled, running] = gone;
    if running == 0 || running >= enabled {
        return events;
    }
    // The counter shared its hardware with other counters.
    (events as f64 * (enabled as f64 / running as f64)) as u64
}

/// Replaces the present event by a new one with the regular period.
fn replace(state: &ProcState, slot: &ThreadSlot, index: usize, own: &EventState, handle: &AtomicU64) {
    let Some(spec) = state.session.events.get(index) else { return };
    let period = period(spec) << own.shift.load(Relaxed).min(MAX_SHIFT);
    own.first.store(0, Relaxed);
    let old = handle.load(Relaxed);
    let Ok(new) = open(state, slot, 0, index, period, Firing::Repeatedly) else { return };
    forget_counter(own);
    // Another thread disarmed this one, or the thread that arms it stored the handle only now: see `arm`.
    let unused = if handle.compare_exchange(old, new, Relaxed, Relaxed).is_ok() { old } else { new };
    if unused != 0 {
        // SAFETY: pages that this module mapped; the exchange decided that no other code owns them.
        unsafe { perf_ring::unmap(unused) };
    }
}

fn limit_rate(
    state: &ProcState,
    slot: &ThreadSlot,
    index: usize,
    own: &EventState,
    handle: &AtomicU64,
    now: u64,
) {
    let signals = own.in_window.load(Relaxed).wrapping_add(1);
    if signals == 1 {
        own.window_ns.store(now, Relaxed);
    }
    if signals < WINDOW_SIGNALS {
        own.in_window.store(signals, Relaxed);
        return;
    }
    own.in_window.store(0, Relaxed);
    let shift = own.shift.load(Relaxed);
    if now.saturating_sub(own.window_ns.load(Relaxed)) < WINDOW_NS && shift < MAX_SHIFT {
        own.shift.store(shift.saturating_add(SLOW_DOWN), Relaxed);
        replace(state, slot, index, own, handle);
    }
}
