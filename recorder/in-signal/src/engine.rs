//! Arms and disarms sampling of one thread; all of it may run in a handler.
//!
//! **perf without a descriptor.** The event is opened on the thread, its first pages are mapped, the descriptor is
//! closed at once: the mapping keeps the event alive, `munmap` destroys it. So the program holds no descriptor that
//! it could close or reuse.
//!
//! **Random phase.** The kernel starts every event with a full period. The first event therefore has a random period
//! in (0, P] and fires once; the handler of its signal opens the regular one and unmaps the first. A thread that
//! lives shorter than a period is so sampled with the right probability. Were the first event to repeat, a period of a few
//! µs would keep the thread in its handler for good.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

use crate::layout::{ThreadSlot, engine as kind, engines, loss, slot_state};
use crate::perf_event::{self, Event, Firing, Recorded};
use crate::state::{self, ProcState};
use crate::{clock, events, perf_ring, process_timer, sys, thread, trace};

/// Values of [`ThreadSlot::stage`].
///
/// | from | to | by |
/// |---|---|---|
/// | IDLE | ARMING | [`arm`], in any thread |
/// | ARMING | PERF_FIRST, TIMER, IDLE (refused) | the same call |
/// | PERF_FIRST | TIMER, IDLE (perf refused) | the same call |
/// | PERF_FIRST | PERF | the thread's handler, at the first signal |
/// | PERF | TIMER | the thread's handler, if perf refuses the second event or the thread often waits |
/// | TIMER | PERF | the thread's handler, if it no longer waits often |
/// | any | IDLE | [`disarm`], in any thread, at any time |
///
/// A handler changes the stage by compare-and-exchange only. A plain store could overwrite the IDLE of another thread that disarms
/// this one at the same time, and the thread would never be armed again.
pub mod stage {
    /// Not sampling.
    pub const IDLE: u32 = 0;
    /// perf event with the random first period.
    pub const PERF_FIRST: u32 = 1;
    /// perf event with the regular period.
    pub const PERF: u32 = 2;
    /// CPU timer only: the engine of all, perf refused, or the thread often waits.
    pub const TIMER: u32 = 3;
    /// Being armed: nobody else does it meanwhile.
    pub const ARMING: u32 = 4;
}

/// What made a signal ours: travels in `sig_data` of the event or `sigev_value` of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Source, one of the `FROM_` constants.
    pub source: u8,
    /// Low byte of the slot's generation.
    pub generation: u8,
    /// Index of the slot.
    pub slot: u32,
}

/// perf event.
pub const FROM_PERF: u8 = 1;
/// Timer, as the only engine.
pub const FROM_TIMER: u8 = 2;
/// Timer beside a perf event that cannot see kernel time.
pub const FROM_TIMER_BESIDE: u8 = 3;
/// Queued from outside: a command to the process, see [`crate::command`].
pub const FROM_CONTROL: u8 = 5;
/// Timer of the whole process; the slot is that of the thread which armed it.
pub const FROM_PROCESS: u8 = 6;
/// The first of [`crate::layout::MAX_EVENTS`] perf events beside CPU time; the others follow.
pub const FROM_EVENTS: u8 = 16;
/// The first of four breakpoints: functions traced, and where their calls return to.
pub const FROM_TRACES: u8 = 32;

const COOKIE_MAGIC: u64 = 0x00f1_7e5c << 40;

impl Cookie {
    /// As one word.
    #[inline]
    pub fn pack(self) -> u64 {
        COOKIE_MAGIC
            | u64::from(self.source) << 32
            | u64::from(self.generation) << 24
            | u64::from(self.slot & 0xff_ffff)
    }

    /// `None` if the word is not one of ours.
    #[inline]
    pub fn unpack(word: u64) -> Option<Cookie> {
        if word & !0xff_ffff_ffff != COOKIE_MAGIC {
            return None;
        }
        Some(Cookie {
            source: (word >> 32) as u8,
            generation: (word >> 24) as u8,
            slot: (word & 0xff_ffff) as u32,
        })
    }

    /// For signals of `source` to the thread of `slot`.
    pub(crate) fn of(state: &ProcState, slot: &ThreadSlot, source: u8) -> Cookie {
        let generation = generation(state, slot.state.load(Relaxed));
        Cookie { source, generation, slot: thread::index(state, slot) }
    }
}

/// What cookies of a slot in this state carry.
#[inline]
pub fn generation(state: &ProcState, word: u32) -> u8 {
    ((word / (slot_state::MASK + 1)) as u8).wrapping_add(state.salt)
}

/// `SIGTRAP`.
pub const SIGTRAP: i32 = 5;
/// `SIGPROF`.
pub const SIGPROF: i32 = 27;

/// The CPU clock's event on `tid`: where kernel time is allowed, its records hold the kernel's part of the stack.
fn open_cpu(
    tid: u32,
    period_ns: u64,
    firing: Firing,
    user_only: bool,
    several: bool,
    sig_data: u64,
) -> Result<u64, i32> {
    const CPU_CLOCK: u64 = 0;
    let event =
        Event { kind: perf_event::SOFTWARE, config: CPU_CLOCK, period: period_ns, ..Event::default() };
    // With several events the ring also tells of an overflow whose signal got lost.
    let ring = if user_only && !several { Recorded::Nothing } else { Recorded::KernelStack };
    perf_event::open(&Event { user_only, ..event }, tid, firing, ring, sig_data)
}

/// Whether other engines than CPU time send traps.
fn has_several(state: &ProcState) -> bool {
    state.session.engines.load(Relaxed) & (engines::EVENTS | engines::TRACE) != 0
}

/// `sigevent` of timer_create(2), 64 bytes.
#[repr(C)]
struct SigEvent {
    value: u64,
    signo: i32,
    notify: i32,
    tid: u32,
    pad: [u32; 11],
}

const _: () = assert!(size_of::<SigEvent>() == 64);

/// On the CPU clock of a thread, which gets the signal, or of the process. Returns the timer's id + 1.
pub(crate) fn open_timer(tid: Option<u32>, first_ns: u64, period_ns: u64, value: u64) -> Result<u64, i32> {
    const SIGEV_SIGNAL: i32 = 0;
    const SIGEV_THREAD_ID: i32 = 4;
    let (notify, clock) = match tid {
        Some(tid) => (SIGEV_THREAD_ID, clock::thread_clock(tid)),
        None => (SIGEV_SIGNAL, clock::PROCESS),
    };
    let event = SigEvent { value, signo: SIGPROF, notify, tid: tid.unwrap_or(0), pad: [0; 11] };
    let mut id: i32 = 0;
    let clock = clock as isize as usize;
    let args = [clock, (&raw const event) as usize, (&raw mut id) as usize, 0, 0, 0];
    // SAFETY: the kernel reads one sigevent and writes one int, both locals.
    sys::check(unsafe { sys::call(sys::nr::TIMER_CREATE, args) })?;
    let second = 1_000_000_000;
    let spec = [period_ns / second, period_ns % second, first_ns / second, first_ns % second];
    let args = [id as usize, 0, (&raw const spec) as usize, 0, 0, 0];
    // SAFETY: the kernel reads one itimerspec, a local.
    sys::check(unsafe { sys::call(sys::nr::TIMER_SETTIME, args) }).inspect_err(|_| delete_timer(id))?;
    Ok((id as u64).wrapping_add(1))
}

pub(crate) fn delete_timer(id: i32) {
    // SAFETY: no pointers; the timer is ours.
    unsafe { sys::call(sys::nr::TIMER_DELETE, [id as usize, 0, 0, 0, 0, 0]) };
}

/// Tries what this kernel allows the calling thread: the engine to use and the errno of the first refusal (0 if none).
/// `wished` is one of [`kind`]; AUTO takes perf with kernel time, else the timer where it keeps up with `period_ns`,
/// else perf for user time with a timer beside it.
pub fn probe(wished: u32, period_ns: u64, tick_hz: u32) -> (u32, i32) {
    let try_perf = |user_only| {
        let handle = open_cpu(0, 1_000_000_000_000, Firing::Once, user_only, false, 0)?;
        // SAFETY: mapped a moment ago.
        unsafe { perf_ring::unmap(handle) };
        Ok::<(), i32>(())
    };
    let try_timer =
        || open_timer(Some(sys::gettid()), 1 << 40, 0, 0).map(|id| delete_timer((id.wrapping_sub(1)) as i32));
    let or_none = |result: Result<(), i32>, engine| match result {
        Ok(()) => (engine, 0),
        Err(errno) => (kind::NONE, errno),
    };
    match wished {
        kind::PERF => or_none(try_perf(false), kind::PERF),
        kind::PERF_USER => or_none(try_perf(true), kind::PERF_USER),
        kind::TIMER => or_none(try_timer(), kind::TIMER),
        kind::ITIMER => or_none(process_timer::works(), kind::ITIMER),
        kind::NONE => (kind::NONE, 0),
        _ => {
            let Err(refused) = try_perf(false) else { return (kind::PERF, 0) };
            if period_ns >= timer_from_ns(tick_hz) && try_timer().is_ok() {
                (kind::TIMER, refused)
            } else if try_perf(true).is_ok() {
                (kind::PERF_USER, refused)
            } else {
                (or_none(try_timer(), kind::TIMER).0, refused)
            }
        }
    }
}

/// Shortest period that a CPU timer keeps up with: it is looked at once in a tick.
pub fn timer_from_ns(tick_hz: u32) -> u64 {
    2_000_000_000 / u64::from(tick_hz.max(1))
}

/// A number in (0, period], different for every thread and time.
pub(crate) fn random_first(state: &ProcState, tid: u32, period: u64) -> u64 {
    let mut x = state.session.seed ^ u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= clock::monotonic_ns().rotate_left(32) ^ clock::cycles();
    // splitmix64's finaliser.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    ((u128::from(x) * u128::from(period)) >> 64) as u64 + 1
}

/// Shortest useful interval of a CPU timer: they expire at scheduler ticks.
const BESIDE_MIN_NS: u64 = 4_000_000;

/// Starts sampling of a registered thread with the engine of the header. A thread that perf refuses (limit of locked
/// memory) gets a timer instead. `Err` carries the errno of the last refusal. CPU time since an earlier disarm is
/// counted as lost by [`loss::STOPPED`].
pub fn arm(slot: &ThreadSlot) -> Result<(), i32> {
    let Some(state) = state::get() else { return Err(0) };
    if state.session.stop.load(Relaxed) != 0 {
        return Ok(());
    }
    let wanted = state.session.engines.load(Relaxed);
    if wanted & engines::EVENTS != 0 {
        events::arm(state, slot);
    }
    if wanted & engines::TRACE != 0 {
        trace::arm(state, slot);
    }
    if wanted & engines::CPU == 0 {
        if state.session.paused.load(Relaxed) != 0 && slot.armed_cpu_ns.load(Relaxed) == 0 {
            // CPU time from here on counts as stopped, not as missed.
            start_ledger(state, slot, slot.tid.load(Relaxed), 0);
        }
        return Ok(());
    }
    if slot.stage.compare_exchange(stage::IDLE, stage::ARMING, SeqCst, Relaxed).is_err() {
        return Ok(());
    }
    let tid = slot.tid.load(Relaxed);
    let engine = state.header.engine.load(Relaxed);
    let period = state.session.period_ns.load(Relaxed).max(1);
    let first = random_first(state, tid, period);
    let _ = state.private.armed_period_ns.compare_exchange(0, period, Relaxed, Relaxed);
    start_ledger(state, slot, tid, first);
    if engine == kind::ITIMER {
        slot.stage.store(stage::TIMER, Relaxed);
        return process_timer::arm(state, slot, loss::STOPPED);
    }
    let mut result = Err(0);
    if engine == kind::PERF || engine == kind::PERF_USER {
        let user_only = engine == kind::PERF_USER;
        slot.stage.store(stage::PERF_FIRST, Relaxed);
        let cookie = Cookie::of(state, slot, FROM_PERF).pack();
        result = open_cpu(tid, first, Firing::Once, user_only, has_several(state), cookie)
            .map(|handle| keep_first(slot, handle));
        if result.is_ok() && user_only {
            let cookie = Cookie::of(state, slot, FROM_TIMER_BESIDE).pack();
            let every = period.max(BESIDE_MIN_NS);
            if let Ok(id) = open_timer(Some(tid), every, every, cookie) {
                slot.engine_handle2.store(id, Relaxed);
            }
        }
    }
    if result.is_err() && engine != kind::NONE {
        slot.stage.store(stage::TIMER, Relaxed);
        let cookie = Cookie::of(state, slot, FROM_TIMER).pack();
        result =
            open_timer(Some(tid), first, period, cookie).map(|id| slot.engine_handle2.store(id, Relaxed));
    }
    if result.is_err() {
        slot.stage.store(stage::IDLE, Relaxed);
    }
    result
}

fn start_ledger(state: &ProcState, slot: &ThreadSlot, tid: u32, first: u64) {
    let cpu = clock::cpu_ns_of(tid);
    slot.first_ns.store(first, Relaxed);
    if slot.armed_cpu_ns.load(Relaxed) == 0 {
        slot.armed_cpu_ns.store(cpu.max(1), Relaxed);
    } else if !process_timer::is_used(state) {
        let gap = cpu.saturating_sub(slot.last_cpu_ns.load(Relaxed));
        count_loss(slot, loss::STOPPED, gap);
    }
    slot.last_cpu_ns.store(cpu.max(1), Relaxed);
    slot.last_mono_ns.store(0, Relaxed);
}

/// Adds to a slot's loss counters. `last_cpu_ns` is the caller's.
#[inline]
pub fn count_loss(slot: &ThreadSlot, cause: usize, ns: u64) {
    if let (Some(sum), Some(count)) = (slot.lost_ns.get(cause), slot.lost.get(cause)) {
        sum.fetch_add(ns, Relaxed);
        count.fetch_add(1, Relaxed);
    }
}

/// Notes the handle of the first event, unless its signal came before and the regular event is already there.
fn keep_first(slot: &ThreadSlot, handle: u64) {
    let late = slot.stage.load(Relaxed) != stage::PERF_FIRST
        || slot.engine_handle.compare_exchange(0, handle, Relaxed, Relaxed).is_err();
    if late {
        // SAFETY: mapped by the caller; the exchange tells that nobody else got it.
        unsafe { perf_ring::unmap(handle) };
    }
}

/// From the first signal's handler: replaces the event of random period by the regular one, or by a timer if the
/// kernel refuses (descriptors or locked memory used up).
pub(crate) fn make_regular(state: &ProcState, slot: &ThreadSlot) {
    let old = slot.engine_handle.load(Relaxed);
    let user_only = state.header.engine.load(Relaxed) == kind::PERF_USER;
    let cookie = Cookie::of(state, slot, FROM_PERF).pack();
    let period = state.session.period_ns.load(Relaxed).max(1);
    // Another thread may have disarmed this one and set IDLE. Overwriting that would prevent it from being armed again.
    let step = |from, to| slot.stage.compare_exchange(from, to, SeqCst, Relaxed).is_ok();
    if !step(stage::PERF_FIRST, stage::PERF) {
        return;
    }
    let new =
        open_cpu(0, period, Firing::Repeatedly, user_only, has_several(state), cookie).unwrap_or_else(|_| {
            step(stage::PERF, stage::TIMER);
            0
        });
    let handle = &slot.engine_handle;
    let unused = match handle.compare_exchange(old, new, Relaxed, Relaxed) {
        Ok(_) => old,
        // The thread that arms us noted the first event just now.
        Err(first) if old == 0 && handle.compare_exchange(first, new, Relaxed, Relaxed).is_ok() => first,
        // Disarmed meanwhile: the new event goes.
        Err(_) => new,
    };
    let won = unused != new || new == 0;
    if unused != 0 {
        // SAFETY: pages this module mapped; the exchange decided that nobody else owns them.
        unsafe { perf_ring::unmap(unused) };
    }
    if won && new == 0 && slot.stage.load(Relaxed) == stage::TIMER {
        let cookie = Cookie::of(state, slot, FROM_TIMER).pack();
        let tid = slot.tid.load(Relaxed);
        if let Ok(id) = open_timer(Some(tid), period, period, cookie)
            && slot.engine_handle2.compare_exchange(0, id, Relaxed, Relaxed).is_err()
        {
            delete_timer(id.wrapping_sub(1) as i32);
        }
    }
}

/// In the handler of a thread with a perf event: goes on with a timer. `false`: there is none to be had.
pub(crate) fn to_timer(state: &ProcState, slot: &ThreadSlot) -> bool {
    let period = state.session.period_ns.load(Relaxed).max(1);
    let cookie = Cookie::of(state, slot, FROM_TIMER).pack();
    let Ok(id) = open_timer(Some(slot.tid.load(Relaxed)), period, period, cookie) else {
        // It will not be there for others either.
        state.private.timer_from_ns.store(0, Relaxed);
        return false;
    };
    let before = slot.stage.load(Relaxed);
    let sampled = matches!(before, stage::PERF | stage::PERF_FIRST);
    if !sampled || slot.stage.compare_exchange(before, stage::TIMER, SeqCst, Relaxed).is_err() {
        delete_timer(id.wrapping_sub(1) as i32);
        return true;
    }
    if slot.engine_handle2.compare_exchange(0, id, SeqCst, Relaxed).is_err() {
        delete_timer(id.wrapping_sub(1) as i32);
    }
    perf_ring::close(&slot.engine_handle);
    fence(SeqCst);
    if slot.stage.load(Relaxed) != stage::TIMER {
        // Disarmed meanwhile by somebody who may have looked before the timer was there.
        close_timer(slot);
    }
    true
}

/// In the handler of a thread with a timer that [`to_timer`] gave it: goes on with a perf event, if the kernel has one.
pub(crate) fn to_perf(state: &ProcState, slot: &ThreadSlot) {
    let period = state.session.period_ns.load(Relaxed).max(1);
    let cookie = Cookie::of(state, slot, FROM_PERF).pack();
    let Ok(new) = open_cpu(0, period, Firing::Repeatedly, false, has_several(state), cookie) else { return };
    let unused = slot.stage.compare_exchange(stage::TIMER, stage::PERF, SeqCst, Relaxed).is_err()
        || slot.engine_handle.compare_exchange(0, new, SeqCst, Relaxed).is_err();
    if unused {
        // SAFETY: mapped above and given to nobody.
        unsafe { perf_ring::unmap(new) };
        return;
    }
    close_timer(slot);
    fence(SeqCst);
    if slot.stage.load(Relaxed) != stage::PERF {
        // As above, for the event.
        perf_ring::close(&slot.engine_handle);
    }
}

fn close_timer(slot: &ThreadSlot) {
    let timer = slot.engine_handle2.swap(0, SeqCst);
    if timer != 0 {
        delete_timer(timer.wrapping_sub(1) as i32);
    }
}

/// In the handler of a thread that is sampled although nothing is to be recorded now: stops it, unless recording went on
/// meanwhile and whoever armed the others found this one armed still.
#[cold]
pub(crate) fn pause(state: &ProcState, slot: &ThreadSlot) {
    disarm(slot);
    fence(SeqCst);
    if state.session.engines.load(Relaxed) != 0 {
        let _ = arm(slot);
    }
}

/// Whether a timer sends signals to this thread, or may.
pub fn uses_timer(slot: &ThreadSlot) -> bool {
    slot.engine_handle2.load(Relaxed) != 0
        || state::get().is_some_and(|s| process_timer::is_used(s) && process_timer::is_armed(s))
}

/// Stops sampling of a thread. CPU time from here to the thread's end or to the next [`arm`] is counted by them.
pub fn disarm(slot: &ThreadSlot) {
    slot.stage.store(stage::IDLE, Relaxed);
    // The thread's own handler may be changing its engine: it sees this, or we what it has put there.
    fence(SeqCst);
    perf_ring::close(&slot.engine_handle);
    close_timer(slot);
    for handle in &slot.event_handles {
        perf_ring::close(handle);
    }
    trace::disarm(slot);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_round_trip_and_strangers_are_refused() {
        for source in [FROM_PERF, FROM_TIMER, FROM_TIMER_BESIDE, FROM_CONTROL, FROM_PROCESS] {
            let cookie = Cookie { source, generation: 0xab, slot: 0x12_3456 };
            assert_eq!(Cookie::unpack(cookie.pack()), Some(cookie));
        }
        for word in [0, 1, u64::MAX, 0x7fff_ffff_f000, COOKIE_MAGIC >> 1] {
            assert_eq!(Cookie::unpack(word), None);
        }
    }
}
