//! Arms and disarms sampling of one thread; all of it may run in a handler.
//!
//! **perf without a descriptor.** The event is opened on the thread, one page of it is mapped, the descriptor is
//! closed at once: the mapping keeps the event alive, `munmap` destroys it. So the program holds no descriptor that
//! it could close or reuse.
//!
//! **Random phase.** The kernel starts every event with a full period. The first event therefore has a random period
//! in (0, P] and fires once; the handler of its signal opens the regular one and unmaps the first. A thread that
//! lives shorter than a period is so sampled with the right probability. Were the first event to repeat, a period of a few
//! µs would keep the thread in its handler for good.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{ThreadSlot, engine as kind, loss, slot_state};
use crate::state::{self, ProcState};
use crate::{clock, sys, thread};

/// Values of [`ThreadSlot::stage`].
pub mod stage {
    /// Not sampling.
    pub const IDLE: u32 = 0;
    /// perf event with the random first period.
    pub const PERF_FIRST: u32 = 1;
    /// perf event with the regular period.
    pub const PERF: u32 = 2;
    /// CPU timer only.
    pub const TIMER: u32 = 3;
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

    fn of(state: &ProcState, slot: &ThreadSlot, source: u8) -> Cookie {
        let generation = slot.state.load(Relaxed) / (slot_state::MASK + 1);
        Cookie { source, generation: generation as u8, slot: thread::index(state, slot) }
    }
}

/// `SIGTRAP`.
pub const SIGTRAP: i32 = 5;
/// `SIGPROF`.
pub const SIGPROF: i32 = 27;

/// `perf_event_attr`, version 7 (128 bytes, linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    sig_data: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 128);

/// How an event fires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Firing {
    Once,
    Repeatedly,
}

/// Opens an event on `tid`, keeps it by a mapped page, closes its descriptor. Returns the page's address.
fn open_perf(tid: u32, period_ns: u64, firing: Firing, user_only: bool, sig_data: u64) -> Result<usize, i32> {
    const TYPE_SOFTWARE: u32 = 1;
    const CPU_CLOCK: u64 = 0;
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HV: u64 = 1 << 6;
    const REMOVE_ON_EXEC: u64 = 1 << 36;
    const SIGTRAP: u64 = 1 << 37;
    const FD_CLOEXEC: usize = 8;
    let attr = PerfEventAttr {
        kind: TYPE_SOFTWARE,
        size: size_of::<PerfEventAttr>() as u32,
        config: CPU_CLOCK,
        sample_period: period_ns,
        flags: REMOVE_ON_EXEC
            | SIGTRAP
            | if user_only { EXCLUDE_KERNEL | EXCLUDE_HV } else { 0 }
            | if firing == Firing::Once { DISABLED } else { 0 },
        sig_data,
        ..PerfEventAttr::default()
    };
    let any_cpu = usize::MAX;
    let no_group = usize::MAX;
    let args = [(&raw const attr) as usize, tid as usize, any_cpu, no_group, FD_CLOEXEC, 0];
    // SAFETY: the kernel reads `attr.size` bytes of a local.
    let fd = sys::check(unsafe { sys::call(sys::nr::PERF_EVENT_OPEN, args) })? as i32;
    let mut page = sys::map_event_page(fd);
    if let (Ok(address), Firing::Once) = (page, firing)
        && let Err(errno) = sys::enable_event_once(fd)
    {
        // SAFETY: mapped above and given to nobody.
        unsafe { sys::unmap_event_page(address) };
        page = Err(errno);
    }
    sys::close(fd);
    page
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

fn open_timer(tid: u32, first_ns: u64, period_ns: u64, value: u64) -> Result<u64, i32> {
    const SIGEV_THREAD_ID: i32 = 4;
    let event = SigEvent { value, signo: SIGPROF, notify: SIGEV_THREAD_ID, tid, pad: [0; 11] };
    let mut id: i32 = 0;
    let clock = clock::thread_clock(tid) as isize as usize;
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

fn delete_timer(id: i32) {
    // SAFETY: no pointers; the timer is ours.
    unsafe { sys::call(sys::nr::TIMER_DELETE, [id as usize, 0, 0, 0, 0, 0]) };
}

/// Tries what this kernel allows the calling thread: the engine to use and the errno of the first refusal (0 if none).
/// `wished` is one of [`kind`]; AUTO takes perf with kernel time, else the timer where it keeps up with `period_ns`,
/// else perf for user time with a timer beside it.
pub fn probe(wished: u32, period_ns: u64, tick_hz: u32) -> (u32, i32) {
    let try_perf = |user_only| {
        let page = open_perf(0, 1_000_000_000_000, Firing::Once, user_only, 0)?;
        // SAFETY: mapped a moment ago.
        unsafe { sys::unmap_event_page(page) };
        Ok::<(), i32>(())
    };
    let try_timer =
        || open_timer(sys::gettid(), 1 << 40, 0, 0).map(|id| delete_timer((id.wrapping_sub(1)) as i32));
    let or_none = |result: Result<(), i32>, engine| match result {
        Ok(()) => (engine, 0),
        Err(errno) => (kind::NONE, errno),
    };
    match wished {
        kind::PERF => or_none(try_perf(false), kind::PERF),
        kind::PERF_USER => or_none(try_perf(true), kind::PERF_USER),
        kind::TIMER => or_none(try_timer(), kind::TIMER),
        kind::NONE => (kind::NONE, 0),
        _ => {
            let Err(refused) = try_perf(false) else { return (kind::PERF, 0) };
            let keeps_up = period_ns >= 2_000_000_000 / u64::from(tick_hz.max(1));
            if keeps_up && try_timer().is_ok() {
                (kind::TIMER, refused)
            } else if try_perf(true).is_ok() {
                (kind::PERF_USER, refused)
            } else {
                (or_none(try_timer(), kind::TIMER).0, refused)
            }
        }
    }
}

/// A number in (0, period], different for every thread and time.
fn random_first(state: &ProcState, tid: u32) -> u64 {
    let mut x = state.session.seed ^ u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= clock::monotonic_ns().rotate_left(32) ^ clock::cycles();
    // splitmix64's finaliser.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    ((u128::from(x) * u128::from(state.session.period_ns)) >> 64) as u64 + 1
}

/// Shortest useful interval of a CPU timer: they expire at scheduler ticks.
const BESIDE_MIN_NS: u64 = 4_000_000;

/// Starts sampling of a registered thread with the engine of the header. A thread that perf refuses (limit of locked
/// memory) gets a timer instead. `Err` carries the errno of the last refusal. CPU time since an earlier disarm is
/// counted as lost by [`loss::STOPPED`].
pub fn arm(slot: &ThreadSlot) -> Result<(), i32> {
    let Some(state) = state::get() else { return Err(0) };
    if slot.stage.load(Relaxed) != stage::IDLE || state.session.stop.load(Relaxed) != 0 {
        return Ok(());
    }
    let tid = slot.tid.load(Relaxed);
    let engine = state.header.engine.load(Relaxed);
    let period = state.session.period_ns.max(1);
    let first = random_first(state, tid);
    start_ledger(slot, tid, first);
    let mut result = Err(0);
    if engine == kind::PERF || engine == kind::PERF_USER {
        let user_only = engine == kind::PERF_USER;
        slot.stage.store(stage::PERF_FIRST, Relaxed);
        let cookie = Cookie::of(state, slot, FROM_PERF).pack();
        result = open_perf(tid, first, Firing::Once, user_only, cookie).map(|page| keep_first(slot, page));
        if result.is_ok() && user_only {
            let cookie = Cookie::of(state, slot, FROM_TIMER_BESIDE).pack();
            let every = period.max(BESIDE_MIN_NS);
            if let Ok(id) = open_timer(tid, every, every, cookie) {
                slot.engine_handle2.store(id, Relaxed);
            }
        }
    }
    if result.is_err() && engine != kind::NONE {
        slot.stage.store(stage::TIMER, Relaxed);
        let cookie = Cookie::of(state, slot, FROM_TIMER).pack();
        result = open_timer(tid, first, period, cookie).map(|id| slot.engine_handle2.store(id, Relaxed));
    }
    if result.is_err() {
        slot.stage.store(stage::IDLE, Relaxed);
    }
    result
}

fn start_ledger(slot: &ThreadSlot, tid: u32, first: u64) {
    let cpu = clock::cpu_ns_of(tid);
    slot.first_ns.store(first, Relaxed);
    if slot.armed_cpu_ns.load(Relaxed) == 0 {
        slot.armed_cpu_ns.store(cpu.max(1), Relaxed);
    } else {
        let gap = cpu.saturating_sub(slot.last_cpu_ns.load(Relaxed));
        count_loss(slot, loss::STOPPED, gap);
    }
    slot.last_cpu_ns.store(cpu.max(1), Relaxed);
}

/// Adds to a slot's loss counters. `last_cpu_ns` is the caller's.
#[inline]
pub fn count_loss(slot: &ThreadSlot, cause: usize, ns: u64) {
    if let (Some(sum), Some(count)) = (slot.lost_ns.get(cause), slot.lost.get(cause)) {
        sum.fetch_add(ns, Relaxed);
        count.fetch_add(1, Relaxed);
    }
}

/// Notes the page of the first event, unless its signal came before and the regular event is already there.
fn keep_first(slot: &ThreadSlot, page: usize) {
    let late = slot.stage.load(Relaxed) != stage::PERF_FIRST
        || slot.engine_handle.compare_exchange(0, page as u64, Relaxed, Relaxed).is_err();
    if late {
        // SAFETY: mapped by the caller; the exchange tells that nobody else got it.
        unsafe { sys::unmap_event_page(page) };
    }
}

/// From the first signal's handler: replaces the event of random period by the regular one, or by a timer if the
/// kernel refuses (descriptors or locked memory used up).
pub(crate) fn make_regular(state: &ProcState, slot: &ThreadSlot) {
    let old = slot.engine_handle.load(Relaxed);
    let user_only = state.header.engine.load(Relaxed) == kind::PERF_USER;
    let cookie = Cookie::of(state, slot, FROM_PERF).pack();
    let period = state.session.period_ns.max(1);
    slot.stage.store(stage::PERF, Relaxed);
    let page = open_perf(0, period, Firing::Repeatedly, user_only, cookie).unwrap_or_else(|_| {
        slot.stage.store(stage::TIMER, Relaxed);
        0
    });
    let handle = &slot.engine_handle;
    let unused = match handle.compare_exchange(old, page as u64, Relaxed, Relaxed) {
        Ok(_) => old as usize,
        // The thread that arms us noted the first page just now.
        Err(first) if old == 0 && handle.compare_exchange(first, page as u64, Relaxed, Relaxed).is_ok() => {
            first as usize
        }
        // Disarmed meanwhile: the new event goes.
        Err(_) => page,
    };
    let won = unused != page || page == 0;
    if unused != 0 {
        // SAFETY: a page this module mapped; the exchange decided that nobody else owns it.
        unsafe { sys::unmap_event_page(unused) };
    }
    if won && page == 0 && slot.stage.load(Relaxed) == stage::TIMER {
        let cookie = Cookie::of(state, slot, FROM_TIMER).pack();
        let tid = slot.tid.load(Relaxed);
        if let Ok(id) = open_timer(tid, period, period, cookie)
            && slot.engine_handle2.compare_exchange(0, id, Relaxed, Relaxed).is_err()
        {
            delete_timer(id.wrapping_sub(1) as i32);
        }
    }
}

/// Stops sampling of a thread. CPU time from here to the thread's end or to the next [`arm`] is counted by them.
pub fn disarm(slot: &ThreadSlot) {
    slot.stage.store(stage::IDLE, Relaxed);
    let page = slot.engine_handle.swap(0, Relaxed);
    if page != 0 {
        // SAFETY: the handle is a page this module mapped; the swap makes us its only owner.
        unsafe { sys::unmap_event_page(page as usize) };
    }
    let timer = slot.engine_handle2.swap(0, Relaxed);
    if timer != 0 {
        delete_timer(timer.wrapping_sub(1) as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_round_trip_and_strangers_are_refused() {
        for source in [FROM_PERF, FROM_TIMER, FROM_TIMER_BESIDE] {
            let cookie = Cookie { source, generation: 0xab, slot: 0x12_3456 };
            assert_eq!(Cookie::unpack(cookie.pack()), Some(cookie));
        }
        for word in [0, 1, u64::MAX, 0x7fff_ffff_f000, COOKIE_MAGIC >> 1] {
            assert_eq!(Cookie::unpack(word), None);
        }
    }
}
